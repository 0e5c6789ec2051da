"""Boxes of a session live exactly as long as who owns them: the loop, the spawner, the keeper. What kills one of these at whatever moment leaves
no process; and nothing of theirs is in a box."""
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import spawner
from spawner import Spawner

from . import attack
from .attack import boxlib
from .test_lifecycle import namespaced

AHEAD = 2  # boxes that a busy sandbox has ready
KILLS = int(os.environ.get("CLOCHE_KILLS", "40"))


def marked(mark, n=1):
    return boxlib.wait_for(lambda: len(boxlib.find_marked(mark)) >= n)


def all_gone(mark, before):
    return boxlib.wait_for(lambda: not boxlib.find_marked(mark) and not namespaced() - before)


@pytest.fixture
def mark():
    return f"300.{random.randrange(10**6, 10**7)}"


@pytest.mark.parametrize("whom", ["spawner", "keepers", "both"])
def test_killed_at_any_moment(mark, whom):
    before, rng = namespaced(), random.Random(whom)
    for i in range(KILLS):
        with Spawner() as s:
            calls = [s.call("sh", "-c", f"setsid sleep {mark} & sleep {mark}") for _ in range(2)]
            if i == 0:  # the control: they do live
                assert all(c.until(lambda c=c: c.started) for c in calls) and marked(mark, 4)
            time.sleep(rng.uniform(0, 0.012))
            keepers = s.keepers()
            if whom != "keepers":
                s.kill()
            if whom != "spawner":
                for pid in keepers:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                if whom == "keepers" and len(keepers) < 2:
                    continue
            for c in calls:
                assert c.wait().outcome is None, c.outcome
            if whom == "keepers":  # the others of the sandbox, and it, go on
                assert boxlib.wait_for(lambda: not keepers & s.keepers())
                assert s.run("echo", "well").out == "well\n"
    assert all_gone(mark, before), (boxlib.find_marked(mark), namespaced() - before)
    assert boxlib.box("true").rc == 0  # and sweeps what a killed keeper could not remove
    assert boxlib.wait_for(lambda: not boxlib.groups_left()), boxlib.groups_left()


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


LOOP = textwrap.dedent("""
    import sys, time
    sys.path[:0] = [sys.argv[1]]
    from spawner import Spawner
    s = Spawner()
    calls = [s.call("sh", "-c", f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}") for _ in range(3)]
    print(s.p.pid, flush=True)
    time.sleep(300)
""")


@pytest.mark.parametrize("delay", [0, 0.003, 0.3])
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_the_loop_is_killed(mark, delay, sig):
    before = namespaced()
    for _ in range(2):
        p = subprocess.Popen([sys.executable, "-c", LOOP, str(boxlib.TESTS / "lib"), mark], stdout=subprocess.PIPE, env=os.environ)
        pid = int(p.stdout.readline())
        boxlib.STARTED.add(pid)
        time.sleep(delay)
        if delay > 0.1:
            assert marked(mark, 6), "no control"
            boxlib.STARTED.update(boxlib.children_of(pid))
        p.send_signal(sig)
        p.wait(boxlib.HANG)
        p.stdout.close()
        assert boxlib.wait_for(lambda: not lives(pid)), "the spawner lives on"
    assert all_gone(mark, before)
    assert not boxlib.groups_left()  # it was told, so everything went in order


def test_a_call_whose_control_hangs_up_ends(mark):
    before = namespaced()
    with Spawner() as s:
        for delay in [0, 0.002, 0.005, 0.3]:
            c = s.call("sleep", mark)
            other = s.call("sh", "-c", "read x; echo still here", stdin=None, pty=(24, 80))
            time.sleep(delay)
            c.drop()
            assert all_gone_but(other, mark), delay
            os.write(other.input, b"\n")
            assert "still here" in other.wait().out
    assert all_gone(mark, before)


def all_gone_but(_other, mark):
    return boxlib.wait_for(lambda: not boxlib.find_marked(mark))


def test_a_closed_sandbox_ends_in_order(mark):
    before = namespaced()
    with Spawner() as s:
        calls = [s.call("sh", "-c", f"trap '' TERM INT HUP; setsid sleep {mark} & while :; do sleep 0.1; done") for _ in range(4)]
        assert all(c.until(lambda c=c: c.started) for c in calls) and marked(mark, 4)
        s.keepers()
        s.close()
        assert s.p.wait(boxlib.HANG) == 0
        assert not boxlib.find_marked(mark)  # gone when it has ended, not some time later
        for c in calls:
            assert c.wait().fault == "cancelled"
    assert all_gone(mark, before)
    assert not boxlib.groups_left()


