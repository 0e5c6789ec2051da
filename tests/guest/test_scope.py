"""The rung of scopes, in a guest with systemd: a login of an ordinary user whose manager lends a group (tools/guest/run -a login).

What the kernel says is asked outside of the box: in which group a box's processes are, and what is written in its files.
"""
import json
import os
import pathlib
import signal
import subprocess

import pytest

import boxlib
from boxlib import box, cloche, running, wait_for

UNIT = "cloche-boxes.service"


def manager(*args):
    return subprocess.run(["systemctl", "--user", "--no-pager", *args], capture_output=True, text=True, timeout=60, check=False)


def show(name):
    return manager("show", UNIT, "-p", name, "--value").stdout.strip()


def unit_dir():
    group = show("ControlGroup")
    return pathlib.Path("/sys/fs/cgroup" + group) if group else None


def groups():
    base = unit_dir()
    return [p.name for p in base.iterdir() if p.is_dir()] if base and base.exists() else []


def own_group(pid="self"):
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


@pytest.fixture(autouse=True)
def a_login_session():
    group = own_group() or ""
    if "/session-" not in group or os.geteuid() == 0 or manager("is-system-running").stdout.strip() in ("", "offline"):
        pytest.skip("needs a login session of an ordinary user with a systemd user manager")


@pytest.fixture
def no_unit():
    manager("stop", UNIT)
    assert show("ActiveState") == "inactive"


def limits_of(r):
    return {k: (r.o["limits"][k]["rung"], r.o["limits"][k]["enforced"]) for k in ("memory", "pids", "cpus")}


def test_a_login_is_held_by_the_kernel(no_unit):
    r = box("--require-limits", "--memory", "96m", "--pids", "33", "--cpus", "1", "--", "cat", "/proc/self/cgroup")
    assert r.rc == 0, r
    assert limits_of(r) == {k: ("scope", True) for k in ("memory", "pids", "cpus")}
    assert r.o.out == "0::/\n"  # its own group is the root of what it sees
    assert r.o["usage"]["memory_peak_bytes"] > 0 and r.o["usage"]["pids_peak"] >= 1
    with running("--memory", "96m", "--pids", "33", "--cpus", "1", "--", "sleep", "60") as p:
        name = wait_for(groups)[0]
        base = unit_dir()
        init = wait_for(lambda: (base / name / "cgroup.procs").read_text().split())
        assert name.startswith(f"cloche-{p.pid}-")
        assert (base / name / "memory.max").read_text() == f"{96 << 20}\n"
        assert (base / name / "memory.swap.max").read_text() == "0\n"
        assert (base / name / "pids.max").read_text() == "34\n"
        assert (base / name / "cpu.max").read_text() == "100000 100000\n"
        # the box is there with all its processes, cloche is where it was started, and nothing else lives in the unit
        assert set(map(int, init)) <= set(boxlib.children_of(p.pid))
        assert own_group(p.pid) == own_group()
        assert (base / "cgroup.procs").read_text() == ""


def test_one_unit_is_kept_and_reused(no_unit):
    assert box("--require-limits", "--", "true").rc == 0
    first = show("InvocationID"), show("ActiveEnterTimestampMonotonic")
    assert all(first)
    for _ in range(20):
        r = box("--require-limits", "--", "true")
        assert r.rc == 0 and r.o["limits"]["memory"]["rung"] == "scope", r
    assert (show("InvocationID"), show("ActiveEnterTimestampMonotonic")) == first
    # between boxes it holds nothing: no process, no group
    assert show("ActiveState") == "active" and groups() == []
    assert (unit_dir() / "cgroup.events").read_text().startswith("populated 0\n")
    assert [u for u in manager("list-units", "--all", "--plain", "--no-legend", "cloche*").stdout.split("\n") if u] == [
        line for line in manager("list-units", "--all", "--plain", "--no-legend", UNIT).stdout.split("\n") if line]


def test_first_starts_at_once_make_one_unit(no_unit):
    starts = [boxlib.start("--require-limits", "--", "true", json=True) for _ in range(8)]
    for p in starts:
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0, (out, err)
        assert json.loads(out)["limits"]["memory"]["rung"] == "scope"
    assert groups() == []


