"""System calls: what is refused while the box goes on, and what is not there at all. The calls that end a box are in test_escape.py.

One run outside and one inside answer for all rows, so that each row costs nothing and still has an id of its own.
"""
import platform

import pytest

from . import attack

NS = ("mnt", "cgroup", "uts", "ipc", "user", "pid", "net")
X86 = platform.machine() == "x86_64"

# What works outside and must go on working inside: without these rows an attack could "fail" because nothing runs at all.
WORKS = ("getpid", "fork", "personality-query")

# Attack -> what a program in the box must be told. These succeed outside, or reach the kernel's own check.
REFUSED = {
    **{f"{how}:{ns}": "EPERM" for how in ("unshare", "clone", ) for ns in NS},
    **{f"unshare:user+{ns}": "EPERM" for ns in NS},
    "unshare:time": "EPERM", "unshare:user+time": "EPERM", "clone:user-high-bits": "EPERM",
    "clone3": "ENOSYS", "clone3:user": "ENOSYS",
    "io_uring_setup": "ENOSYS", "io_uring_enter": "ENOSYS", "io_uring_register": "ENOSYS",
    "keyctl:session": "ENOSYS", "keyctl:user": "ENOSYS", "add_key": "ENOSYS", "request_key": "ENOSYS",
    "userfaultfd": "ENOSYS", "perf_event_open": "ENOSYS", "open_by_handle_at": "ENOSYS", "syslog": "ENOSYS",
    "ptrace:traceme": "EPERM", "ptrace:child": "EPERM",
    "process_vm_readv:child": "EPERM", "process_vm_writev:child": "EPERM", "pidfd_getfd:child": "EPERM",
    "personality:read-implies-exec": "EPERM",
    "chroot": "EPERM", "sethostname": "EPERM", "setdomainname": "EPERM", "clock_settime": "EPERM", "settimeofday": "EPERM",
    "vhangup": "EPERM", "fanotify_init": "ENOSYS", "capset": "EPERM", "setuid:0": "refused", "setgid:0": "refused",
    "setgroups": "EPERM", "seccomp:listener": "EBUSY", "unshare:user-high-bits": "refused",
}
if X86:
    REFUSED |= {"i386:getpid": "SIGSYS", "i386:mount": "SIGSYS", "iopl": "EPERM", "ioperm": "EPERM",
                "x32:getpid": "dead", "x32:mount": "dead"}
NOT_THERE = ("number:511", "number:huge")

# Refused by the kernel outside as well, when the caller is not root or the kernel was built without it: no control in that case.
NEEDS_ROOT = {"open_by_handle_at", "syslog", "sethostname", "setdomainname", "fanotify_init", "vhangup", "setgroups", "perf_event_open"}
# Outside these get as far as the kernel's check of arguments made invalid on purpose; any errno but these two says so.
FAR_ENOUGH = {"io_uring_enter", "io_uring_register", "request_key", "clock_settime", "settimeofday", "i386:mount"}
NO_CONTROL = {"x32:getpid", "x32:mount", "iopl", "ioperm", "unshare:user-high-bits"}  # may be built out of the kernel, or invalid


@pytest.fixture(scope="module")
def outside(probe):
    return probe.outside("sys", unshare="mp")


@pytest.fixture(scope="module")
def run(probe):
    r = probe.run("sys")
    assert r.rc == 0 and r.o.fault is None, r
    return r


@pytest.fixture(scope="module")
def inside(run):
    return attack.answers(run.o.out)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name, outside, inside):
    want, got = REFUSED[name], inside[name]
    control = outside[name]
    if name in FAR_ENOUGH:
        assert control not in ("EPERM", "ENOSYS"), f"no control: outside, {name} is {control} too"
    elif name not in NO_CONTROL and (attack.boxlib.IS_ROOT or name not in NEEDS_ROOT):
        assert control == "ok", f"no control: outside, {name} is {control}"
    if want == "refused":
        assert got != "ok"
    elif want == "dead":  # a kernel without the ABI may answer before the filter does
        assert got in ("SIGSYS", "ENOSYS")
    else:
        assert got == want