def test_a_box_has_three_descriptors_and_nobody_gathers_more():
    with Spawner() as s:
        look = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1], [os.readlink(f'/proc/self/fd/{i}') for i in range(3)])"
        first = s.run("python3", "-c", look)
        assert first.out.startswith("[0, 1, 2] ['/dev/null', 'pipe:["), first.out
        mine = len(os.listdir("/proc/self/fd"))
        calls = [s.call("sh", "-c", "ls /proc/self/fd | wc -l", stdin=b"") for _ in range(12)]
        assert {c.wait().out for c in calls} == {"4\n"}
        for _ in range(30):
            assert s.code("pass").fault is None
        assert len(os.listdir("/proc/self/fd")) == mine
        its = 7 + AHEAD  # 0 to 2, the loop, signals, the holder (2)
        assert boxlib.wait_for(lambda: len(s.keepers()) == AHEAD and len(os.listdir(f"/proc/{s.p.pid}/fd")) == its)
        with open(f"/proc/{s.p.pid}/status", encoding="ascii") as f:
            assert "Threads:\t1\n" in f.read()


def test_of_a_call_nobody_holds_the_streams_but_the_box():
    """A keeper that kept the other end would keep the reader of a pipe waiting, and one call's writer could be another's reader."""
    with Spawner() as s:
        c = s.call("sh", "-c", "exec >&- 2>&-; sleep 300")
        d = s.call("sleep", "300")
        assert c.until(lambda: not c.streams), "still held"
        assert d.until(lambda: d.started) and len(d.streams) == 2  # the control
        c.cancel()
        d.cancel()
        c.wait()
        d.wait()


def test_nothing_of_the_callers_signals_and_limits_is_inherited(box):
    ask = ("import os, resource, signal; s = dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\\t' in l);"
           "print(*[s[k] for k in ('SigIgn', 'SigBlk', 'SigCgt', 'NoNewPrivs', 'Seccomp', 'CapPrm', 'CapBnd')],"
           "*[resource.getrlimit(i) for i in range(16)], os.umask(0), os.getpgrp() == os.getpid())")
    # Python itself ignores SIGPIPE and SIGXFSZ.
    want = box("python3", "-c", ask).o.out

    def spoil():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM})
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        os.umask(0o177)

    with Spawner(before=spoil) as s:
        assert s.run("python3", "-c", ask).out == want
        c = s.call("sleep", "300")
        assert c.until(lambda: c.started)
        c.cancel()
        assert c.wait().fault == "cancelled"
        assert boxlib.wait_for(lambda: not s.busy() and len(s.keepers()) <= AHEAD), "unreaped"


def test_a_keeper_is_ended_by_what_would_end_cloche(mark):
    with Spawner() as s:
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            c = s.call("sh", "-c", f"trap 'echo heard' TERM INT HUP; while :; do sleep {mark[:-6]}01; done")
            assert c.until(lambda c=c: c.started)
            (pid,) = s.busy()
            os.kill(pid, sig)
            assert (c.wait().fault, c.out) == ("cancelled", "")
        c = s.call("sleep", "300")
        assert c.until(lambda: c.started)
        (pid,) = s.busy()
        os.kill(pid, signal.SIGSEGV)
        assert c.wait().outcome is None  # as one that was killed


def test_a_sandbox_is_out_of_reach_of_the_terminals_keys():
    with Spawner() as s:
        assert os.getsid(s.p.pid) == s.p.pid
        c = s.call("sleep", "300")
        assert c.until(lambda: c.started)
        os.killpg(os.getpgrp(), signal.SIGURG)
        c.cancel()
        assert c.wait().fault == "cancelled"


def test_hostile_words_of_a_keepers_control(mark):
    """The loop is the same program; what else comes ends the call, and nothing worse."""
    rng = random.Random(7)
    with Spawner() as s:
        for i in range(12):
            c = s.call("sleep", mark)
            assert i or c.until(lambda c=c: c.started)
            c.control.send(rng.randbytes(rng.choice([1, 8, 23, 25, 100])) if i % 2 else b"\x63" + bytes(23))
            assert c.wait().fault == "cancelled"
        for sig in (0, 65, -1, 2**31 - 1):
            c = s.call("sh", "-c", "echo up; sleep 0.2")
            assert c.until(lambda c=c: c.out)
            c.signal(sig)
            assert (c.wait().fault, c.outcome["exit_code"]) == (None, 0)
    assert not boxlib.find_marked(mark)
