"""T38: every policy that refused an action is named with the option that lifts it. The options are taken out of the outcome, word by word, and
given to a second run: with all of them the action succeeds, with any of them missing it does not.
"""
import functools
import itertools
import json
import os
import re
import shlex
import time

import pytest

from . import attack
from .attack import boxlib

UNTRUSTED = ("--security-profile", "untrusted")


@functools.cache
def options():
    """The rows of the command line: what the short names stand for, what takes no value, and what may be given more than once."""
    rows = next(v for v in json.loads(boxlib.cloche("help", "--json").out)["verbs"] if v["name"] == "run")["options"]
    return ({"-" + r["letter"]: "--" + r["name"] for r in rows if r["letter"]},
            {"--" + r["name"] for r in rows if r["type"] == "flag"}, {"--" + r["name"] for r in rows if r["many"]})


def pairs(words):
    """Option words as [(long name, value)]."""
    long, flags, _ = options()
    found, words = [], list(map(str, words))
    while words:
        name = long.get(words[0], words[0])
        found.append((name, None if name in flags else words[1]))
        words = words[1 if name in flags else 2:]
    return found


def target(pair):
    if pair[0] == "--workspace":
        return "/workspace"
    return pair[1].split(":")[1] if pair[0] == "--volume" else None


def with_options(given, denials):
    """As OUTCOME.md says it: a refused mount's option is replaced; what can be given once, or shares the same target, takes the place of what
    was given; the rest is added behind."""
    now = pairs(given)
    for d in denials:
        if d["kind"] == "mount":
            now = [p for p in now if p not in pairs(d["what"].split(" ", 1))]
    for d in denials:
        for new in pairs(shlex.split(d["allow_with"])):
            if new in now and new[0] != "--seccomp-rule":
                continue
            if new[0] not in options()[2]:
                now = [p for p in now if p[0] != new[0]]
            if target(new):
                now = [p for p in now if target(p) != target(new)]
            now.append(new)
    return [w for name, value in now for w in ([name] if value is None else [name, value])]


def proof(given, command, works, **kw):
    """Runs it; then with every proper subset of the denials' options, which must not do; then with all. Returns the first outcome."""
    r = boxlib.box(*given, "--", *command, **kw)
    assert not works(r), f"no denial to look at: {r}"
    denied = r.o["denied"]
    assert denied, r
    assert all(d["allow_with"] and d["reason"] is None for d in denied), denied
    options = {d["allow_with"] for d in denied}
    for n in range(1, len(options)):
        for some in itertools.combinations(sorted(options), n):
            opts = with_options(given, [d for d in denied if d["allow_with"] in some])
            less = boxlib.box(*opts, "--", *command, json=False, **kw)
            assert less.rc in (2, 125) or not works(boxlib.box(*opts, "--", *command, **kw)), f"{some} would do alone: {less}"
    opts = with_options(given, denied)
    all_ = boxlib.box(*opts, "--", *command, **kw)
    assert works(all_), f"{opts}: {all_}"
    return r.o


def by_policy(denied, what):
    return {d["policy"]: d["allow_with"] for d in denied if d["what"] == what}


def calls(probe, *names, opts=()):
    return (*probe.mount, *opts), (attack.PROBE, "sys", *names), \
        lambda r: r.o is not None and all(attack.answers(r.o.out).get(n) == "ok" for n in names)


@pytest.mark.parametrize("name", ["ptrace:child", "process_vm_readv:child", "process_vm_writev:child", "pidfd_getfd:child"])
@pytest.mark.parametrize("opts", [(), UNTRUSTED], ids=["default", "untrusted"])
def test_one_policy(probe, name, opts):
    call = name.split(":")[0]
    o = proof(*calls(probe, name, opts=opts))
    assert by_policy(o["denied"], call) == {"filter": f"--seccomp-rule allow={call}"}
    (d,) = o["denied"]
    assert d["kind"] == "syscall" and d["comm"] == "probe" and d["pid"] > 1 and d["count"] >= 1


def test_filter_and_rule(probe):
    o = proof(*calls(probe, "ptrace:child", opts=("--seccomp-rule", "deny=ptrace")))
    want = "--seccomp-rule allow=ptrace"
    assert by_policy(o["denied"], "ptrace") == {"filter": want, "rule": want}
    # leaving the rule out does not do: the filter refuses by itself
    assert probe.inside("sys", "ptrace:child") == {"ptrace:child": "EPERM"}


