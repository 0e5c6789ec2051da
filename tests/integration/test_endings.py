"""The table of endings: each way a box can end has its own fault and its own exit code, and takes everything with it."""
import os
import signal
import time
import uuid

import boxlib
import pytest

MOUNT = "import ctypes; print('trying', flush=True); ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None); print('went on')"


def check(r, rc, fault, exit_code="same"):
    assert (r.rc, r.o.fault_type) == (rc, fault), r
    if exit_code != "any":
        assert r.o["exit_code"] == (rc if exit_code == "same" else exit_code), r
    if fault:
        assert r.o.fault["message"] and "\n" not in r.o.fault["message"]
    return r.o


def streamed(r, rc, fault):
    """The same ending without --json: one line on stderr that names it, as the last line."""
    lines = r.err.decode().splitlines()
    assert r.rc == rc, r
    assert lines and lines[-1].startswith(f"cloche: {fault}: "), r
    assert sum(line.startswith("cloche: ") for line in lines) == 1, r


# T5: the memory cap, reached in three ways; a chosen 137; a kill from outside; the deadline.

@pytest.mark.parametrize("how", ["gradual", "once", "child", "threads"])
def test_oom(box, probe, how):
    path = probe.path("memory")
    o = check(box("--memory", "64m", *probe.mount, path, how, 96, 30000), 137, "oom")
    # On v2 the whole group is gone in one go: what filled it is known only where a look came before.
    assert o.fault["filled_by"] in (["anonymous", None] if o["limits"]["memory"]["rung"] != "supervised" else ["anonymous"]), o.fault
    assert "parent went on" not in o.out and "survived" not in o.out
    assert o["limits"]["memory"]["effective"] <= 64 << 20


@pytest.mark.parametrize("how", ["gradual", "once", "child"])
def test_oom_control_below_the_cap(box, probe, how):
    path = probe.path("memory")
    o = check(box("--memory", "256m", *probe.mount, path, how, 96, 50), 0, None)
    assert "survived" in o.out or "parent went on" in o.out


def test_oom_by_files_in_shm_names_it(box, probe):
    path = probe.path("memory")
    args = ("--memory", "64m", "--shm-size", "60m", *probe.mount)
    fill = f"{path} file 50 0 /dev/shm/f && {path} gradual 40 3000"
    r = box(*args, "sh", "-c", fill)
    if r.o["limits"]["memory"]["rung"] == "supervised":  # says of itself that it sees no file in memory; those have sizes of their own
        check(r, 0, None)
        return
    # One counter of the kernel for both. Where all of a box is killed at once, a busy machine may look too late: it says then that it does not know.
    told = [check(r, 137, "oom").fault["filled_by"]]
    while told[-1] is None and len(told) < 5:
        told.append(check(box(*args, "sh", "-c", fill), 137, "oom").fault["filled_by"])
    assert told[-1] in ("shm", "tmpfs"), told
    check(box(*args, path, "file", "40", "0", "/dev/shm/f"), 0, None)


def test_oom_streamed(box, probe):
    streamed(box("--memory", "64m", *probe.mount, probe.path("memory"), "gradual", 96, 30000, json=False), 137, "oom")


@pytest.mark.parametrize("code", [137, 143, 159, 124, 125, 126, 127, 130, 128, 2])
def test_a_chosen_code_is_no_fault(box, code):
    check(box("sh", "-c", f"exit {code}"), code, None)
    r = box("sh", "-c", f"exit {code}", json=False)
    assert (r.rc, r.err) == (code, b"")


@pytest.mark.parametrize("sig", ["TERM", "ABRT", "SEGV", "PIPE", "USR1", "HUP", "ALRM"])
def test_own_signal_is_no_fault(box, sig):
    n = getattr(signal, "SIG" + sig)
    o = check(box("sh", "-c", f"kill -{sig} $$; sleep 5"), 128 + n, None)
    assert o["signal"] == n


def test_own_sigkill_is_told_as_a_kill(box):
    """Nobody can tell who sent a SIGKILL; that cloche did not is known."""
    o = check(box("sh", "-c", "echo before; kill -KILL $$"), 137, "killed")
    assert (o.out, o["signal"]) == ("before\n", 9)


def pids_of_box(p):
    """(init, command) of a running `cloche`, once the command runs."""
    def look():
        kids = boxlib.children_of(p.pid)
        for line in kids:
            try:
                with open(f"/proc/{line}/cmdline", "rb") as f:
                    if b"300.25" in f.read() and kids[line] == "sleep":
                        with open(f"/proc/{line}/stat", encoding="ascii") as g:
                            return int(g.read().rsplit(")", 1)[1].split()[1]), line
            except OSError:
                continue
        return None
    return boxlib.wait_for(look)