def test_memory_and_pids_end_as_on_every_rung():
    r = box("--memory", "48m", "--", "python3", "-c", "x = bytearray(200 << 20)")
    assert r.rc == 137 and r.o.fault_type == "oom" and r.o.fault["filled_by"] in ("anonymous", None), r
    r = box("--memory", "48m", "--", "sh", "-c", "exit 137")
    assert r.rc == 137 and r.o.fault is None, r
    r = box("--pids", "8", "--", "python3", "-c", """
import os, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        n += 1
except BlockingIOError:
    print(n)
""")
    assert r.rc == 0 and r.o.out == "7\n" and r.o["events"]["pids_max"] >= 1 and r.o.fault is None, r
    assert show("ActiveState") == "active"  # the manager does not end the unit for a box that ran out of memory
    assert groups() == []


@pytest.mark.parametrize("value", [None, "/nonexistent", "relative"])
def test_without_the_variable(value):
    env = boxlib.base_env()
    env.pop("XDG_RUNTIME_DIR", None)
    env.pop("DBUS_SESSION_BUS_ADDRESS", None)
    if value:
        env["XDG_RUNTIME_DIR"] = value
    p = subprocess.run(boxlib.argv_of(["--require-limits", "--", "true"]), env=env, capture_output=True, timeout=300, check=False)
    assert p.returncode == 0 and json.loads(p.stdout)["limits"]["memory"]["rung"] == "scope", p.stderr


def test_gc_stops_it_only_when_empty():
    with running("--", "sleep", "60") as p:
        assert wait_for(groups)
        got = json.loads(cloche("gc", "--json").out)
        assert got["units"] == 0 and show("ActiveState") == "active"
        assert p.poll() is None
    assert box("--", "true").rc == 0  # removes what the killed one left
    assert json.loads(cloche("gc", "--json").out)["units"] == 1
    assert show("ActiveState") == "inactive" and unit_dir() is None
    assert json.loads(cloche("gc", "--json").out)["units"] == 0
    r = box("--require-limits", "--", "true")
    assert r.rc == 0 and r.o["limits"]["memory"]["rung"] == "scope"


def test_gc_against_starts():
    """A unit that is stopped between any two steps of a start is asked for again; no box is ended by it."""
    stop = subprocess.Popen(["sh", "-c", 'while :; do "$0" gc >/dev/null; done', boxlib.CLOCHE])
    try:
        for _ in range(6):
            r = box("--require-limits", "--", "echo", "ran", timeout=300)
            assert r.rc == 0 and r.o.out == "ran\n" and r.o["limits"]["memory"]["rung"] == "scope", r.o.fault
    finally:
        stop.kill()
        stop.wait()


def test_a_stopped_unit_ends_its_boxes_and_the_next_start_makes_it_anew():
    with running("--", "sleep", "60") as p:
        assert wait_for(groups)
        manager("stop", UNIT)
        assert p.wait(120) in (125, 137)  # init_lost; or killed, when the command went first
    r = box("--require-limits", "--", "true")
    assert r.rc == 0 and r.o["limits"]["memory"]["rung"] == "scope"


def test_killed_cloche_leaves_no_process_and_its_group_goes():
    with running("--", "sleep", "60") as p:
        name = wait_for(groups)[0]
        base = unit_dir()
        assert wait_for(lambda: (base / name / "cgroup.procs").read_text())
        p.kill()
        p.wait()
        assert wait_for(lambda: not (base / name).exists() or not (base / name / "cgroup.procs").read_text())
    assert box("--", "true").rc == 0
    assert groups() == []


def test_doctor_names_it():
    rows = {c["id"]: c for c in json.loads(cloche("doctor", "--json").out)["rows"]}
    assert rows["limits"]["status"] == "ok" and "scope" in rows["limits"]["detail"], rows["limits"]
    assert rows["session"]["status"] == "ok"


def the_manager():
    for d in pathlib.Path("/proc").iterdir():
        try:
            if d.name.isdigit() and d.stat().st_uid == os.geteuid() and own_group(d.name).endswith("/init.scope") \
                    and (d / "comm").read_text() == "systemd\n":
                return int(d.name)
        except (OSError, AttributeError):
            continue
    return None


def test_a_manager_that_hangs_costs_the_rung():
    assert box("--require-limits", "--", "true").rc == 0
    pid = the_manager()
    os.kill(pid, signal.SIGSTOP)
    try:
        r = box("--", "echo", "ran", timeout=300)
        assert r.rc == 0 and r.o.out == "ran\n", r
        assert r.o["limits"]["memory"]["rung"] == "supervised" and not r.o["limits"]["memory"]["enforced"]
        assert any("supervised" in note for note in r.o["notes"])
    finally:
        os.kill(pid, signal.SIGCONT)
    assert groups() == []
    r = box("--require-limits", "--", "true")
    assert r.rc == 0 and r.o["limits"]["memory"]["rung"] == "scope"
