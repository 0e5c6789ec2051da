"""The box lives exactly as long as its owner: whatever kills cloche, no process is left, in any state."""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time
import uuid

import pytest

from . import attack
from .attack import boxlib

RUNS = int(os.environ.get("CLOCHE_KILLS", "60"))  # a long run makes it 1,000


@pytest.fixture
def own_program(public):
    """A copy of the program, so that its processes (init too, which wears another name) are told from everybody's by their file."""
    mine = public / "cloche"
    shutil.copy2(boxlib.CLOCHE, mine)
    mine.chmod(0o755)
    return mine


def alive(program, mark):
    """Processes of ours that run this program, or carry the mark. Init hides its file from an ordinary caller; namespaced() finds it."""
    found = set(boxlib.find_marked(mark))
    for pid in boxlib.children_of(os.getpid()):
        try:
            if os.readlink(f"/proc/{pid}/exe").startswith(str(program)):
                found.add(pid)
        except OSError:
            continue
    return found


def namespaced():
    """Processes below this one in pid namespaces below ours: what our boxes consist of, whatever it is called. Whose cloche is gone comes to
    this process, see conftest.py; other boxes of the machine do not."""
    found = set()
    ours = len(attack.status_of(os.getpid())["NSpid"].split())
    for pid in boxlib.children_of(os.getpid()):
        try:
            s = attack.status_of(pid)
            if len(s["NSpid"].split()) > ours and not s["State"].startswith(("Z", "X")):
                found.add(pid)
        except (OSError, KeyError, ValueError):
            continue
    return found


def start(program, probe, *command, **kw):
    return subprocess.Popen([str(program), "run", *map(str, probe.mount), "--", attack.PROBE, *command], stdin=subprocess.DEVNULL,
                            stdout=kw.pop("stdout", subprocess.DEVNULL), stderr=subprocess.DEVNULL, env=boxlib.base_env(), **kw)


def test_control(own_program, probe):
    """The scan sees a living box: init and the command."""
    mark = "ctl" + uuid.uuid4().hex
    before = namespaced()
    p = start(own_program, probe, "sleep", mark)
    try:
        assert attack.wait_marked(mark)
        assert len(namespaced() - before) >= 2
        assert p.pid in alive(own_program, mark)
    finally:
        p.kill()
        p.wait()
    assert attack.no_marked(mark)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV, signal.SIGABRT])
def test_death_at_any_moment(own_program, probe, sig):
    """Killed between 0 and 5 ms after its start, then later, while the command runs."""
    mark = "kill" + uuid.uuid4().hex
    before, mounts = namespaced(), boxlib.mounts_now()
    rng = random.Random(int(sig))
    for i in range(RUNS if sig == signal.SIGKILL else RUNS // 4):
        p = start(own_program, probe, "sleep", mark)
        time.sleep(rng.uniform(0, 0.005) if i % 6 else rng.uniform(0.005, 0.03))
        p.send_signal(sig)
        try:
            assert p.wait(boxlib.HANG) != 0
        finally:
            p.kill()
            p.wait()
    assert boxlib.wait_for(lambda: not alive(own_program, mark) and not namespaced() - before), \
        f"left behind: {alive(own_program, mark)}, {namespaced() - before}"
    assert boxlib.mounts_now() == mounts


@pytest.mark.parametrize("stop", [False, True])
def test_a_stubborn_family_dies_with_its_owner(own_program, probe, stop):
    """setsid, double forks, ignored signals, stopped processes; also when the owner itself was stopped before."""
    mark = "stub" + uuid.uuid4().hex
    before = namespaced()
    p = start(own_program, probe, "stubborn", mark)
    assert attack.wait_marked(mark, 4)
    if stop:
        p.send_signal(signal.SIGSTOP)
    p.kill()
    p.wait(boxlib.HANG)
    gone = boxlib.wait_for(lambda: not boxlib.find_marked(mark) and not namespaced() - before)
    for pid in namespaced() - before:
        os.kill(pid, signal.SIGKILL)
    assert gone


def test_a_stopped_init_dies_with_its_owner(own_program, probe):
    """One that stands still, as in a mount that hangs, reads no hang-up; the death signal reaches it all the same."""
    mark = "stop" + uuid.uuid4().hex
    p = start(own_program, probe, "sleep", mark)
    pids = attack.wait_marked(mark)
    assert pids
    init = attack.init_of(pids[0])
    os.kill(init, signal.SIGSTOP)
    assert boxlib.wait_for(lambda: attack.status_of(init)["State"].startswith("T")), "no control"
    p.kill()
    p.wait(boxlib.HANG)
    gone = boxlib.wait_for(lambda: not boxlib.find_marked(mark) and init not in namespaced())
    if not gone:
        os.kill(init, signal.SIGKILL)
    assert gone


def test_a_stubborn_family_dies_with_its_command(probe):
    mark = "stub" + uuid.uuid4().hex
    before = namespaced()
    r = probe.run("stubborn", mark, "leave")
    assert r.rc == 0 and r.o.out == "ready\n", r
    assert attack.no_marked(mark)
    assert boxlib.wait_for(lambda: not namespaced() - before)


def test_control_of_the_family(probe):
    """Outside they do live on."""
    mark = "stub" + uuid.uuid4().hex
    subprocess.run([str(probe.path), "stubborn", mark, "leave"], stdout=subprocess.DEVNULL, check=True, timeout=20)
    left = boxlib.find_marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) >= 3
    assert attack.no_marked(mark)