@pytest.mark.parametrize("opts,others", [
    ((), {"capability": "--cap-add SYS_CHROOT"}),
    (("--cap-drop", "SYS_CHROOT"), {"capability": "--cap-add SYS_CHROOT"}),
    (("--cap-drop", "NET_RAW"), {}),
    (("--seccomp-rule", "deny=chroot"), {"capability": "--cap-add SYS_CHROOT", "rule": "--seccomp-rule allow=chroot"}),
    (UNTRUSTED, {"capability": "--cap-add SYS_CHROOT", "profile": "--security-profile default"}),
], ids=lambda v: "_".join(v) or "-" if isinstance(v, tuple) else None)
def test_filter_and_capability(probe, opts, others):
    o = proof(*calls(probe, "chroot", opts=opts))
    assert by_policy(o["denied"], "chroot") == {"filter": "--seccomp-rule allow=chroot", **others}


@pytest.mark.parametrize("call", ["sethostname", "setdomainname"])
def test_names_of_the_machine(probe, call):
    before = os.uname()
    o = proof(*calls(probe, call))
    assert by_policy(o["denied"], call) == {"filter": f"--seccomp-rule allow={call}", "capability": "--cap-add SYS_ADMIN"}
    assert os.uname() == before


CLOCK = "import time; time.clock_settime(time.CLOCK_REALTIME, time.time())"


def test_what_no_option_allows(box):
    """The host's clock: the filter would step aside, the kernel does not. The record says so, and it is true."""
    given = ("--cap-add", "SYS_TIME")
    o = box(*given, "--", "python3", "-c", CLOCK).o
    assert o["exit_code"] == 1
    by = {d["policy"]: d for d in o["denied"]}
    assert by["filter"]["allow_with"] == "--seccomp-rule allow=clock_settime"
    assert by["capability"]["allow_with"] is None and "CAP_SYS_TIME" in by["capability"]["reason"]
    r = box(*with_options(given, [by["filter"]]), "--", "python3", "-c", CLOCK)
    assert r.o["exit_code"] == 1 and "PermissionError" in r.o.err and r.o["denied"] == [], r


def test_namespaces_are_never_allowed(box):
    (d,) = box("--", "unshare", "-U", "true").o["denied"]
    assert (d["what"], d["policy"], d["allow_with"]) == ("unshare", "filter", None) and "namespace" in d["reason"]
    assert box("--seccomp-rule", "allow=unshare", "--", "true", json=False).rc == 2


def test_the_escape_set_is_never_allowed(box):
    o = box("--", "mount", "-t", "tmpfs", "x", "/tmp").o
    (d,) = o["denied"]
    assert (d["what"], d["allow_with"]) == ("mount", None) and "escape set" in d["reason"]
    assert o.fault["syscall"] == "mount" and o.fault["comm"] == d["comm"]


@pytest.mark.parametrize("call,python", [
    ("mkdir", "import os; os.mkdir('/tmp/d')"),
    ("sysinfo", "import os; os.sysconf('SC_PHYS_PAGES') > 0 or 1/0"),
    ("inotify_init1", "import ctypes; ctypes.CDLL(None).inotify_init1(0) < 0 and 1/0"),
])
def test_what_the_caller_denied(call, python):
    """A rule of the caller's own is a policy as well, on a call that any program makes."""
    if call == "sysinfo":
        python = "import ctypes; ctypes.CDLL(None).sysinfo(ctypes.create_string_buffer(256)) < 0 and 1/0"
    o = proof(("--seccomp-rule", f"deny={call}"), ("python3", "-c", python), lambda r: r.rc == 0)
    assert by_policy(o["denied"], call) == {"rule": f"--seccomp-rule allow={call}"}


def test_a_rule_that_no_other_rule_undoes(box):
    code = "import socket; socket.socket()"
    given = ("--seccomp-rule", "deny=socket")
    (d,) = box(*given, "--", "python3", "-c", code).o["denied"]
    assert (d["policy"], d["what"], d["allow_with"]) == ("rule", "socket", None) and "leave out" in d["reason"]
    assert box("--seccomp-rule", "allow=socket", "--", "true", json=False).rc == 2
    assert box("--", "python3", "-c", code).rc == 0


