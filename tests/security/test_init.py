"""Process 1 holds the box's life: nothing in the box may read it, write it, slow it or end it.

The control is `probe as-init`: an ordinary process 1 in namespaces of its own, attacked by its child in the same ways.
"""
import os
import pathlib
import shutil
import uuid

import pytest

from . import attack
from .attack import boxlib

SELF = ("prlimit:self", "priority:self")  # aimed at oneself: allowed
# Signals reach init and do nothing: it has no handlers. Both answers are right as long as it lives.
SIGNALS = ("kill:TERM", "kill:STOP", "kill:KILL", "kill:INT", "kill:HUP", "kill:USR1", "kill:SEGV", "kill:CHLD", "kill:QUIT", "kill:TSTP",
           "kill:PIPE", "kill:tgkill", "kill:queue", "kill:pidfd", "kill:realtime")
READS = {"prlimit:get"}  # reads a number and changes nothing
NEEDS_ROOT = {"stack", "process_madvise"}  # refused to an ordinary user everywhere
NO_CONTROL = {"migrate_pages", "setpgid", "priority:group"}  # wrong arguments or no such group outside
ATTACKS = ("mem", "environ", "maps", "smaps", "pagemap", "stack", "syscall", "auxv", "io", "cmdline", "status", "mountinfo", "mounts", "stat",
           "comm", "cgroup", "fdinfo", "fd", "task", "root", "cwd", "exe", "ns_mnt", "ns_user", "ns_pid", "ns_net", "mem:write", "exe:write",
           "oom:write", "root:enter", "ns:open", "ptrace", "process_vm_readv", "pidfd_getfd", "kcmp", "process_madvise", "migrate_pages",
           "prlimit:cpu", "priority", "priority:group", "priority:user", "priority:user0", "affinity", "schedattr", "scheduler",
           "schedparam", "ioprio", "ioprio:user", "setpgid")
FATAL = {"prlimit:cpu"}  # ends the control's init, so it has a run of its own there


@pytest.fixture(scope="module")
def outside(probe):
    names = [a for a in ATTACKS if a not in FATAL]
    got = probe.outside("as-init", *names, unshare="mp")
    got |= probe.outside("as-init", "prlimit:cpu", unshare="mp")
    return got


@pytest.fixture(scope="module")
def inside(probe):
    """Every attack in one box, and the box must end by itself: had one of them worked on init, it could not."""
    return probe.inside("init")


@pytest.mark.parametrize("name", ATTACKS)
def test_init_is_out_of_reach(name, outside, inside):
    if name not in NO_CONTROL and (boxlib.IS_ROOT or name not in NEEDS_ROOT):
        assert outside[name] == "ok", f"no control: on an ordinary init, {name} is {outside[name]}"
    assert inside[name] != "ok"


@pytest.mark.parametrize("name", SELF)
def test_the_same_calls_on_oneself_work(name, inside):
    assert inside[name] == "ok"


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_do_not_end_init(name, inside):
    assert inside[name] in ("ok", "EPERM")


def test_every_attack_is_judged(inside):
    assert set(inside) - set(ATTACKS) - set(SIGNALS) - set(SELF) - READS == set()


def test_init_goes_on_in_every_kind_of_box(probe):
    for opts in (("--security-profile", "untrusted"), ("--user", "0"), ("--network", "host")):
        got = probe.inside("init", "prlimit:cpu", "kill:KILL", "kill:STOP", "environ", "mem", "ptrace", opts=opts)
        assert got["prlimit:cpu"] == got["ptrace"] == "EPERM", opts
        assert got["environ"] != "ok" and got["mem"] != "ok", opts


def test_priorities_of_init_are_untouched(probe, ws):
    """Asks the host: neither nice value, CPU set nor limits of init moved, whatever the attacks were told."""
    mark = uuid.uuid4().hex
    with boxlib.running(*probe.mount, "--", attack.PROBE, "sleep", mark) as p:
        pid = wait = attack.wait_marked(mark)
        assert wait, p
        pid = attack.init_of(pid[0])
        before = pathlib.Path("/proc", str(pid), "limits").read_text() if boxlib.IS_ROOT else None
        nice = pathlib.Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[16]
        assert nice == str(os.getpriority(os.PRIO_PROCESS, 0))
        assert before is None or "Max cpu time              unlimited" in before


