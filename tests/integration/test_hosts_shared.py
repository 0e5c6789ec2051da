"""What a caller brings along to a host: names and file systems of what is shared, streams that are closed, another user beside."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import threading

import boxlib
import hosts
import pytest
from hosts import Host

OTHER = hosts.USER + 1
NAMES = ["a b", " a ", "a,b", "a:b", "new\nline", "tab\there", "quo'te\"", "back\\slash", "-n", "--", "$HOME", "*", "%s%n", "\u30c8\u30de\u30c8",
         b"\xff\xfe", b"half \xe2\x82", "x" * 255, "lowerdir=a", "a=b"]


def shown(name):
    return re.sub(r"[^a-z]+", "-", os.fsdecode(name).lower())[:20] or "odd"


@pytest.fixture
def named(ws):
    """Makes a directory of that name, whose file holds `deep`."""
    def make(name):
        path = os.path.join(os.fsencode(ws), os.fsencode(name))
        os.mkdir(path)
        with open(os.path.join(path, b"file"), "w", encoding="utf-8") as f:
            f.write("deep")
        return path
    return make


@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_names_of_directories(box, named, name):
    """A path is bytes: as a workspace, and read-only through an overlay, whose options have signs of their own."""
    path = named(name)
    r = box("--workspace", path, "--", "sh", "-c", "cat file; echo new >made")
    assert (r.rc, r.o.out, r.o.err) == (0, "deep", ""), r
    with open(os.path.join(path, b"made"), encoding="utf-8") as f:
        assert f.read() == "new\n"
    if b":" in path:
        return  # the sign between the two halves of -v
    r = box("-v", path + b":/in:ro", "--", "sh", "-c", "cat /in/file; touch /in/no 2>/dev/null || echo ' ro'")
    assert (r.rc, r.o.out) == (0, "deep ro\n"), r


def test_a_colon_in_v_is_refused_by_name(box, named):
    path = named("a:b")
    r = box("-v", path + b":/in:ro", "--", "true", json=False)
    assert r.rc in (2, 125) and r.raw_err.count(b"\n") == 1, r


CLOSED = {"0": "<&-", "1": ">&-", "2": "2>&-", "0 and 1": "<&- >&-", "all": "<&- >&- 2>&-"}


@pytest.mark.parametrize("which", CLOSED)
@pytest.mark.parametrize("how", [[], ["-i"], ["--json"]], ids=["plain", "with -i", "with --json"])
def test_streams_that_are_closed(ws, which, how):
    """Nothing of cloche's lands on their numbers: what the box prints is found nowhere else, and the box runs as ever."""
    script = f'exec "$@" {CLOSED[which]}'
    r = boxlib.communicate(["sh", "-c", script, "sh", boxlib.CLOCHE, "run", "-q", *how, "--workspace", str(ws), "--", "sh", "-c",
                            "cat >got; echo out; echo err >&2; echo made >made"])
    assert r.rc == 0, r
    assert (ws / "got").read_text() == "" and sorted(os.listdir(ws)) == ["got", "made"]
    if "--json" not in how:
        assert r.out == (b"" if which in ("1", "0 and 1", "all") else b"out\n"), r
        assert r.err == (b"" if which in ("2", "all") else b"err\n"), r


def test_output_into_a_file_that_may_not_grow(tmp_path):
    """RLIMIT_FSIZE ends neither cloche nor the box unseen: it is an error of the output, and the command goes on to its own end."""
    with open(tmp_path / "out", "wb") as f:
        r = subprocess.run(["prlimit", "--fsize=4096", boxlib.CLOCHE, "run", "-q", "--", "sh", "-c", "head -c 100000 /dev/zero"],
                           stdout=f, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=boxlib.base_env(), timeout=boxlib.HANG)
    assert r.returncode in (125, 141) and b"can't deliver the command's input or output: File too large" in r.stderr, r
    assert (tmp_path / "out").stat().st_size == 4096


# Workspaces on other file systems: script of root's, then what each caller gets. docs/HOSTS.md has them.
FILE_SYSTEMS = {
    "tmpfs": "mount -t tmpfs -o mode=1777 tmpfs $T/ws",
    "overlayfs": "mount -t tmpfs -o mode=1777 tmpfs /mnt; mkdir -m 777 /mnt/l /mnt/u /mnt/w; "
                 "mount -t overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w o $T/ws; chmod 777 $T/ws",
    "a bind of another file system": "mount -t tmpfs -o mode=1777 tmpfs /mnt; mkdir -m 777 /mnt/d; mount --bind /mnt/d $T/ws",
    "a read-only file system": "mount -t tmpfs -o ro tmpfs $T/ws",
    "a full file system": "mount -t tmpfs -o size=4k,mode=1777 tmpfs $T/ws; head -c 4096 /dev/zero >$T/ws/fill || :",
}


