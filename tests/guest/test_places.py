"""What holds the limits in each place of places.tsv: said truly, and so in the kernel."""
import os
import pathlib

import boxlib
import pytest
import serving

RUNG = {"delegated": "cgroup2", "sessions": "cgroup2", "session": "scope", "loner": "supervised", "root": "cgroup2"}


@pytest.fixture
def rung(place):
    if place not in RUNG:
        pytest.skip("about the limits")
    return RUNG[place]


def test_the_rung_is_the_places_own(box, rung):
    limits = box("--memory", "100m", "--pids", 40, "--", "true").o["limits"]
    for name in ("memory", "pids"):
        assert limits[name]["rung"] == rung, limits
        assert limits[name]["enforced"] is (rung != "supervised"), limits


def test_the_kernel_holds_what_is_said(rung):
    """The caller looks into the group of a running box: from outside, where the kernel tells it all."""
    with boxlib.running("--memory", "100m", "--pids", 40, "--", "sh", "-c", "echo up; exec sleep 300.5") as p:
        assert p.stdout.readline() == b"up\n"
        sleeper = next(pid for pid, name in boxlib.children_of(p.pid).items() if name == "sleep")
        path = pathlib.Path(f"/proc/{sleeper}/cgroup").read_text().strip().split("::")[1]
        own = pathlib.Path("/proc/self/cgroup").read_text().strip().split("::")[1]
        group = pathlib.Path("/sys/fs/cgroup" + path)
        if rung == "supervised":
            assert path == own
        else:
            assert path != own
            assert (group / "memory.max").read_text().strip() == str(100 << 20)
            assert (group / "pids.max").read_text().strip() in ("40", "41")  # and the box's own process 1
            assert (group / "memory.oom.group").read_text().strip() == "1"
    if rung != "supervised":
        # Its cloche was killed: the next start removes it.
        assert boxlib.wait_for(lambda: boxlib.box("true").rc == 0 and not group.exists()), "the group stayed"


def groups():
    return {os.path.join(at, d) for at, dirs, _ in os.walk("/sys/fs/cgroup") for d in dirs if d.startswith("cloche-")}


def test_a_session_has_the_same(box, rung):
    box("true")  # a unit of a user's manager is kept for the next
    before = groups()
    with serving.Serve() as s:
        sb = s.open(memory_mb=100, pids=40)
        for _ in range(3):
            outcome = s.run(sb, "sh", "-c", "echo x >>f; cat f")
            assert outcome["exit_code"] == 0 and outcome["limits"]["memory"]["rung"] == outcome["limits"]["pids"]["rung"] == rung, outcome
        large, small = (s.run(sb, "python3", "-c", f"bytearray({mb} << 20)") for mb in (300, 30))
        assert small["fault"] is None and large["fault"]["type"] == "oom", (small, large)
        s.wait_event(s.request("run", sandbox=sb, argv=["sleep", "300.5"]), "started")
        assert bool(groups() - before) is (rung != "supervised"), "the control: groups there are"
    assert boxlib.wait_for(lambda: groups() <= before), "a group stayed"


def test_require_limits_runs_or_says_what_to_change(box, rung):
    r = box("--require-limits", "--", "echo", "ran", json=False)
    if rung != "supervised":
        assert (r.rc, r.out, r.raw_err) == (0, b"ran\n", b""), r
        return
    assert r.rc == 125 and r.out == b"" and r.err.count(b"\n") == 1, r
    assert b"enable-linger" in r.err and b"drop --require-limits" in r.err, r
    assert "XDG_RUNTIME_DIR" not in os.environ


def test_a_weak_rung_is_said(box, rung):
    r = box("--", "true", json=False)
    assert r.rc == 0 and r.raw_err.count(b"limits are supervised") == (rung == "supervised"), r
