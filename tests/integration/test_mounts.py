"""What is shared with a box, how, and under which names."""
import hashlib
import itertools
import os
import socket
import stat
import subprocess

import boxlib
import pytest


def tree(path):
    """Everything that a box must not change behind its caller's back, as one value."""
    rows = []
    for base, dirs, files in os.walk(path):
        for name in sorted(dirs + files):
            p = os.path.join(base, name)
            st = os.lstat(p)
            what = os.readlink(p) if stat.S_ISLNK(st.st_mode) else ""
            if stat.S_ISREG(st.st_mode):
                with open(p, "rb") as f:
                    what = hashlib.sha256(f.read()).hexdigest()
            rows.append((os.path.relpath(p, path), st.st_mode, st.st_uid, st.st_gid, what))
    return sorted(rows)


@pytest.fixture
def project(ws):
    for d in ("src/deep", "out", "secret"):
        (ws / d).mkdir(parents=True)
    (ws / "src" / "a.txt").write_text("a\n")
    (ws / "src" / "deep" / "b.txt").write_text("b\n")
    (ws / "secret" / "key").write_text("k\n")
    (ws / "link").symlink_to("src")
    return ws


def test_workspace_is_shared_both_ways(box, ws):
    (ws / "in").write_text("from the caller\n")
    o = box("--workspace", ws, "sh", "-c", "cat in; echo back >out; mkdir d; ln -s out l; pwd").o
    assert o.out == "from the caller\n/workspace\n"
    assert (ws / "out").read_text() == "back\n" and (ws / "d").is_dir() and os.readlink(ws / "l") == "out"


def test_volume_rw_and_ro(box, project):
    o = box("-v", f"{project}/out:/data/out", "-v", f"{project}/src:/data/src:ro", "sh", "-c",
            "echo x >/data/out/x; cat /data/src/deep/b.txt; echo y >/data/src/y; rm -f /data/src/a.txt; exit 0").o
    assert o.out == "b\n"
    assert sorted(os.listdir(project / "out")) == ["x"] and sorted(os.listdir(project / "src")) == ["a.txt", "deep"]
    o = box("-v", f"{project}/out:/o:rw", "sh", "-c", "echo z >/o/z").o
    assert o["exit_code"] == 0 and (project / "out" / "z").exists()


def test_untrusted_mounts_are_read_only_unless_said(box, project):
    o = box("--security-profile", "untrusted", "-v", f"{project}/out:/a", "-v", f"{project}/src:/b:rw", "sh", "-c",
            "echo x >/a/x && echo a-written; echo x >/b/x && echo b-written; exit 0").o
    assert o.out.split() == ["b-written"], o


def test_single_files(box, project):
    o = box("-v", f"{project}/src/a.txt:/etc/a.txt:ro", "-v", f"{project}/secret/key:/home/user/key", "sh", "-c",
            "cat /etc/a.txt; echo new >/home/user/key; echo z >/etc/a.txt; exit 0").o
    assert o.out == "a\n"
    assert (project / "secret" / "key").read_text() == "new\n" and (project / "src" / "a.txt").read_text() == "a\n"


def test_tmpfs(box):
    o = box("--tmpfs", "/scratch:8m", "--tmpfs", "/deep/er/x:4m", "sh", "-c",
            "echo x >/scratch/x && df -k /scratch /deep/er/x | awk 'NR>1{print $2}'").o
    assert o.out.split() == ["8192", "4096"], o


def test_order_of_mounts_does_not_matter(box, project):
    """T23: every order of the same nested mounts gives the same rights, and the caller's tree stays as it was."""
    mounts = [("-v", f"{project}:/w:ro"), ("-v", f"{project}/out:/w/out:rw"), ("--tmpfs", "/w/secret:1m"),
              ("-v", f"{project}/src/deep:/w/src/deep:rw")]
    script = ("for d in /w /w/src /w/out /w/secret /w/src/deep; do (: >$d/.probe) 2>/dev/null && echo rw $d || echo ro $d; "
              "rm -f $d/.probe; done; ls -A /w/secret; cat /w/src/deep/b.txt")
    before, answers = tree(project), set()
    for order in itertools.permutations(mounts):
        o = box(*[word for m in order for word in m], "sh", "-c", script).o
        assert o["exit_code"] == 0, o
        answers.add(o.out)
    assert answers == {"ro /w\nro /w/src\nrw /w/out\nrw /w/secret\nrw /w/src/deep\nb\n"}, answers
    assert tree(project) == before


def test_mount_points_are_not_created_in_the_callers_tree(box, project):
    before = tree(project)
    r = box("-v", f"{project}/src:/w:ro", "-v", f"{project}/out:/w/not/there", "ls", "/w", json=False)
    assert r.rc in (0, 2, 125), r
    assert tree(project) == before