def connects(traps, where):
    """Does a stream reach the host's socket?"""
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(where) + '/stream'!r})"

    def works(r):
        hit = traps.hits()
        assert (r.rc == 0) == (hit == ["stream"]), (r, hit)
        return r.rc == 0
    return ("python3", "-c", code), works


@pytest.mark.parametrize("opts,share,policies", [
    (UNTRUSTED, ("-v", "{}:/d:rw"), {"profile"}),
    (UNTRUSTED, ("-v", "{}:/d"), {"profile"}),  # read-only by the profile's doing
    (UNTRUSTED, ("-v", "{}:/d:ro"), {"profile", "mount"}),
    ((*UNTRUSTED, "--seccomp-rule", "deny=connect"), ("-v", "{}:/d:ro"), {"rule", "profile", "mount"}),
    (("--seccomp-rule", "deny=connect"), ("-v", "{}:/d"), {"rule"}),
], ids=["rw", "implied", "ro", "three", "rule"])
def test_a_socket_of_the_host(traps, opts, share, policies):
    os.unlink(traps.dir / "fifo")
    given = (*opts, *[w.format(traps.dir) for w in share])
    o = proof(given, *connects(traps, "/d"))
    assert set(by_policy(o["denied"], "connect")) == policies
    for d in o["denied"]:
        assert d.get("path") == (None if opts[0] == "--seccomp-rule" else "/d/stream")


def test_a_socket_in_the_workspace(traps):
    os.unlink(traps.dir / "fifo")
    o = proof((*UNTRUSTED, "--workspace", traps.dir), *connects(traps, "/workspace"))
    assert by_policy(o["denied"], "connect") == {"profile": "--security-profile default"}


# ---- mounts ----

@pytest.fixture
def home(public):
    """A caller's home of its own, for the rules about what lies below it."""
    for d in (".ssh", ".config/systemd/user", "bin", "project"):
        (public / d).mkdir(parents=True)
    (public / ".bashrc").write_text("# start-up\n")
    return public


def test_a_mount_that_read_only_would_do_for(home):
    env = {"HOME": str(home)}
    for given, where in ((("-v", "/usr/share/doc:/d"), "/d"), (("-v", f"{home}/bin:/some where/d:rw"), "/some where/d"),
                         (("--workspace", home / ".config/systemd"), "/workspace")):
        o = proof(given, ("sh", "-c", f'ls "{where}" && ! touch "{where}/x"'), lambda r: r.rc == 0, env=env)
        assert o.fault_type == "startup_failed" and o.fault["stage"] in ("mount", "workspace"), o
        assert all(d["kind"] == "mount" and d["what"] == " ".join(map(str, given)) and d["path"] == str(given[1]).split(":")[0]
                   for d in o["denied"]), o
        assert o["exit_code"] is None


def test_two_rules_on_one_source(box):
    """/etc: shown to nobody as a whole, and below it nothing read-write. Giving what the second one asks for leaves the first."""
    o = box("-v", "/etc:/d", "--", "true").o
    by = {d["policy"]: d for d in o["denied"]}
    assert set(by) == {"/etc (host system path)", "/etc (host system path, read-write)"}, by
    assert by["/etc (host system path)"]["allow_with"] is None and by["/etc (host system path)"]["reason"]
    second = by["/etc (host system path, read-write)"]
    assert second["allow_with"] == "-v /etc:/d:ro"
    again = box(*with_options(("-v", "/etc:/d"), [second]), "--", "true").o
    assert again.fault_type == "startup_failed"
    assert [d["policy"] for d in again["denied"]] == ["/etc (host system path)"]


def test_a_fifo_and_a_rule(home):
    """Untrusted, a directory of start-up files with a FIFO in it: the rule is seen at once, the FIFO when the rule no longer refuses."""
    os.mkfifo(home / "project" / "pipe")
    env = {"HOME": str(home)}
    o = proof((*UNTRUSTED, "--workspace", home / "project"), ("ls", "/workspace"), lambda r: r.rc == 0, env=env)
    assert [d["policy"] for d in o["denied"]] == ["no FIFOs under untrusted"]
    o = proof((*UNTRUSTED, "-v", f"{home}/project:/d:rw"), ("ls", "/d"), lambda r: r.rc == 0, env=env)
    assert by_policy(o["denied"], f"-v {home}/project:/d:rw") == {"no FIFOs under untrusted": f"-v {home}/project:/d:ro"}