def file_system_rows():
    text = (boxlib.ROOT / "docs" / "HOSTS.md").read_text(encoding="utf-8")
    found = {}
    for line in text[text.index("## Workspaces"):].splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[1] != "as an ordinary user":
            found[cells[0]] = {"user": cells[1], "root": cells[2]}
    return found


def test_the_table_of_file_systems():
    assert set(FILE_SYSTEMS) <= set(file_system_rows())


@pytest.mark.root
@pytest.mark.parametrize("kind", FILE_SYSTEMS)
@pytest.mark.parametrize("caller", ["user", "root"])
def test_workspace_on(kind, caller):
    place = hosts.Place(caller)
    try:
        os.mkdir(place.path("ws"))
        place.give(place.path("ws"))
        # What stands there afterwards is read by the chain itself: the mount goes with its namespace.
        after = ("sh", "-c", '"$@"; rc=$?; stat -c "after %u" $T/ws/made 2>/dev/null; exit $rc', "sh")
        host = Host(root=FILE_SYSTEMS[kind], wrap=after)
        r = hosts.call(host, place, "run", "-q", "--workspace", place.path("ws"), "--", "python3", "-c",
                       "f = open('made', 'wb', buffering=0); f.write(bytes(8192)); print('x')")
        says = file_system_rows()[kind][caller]
        if says.startswith("runs"):
            owner = {"user": str(hosts.USER), "root": "0"}[caller]
            assert r.rc == 0 and r.out.decode().split() == ["x", "after", owner], r
        elif says.startswith("refused"):
            text = r.raw_err.decode()
            assert r.rc == 125 and text.count("\n") == 1 and "x" not in r.out.decode().split(), r
            assert all(w in text for w in re.findall(r"`([^`]+)`", says)), (says, r)
        else:
            assert r.rc == 1 and all(w in r.raw_err.decode() for w in re.findall(r"`([^`]+)`", says)) and b"x\n" not in r.out, (says, r)
    finally:
        place.close()


def as_user(uid, program, *args, **env):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env", "-i", "PATH=/usr/bin:/bin",
            *[f"{k}={v}" for k, v in {**boxlib.no_leak_check(), **env}.items()], str(program), *args]


@pytest.fixture
def two():
    """A directory that both users may write, with a program in it."""
    place = hosts.Place("root")
    shared = place.path("shared")
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    place.shared = shared
    yield place
    place.close()


@pytest.mark.root
def test_two_users_at_once(two):
    """20 boxes each at once, over one CLOCHE_HOME, with both users' gc among them: all run, each box is alone, and no state is shared."""
    script = "echo in $(id -u) of $(cat /tmp/mine 2>/dev/null); echo $0 >/tmp/mine; ls -d /proc/[0-9]* | wc -l; sleep 0.2; cat /tmp/mine"

    def one(job):
        uid, n = job
        r = boxlib.communicate(as_user(uid, two.program, "run", "-q", "--json", "--", "sh", "-c", script, f"{uid}-{n}", HOME="/nowhere",
                                       CLOCHE_HOME=two.shared), base=False, cwd="/")
        return job, r.parse()

    stop = threading.Event()

    def sweep(uid):
        runs = 0
        while not stop.is_set():
            r = boxlib.communicate(as_user(uid, two.program, "gc", CLOCHE_HOME=two.shared), base=False, cwd="/")
            assert r.rc in (0, 1), r
            runs += 1
        return runs

    jobs = [(uid, n) for n in range(20) for uid in (hosts.USER, OTHER)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(jobs) + 2) as pool:
        sweeps = [pool.submit(sweep, uid) for uid in (hosts.USER, OTHER)]
        try:
            done = list(pool.map(one, jobs))
        finally:
            stop.set()
        assert all(s.result() > 0 for s in sweeps)
    for (uid, n), r in done:
        assert (r.rc, r.o.fault, r.o.err) == (0, None, ""), r
        first, count, mine = r.o.out.splitlines()
        assert first == "in 1000 of" and mine == f"{uid}-{n}" and int(count) < 8, r
    for base, _, files in os.walk(two.shared):  # nobody can write what is the other's
        for f in files:
            st = os.stat(os.path.join(base, f))
            assert not st.st_mode & 0o022 and st.st_uid in (hosts.USER, OTHER), (base, f)


def spoil(home):
    """Writes into every ready-made /etc/hosts below home."""
    spoiled = 0
    for base, _, files in os.walk(home):
        if base.endswith("/etc") and "hosts" in files:
            path = pathlib.Path(base, "hosts")
            path.chmod(0o644)
            with open(path, "r+", encoding="utf-8") as f:
                f.write("6.6.6.6 spoiled #")
            spoiled += 1
    return spoiled