def test_git_status_is_unchanged(box, project):
    env = dict(boxlib.base_env(), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")

    def git(*args):
        return subprocess.run(["git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@t", *args], env=env,
                              capture_output=True, text=True, check=True).stdout
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    before = git("status", "--porcelain", "--ignored"), tree(project / "src")
    ps = [boxlib.start("--workspace", project, "--tmpfs", "/workspace/secret:1m", "sh", "-c", "cat src/a.txt; ls -R . | wc -l") for _ in range(8)]
    for p in ps:
        out, err = p.communicate(timeout=boxlib.HANG)
        assert p.returncode == 0 and out.startswith(b"a\n"), err
    assert (git("status", "--porcelain", "--ignored"), tree(project / "src")) == before


@pytest.mark.parametrize("what", ["missing", "dangling", "socket", "fifo", "device", "file-as-dir", "proc"])
def test_dead_and_dangerous_sources_are_refused(box, ws, what):
    src = ws / "x"
    listener = socket.socket(socket.AF_UNIX)
    if what == "dangling":
        src.symlink_to("nowhere")
    elif what == "socket":
        listener.bind(str(src))
    elif what == "fifo":
        os.mkfifo(src)
    elif what == "device":
        src = "/dev/null"
    elif what == "file-as-dir":
        src.write_text("x")
        src = ws / "x" / "below"
    elif what == "proc":
        src = "/proc/self/root"
    before = tree(ws)
    r = box("-v", f"{src}:/data", "sh", "-c", "echo ran", json=False)
    listener.close()
    assert r.rc in (2, 125) and b"ran" not in r.out, r
    assert len(r.err.splitlines()) <= 2 and r.err.startswith(b"cloche"), r
    assert tree(ws) == before


def test_symlinked_source_is_what_it_points_to(box, project):
    assert box("-v", f"{project}/link:/data:ro", "cat", "/data/a.txt").o.out == "a\n"


@pytest.mark.parametrize("dst", ["/proc", "/proc/sys", "/dev", "/dev/null", "/sys", "/", "relative", "/a/../b", "/workspace/../../x", ""])
def test_targets_that_are_refused(box, project, dst):
    r = box("-v", f"{project}/src:{dst}", "sh", "-c", "echo ran", json=False)
    assert r.rc in (2, 125) and b"ran" not in r.out, r


def test_a_planted_link_does_not_redirect_a_target(box, project):
    """The target lies below a directory that the box may have changed in an earlier call."""
    os.symlink("/etc", project / "out" / "trap")
    before = tree(project)
    r = box("--workspace", project / "out", "-v", f"{project}/src:/workspace/trap:ro", "sh", "-c", "ls /etc | grep -c a.txt; ls trap",
            json=False)
    assert r.rc == 125 or b"0\n" in r.out, r
    assert tree(project) == before


@pytest.mark.root
@pytest.mark.parametrize("owner", [0, 1000, 501, 12345])
@pytest.mark.parametrize("user", ["1000", "0", "65534"])
def test_workspace_owner_as_root(box, ws, owner, user):
    """T25: whoever owns the workspace, the box's user can write, and what it makes belongs to the owner."""
    (ws / "old").write_text("old\n")
    for p in (ws, ws / "old"):
        os.chown(p, owner, owner)
    os.chmod(ws, 0o700)
    o = box("--workspace", ws, "--user", user, "sh", "-c", "cat old; echo more >>old; echo new >new; mkdir dir; stat -c %u:%g old new").o
    assert o.out.splitlines() == ["old", f"{user}:{user}", f"{user}:{user}"], o
    for name in ("old", "new", "dir"):
        st = os.stat(ws / name)
        assert (st.st_uid, st.st_gid) == (owner, owner), name


@pytest.mark.user
@pytest.mark.parametrize("user", ["1000", "0", "65534"])
def test_workspace_owner_as_user(box, ws, user):
    o = box("--workspace", ws, "--user", user, "sh", "-c", "echo new >new; mkdir dir; stat -c %u new").o
    assert o.out.strip() == user, o
    assert os.stat(ws / "new").st_uid == os.geteuid() == os.stat(ws / "dir").st_uid


@pytest.mark.root
def test_a_box_of_root_is_not_root(box, ws):
    os.chmod(ws, 0o755)
    (ws / "private").write_text("private\n")
    os.chown(ws / "private", 54321, 54321)
    os.chmod(ws / "private", 0o600)
    o = box("--workspace", ws, "--user", "0", "sh", "-c", "cat /proc/self/uid_map; cat private; exit 0").o
    inside, outside, count = o.out.split()[:3]
    assert outside != "0" and count == "1", o
    assert "private" not in o.out


def test_noexec_is_not_assumed_and_nosuid_holds(box, ws):
    o = box("--workspace", ws, "sh", "-c", "cp /usr/bin/id ./id && ./id -u; grep ' /workspace ' /proc/self/mountinfo").o
    assert o.out.splitlines()[0] == "1000"
    assert "nosuid" in o.out and "nodev" in o.out


def test_hint_for_a_file_the_box_cannot_see(box, ws):
    """A script that is on the host but not in the box is the commonest first mistake: the message says what to share."""
    script = ws / "job.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    r = box(script, json=False)
    assert r.rc == 127 and str(script).encode() in r.err, r
    assert b"--workspace" in r.err or b"-v" in r.err, r
    assert box("-v", f"{ws}:{ws}:ro", script, json=False).out == b"ran\n"


def test_read_only_source_hides_host_sockets(box, ws):
    """A unix socket below a read-only directory can't be reached; the same socket can be from the host."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(ws / "s"))
        s.listen(5)
        os.chmod(ws / "s", 0o777)
        code = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/data/s'); print('connected')"
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(ws / "s"))
        o = box("-v", f"{ws}:/data:ro", "python3", "-c", code).o
        assert "connected" not in o.out, o
