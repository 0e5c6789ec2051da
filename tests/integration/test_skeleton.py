"""The prepared root of the host image: it is a cache, so a box must look the same with and without it, and nothing may come through it."""
import shutil
import subprocess
import time

import pytest

import boxlib

LIST = "cd /; find . -xdev -path ./proc -prune -o -path ./usr -prune -o -printf '%p %y %m %U %l\\n' | sort; cat /etc/passwd /etc/hosts /etc/nsswitch.conf"


def env_with(store):
    env = boxlib.base_env()
    if store is None:
        for name in ("HOME", "XDG_DATA_HOME", "CLOCHE_HOME"):
            env.pop(name, None)
        env["CLOCHE_HOME"] = "/proc/nowhere"
    else:
        env["CLOCHE_HOME"] = str(store)
    return env


def run(store, *args):
    return subprocess.run([boxlib.CLOCHE, "run", "-q", *map(str, args)], env=env_with(store), stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=boxlib.HANG)


def kept(store):
    return sorted(p for p in (store / "store").glob("host-*"))


@pytest.fixture
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_made_once_and_used_again(store):
    assert run(store, "true").returncode == 0
    first = kept(store)
    assert len(first) == 1 and not list((store / "store").glob("draft-*"))
    stamp = first[0].stat().st_mtime_ns
    assert run(store, "true").returncode == 0
    assert kept(store) == first and first[0].stat().st_mtime_ns == stamp


def test_a_box_looks_the_same_with_and_without(store):
    run(store, "true")
    with_it, without = run(store, "sh", "-c", LIST), run(None, "sh", "-c", LIST)
    assert with_it.returncode == without.returncode == 0, (with_it, without)
    # The two differ in what an overlay must: whose a directory of the host shown read-only is, and that copies belong to the box.
    def shape(r):
        rows = [line.split(" ") for line in r.stdout.decode().splitlines()]
        return [row[:3] + row[4:] for row in rows if not row[0].startswith(("./etc/alternatives/", "./etc/fonts/", "./etc/java"))]
    assert shape(with_it) == shape(without)


def test_alternatives_are_there_either_way(store):
    run(store, "true")
    for where in (store, None):
        r = run(where, "sh", "-c", "ls /etc/alternatives | sort; readlink -f /usr/bin/awk")
        assert r.returncode == 0 and b"awk" in r.stdout, r


def test_what_a_box_writes_is_gone(store):
    run(store, "true")
    tree = kept(store)[0]
    def snapshot():
        return sorted((str(p), p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_size) for p in tree.rglob("*"))
    before = snapshot()
    r = run(store, "sh", "-c", "echo x >>/etc/passwd; rm /etc/hosts; mkdir /etc/new; rm -rf /opt /var; echo >/etc/ld.so.cache; chmod 700 /etc; "
            "ln -sf /nowhere /etc/localtime; test -d /etc/new")
    assert r.returncode == 0, r
    assert snapshot() == before
    assert run(store, "sh", "-c", "test -e /etc/hosts && test -d /var/tmp && ! test -e /etc/new && ! grep -q ^x /etc/passwd").returncode == 0


def test_a_directory_of_its_own_for_each_user(store):
    for user in ("1000", "0", "4242"):
        r = run(store, "--user", user, "sh", "-c", "id -u; touch /etc/mine ~/mine")
        assert r.returncode == 0 and r.stdout.decode().strip() == user, r
    assert len(kept(store)) == 2, "root and user share one: their accounts are the same"


def test_a_store_that_others_may_write_is_not_used(store):
    run(store, "true")
    tree = kept(store)[0]
    tree.chmod(0o755)
    (tree / "planted").write_text("x")
    assert run(store, "test", "-e", "/planted").returncode == 0, "no control: the directory is what the box sees"
    (store / "store").chmod(0o777)
    r = run(store, "test", "-e", "/planted")
    assert r.returncode == 1, r


