"""What is mounted below a directory that a box is shown. Each test mounts in a namespace of its own, which the machine never sees."""
import boxlib
import pytest

BELOW_USR = "/usr/local/src"


def mounted(setup, *args, json=True):
    """Runs a box after the shell commands `setup`, in a mount namespace made for it."""
    ns = ["unshare", "-m"] if boxlib.IS_ROOT else ["unshare", "-Urm"]
    run = [boxlib.CLOCHE, "run", *(["--json"] if json else []), *args]
    r = boxlib.communicate([*ns, "sh", "-ec", setup + '; exec "$@"', "sh", *map(str, run)])
    return r.parse() if json else r


@pytest.fixture
def shared(ws):
    (ws / "below").mkdir()
    (ws / "f").write_text("shared")
    return ws


@pytest.mark.parametrize("system", ["/proc", "/sys", "/dev"])
@pytest.mark.parametrize("how", ["ro", "rw"])
def test_a_file_system_of_the_kernels_is_refused(shared, system, how):
    args = ("-v", f"{shared}:/shared:{how}", "--", "cat", "/shared/f")
    assert mounted(":", *args).o.out == "shared", "no control"
    r = mounted(f"mount --rbind {system} {shared}/below", *args)
    assert r.rc == 125 and r.o.fault["stage"] == "mount", r
    assert f"{shared}/below" in r.o.fault["message"] and "would come along" in r.o.fault["message"], r


def test_usr_by_bind_is_told(box):
    """No overlay can be had over a directory with a mount below it that the box may not take off: the next best, and a note that says so."""
    show = ("--", "sh", "-c", f"ls {BELOW_USR}; touch /usr/x {BELOW_USR}/x 2>/dev/null || echo read-only")
    assert not any(n.startswith("degraded") for n in box("--", "true").o["notes"]), "no control"
    r = mounted(f"mount -t tmpfs x {BELOW_USR}; touch {BELOW_USR}/seen", *show)
    assert r.rc == 0 and r.o.out == "seen\nread-only\n", r
    assert any(n.startswith("degraded: 1 read-only directory is shown by bind") for n in r.o["notes"]), r


def test_usr_by_bind_is_refused_to_hostile_code():
    r = mounted(f"mount -t tmpfs x {BELOW_USR}", "--security-profile", "untrusted", "--", "true")
    assert r.rc == 125 and r.o.fault["stage"] == "mount" and "untrusted" in r.o.fault["message"], r