@pytest.mark.parametrize("name", WORKS)
def test_works(name, outside, inside):
    assert (outside[name], inside[name]) == ("ok", "ok")


@pytest.mark.parametrize("name", NOT_THERE)
def test_unknown_number(name, inside):
    assert inside[name] in ("ENOSYS", "SIGSYS")  # the huge one has the x32 bit


def test_every_attack_is_judged(probe):
    listed = set(attack.subprocess.run([str(probe.path), "sys", "--list"], capture_output=True, text=True, check=True).stdout.split())
    known = set(REFUSED) | set(WORKS) | set(NOT_THERE) | {"name_to_handle_at", "modify_ldt:read", "personality:no-randomize"}
    assert listed - known == set()


def test_denials_are_recorded(run):
    """ptrace and requests for namespaces are told to the caller, with what would allow them where a rule may."""
    what = {d["what"]: d for d in run.o["denied"] if d["kind"] == "syscall"}
    assert {"ptrace", "process_vm_readv", "process_vm_writev", "unshare", "clone"} <= set(what)
    assert what["ptrace"]["allow_with"] == "--seccomp-rule allow=ptrace"
    assert what["unshare"]["allow_with"] is None
    assert all(d["comm"] == "probe" and d["pid"] for d in what.values())


def test_a_flood_of_denials_is_bounded(probe):
    """100,000 recorded refusals: all refused, and neither the outcome nor cloche grows with them."""
    r = probe.run("flood", 100000, timeout=120)
    assert r.rc == 0 and r.o.out == "flood ok 100000\n", r.rc
    assert 0 < len(r.o["denied"]) <= 1024
    assert len(r.out) < 1 << 20


def test_a_rule_lifts_one_call_only(probe):
    got = probe.inside("sys", "ptrace:child", "process_vm_readv:child", "unshare:user", opts=("--seccomp-rule", "allow=ptrace"))
    assert got == {"ptrace:child": "ok", "process_vm_readv:child": "EPERM", "unshare:user": "EPERM"}


@pytest.mark.parametrize("name", ["mount", "setns", "bpf", "pivot_root", "fsopen", "kexec_load", "reboot"])
def test_no_rule_opens_the_ending_set(box, name):
    r = box("--seccomp-rule", f"allow={name}", "--", "true", json=False)
    assert r.rc == 2
    assert r.out == b""


@pytest.mark.parametrize("call", ["openat2", "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"])
def test_no_rule_opens_a_way_round_the_argument_checks(probe, ws, call):
    """openat2 carries a file's mode behind a pointer, clone3 the namespace flags, io_uring whole calls: allowed, they would bring back set-id
    files, namespaces and every family of sockets. No rule may."""
    r = probe.run("setid", "/workspace", "openat2:suid", opts=("--workspace", ws, "--seccomp-rule", f"allow={call}"), json=False)
    for path in ws.rglob("*"):
        assert not path.lstat().st_mode & 0o6000, r
    r = probe.run("sys", "clone3:user", "io_uring_setup", opts=("--seccomp-rule", f"allow={call}"), json=False)
    assert b" ok " not in r.out and r.rc == 2, r


@pytest.mark.parametrize("profile", [(), ("--security-profile", "untrusted"), ("--read-only",), ("--network", "host"),
                                     ("--cap-drop", "ALL"), ("--user", "0"), ("--supervised",)])
def test_the_filter_stands_in_every_kind_of_box(probe, profile):
    got = probe.inside("sys", "getpid", "unshare:user", "clone3", "ptrace:child", "io_uring_setup", "keyctl:session",
                       *(["i386:getpid"] if X86 else []), opts=profile)
    want = {"getpid": "ok", "unshare:user": "EPERM", "clone3": "ENOSYS", "ptrace:child": "EPERM", "io_uring_setup": "ENOSYS",
            "keyctl:session": "ENOSYS"}
    if X86:
        want["i386:getpid"] = "SIGSYS"
    assert got == want
