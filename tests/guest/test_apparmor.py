"""AppArmor's mediation of user namespaces (kernel 6.7, AppArmor 4): a profile over every program that has no rule for them, which is how a host
forbids them to all but the programs it names. And --apparmor, which puts a box under a profile."""
import os
import pathlib
import pty
import select
import shutil
import subprocess
import time

import boxlib
import pytest
import serving
import setups
import stored
from test_userns_forbidden import TESTER, doctor_row

INSTALLED = "/usr/local/bin/cloche"
PROFILE = pathlib.Path("/etc/apparmor.d/cloche")
EVERYTHING = """abi <abi/4.0>,
profile everything /{,**} {
  /{,**} rwlkm,
  /{,**} pix,
  capability, network, unix, dbus, signal, ptrace, mount, remount, umount, pivot_root, mqueue, io_uring, change_profile,
}
"""
NO_SHADOW = """abi <abi/4.0>,
profile no-passwd flags=(attach_disconnected) {
  allow all,
  deny /{,**/}etc/passwd r,
}
"""
pytestmark = pytest.mark.root


def load(text, remove=False):
    subprocess.run(["apparmor_parser", "-R" if remove else "-r"], input=text, text=True, check=True, timeout=120)


@pytest.fixture
def restricted():
    shutil.copy(boxlib.CLOCHE, INSTALLED)
    load(EVERYTHING)
    yield
    if PROFILE.exists():
        load(PROFILE.read_text(), remove=True)
        PROFILE.unlink()
    load(EVERYTHING, remove=True)
    os.unlink(INSTALLED)


def run(*argv):
    return boxlib.communicate([*TESTER, *argv])


def answer(*argv):
    """Runs argv on a terminal, answers y, and returns (exit code, what was shown)."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    shown, said, end = b"", False, time.monotonic() + boxlib.HANG
    while time.monotonic() < end:
        if select.select([fd], [], [], 1)[0]:
            try:
                more = os.read(fd, 4096)
            except OSError:
                break
            if not more:
                break
            shown += more
            if b"[y/N]" in shown and not said:
                os.write(fd, b"y\n")
                said = True
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_restriction_and_the_profile_that_fix_installs(restricted):
    assert run("unshare", "-Ur", "true").rc != 0, "nothing is restricted: the rest would show nothing"
    r = run(INSTALLED, "run", "-q", "--", "echo", "ran")
    assert r.rc == 125 and r.out == b"" and r.err.count(b"\n") == 1, r
    assert b'"everything"' in r.err and b"sudo cloche doctor --fix" in r.err, r

    boxlib_cloche, boxlib.CLOCHE = boxlib.CLOCHE, INSTALLED
    try:
        verdict, row = doctor_row("userns", TESTER)
    finally:
        boxlib.CLOCHE = boxlib_cloche
    assert verdict == "unusable" and "AppArmor" in row["detail"] and "sudo cloche doctor --fix" in row["fix"], row

    rc, shown = answer(INSTALLED, "doctor", "--fix")
    print(shown)
    assert "Installed." in shown and PROFILE.exists() and rc == 2, rc  # the verdict is of before
    r = run(INSTALLED, "run", "-q", "--", "echo", "ran")
    assert (r.rc, r.out) == (0, b"ran\n"), r
    assert run("unshare", "-Ur", "true").rc != 0, "the profile let another program through"
    copy = shutil.copy(INSTALLED, "/srv/other")
    assert run(copy, "run", "-q", "--", "echo", "ran").rc == 125, "the profile let a copy elsewhere through"


def test_a_box_under_a_profile(box):
    script = "cat /proc/self/attr/apparmor/current; cat /etc/passwd >/dev/null && echo read; exit 0"
    assert box("-q", "--", "sh", "-c", script, json=False).out == b"unconfined\nread\n"
    r = box("-q", "--apparmor", "no-passwd", "--", "sh", "-c", script, json=False)
    assert r.rc == 125 and r.out == b"" and b"no-passwd is not loaded" in r.err, r
    load(NO_SHADOW)
    try:
        r = box("-q", "--apparmor", "no-passwd", "--", "sh", "-c", script, json=False)
        assert r.out == b"no-passwd (enforce)\n", r
        assert box("-q", "--apparmor", "no-such-profile", "--", "echo", "ran", json=False).rc == 125
    finally:
        load(NO_SHADOW, remove=True)


def test_an_images_python_under_the_callers_profile():
    """What compiles an image's library is the image's own program."""
    load(NO_SHADOW)
    try:
        for opts, label in ((("--apparmor", "no-passwd"), b"no-passwd (enforce)\n"), ((), b"unconfined\n")):
            with setups.directory() as path:
                home = setups.Home(path)
                home.python("tells", stored.busybox, "cat /proc/self/attr/apparmor/current >/usr/lib/python3.99/told")
                r = boxlib.box("-q", "--image", "tells", *opts, "--", "cat", "/usr/lib/python3.99/told", env=home.env, json=False)
                assert r.out == label and len(home.kept()) == 1, r
    finally:
        load(NO_SHADOW, remove=True)


PYTHON = """
import os
print(open("/proc/self/attr/apparmor/current").read().strip())
for path in "/etc/group", "/etc/passwd", "mine":
    try:
        print(path, len(open(path).read()) > 0)
    except PermissionError:
        print(path, "refused")
"""


def test_a_session_under_a_profile(ws):
    """Every call of a sandbox with the option is under it, and no other: not the sandbox beside it, nor the files that are worked with from outside."""
    (ws / "mine").write_text("1")
    load(NO_SHADOW)
    try:
        with serving.Serve() as s:
            free, held = s.open(workspace=str(ws)), s.open(workspace=str(ws), apparmor="no-passwd")
            fork = s.ask("fork", sandbox=held)["sandbox"]
            for sb, label, passwd in ((free, "unconfined", True), (held, "no-passwd (enforce)", "refused"), (fork, "no-passwd (enforce)", "refused")):
                want = f"{label}\n/etc/group True\n/etc/passwd {passwd}\nmine True\n".encode()
                for _ in range(2):
                    r = s.code(sb, PYTHON)
                    assert (r["stdout"], r["fault"]) == (want, None), r
                n = s.request("start", sandbox=sb, argv=["python3", "-c", PYTHON])
                assert "error" not in s.answer(n) and s.result(s.request("wait", call=n))["stdout"] == want
            assert s.run(held, "sh", "-c", "echo 2 >made")["files"][0]["path"] == "made"
            assert s.ask("stat", sandbox=held, path="made")["file"]["size"] == 2
            # One that is not loaded runs nothing, and the others go on.
            missing = s.ask("open", options={"apparmor": "no-such-profile"})
            r = s.run(missing["sandbox"], "sh", "-c", "echo ran")
            assert r["fault"]["type"] == "startup_failed" and "no-such-profile is not loaded" in r["fault"]["message"] and r["stdout"] == b"", r
            assert s.run(held, "cat", "/proc/self/attr/apparmor/current")["stdout"] == b"no-passwd (enforce)\n"
            # What sets it up is no more trusted than what runs in it.
            for sb, label in ((free, b"unconfined\n"), (held, b"no-passwd (enforce)\n")):
                done = s.ask("setup", sandbox=sb, command=f"cat /proc/self/attr/apparmor/current >/opt/deps/profile-{sb}")
                assert done["fault"] is None and not done["found"], done
                assert s.run(sb, "cat", f"/opt/deps/profile-{sb}")["stdout"] == label
    finally:
        load(NO_SHADOW, remove=True)