@pytest.mark.parametrize("victim,rc,fault", [("command", 137, "killed"), ("init", 125, "init_lost")])
def test_killed_from_outside(victim, rc, fault):
    with boxlib.running("sleep", "300.25", json=True) as p:
        init, command = pids_of_box(p)
        os.kill(command if victim == "command" else init, signal.SIGKILL)
        out, err = p.communicate(timeout=boxlib.HANG)
    r = boxlib.Result(["cloche", "run", "sleep"], p.returncode, out, err, 0).parse()
    check(r, rc, fault, exit_code="any")


def test_killed_from_outside_with_term_is_the_commands_signal():
    with boxlib.running("sleep", "300.25", json=True) as p:
        os.kill(pids_of_box(p)[1], signal.SIGTERM)
        out, err = p.communicate(timeout=boxlib.HANG)
    r = boxlib.Result(["cloche", "run", "sleep"], p.returncode, out, err, 0).parse()
    check(r, 143, None)


def test_timeout(box):
    o = check(box("--timeout", "2s", "sh", "-c", "echo so far; echo err >&2; sleep 300"), 124, "timeout")
    assert (o.out, o.err) == ("so far\n", "err\n")
    assert 2000 <= o["duration_ms"] < 20000
    assert o["limits"]["timeout"]["effective"] == 2000000
    streamed(box("--timeout", "300ms", "sleep", "300", json=False), 124, "timeout")


def test_timeout_control(box):
    check(box("--timeout", "50s", "sh", "-c", "sleep 0.1; exit 4"), 4, None)


@pytest.mark.parametrize("script", ["while :; do :; done", "kill -STOP $$", "exec sleep 300 </dev/null >/dev/null 2>&1", "yes >/dev/null",
                                    "trap '' TERM INT HUP; while :; do sleep 1; done"])
def test_timeout_of_every_kind_of_loop(box, script):
    check(box("--timeout", "400ms", "sh", "-c", script), 124, "timeout")


@pytest.mark.parametrize("extra", [(), ("--kill-after", "300ms")])
def test_timeout_takes_the_stubborn_too(box, probe, extra):
    """T7: TERM-ignorers, own sessions by double fork, stopped processes."""
    mark = "mark-" + uuid.uuid4().hex
    path = probe.path("stubborn")
    with boxlib.running(*probe.mount, path, mark, json=True) as p:  # the control: the search does find them
        assert boxlib.wait_for(lambda: len(boxlib.find_marked(mark)) >= 4)
        p.send_signal(signal.SIGKILL)
        p.wait(boxlib.HANG)
    assert boxlib.wait_for(lambda: not boxlib.find_marked(mark))
    o = check(box("--timeout", "3s", *extra, *probe.mount, path, mark), 124, "timeout")
    assert o.out == f"ready {mark}\n"
    assert boxlib.wait_for(lambda: not boxlib.find_marked(mark)), boxlib.find_marked(mark)
    # The group of the one that was killed may be busy until its last process is reaped.
    assert boxlib.wait_for(lambda: box("true").rc == 0 and not boxlib.groups_left(), every=0.2), boxlib.groups_left()


def test_kill_after_sends_term_first(box):
    script = "trap 'echo asked; exit 9' TERM; while :; do sleep 0.05; done"
    o = check(box("--timeout", "2s", "--kill-after", "20s", "sh", "-c", script), 124, "timeout", exit_code="any")
    assert o.out == "asked\n"
    assert o["duration_ms"] < 22000
    o = check(box("--timeout", "300ms", "sh", "-c", script), 124, "timeout", exit_code="any")
    assert o.out == ""


def test_the_end_of_the_command_is_the_end_of_the_box(box):
    """T8: a background child neither holds the call nor outlives it."""
    mark = boxlib.seconds()
    r = box("sh", "-c", f"sleep {mark} & echo hi")
    o = check(r, 0, None)
    assert o.out == "hi\n" and r.seconds < 30
    assert not boxlib.find_marked(mark)
    o = check(box("sh", "-c", "(sleep 0.2; echo late) & exit 0"), 0, None)
    assert o.out == ""
    r = box("sh", "-c", "sleep 300 & echo hi", json=False)
    assert (r.rc, r.out) == (0, b"hi\n")


def test_output_of_a_child_that_is_already_written_arrives(box):
    for _ in range(20):
        assert box("sh", "-c", "(echo child; echo x >&2) & wait; echo parent").o.out == "child\nparent\n"


def test_the_end_takes_the_stubborn_too(box, probe):
    mark = "mark-" + uuid.uuid4().hex
    path = probe.path("stubborn")
    o = check(box(*probe.mount, "sh", "-c", f"{path} {mark} >/tmp/said & until [ -s /tmp/said ]; do sleep 0.05; done; cat /tmp/said; exit 6"), 6, None)
    assert o.out == f"ready {mark}\n"
    assert boxlib.wait_for(lambda: not boxlib.find_marked(mark))