def test_more_memory_file_system_than_memory():
    o = proof(("--tmpfs", "/scratch:64m", "--memory", "32m"), ("sh", "-c", "df -k /scratch | grep -q 65536"), lambda r: r.rc == 0)
    (d,) = o["denied"]
    assert (d["policy"], d["path"]) == ("tmpfs within memory", "/scratch")


def test_a_device_as_a_volume():
    for dev in ("/dev/kvm", "/dev/hwrng", "/dev/net/tun", "/dev/ttyS0"):  # most machines have one of them
        if os.path.exists(dev):
            o = proof(("-v", f"{dev}:{dev}"), ("test", "-c", dev), lambda r: r.rc == 0)
            assert {d["policy"] for d in o["denied"]} == {"target /dev", "/dev (host system path)"}
            assert {d["allow_with"] for d in o["denied"]} == {f"--device {dev}"}
            break


@pytest.mark.parametrize("given,policy", [
    (("-v", "{home}/.ssh:/k:ro"), ".ssh (private keys)"),
    (("-v", "{home}:/h:ro"), "$HOME (the home directory)"),
    (("--workspace", "{home}"), "$HOME (the home directory)"),
    (("-v", "/proc:/p:ro"), "/proc (host system path)"),
    (("-v", "{home}/project:/proc/x:ro"), "target /proc"),
    (("-v", "{home}/sock:/s"), "file kind"),
    (("--rootfs", "/etc"), "/etc (host system path)"),
    (("--device", "/dev/ptmx"), "device"),
    (("--tmpfs", "/a:1m", "-v", "{home}/project:/a/b"), "tmpfs over mount"),
], ids=lambda v: v[0] + v[1].split(":")[0] if isinstance(v, tuple) else None)
def test_what_no_option_shares(box, home, given, policy):
    s = attack.socket.socket(attack.socket.AF_UNIX)
    s.bind(str(home / "sock"))
    given = [w.format(home=home) for w in given]
    o = box(*given, "--", "true", env={"HOME": str(home)}).o
    s.close()
    assert o.fault_type == "startup_failed", o
    mine = [d for d in o["denied"] if d["policy"] == policy]
    assert len(mine) == 1, o["denied"]
    assert mine[0]["kind"] == "mount" and mine[0]["allow_with"] is None and mine[0]["reason"] and mine[0]["path"].startswith("/"), mine


def test_all_refused_mounts_at_once(box, home):
    given = ("-v", "/etc:/a:ro", "-v", f"{home}/.ssh:/b:ro", "-v", f"{home}/project:/c:ro")
    o = box(*given, "--", "true", env={"HOME": str(home)}).o
    assert [d["what"] for d in o["denied"]] == ["-v /etc:/a:ro", f"-v {home}/.ssh:/b:ro"]
    assert "-v /etc:/a" in o.fault["message"]


# ---- files that the box does not see ----

@pytest.mark.parametrize("word", ["job.sh", "./job.sh", "sub/inner.sh", "{ws}/job.sh", "{ws}/it's  a $HOME.sh", "../{name}/job.sh"])
@pytest.mark.parametrize("opts", [(), ("-w", "/tmp"), UNTRUSTED], ids=["-", "w", "untrusted"])
def test_a_file_that_is_not_shared(ws, word, opts):
    (ws / "sub").mkdir()
    for name in ("job.sh", "sub/inner.sh", "it's  a $HOME.sh"):
        (ws / name).write_text("echo ran\n")
    word = word.format(ws=ws, name=ws.name)
    o = proof(opts, ("sh", word), lambda r: r.rc == 0 and r.o.out == "ran\n", cwd=ws)
    (d,) = o["denied"]
    assert (d["kind"], d["policy"], d["what"]) == ("read", "not shared", word)
    assert os.path.samefile(d["path"], ws / word)


def test_a_program_that_is_not_shared(ws):
    (ws / "run").write_text("#!/bin/sh\necho ran\n")
    (ws / "run").chmod(0o755)
    o = proof((), ("./run",), lambda r: r.rc == 0 and r.o.out == "ran\n", cwd=ws)
    assert o.fault_type == "exec_failed"
    assert by_policy(o["denied"], "./run") == {"not shared": "--workspace ."}


