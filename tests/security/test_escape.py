"""Calls that no program of a box has a use for end it: refused for certain, recorded if possible, everything dead, code 159."""
import os
import re
import uuid

import pytest

from . import attack
from .attack import boxlib

ENDING = ("mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
          "open_tree_attr", "setns", "bpf", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
          "swapon", "swapoff", "quotactl", "quotactl_fd", "acct")
# Outside, in a mount namespace of the control's own, these really succeed; the others get as far as their bad argument, if the kernel has them.
SUCCEED = {"mount", "open_tree", "fsopen", "fspick", "open_tree_attr"}
SUCCEED_ROOT = {"setns", "bpf"}


@pytest.fixture(scope="module")
def outside(probe):
    return probe.outside("end", unshare="m")


def escaped(r, syscall, comm="probe"):
    """The whole contract of such an ending, but for what only the host can say."""
    assert r.rc == 159, r
    assert r.o.fault_type == "escape_blocked", r
    assert r.o["exit_code"] == 159, r
    if syscall is not None:
        assert r.o.fault["syscall"] == syscall, r
        assert r.o.fault["comm"] == comm, r
    assert r.o.fault["message"]


@pytest.mark.parametrize("name", ENDING)
def test_ends_the_box(probe, outside, name):
    if name in SUCCEED or (boxlib.IS_ROOT and name in SUCCEED_ROOT):
        assert outside[name] == "ok", "no control"
    r = probe.run("end", name)
    escaped(r, name)
    assert f"{name} " not in r.o.out, "the program went on and printed its answer"


@pytest.mark.parametrize("name", ["statmount", "listmount"])
def test_listing_of_mounts(probe, name):
    """They only read; refused, and no reason to end a box."""
    got = probe.inside("end", name)
    assert got[name] in ("ENOSYS", "EPERM")


@pytest.mark.parametrize("opts", [("--user", "0"), ("--security-profile", "untrusted"), ("--network", "host"), ("--read-only",),
                                  ("--cap-add", "SYS_ADMIN"), ("--supervised",)], ids="_".join)
def test_in_every_kind_of_box(probe, opts):
    if "--cap-add" in opts and probe.run("fds", opts=opts, json=False).rc == 2:
        return  # that capability is not to be had at all
    escaped(probe.run("end", "mount", opts=opts), "mount")


def test_streaming_says_it_in_one_line(probe):
    r = probe.run("end", "mount", json=False)
    assert r.rc == 159
    assert len(attack.complaints(r.err)) == 1, r
    assert re.fullmatch(rb"cloche: escape_blocked: .*mount.*", attack.complaints(r.err)[0]), r


def test_harmless_calls_do_not_end_it(probe):
    """The other side of the coin: what programs probe is refused and the box goes on."""
    r = probe.run("sys")
    assert r.rc == 0 and r.o.fault is None, r
    assert {d["what"] for d in r.o["denied"]} >= {"ptrace", "unshare"}


def test_grandchild(probe, ws):
    """By a daemon two forks away, while the first process only waits: everything is dead, and nothing lived on for a second."""
    mark = "gc" + uuid.uuid4().hex[:12]
    r = probe.run("grandchild", "naughty", "/workspace/" + mark, opts=("--workspace", ws))
    escaped(r, "mount", "naughty")
    assert "SURVIVED" not in r.o.out
    assert attack.no_marked(mark)
    assert list(ws.iterdir()) == []


def test_grandchild_control(probe, public):
    """Without the lock the same program lives on and leaves its trace."""
    probe.outside("grandchild", "naughty", "trace", unshare="m", cwd=public)  # relative: the mount that succeeds covers /tmp
    assert (public / "trace").exists()


@pytest.mark.parametrize("comm", ["\x1b[2J\x1b]0;x\x07", "a\nb\r\tc", "\x7f\x01\x02", "\"}],\\", "\xe2\x80\xae"[:3], "é" * 7, "\\n"])
def test_hostile_names(probe, ws, comm):
    """The name is the attacker's text: no control character of it reaches the terminal, and the JSON stays JSON."""
    args = ("grandchild", comm, "/workspace/trace")
    r = probe.run(*args, opts=("--workspace", ws))
    escaped(r, None)
    text = r.o.fault["message"]
    assert all(ord(c) >= 32 and ord(c) != 127 and not 0x80 <= ord(c) < 0xa0 for c in text), repr(text)
    assert all(b >= 32 for b in r.out.rstrip(b"\n")), r
    r = probe.run(*args, opts=("--workspace", ws), json=False)
    assert r.rc == 159
    assert r.err.endswith(b"\n") and len(attack.complaints(r.err)) == 1, r
    assert all(b >= 32 and b != 127 for b in r.err.replace(b"\n", b"")), r