def test_no_store_at_all(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for where in (None, file / "below"):
        r = run(where, "sh", "-c", "touch /x /etc/x && echo fine")
        assert (r.returncode, r.stdout) == (0, b"fine\n"), r


def test_many_first_starts_at_once(store):
    ps = [subprocess.Popen([boxlib.CLOCHE, "run", "-q", "sh", "-c", "cat /etc/passwd | wc -l"], env=env_with(store), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(12)]
    for p in ps:
        out, err = p.communicate(timeout=boxlib.HANG)
        assert (p.returncode, out.strip()) == (0, b"3"), err
    assert len(kept(store)) == 1 and not list((store / "store").glob("draft-*"))


def test_gc_spares_what_a_box_stands_on(store):
    p = subprocess.Popen([boxlib.CLOCHE, "run", "-q", "sh", "-c", "echo up; cat; ls /etc/passwd"], env=env_with(store), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE)
    p.communicate(timeout=boxlib.HANG)
    q = subprocess.Popen([boxlib.CLOCHE, "run", "-q", "-i", "sh", "-c", "echo up; read x; cat /etc/passwd >/dev/null && echo still"],
                         env=env_with(store), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert q.stdout.readline() == b"up\n"
    subprocess.run([boxlib.CLOCHE, "gc"], env=env_with(store), check=True, capture_output=True, timeout=boxlib.HANG)
    assert len(kept(store)) == 1
    out, _ = q.communicate(b"go\n", timeout=boxlib.HANG)
    assert out == b"still\n" and q.returncode == 0
    for _ in range(100):
        subprocess.run([boxlib.CLOCHE, "gc"], env=env_with(store), check=True, capture_output=True, timeout=boxlib.HANG)
        if not kept(store):
            break
        time.sleep(0.05)
    assert kept(store) == []


def test_no_more_than_a_few_are_kept(store):
    for uid in range(5000, 5020):
        assert run(store, "--user", uid, "true").returncode == 0
    assert 1 <= len(kept(store)) <= 16


def test_changed_settings_are_seen(store, tmp_path):
    """The name is made of what was copied: here the version of the box's user; the host's own files are not ours to change."""
    assert run(store, "--user", "1001", "cat", "/etc/passwd").stdout.count(b":1001:") == 1
    assert run(store, "--user", "1002", "cat", "/etc/passwd").stdout.count(b":1002:") == 1


def test_killed_while_making_it(store):
    """A draft that a dead cloche left is no skeleton, and no hindrance."""
    (store / "store").mkdir(mode=0o700)
    (store / "store" / "draft-1-1234567890").mkdir()
    (store / "store" / "draft-1-1234567890" / "etc").mkdir()
    assert run(store, "true").returncode == 0
    assert len(kept(store)) == 1
    subprocess.run([boxlib.CLOCHE, "gc"], env=env_with(store), check=True, capture_output=True, timeout=boxlib.HANG)
    assert not list((store / "store").glob("draft-*"))


def test_only_what_it_made_is_swept(store):
    """The caller may name a directory that holds other things; they stay, however they are called."""
    others = [store / "store" / name for name in ("host-notes", "host-0123456789abcdef0", "draft-thesis", "draft-1", "draft-2024-1")]
    for path in others:
        path.mkdir(parents=True)
    (store / "store").chmod(0o700)
    assert run(store, "true").returncode == 0
    subprocess.run([boxlib.CLOCHE, "gc"], env=env_with(store), check=True, capture_output=True, timeout=boxlib.HANG)
    assert all(path.is_dir() for path in others) and not (set(kept(store)) - set(others))


def test_a_store_that_is_a_link_is_none(store, tmp_path):
    (store / "store").symlink_to(tmp_path)
    made = tmp_path / "host-0123456789abcdef"
    made.mkdir()
    assert run(store, "true").returncode == 0
    subprocess.run([boxlib.CLOCHE, "gc"], env=env_with(store), capture_output=True, timeout=boxlib.HANG)
    assert sorted(tmp_path.iterdir()) == [made]