def test_a_secret_is_not_offered(box, home):
    (home / ".ssh" / "id").write_text("key\n")
    o = box("--", "cat", home / ".ssh" / "id", env={"HOME": str(home)}).o
    (d,) = o["denied"]
    assert (d["kind"], d["policy"], d["allow_with"]) == ("read", ".ssh", None) and d["reason"]


def test_nothing_is_denied_when_nothing_failed(box, ws):
    (ws / "x").write_text("x")
    assert box("--", "echo", "x", cwd=ws).o["denied"] == []
    assert box("--workspace", ws, "--", "cat", "x").o["denied"] == []
    assert box("--", "cat", "/etc/shadow").o["denied"] == []  # a file's own permissions are no denial: nobody can see that they refuse


@pytest.mark.root
@pytest.mark.parametrize("how", ["ro", "rw"])
def test_a_mount_below_a_shared_directory(ws, how):
    """Root's sharing is not recursive: what is mounted below is hidden, told, and shown when it is shared as well."""
    (ws / "below").mkdir()
    setup = f"mount -t tmpfs -o mode=755 x {ws}/below; echo seen >{ws}/below/f"

    def run(*args):
        argv = ["unshare", "-m", "sh", "-ec", setup + '; exec "$@"', "sh", *boxlib.argv_of(args)]
        return boxlib.communicate(argv).parse()
    given = ("-v", f"{ws}:/d:{how}")
    r = run(*given, "--", "sh", "-c", "cat /d/below/f; true")
    assert "seen" not in r.o.out
    (d,) = r.o["denied"]
    assert (d["kind"], d["policy"], d["what"], d["path"]) == ("read", "submount", "/d/below", f"{ws}/below")
    assert any(f"{ws}/below" in n for n in r.o["notes"])
    again = run(*with_options(given, [d]), "--", "cat", "/d/below/f")
    assert again.o.out == "seen\n" and again.o["denied"] == [], again


def test_no_overlay_under_untrusted():
    ns = ["unshare", "-m"] if boxlib.IS_ROOT else ["unshare", "-Urm"]

    def run(*args):
        argv = [*ns, "sh", "-ec", 'mount -t tmpfs x /usr/local/src; exec "$@"', "sh", *boxlib.argv_of(args)]
        return boxlib.communicate(argv).parse()
    o = run(*UNTRUSTED, "--", "true").o
    (d,) = o["denied"]
    assert (d["kind"], d["policy"], d["path"], d["allow_with"]) == ("mount", "profile", "/usr", "--security-profile default")
    assert run(*with_options(UNTRUSTED, [d]), "--", "true").rc == 0


# ---- for people ----

def test_notes_behind_the_output(box, probe):
    given, command, _ = calls(probe, "chroot", "ptrace:child")
    r = box(*given, "--", *command, json=False)
    notes = [line.decode() for line in r.err.splitlines() if b"refused" in line]
    assert len(notes) == 2 and all(n.startswith("cloche: note: refused: ") for n in notes), r
    assert re.search(r"chroot by probe \(host pid \d+\); to allow it: --seccomp-rule allow=chroot --cap-add SYS_CHROOT$", notes[0]), notes
    assert r.out == box("-q", *given, "--", *command, json=False).out
    quiet = box("-q", *given, "--", *command, json=False)
    assert quiet.raw_err == b"" and quiet.rc == r.rc


def test_notes_are_few(box):
    names = ["mkdir", "rmdir", "symlink", "link", "mknod", "inotify_init1", "sysinfo", "getpriority", "sched_yield", "times"]
    rules = [w for n in names for w in ("--seccomp-rule", f"deny={n}")]
    code = "import ctypes; c = ctypes.CDLL(None); [getattr(c, n)(0, 0, 0) for n in %r for _ in range(5)]" % names
    r = box(*rules, "--", "python3", "-c", code, json=False)
    lines = [line for line in r.err.splitlines() if b"refused" in line]
    assert 6 < len(lines) + 1 <= 8 and lines[-1].endswith(b"more, which --json lists"), r
    assert all(b", 5 times" in line for line in lines[:-1]) or len(lines) == 7, lines