def test_started_by_a_thread_that_ends(own_program, probe):
    """The parent-death signal goes with the thread that forked; a box must not die with a thread of its user's program."""
    mark = "thread" + uuid.uuid4().hex
    started = []
    t = threading.Thread(target=lambda: started.append(start(own_program, probe, "sleep", mark)))
    t.start()
    t.join()
    p = started[0]
    try:
        assert attack.wait_marked(mark)
        time.sleep(0.3)
        assert p.poll() is None and boxlib.find_marked(mark)
    finally:
        p.kill()
        p.wait()
    assert attack.no_marked(mark)


def killed_from_outside(probe, whom):
    """Exit code and outcome of a box in which somebody on the host kills whom(command's pid)."""
    mark = "out" + uuid.uuid4().hex
    with boxlib.running("--json", *probe.mount, "--", attack.PROBE, "sleep", mark, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        pids = attack.wait_marked(mark)
        assert pids
        os.kill(whom(pids[0]), signal.SIGKILL)
        out, _ = p.communicate(timeout=boxlib.HANG)
    assert attack.no_marked(mark)
    return p.returncode, boxlib.json.loads(out)


def test_init_killed_from_outside_is_told(probe):
    """The command is dead with it, and cloche ends."""
    rc, o = killed_from_outside(probe, attack.init_of)
    assert o["fault"]["type"] == "init_lost" and rc == 125, o


def test_command_killed_from_outside_is_told(probe):
    rc, o = killed_from_outside(probe, lambda pid: pid)
    assert o["fault"]["type"] == "killed" and rc == 137, o


def test_no_process_of_ours_is_dumpable_in_the_box(box):
    """All that a box sees of processes are its own."""
    r = box("--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l; ps -e 2>/dev/null | wc -l; true")
    assert int(r.o.out.split()[0]) <= 4, r
    assert pathlib.Path("/proc/1").exists()


def test_many_starts_leave_nothing(probe):
    """Descriptors, mounts, cgroups and temporary files are counted over 40 boxes that end in different ways."""
    looks = boxlib.mounts_now, boxlib.groups_left, boxlib.temp_left, namespaced
    before = [look() for look in looks]
    for i in range(40):
        args = (("fds",), ("end", "mount"), ("sys", "ptrace:child"), ("init", "kill:KILL"))[i % 4]
        assert probe.run(*args).rc == (159 if args[0] == "end" else 0)
    # What is new, not what differs: other boxes of the machine may end meanwhile.
    assert boxlib.wait_for(lambda: not any(look() - old for look, old in zip(looks, before)))