@pytest.mark.parametrize("inside", [MOUNT, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {MOUNT!r}]); print('went on')"])
def test_escape_blocked(box, inside):
    o = check(box("python3", "-c", inside), 159, "escape_blocked")
    assert o.fault["syscall"] == "mount"
    assert o.fault["comm"].startswith("python3")
    assert o.out == "trying\n"
    assert any(d["kind"] == "syscall" and d["what"] == "mount" for d in o["denied"])
    streamed(box("python3", "-c", inside, json=False), 159, "escape_blocked")


def test_escape_by_a_background_process(box):
    script = f'python3 -c "{MOUNT}" & wait; echo shell went on; sleep 3'
    o = check(box("sh", "-c", script), 159, "escape_blocked")
    assert "went on" not in o.out


def test_no_such_command(box):
    o = check(box("no-such-command-here"), 127, "exec_failed", exit_code="any")
    assert "no-such-command-here" in o.fault["message"] and "host" in o.fault["message"]
    streamed(box("no-such-command-here", json=False), 127, "exec_failed")
    check(box("/nowhere/at/all"), 127, "exec_failed", exit_code="any")
    check(box(""), 127, "exec_failed", exit_code="any")


def test_not_executable(box, ws):
    (ws / "plain").write_text("echo no\n")
    (ws / "garbage").write_bytes(b"\x00\x01\x02 not a program")
    (ws / "garbage").chmod(0o755)
    (ws / "script").write_text("#!/no/such/interpreter\n")
    (ws / "script").chmod(0o755)
    (ws / "good").write_text("#!/bin/sh\necho good\n")
    (ws / "good").chmod(0o755)
    share = ("--workspace", ws)
    for what in ("/usr", "/workspace/plain", "/workspace/garbage", "/workspace/plain/below", "./plain"):
        r = box(*share, what)
        assert r.o.fault_type == "exec_failed" and r.rc == (127 if "below" in what and r.rc == 127 else 126), r
    r = box(*share, "./script")
    assert r.o.fault_type == "exec_failed" and r.rc in (126, 127), r
    assert box(*share, "./good").o.out == "good\n"


def test_startup_failed_names_the_stage(box):
    r = box("-w", "/no/such/place", "pwd")
    assert r.rc == 125 and r.o.fault_type == "startup_failed", r
    assert r.o.fault["stage"] == "command" and "/no/such/place" in r.o.fault["message"], r
    assert r.o["exit_code"] is None
    streamed(box("-w", "/no/such/place", "pwd", json=False), 125, "startup_failed")


def interrupt(sig, script, times=1):
    with boxlib.running("sh", "-c", script, json=True) as p:
        assert boxlib.wait_for(lambda: "sleep" in boxlib.children_of(p.pid).values())
        p.send_signal(sig)
        if times > 1:  # one at a time: two that wait together are one
            assert boxlib.wait_for(lambda: p.poll() is not None or p.send_signal(sig), every=0.3)
        out, err = p.communicate(timeout=boxlib.HANG)
    return boxlib.Result(["cloche"], p.returncode, out, err, 0).parse()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_cancelled(sig):
    o = check(interrupt(sig, "echo began; sleep 300"), 130, "cancelled", exit_code="any")
    assert o.out == "began\n"


def test_cancel_is_forwarded_once_then_forced():
    """A command that handles the signal ends as it likes; one that does not listen is ended by the second."""
    polite = "trap 'echo cleaned; exit 5' INT; while :; do sleep 0.1; done"
    o = check(interrupt(signal.SIGINT, polite), 5, None)
    assert o.out == "cleaned\n"
    deaf = "trap '' INT; while :; do sleep 0.1; done"
    check(interrupt(signal.SIGINT, deaf, times=2), 130, "cancelled", exit_code="any")


@pytest.mark.parametrize("delay", [0, 0.001, 0.002, 0.004, 0.01, 0.2])
def test_kill_of_cloche_leaves_nothing(box, delay):
    """T10: at any moment; what the kernel can't take with it goes with the next start."""
    mark = boxlib.seconds()
    for _ in range(5):
        with boxlib.running("sh", "-c", f"sleep {mark}") as p:
            time.sleep(delay)
            p.kill()
            p.wait(boxlib.HANG)
        assert boxlib.wait_for(lambda: not boxlib.find_marked(mark) and "cloche-init" not in boxlib.children_of(os.getpid()).values())
    # What was killed is reaped by this process, and a group may be busy until then.
    assert boxlib.wait_for(lambda: box("true").rc == 0 and not boxlib.groups_left() and not boxlib.temp_left(), every=0.2)


def test_fork_bomb_is_contained_and_the_next_box_is_well(box, probe):
    path = probe.path("forker")
    # Room for what the kernel frees late: processes that have ended count against memory until it gets round to them.
    o = check(box("--pids", 64, "--memory", "2g", "--timeout", "4s", *probe.mount, path, "bomb"), 124, "timeout")
    assert o["events"]["pids_max"] is None or o["events"]["pids_max"] > 0
    check(box("true"), 0, None)