def test_storm_under_a_timer(probe, ws):
    """20,000 calls interrupted every 30 us: a signal may eat a record, never the ending."""
    for _ in range(5):
        r = probe.run("storm", 20000, "/workspace/trace", opts=("--workspace", ws))
        escaped(r, None)
        assert r.o.fault["syscall"] in ("mount", None), r
        assert "SURVIVED" not in r.o.out and list(ws.iterdir()) == []


def test_one_interrupted_call(probe, ws):
    """The same with a single call, many times over: here nothing comes after it that could be caught instead."""
    for _ in range(30):
        r = probe.run("storm", 1, "/workspace/trace", opts=("--workspace", ws))
        escaped(r, None)
        assert list(ws.iterdir()) == []


def test_crowd(probe, ws):
    """60 processes call it in the same moment."""
    mark = "crowd" + uuid.uuid4().hex[:12]
    r = probe.run("crowd", 60, "/workspace/" + mark, opts=("--workspace", ws))
    escaped(r, "mount")
    assert attack.no_marked(mark) and list(ws.iterdir()) == []


def test_hit_and_run(probe, ws):
    """The caller and its whole process are gone before the record is read."""
    mark = "hit" + uuid.uuid4().hex[:12]
    r = probe.run("hit-and-run", "/workspace/" + mark, opts=("--workspace", ws))
    escaped(r, None)
    assert attack.no_marked(mark) and list(ws.iterdir()) == []


def test_output_before_it_is_kept(probe, ws):
    r = boxlib.box(*probe.mount, "--", "sh", "-c", f"echo before; {attack.PROBE} end mount; echo after")
    escaped(r, "mount")
    assert r.o.out == "before\n"


def test_escape_of_the_first_process_itself(box):
    """Not by our probe: by the tools that a curious user would try."""
    r = box("--", "mount", "-t", "tmpfs", "x", "/tmp")
    assert r.rc == 159 and r.o.fault_type == "escape_blocked" and r.o.fault["comm"] == "mount", r
    r = box("--", "sh", "-c", "unshare -Urm true; echo $?")
    assert r.rc == 0 and r.o.out.strip() not in ("", "0"), r


def test_a_program_that_exits_159_is_no_escape(box):
    r = box("--", "sh", "-c", "exit 159")
    assert r.rc == 159 and r.o.fault is None


def test_the_listener_is_nowhere_in_the_box(probe):
    """No process of the box holds the descriptor that could answer for it."""
    r = boxlib.box(*probe.mount, "--", "sh", "-c", "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c 'seccomp'; true")
    assert r.o.out.strip() == "0", r


def test_filter_is_inherited_by_everything(box):
    """Read back from the kernel for each process that a shell started, whatever it became."""
    r = box("--", "sh", "-c", "sleep 9 & (sleep 9 &) ; setsid sleep 9 & cat /proc/[0-9]*/status | grep -E '^(Seccomp|NoNewPrivs|CapBnd):' |"
            "sort | uniq")
    rows = set(r.o.out.replace("\t", " ").splitlines())
    assert rows == {"Seccomp: 2", "NoNewPrivs: 1", "CapBnd: 0000000000000000"}, r


def test_the_box_can_not_answer_for_itself(probe):
    """A second listener on a filtered process is refused by the kernel; ours stays the only one."""
    assert probe.inside("sys", "seccomp:listener") == {"seccomp:listener": "EBUSY"}


def test_nothing_is_left_of_an_ended_box(probe):
    before = {p for p in os.listdir("/proc") if p.isdigit()}
    mark = "left" + uuid.uuid4().hex[:12]
    r = boxlib.box(*probe.mount, "--", "sh", "-c", f"{attack.PROBE} stubborn {mark} leave; {attack.PROBE} end mount")
    escaped(r, "mount")
    assert before and attack.no_marked(mark)
