"""`cloche doctor` and `cloche gc`: what they say, that it is true, and that they leave nothing behind.

Hosts that lack something are made from namespaces: in a user namespace of one's own, the limits on namespaces, /proc and the network can be taken
away without touching the machine.
"""
import json
import os
import pathlib
import platform
import pty
import shutil
import subprocess

import boxlib
import pytest
from outer_filter import ENOSYS, EPERM, KILL, filter_calls

STATUSES = {"ok", "info", "degraded", "missing"}
CODES = {"good": 0, "degraded": 1, "unusable": 2}
LOCAL = ["kernel", "userns", "namespaces", "mounts", "overlay", "proc", "netns", "seccomp", "landlock", "limits", "box", "idmap",
         "session", "dirs", "apparmor", "container", "wsl", "groups", "uid_range", "kvm", "core", "sockets"]
ONLINE = ["registry-1.docker.io", "ghcr.io", "quay.io"]


class Report:
    def __init__(self, result):
        self.result = result
        self.o = json.loads(result.out.decode("utf-8"))
        self.rows = {r["id"]: r for r in self.o["rows"]}
        assert result.err == b"", result
        assert result.rc == CODES[self.o["verdict"]], result


def doctor(*args, before=(), **kw):
    return Report(boxlib.communicate([*before, boxlib.CLOCHE, "doctor", "--json", *args], **kw))


def one_line(result, rc=2):
    assert result.rc == rc, result
    assert result.out == b"", result
    assert result.err.endswith(b"\n") and result.err.count(b"\n") == 1, result
    return result.err.decode()


def can_unshare():
    return boxlib.communicate(["unshare", "-Ur", "true"]).rc == 0


def test_json_is_one_object_with_every_row():
    r = doctor()
    assert list(r.o) == ["verdict", "rows"]
    assert r.result.out.count(b"\n") == 1
    assert [row["id"] for row in r.o["rows"]] == LOCAL
    for row in r.o["rows"]:
        assert list(row) == ["id", "status", "detail", "cost", "fix"]
        assert row["status"] in STATUSES
        assert row["detail"] and "\n" not in row["detail"], row
        if row["status"] == "ok":
            assert row["cost"] is None and row["fix"] is None, row
        if row["status"] in ("degraded", "missing"):
            assert row["cost"], row


def test_verdict_is_what_happens(box):
    r = doctor()
    ran = box("--", "true")
    assert (ran.rc == 0) == (r.rows["box"]["status"] == "ok"), (ran, r.result)
    if ran.rc == 0:
        assert r.o["verdict"] in ("good", "degraded")
        kernel = {"cgroup2", "scope", "cgroup1"}
        held = ran.o["limits"]["memory"]["rung"] in kernel
        assert held == (r.rows["limits"]["status"] == "ok" or "cpu: not held" in r.rows["limits"]["detail"]), (ran, r.result)


def test_screen_says_the_same_as_json(cloche):
    r, text = doctor(), cloche("doctor")
    assert text.rc == r.result.rc
    lines = text.out.decode().splitlines()
    assert len([s for s in lines if s[:1] not in (" ", "")]) == len(LOCAL) + 1
    assert lines[-1].startswith(r.o["verdict"])
    assert b"\x1b" not in text.out
    for row in r.o["rows"]:
        if row["status"] in ("degraded", "missing"):
            assert row["cost"] in text.out.decode()


def test_plain_signs_without_utf8(cloche):
    out = cloche("doctor", env={"LANG": "C", "LC_ALL": "C"}).out
    assert max(out) < 128


def test_is_quick():
    assert boxlib.cheapest(lambda: doctor().result.seconds, 10) < 10