def test_init_is_not_to_be_seen(box):
    """Nothing of what is not the box's user's own to look at is listed in /proc (hidepid)."""
    r = box("--", "sh", "-c", "ls -d /proc/[0-9]*; ls -d /proc/$$ /proc/1")
    assert "/proc/1" not in r.o.out.split() and len(r.o.out.split()) >= 2, r


def test_init_is_not_dumpable_for_its_owner(probe):
    """The same user on the host, without the box around him, can't look into init either: ptrace would be a way in for any of his boxes."""
    if boxlib.IS_ROOT:
        pid_owner_may = lambda pid: True  # root may look at everything
    else:
        pid_owner_may = lambda pid: os.access(f"/proc/{pid}/environ", os.R_OK)
    mark = uuid.uuid4().hex
    with boxlib.running(*probe.mount, "--", attack.PROBE, "sleep", mark):
        pids = attack.wait_marked(mark)
        assert pids
        init = attack.init_of(pids[0])
        assert os.stat(f"/proc/{init}/status").st_uid == 0, "files of a dumpable process belong to its user"
        if not boxlib.IS_ROOT:
            assert not pid_owner_may(init)


def test_init_shows_nothing_of_the_caller_in_argv(probe):
    mark = "secret-" + uuid.uuid4().hex
    with boxlib.running(*probe.mount, "-e", f"TOKEN={mark}", "--", attack.PROBE, "sleep", "x" + mark[7:]):
        pids = attack.wait_marked("x" + mark[7:])
        assert pids
        line = pathlib.Path("/proc", str(attack.init_of(pids[0])), "cmdline").read_bytes()
        assert mark.encode() not in line
        assert b"--" not in line


def test_rights_over_processes_do_not_reach_init(probe):
    """With ptrace allowed by rule and its capability kept, a box may debug its own programs; init's memory belongs to the host's user
    namespace and stays closed."""
    names = ("ptrace", "mem", "environ", "maps", "process_vm_readv", "pidfd_getfd", "mem:write", "exe", "root:enter", "kill:KILL")
    rules = [w for c in ("ptrace", "process_vm_readv", "pidfd_getfd") for w in ("--seccomp-rule", f"allow={c}")]
    opts = ("--cap-add", "SYS_PTRACE", *rules)
    control = probe.inside("sys", "ptrace:child", "process_vm_readv:child", opts=opts)
    assert set(control.values()) == {"ok"}, "no control"
    got = probe.inside("init", *names, opts=opts)
    assert {n: v for n, v in got.items() if v == "ok" and not n.startswith("kill")} == {}


# -- the program itself: overwriting /proc/self/exe --

@pytest.mark.parametrize("how", ["direct", "script", "link"])
def test_the_program_is_not_run_inside(box, ws, how):
    """Before exec, /proc/self/exe is cloche's own file. Run in the box, it could be opened there and overwritten on the host."""
    if how == "script":
        (ws / "x").write_text("#!/proc/self/exe\n")
        (ws / "x").chmod(0o755)
        command = ["/workspace/x"]
    elif how == "link":
        (ws / "x").symlink_to("/proc/self/exe")
        command = ["/workspace/x", "version"]
    else:
        command = ["/proc/self/exe", "version"]
    r = box("--workspace", ws, "--", *command)
    shown = boxlib.cloche("version").out.decode().strip()
    assert shown, "no control"
    assert shown not in r.o.out
    assert "cloche" not in r.o.out + r.o.err
    assert r.o.fault_type == "exec_failed", r


def test_nothing_in_the_box_can_write_the_program(box, probe, ws):
    """A private copy of the program, writable by its user: it runs a box in which everything that may lead to it is opened for writing."""
    mine = ws / "cloche"
    shutil.copy2(boxlib.CLOCHE, mine)
    mine.chmod(0o755)
    before = mine.read_bytes()
    argv = [str(mine), "run", "--json", *probe.mount, "--", "/bin/sh", "-c",
            "for p in /proc/[0-9]*/exe /proc/self/exe /proc/1/exe; do echo \"$p $(readlink $p)\"; done;"
            "for p in /proc/[0-9]*/exe /proc/self/exe; do (: >>$p) 2>/dev/null; done; true"]
    r = boxlib.communicate(argv).parse()
    assert r.rc == 0, r
    assert str(mine) not in r.o.out
    assert "/cloche" not in r.o.out
    assert mine.read_bytes() == before