@pytest.mark.root
def test_state_of_another_user_is_not_used(two):
    """The other one was first, and what he left ready is his. Control: his own boxes use it."""
    def box_of(uid):
        r = boxlib.communicate(as_user(uid, two.program, "run", "-q", "--json", "--", "cat", "/etc/hosts", CLOCHE_HOME=two.shared), base=False,
                               cwd="/").parse()
        assert (r.rc, r.o.fault) == (0, None), r
        return r.o.out

    assert "spoiled" not in box_of(OTHER)
    boxlib.wait_for(lambda: any("hosts" in f for _, _, f in os.walk(two.shared)))
    assert spoil(two.shared) > 0
    if "spoiled" not in box_of(OTHER):
        raise AssertionError("no control")
    assert "spoiled" not in box_of(hosts.USER)
    report = json.loads(boxlib.communicate(as_user(hosts.USER, two.program, "doctor", "--json", CLOCHE_HOME=two.shared), base=False,
                                           cwd="/").out)
    row = {r["id"]: r for r in report["rows"]}["dirs"]
    assert row["status"] == "degraded" and two.shared in row["detail"] and "set CLOCHE_HOME" in row["detail"], row


@pytest.mark.root
@pytest.mark.parametrize("what", ["directory", "link", "file"])
def test_the_runtime_directory_is_somebody_elses(what):
    """/tmp is everybody's: whoever was there first may have made /tmp/cloche-UID. It is named, and the box runs without it."""
    make = {"directory": "mkdir -m 777 /tmp/cloche-12345; chown 12346 /tmp/cloche-12345", "link": "ln -s /etc /tmp/cloche-12345",
            "file": "echo >/tmp/cloche-12345"}[what]
    place = hosts.Place("user")
    try:
        host = Host(root="mount -t tmpfs -o mode=1777 tmpfs /mnt; cp $T/bin/cloche /mnt; mount -t tmpfs -o mode=1777 tmpfs /tmp\n" + make,
                    program="/mnt/cloche", env={"HOME": "/"})
        r = hosts.call(host, place, "run", "-q", "--", "echo", "ran")
        assert (r.rc, r.out, r.err) == (0, b"ran\n", b""), r
        row = {r["id"]: r for r in json.loads(hosts.call(host, place, "doctor", "--json").out)["rows"]}["dirs"]
        assert row["status"] == "degraded" and "/tmp/cloche-12345" in row["detail"] and "CLOCHE_HOME" in row["detail"], row
    finally:
        place.close()


@pytest.mark.parametrize("limit", ["fsize=0", "fsize=100", "nofile=63:63"])
def test_a_limit_leaves_nothing_half_made(tmp_path, limit):
    """What is kept ready is made whole or not at all, and is made at the next start."""
    env = {"HOME": str(tmp_path)}
    r = boxlib.communicate(["prlimit", "--" + limit, boxlib.CLOCHE, "run", "--", "echo", "ran"], env=env)
    assert (r.rc, r.out) == (125, b"") and r.raw_err.count(b"\n") == 1 and b"; fix: " in r.raw_err, r
    assert list(tmp_path.rglob("draft-*")) == []
    assert boxlib.communicate([boxlib.CLOCHE, "run", "-q", "--", "cat", "/etc/hosts"], env=env).out.startswith(b"127.0.0.1"), "no control"


@pytest.mark.root
def test_a_start_without_processes_left_runs_nothing(two):
    """Whatever step finds the limit on processes reached, the command has not run; and one more is enough at last. A user of its own, since the
    kernel counts them all."""
    ran = 0
    for n in range(8):
        r = boxlib.communicate(as_user(OTHER + 1, "/usr/bin/prlimit", f"--nproc={n}:{n}", two.program, "run", "-q", "--", "echo", "ran"),
                               base=False, cwd="/")
        if r.rc == 0:
            ran += 1
            assert r.out == b"ran\n", r
        else:
            assert (r.rc, r.out) == (125, b"") and r.raw_err.count(b"\n") == 1 and b"ulimit -u" in r.raw_err, r
    assert 0 < ran < 8, "no control"


def test_no_home_is_made(tmp_path):
    """An account may have a HOME that must never be there. Control: one that is there is used."""
    for home, there in ((tmp_path / "ghost" / "deep", False), (tmp_path, True)):
        r = boxlib.communicate([boxlib.CLOCHE, "run", "-q", "--", "true"], env={"HOME": str(home)})
        assert (r.rc, r.err) == (0, b""), r
        assert home.exists() == there
    assert not (tmp_path / "ghost").exists() and (tmp_path / ".local/share/cloche").is_dir(), "no control"
    row = {x["id"]: x for x in json.loads(boxlib.cloche("doctor", "--json", env={"HOME": str(tmp_path / "ghost")}).out)["rows"]}["dirs"]
    assert row["status"] == "degraded" and "ghost is not there" in row["detail"], row
    assert boxlib.cloche("gc", env={"HOME": str(tmp_path / "ghost")}).rc == 0