def test_no_user_namespaces(tmp_path):
    """T1: doctor names the cause and the fix, run refuses, and the command never runs."""
    if not can_unshare():
        pytest.skip("no user namespaces here")
    ran = tmp_path / "ran"
    deny = ["unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
    r = doctor(before=deny)
    assert r.o["verdict"] == "unusable"
    row = r.rows["userns"]
    assert row["status"] == "missing"
    assert "user.max_user_namespaces=0" in row["detail"]
    assert "user.max_user_namespaces=" in row["fix"]
    assert r.rows["mounts"]["status"] == "missing" and "not tried" in r.rows["mounts"]["detail"]
    got = boxlib.communicate([*deny, boxlib.CLOCHE, "run", "--", "touch", str(ran)])
    assert got.rc == 125, got
    assert got.err.count(b"\n") == 1 and b"user namespace" in got.err, got
    assert not ran.exists()


@pytest.mark.parametrize("kind,row", [("net", "netns"), ("pid", "proc"), ("mnt", "userns")])
def test_other_namespaces_used_up(kind, row):
    if not can_unshare():
        pytest.skip("no user namespaces here")
    r = doctor(before=["unshare", "-Ur", "sh", "-c", f'echo 0 >/proc/sys/user/max_{kind}_namespaces && exec "$@"', "sh"])
    assert r.rows[row]["status"] == "missing", r.result
    assert f"user.max_{kind}_namespaces=0" in r.rows[row]["detail"]
    assert r.o["verdict"] == "unusable"


UNSHARE = {"x86_64": 272, "aarch64": 97}.get(platform.machine())
SECCOMP = {"x86_64": 317, "aarch64": 277}.get(platform.machine())
LANDLOCK = 444


def test_outer_filter_that_refuses_namespaces():
    r = doctor(preexec_fn=filter_calls([UNSHARE], EPERM))
    assert r.rows["userns"]["status"] == "missing"
    assert "seccomp" in r.rows["userns"]["detail"] and "seccomp" in r.rows["userns"]["fix"]
    assert r.o["verdict"] == "unusable"


def test_outer_filter_that_kills():
    r = doctor(preexec_fn=filter_calls([UNSHARE, LANDLOCK], KILL))
    assert r.rows["userns"]["status"] == "missing" and "ended" in r.rows["userns"]["detail"]
    assert r.rows["landlock"]["status"] == "missing" and "signal 31" in r.rows["landlock"]["detail"]


def test_no_seccomp_and_no_landlock():
    r = doctor(preexec_fn=filter_calls([SECCOMP, LANDLOCK], ENOSYS))
    assert r.rows["seccomp"]["status"] == "missing" and r.rows["seccomp"]["fix"]
    assert r.rows["landlock"]["status"] == "degraded"
    assert r.o["verdict"] == "unusable"


def masked(*argv, **kw):
    """A host whose /proc has something masked, as in a container; nobody gets a fresh one there."""
    setup = 'mount --bind /dev/null /proc/version && exec "$@"'
    ns = ["unshare", "-m"] if boxlib.IS_ROOT else ["unshare", "-Urm"]
    return boxlib.communicate([*ns, "sh", "-c", setup, "sh", *argv], **kw)


def test_masked_proc():
    if not boxlib.IS_ROOT and not can_unshare():
        pytest.skip("no user namespaces here")
    r = Report(masked(boxlib.CLOCHE, "doctor", "--json"))
    assert r.rows["proc"]["status"] == "degraded", r.result
    assert "--proc none" in r.rows["proc"]["cost"]
    assert r.rows["box"]["status"] == "degraded" and "--proc none" in r.rows["box"]["detail"], r.result
    assert r.o["verdict"] == "degraded"


def test_online_only_when_asked():
    """Without --online no row names a registry; with it, and without a network, the rows fail in bounded time."""
    if not can_unshare():
        pytest.skip("no user namespaces here")
    r = doctor("--online", before=["unshare", "-Urn"])
    assert list(r.rows) == LOCAL + ONLINE
    for name in ONLINE:
        assert r.rows[name]["status"] == "degraded", r.result
    assert r.result.seconds < boxlib.HANG


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
def test_touches_no_network(tmp_path):
    log = tmp_path / "log"
    r = boxlib.communicate(["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg", "-o", str(log), boxlib.CLOCHE, "doctor", "--json"],
                           timeout=120)
    assert r.rc in (0, 1, 2)
    for line in log.read_text(errors="replace").splitlines():
        if "AF_INET" in line:
            assert "127.0.0.1" in line, line


def test_fix_needs_a_terminal(cloche):
    assert "terminal" in one_line(cloche("doctor", "--fix"))
    one_line(cloche("doctor", "--fix", stdin=b"y\n"))


def test_fix_on_a_terminal_changes_nothing_unasked():
    profile = pathlib.Path("/etc/apparmor.d/cloche")
    before = profile.read_bytes() if profile.exists() else None
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(boxlib.CLOCHE, [boxlib.CLOCHE, "doctor", "--fix"], boxlib.base_env())
    out, asked = b"", False
    while True:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        out += got
        if b"[y/N]" in out and not asked:
            asked = True
            os.write(fd, b"n\n")
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) in (0, 1, 2)
    assert b"nothing to mend" in out or b"not done here" in out or b"Nothing was changed" in out or b"run these" in out, out
    assert (profile.read_bytes() if profile.exists() else None) == before