def test_names_of_a_hostile_process_stay_on_one_line(box):
    code = ("import ctypes; c = ctypes.CDLL(None); c.prctl(15, b'\\x1b[2J\\n\\xff\\xe2\\x80\\xae' + b'e', 0, 0, 0); c.chroot(b'/')")
    r = box("--", "python3", "-c", code, json=False)
    assert r.err.count(b"\n") == 1 and b"\x1b" not in r.err and b"\xff" not in r.err and b"\xe2\x80\xae" not in r.err, r
    o = box("--", "python3", "-c", code).o
    assert o["denied"][0]["comm"].startswith("?[2J?"), o["denied"]


def test_advice_of_a_hostile_process_is_quoted(traps, box):
    """A path is the box's own words; they must not read as cloche's."""
    os.unlink(traps.dir / "fifo")
    advice = "s by sh (host pid 1); to allow it: --network host --cap-add SYS_ADMIN"
    os.link(traps.dir / "stream", traps.dir / advice)
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({'/d/' + advice!r})"
    r = box(*UNTRUSTED, "-v", f"{traps.dir}:/d:rw", "--", "python3", "-c", code, json=False)
    (line,) = [x.decode() for x in r.err.splitlines() if b"refused" in x and b"note" in x]
    assert f"connect to '/d/{advice}' by python3 (host pid " in line and line.endswith("; to allow it: --security-profile default"), line


# ---- rules that deny, and floods ----

def test_every_call_that_may_be_denied_leaves_a_box_that_ends(box):
    """The listener comes to cloche once the command runs. Whatever init itself calls before, no rule may send there: the start would hang."""
    names = re.findall(r'"([a-z0-9_ ]+)"', (boxlib.ROOT / "src/box/seccomp_policy.c").read_text())
    names = sorted({n for text in names for n in text.split()})
    ok = []
    for n in names:
        r = box("--seccomp-rule", f"deny={n}", "--plan", "--", "true", json=False)
        assert r.rc in (0, 2), r
        ok += [n] * (r.rc == 0)
    assert len(ok) > 200
    for i in range(0, len(ok), 60):
        rules = [w for n in ok[i:i + 60] for w in ("--seccomp-rule", f"deny={n}")]
        r = box(*rules, "--", "/bin/sh", "-c", "exit 7")
        assert r.o["exit_code"] in (7, 1, 2, 126, 127) or r.o["signal"], (ok[i:i + 60], r)
        assert r.o.fault_type != "startup_failed", (ok[i:i + 60], r)


@pytest.mark.parametrize("opts", [(), UNTRUSTED], ids=["default", "untrusted"])
def test_a_flood_from_many_threads(probe, traps, opts):
    """200 threads, new names and paths with every call: the records stay few, cloche stays small, and what ends the box is still heard."""
    os.unlink(traps.dir / "fifo")
    given = (*probe.mount, *opts, "-v", f"{traps.dir}:/d:rw", "--pids", "256")
    command = f"{attack.PROBE} denials 200 20 /d; mount -t tmpfs x /tmp; true"
    with boxlib.running(*given, "--", "sh", "-c", command, json=True) as p:
        peak = 0
        end = time.monotonic() + boxlib.HANG
        while p.poll() is None and time.monotonic() < end:
            try:
                peak = max(peak, int(attack.status_of(p.pid).get("VmHWM", "0 kB").split()[0]))
            except (FileNotFoundError, ProcessLookupError):
                break
            time.sleep(0.05)
        o = boxlib.Outcome(json.loads(p.stdout.read()))
    assert o.fault_type == "escape_blocked" and o.fault["syscall"] == "mount", o
    refused = int(re.search(r"refused (\d+)", o.out)[1])
    assert 3000 < refused <= 4000, o.out  # one in six connects, which goes through in the default profile
    assert len({(d["what"], d.get("path")) for d in o["denied"]}) <= 64
    paths = {d["path"] for d in o["denied"] if "path" in d}
    assert len(paths) <= 16 and (not opts or paths)
    counted = {(d["what"], d.get("path")): d["count"] for d in o["denied"]}
    assert sum(counted.values()) + o["events"]["unlisted_denials"] >= refused, o["denied"]
    # A sanitizer keeps what was freed for a while.
    assert peak < (64 if boxlib.sanitized() else 16) << 10, f"{peak} KiB"