@pytest.mark.parametrize("args", [["doctor", "operand"], ["doctor", "--json", "--fix"], ["doctor", "--jsn"], ["gc", "operand"], ["gc", "--fix"]])
def test_usage_errors(cloche, args):
    one_line(cloche(*args))


@pytest.mark.parametrize("verb", ["doctor", "gc"])
def test_help_and_a_full_disk(cloche, verb):
    assert cloche(verb, "--help").rc == 0
    with open("/dev/full", "wb") as full:
        code = subprocess.run([boxlib.CLOCHE, verb], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                     env=boxlib.base_env(), timeout=60)
    assert code.returncode not in (0, None) and b"\n" in code.stderr


def test_relative_home_is_named(cloche):
    r = doctor(env={"CLOCHE_HOME": "some/dir"})
    assert r.rows["dirs"]["status"] == "degraded" and "CLOCHE_HOME" in r.rows["dirs"]["detail"]
    assert "CLOCHE_HOME" in one_line(cloche("gc", env={"CLOCHE_HOME": "some/dir"}))


def test_bytes_from_outside_are_escaped(cloche):
    home = "/tmp/\x1b[31mred\x1b[0m\u202e"
    assert b"\x1b" not in cloche("doctor", env={"CLOCHE_HOME": home}).out
    assert "\x1b" not in doctor(env={"CLOCHE_HOME": "x" + home}).result.out.decode()


def test_works_with_nothing_in_the_environment():
    r = subprocess.run([boxlib.CLOCHE, "doctor", "--json"], env={}, capture_output=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)
    assert r.returncode in (0, 1, 2) and json.loads(r.stdout)["rows"]


@pytest.mark.root
def test_risky_groups_are_named():
    place = pathlib.Path(f"/tmp/ct-groups-{os.getpid()}")
    place.mkdir(mode=0o755)
    try:
        program = place / "cloche"
        shutil.copy(boxlib.CLOCHE, program)
        program.chmod(0o755)
        for groups, status in (("disk", "degraded"), ("adm", "info"), ("disk,adm", "degraded")):
            argv = ["setpriv", "--reuid=12345", "--regid=12345", f"--groups={groups}", str(program), "doctor", "--json"]
            r = Report(boxlib.communicate(argv, env={"HOME": "/nonexistent"}, cwd="/"))
            assert r.rows["groups"]["status"] == status, r.result
            for name in groups.split(","):
                assert name in r.rows["groups"]["detail"]
    finally:
        shutil.rmtree(place)


def test_gc_removes_the_dead_and_only_them(cloche, tmp_path):
    run = tmp_path / "runtime"
    run.mkdir(mode=0o700)
    env = {"CLOCHE_HOME": str(tmp_path)}
    (run / "owner-999999998-5.0" / "sub").mkdir(parents=True)
    (run / "owner-999999998-5.0" / "sub" / "up").symlink_to(tmp_path)
    (run / "other").mkdir()
    (run / "owner-999999998-5.1").symlink_to(tmp_path)
    got = json.loads(cloche("gc", "--json", env=env).out)
    assert list(got) == ["cgroups", "skeletons", "units", "drafts", "downloads", "runtime_dirs"]
    assert got["runtime_dirs"] == ["owner-999999998-5.0"]
    assert sorted(os.listdir(run)) == ["other", "owner-999999998-5.1"]
    again = cloche("gc", env=env)
    assert again.rc == 0 and b"runtime directory" not in again.out


def test_gc_makes_nothing(cloche, tmp_path):
    assert cloche("gc", env={"CLOCHE_HOME": str(tmp_path / "x")}).rc == 0
    assert not (tmp_path / "x").exists()
