#!/usr/bin/env python3
"""Usage: tests/faults/faults.py [--every | --spread K] [--only SCENARIO] [--call ROLE:N:FAULT] [-v]

Fault injection on the real program: in a row of scenarios, each system call of cloche, of its threads, and of all that it starts up to the
command's execve is made to fail, one a run (inject.c), and the run is judged:

- refused: the outcome is `startup_failed` with a stage and a message, and nothing ran;
- unchanged or lesser: the box ran and ended as ever. The program in it (witness.c) tells how its locks stand, the injector tells which groups
  the host saw it in, and both are compared with an undisturbed run. A call that may fail so is a row of allowed.tsv, with what may then
  be different and why; an unchanged run after an interruption (EINTR, EAGAIN, a short count) needs no row.
- anything else is a finding: a hang, a crash, another fault, a difference, and whatever is left behind: processes, mounts, groups, files.

--every takes every call; --spread K takes the first of each kind of call of each role, and every K-th of the rest. As root the whole is done
again as uid 12345.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "lib"))
import boxlib  # noqa: E402
import stored  # noqa: E402

ROLES = ("cloche", "idmap", "init", "net", "command", "listener", "mediate", "other")
EPERM, ENOENT, EINTR, EIO, EAGAIN, ENOMEM, EBUSY, EINVAL, EMFILE, ENOSPC, ENOSYS, ECONNRESET, ENOBUFS = \
    1, 2, 4, 5, 11, 12, 16, 22, 24, 28, 38, 104, 105
# What a call is made to answer, where the two that any may answer are not the point.
FAULTS = {
    "read": (EIO, EINTR, "short"), "pread64": (EIO, "zero", "short"), "write": (EIO, EINTR, ENOSPC, "short"),
    "close": (f"late-{EIO}", f"late-{EINTR}"),
    "open": (EMFILE, EPERM), "openat": (EMFILE, EPERM, ENOMEM), "pipe2": (EMFILE,), "socketpair": (EMFILE,), "socket": (ENOBUFS, EPERM),
    "poll": (ENOMEM, EINTR), "ppoll": (ENOMEM, EINTR), "wait4": (EINTR,), "recvmsg": (ENOMEM, EINTR, ECONNRESET, "zero"),
    "sendmsg": (ENOBUFS, EINTR), "sendto": (ENOBUFS, EINTR), "recvfrom": (ENOMEM, EAGAIN),
    "mount": (EPERM, ENOMEM, EINVAL), "umount2": (EINVAL, EPERM), "pivot_root": (EINVAL, EPERM), "move_mount": (EINVAL, EPERM),
    "open_tree": (EMFILE, EPERM), "mount_setattr": (EINVAL, EPERM), "mkdirat": (ENOSPC, EPERM),
    "clone": (EAGAIN, ENOMEM, EPERM), "clone3": (EAGAIN, ENOMEM, EPERM, ENOSPC), "unshare": (EPERM, ENOSPC), "setns": (EPERM, EINVAL),
    "prctl": (EPERM, EINVAL), "seccomp": (ENOMEM, EBUSY, EPERM), "capset": (EPERM,), "capget": (EINVAL,), "setresuid": (EAGAIN, EPERM),
    "setresgid": (EPERM,), "setgroups": (EPERM,), "mmap": (ENOMEM,), "brk": (ENOMEM,), "flock": (EAGAIN, ENOMEM),
    "close_range": (EINVAL, ENOSYS), "execve": (ENOMEM, EPERM), "ioctl": (EINVAL, EPERM), "nanosleep": (EINTR,),
    "readlink": (EPERM, ENOMEM), "fcntl": (EINVAL,), "rt_sigaction": (EINVAL,), "rt_sigprocmask": (EINVAL,), "prlimit64": (EPERM,),
    "kill": (EPERM,), "lseek": (EINVAL,), "statfs": (EIO,), "fstatfs": (EIO,), "sched_getaffinity": (EINVAL,), "getrandom": (ENOSYS,),
}
SOFT = {str(EINTR), str(EAGAIN), "short", f"late-{EINTR}"}
# These can't fail, whatever happens (their man pages name no error that the arguments could give; a futex's wait is the C library's to go on
# with), or the process is over.
NEVER = {"futex", "rt_sigaction", "exit", "exit_group", "getpid", "gettid", "getppid", "geteuid", "getuid", "getegid", "getgid", "rt_sigreturn", "umask",
         "set_tid_address", "getpgid", "munmap", "set_robust_list", "sched_yield", "clock_gettime", "restart_syscall"}
STAGES = {"spec", "limits", "image", "mount", "workspace", "namespace", "network", "locks", "command", "setup"}
HANG = 20
HOSTS = {n: os.readlink("/proc/self/ns/" + n) for n in os.listdir("/proc/self/ns")}
TRIES = 4


def numbers():
    """System call numbers of this machine, from the kernel's own header."""
    out = subprocess.run(["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-"], input="", capture_output=True, text=True, check=True).stdout
    return {int(n): name for name, n in re.findall(r"#define __NR_(\w+) (\d+)", out)}


class Scenario:
    """`make(tree)` gives cloche's options; `modes` is what the witness does; `want` the fault, None for none; `partial` when the end may
    come before the witness has said all."""

    def __init__(self, name, make, modes=(), want=None, rc=7, stdin=b"", fresh=False, json_=True, partial=False, image=False):
        self.name, self.make, self.modes, self.want, self.rc = name, make, modes, want, rc
        self.stdin, self.fresh, self.json, self.partial, self.image = stdin, fresh, json_, partial, image


SCENARIOS = [
    Scenario("plain", lambda t: ["--pids", "8"], ["pids"]),
    Scenario("first", lambda t: [], fresh=True),
    Scenario("mounts", lambda t: ["--workspace", t / "ws", "-v", f"{t}/ro:/ro:ro", "-v", f"{t}/ro/file:/etc/file:ro", "--tmpfs", "/scratch:1m",
                                  "--read-only", "--cpus", "1", "--memory", "64m", "--workspace-max", "1g", "--cap-add", "NET_BIND_SERVICE",
                                  "--ulimit", "nofile=64:128"]),
    Scenario("rootfs", lambda t: ["--rootfs", t / "root", "--network", "host"]),
    Scenario("image", lambda t: ["--image", "img", "--pull", "never", "--read-only", "--tmpfs", "/scratch:1m"], image=True),
    Scenario("supervised", lambda t: ["--supervised", "--pids", "8"], ["pids"]),
    Scenario("untrusted", lambda t: ["--security-profile", "untrusted", "--workspace", t / "ws"], ["connect"]),
    Scenario("terminal", lambda t: ["-t"], json_=False),
    Scenario("stream", lambda t: ["-i", "--timing"], ["in", "leave"], stdin=b"x" * 70000, json_=False),
    Scenario("timeout", lambda t: ["--timeout", "0.2"], ["sleep"], want="timeout", rc=124, partial=True),
    Scenario("escape", lambda t: [], ["escape"], want="escape_blocked", rc=159),
    Scenario("oom", lambda t: ["--memory", "16m"], ["oom"], want="oom", rc=137),
    Scenario("exec", lambda t: ["--", "/nonesuch"], want="exec_failed", rc=127),
]


class Table:
    """allowed.tsv: role, call, arguments (patterns), what may differ (names separated by commas, "-" for nothing), reason."""

    def __init__(self):
        self.rows, self.used = [], set()
        for n, line in enumerate((HERE / "allowed.tsv").read_text(encoding="utf-8").splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                role, call, args, differs, reason = line.split("\t")
                assert reason.strip(), f"allowed.tsv:{n}: no reason"
                self.rows.append((n, role, call, args, set(differs.split(",")) - {"-"}))

    def allows(self, role, call, args, differs):
        # The memory of an init that is not dumpable can't be read by an ordinary tracer: its strings are told as "-".
        unread = "-" in args.split()
        for n, r, c, a, may in self.rows:
            if fnmatch.fnmatchcase(role, r) and fnmatch.fnmatchcase(call, c) and (unread or fnmatch.fnmatchcase(args, a)) \
                    and all(any(fnmatch.fnmatchcase(d, m) for m in may) for d in differs):
                self.used.add(n)
                return True
        return False


KEEP = {"Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
        "Seccomp_filters"}


def facts(text, report):
    """What the witness and the host said, without what is another number each time."""
    rows = collections.defaultdict(list)
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "status":
            name, _, value = value.partition(":")
            if name not in KEEP:
                continue
        elif name == "mount":
            value = re.sub(r"/proc/self/fd/\d+", "/proc/self/fd/N", " ".join(value.split()[3:]))
            value = re.sub(r"mnt_id=\d+|index=\w+", "", re.sub(r"\bd[0-9a-f]{20}\b", "LAYER", value))
            name = "mount " + (value.split() + ["?", "?"])[1]
        elif name == "ns":
            kind, _, link = value.partition(" ")
            name, value = "ns " + kind, "host's" if link == HOSTS.get(kind) else "own"
        elif name == "fd":
            value = re.sub(r":\[\d+\]", "", value)
        elif name == "env":
            name = "env " + value.partition("=")[0]
        rows[name].append(value.strip())
    for line in report:
        if line.startswith("group "):
            rows["host groups"].append(re.sub(r"cloche-\d+-\d+", "cloche-PID-N", line))
    return {k: sorted(v) for k, v in rows.items()}


class Run:
    def __init__(self, report, out, err, partial):
        self.report, self.err, self.partial = report, err, partial
        self.hit = next((line.split() for line in report if line.startswith("hit ")), None)
        self.end = next((line for line in report if line.startswith("end ")), "end none")
        self.bad = [line for line in report if line.split()[0] in ("hang", "left", "crash")]
        self.outcome, self.text = None, out.decode(errors="replace")
        try:
            self.outcome = json.loads(self.text)
            self.text = self.outcome["stdout"]
        except (ValueError, TypeError):
            pass

    def facts(self):
        rows = facts("" if self.partial else self.text, self.report)
        rows["exit"] = [self.end]
        o = self.outcome
        if o is not None:
            rows["fault"] = [o["fault"]["type"] if o["fault"] else None]
            held = any("cloche-PID" in g for g in rows.get("host groups", ())) or not rows.get("host groups")
            rows["claims more than holds"] = [o["limits"]["memory"]["rung"] == "cgroup1" and not held]
            rows["denied"] = [] if self.partial else sorted({(d["kind"], d["what"]) for d in o["denied"]})
            rows["stderr"], rows["notes"] = [o["stderr"]], sorted(o["notes"])
            for k, v in o["limits"].items():
                rows["limit " + k] = [v]
            for k, v in o["usage"].items():
                if o["limits"]["memory"]["rung"] != "supervised":  # where the end may come before the first look
                    rows["usage " + k] = [v is None]
        else:
            told = re.sub(r"host pid \d+", "host pid N", self.err.decode(errors="replace"))
            rows["notes"] = sorted(line for line in told.splitlines() if "timing" not in line)
        return rows


class Bench:
    def __init__(self, top):
        self.top = pathlib.Path(top)
        (self.top / "w").mkdir()
        for d in ("ws", "ro", "root/w", "root/usr", "home"):
            (self.top / d).mkdir(parents=True)
        (self.top / "ro" / "file").write_text("x")
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
        subprocess.run(["gcc", *flags, "-o", self.top / "inject", HERE / "inject.c"], check=True)
        subprocess.run(["gcc", *flags, "-static", "-o", self.top / "w" / "witness", HERE / "witness.c"], check=True)
        self.groups = boxlib.own_groups()
        self.names, self.homes = numbers(), {}

    def home(self, sc):
        """A store that no other run uses, as the first start left it; an empty one where the first start is the point."""
        try:
            return self.homes.setdefault(sc.name, []).pop()
        except IndexError:
            path = pathlib.Path(tempfile.mkdtemp(prefix=sc.name, dir=self.top / "home"))
            if sc.image:
                store = stored.Store(path)
                store.image("img", [store.layer(stored.files(etc__passwd="root:x:0:0::/root:/x\n", low="x")), store.layer(stored.files(usr__top="x"))],
                            volume=["/data"], workdir="/work")
            if not sc.fresh:
                self.start(sc, path)
            return path

    def give_back(self, sc, home):
        """A store in which a fault left something else is of no use to the next run."""
        store = home / "store"
        one = "images" if sc.image else "host-*"
        if not sc.fresh and store.is_dir() and len(list(store.glob(one))) == 1 and len(list(store.iterdir())) == 1:
            self.homes[sc.name].append(home)
        else:
            shutil.rmtree(home, ignore_errors=True)

    def run(self, sc, how=()):
        home = self.home(sc)
        try:
            return self.start(sc, home, how)
        finally:
            self.give_back(sc, home)

    def start(self, sc, home, how=()):
        fd, path = tempfile.mkstemp(dir=self.top)
        os.close(fd)
        opts = [str(a) for a in sc.make(self.top)]
        command = [] if "--" in opts else ["-v", f"{self.top}/w:/w:ro", "--", "/w/witness", *sc.modes]
        argv = [self.top / "inject", "-t", str(HANG), "-o", path, *how, "--", boxlib.CLOCHE, "run", *(["--json"] if sc.json else []), *opts, *command]
        env = {k: v for k, v in boxlib.base_env().items() if not k.startswith("XDG_")} | {"CLOCHE_HOME": str(home)}
        try:
            r = subprocess.run(list(map(str, argv)), input=sc.stdin, capture_output=True, timeout=HANG * 3, env=env, cwd=self.top, check=False)
            report = pathlib.Path(path).read_text(errors="replace").splitlines()
        finally:
            os.unlink(path)
        assert r.returncode == 0, f"the injector failed: {r}"
        run = Run(report, r.stdout, r.stderr, sc.partial)
        run.bad += self.left(home, report)
        return run

    def left(self, home, report):
        found = []
        for base, dirs, files in os.walk(home):
            found += [f"left file {os.path.relpath(os.path.join(base, n), home)}" for n in dirs + files if n.startswith(("draft-", "owner-"))]
            if base.endswith("store"):
                dirs[:] = []
        pid = next((line.split()[1] for line in report if line.startswith("pid ")), "?")
        for d in self.groups:
            found += [f"left group {d}/{n}" for n in os.listdir(d) if n.startswith(f"cloche-{pid}-")]
        found += [f"left process {line.split()[1]}" for line in report if line.startswith("exec ") and os.path.exists(f"/proc/{line.split()[1]}")]
        return found


def judge(want, run, call, args, fault, table):
    """(verdict, why) of one disturbed run."""
    role = run.hit[1]
    if run.bad:
        return "finding", "; ".join(run.bad)
    if run.end.startswith("end signal"):
        return ("allowed", "") if table.allows(role, call, args, {"crash"}) else ("finding", run.end)
    now = run.facts()
    fault_of = run.outcome["fault"] if run.outcome else None
    text = run.err.decode(errors="replace")
    if (fault_of and fault_of["type"] == "startup_failed") or (run.outcome is None and "cloche: startup_failed: " in text):
        if run.end != "end exit 125":
            return "finding", f"refused, but {run.end}"
        if fault_of and (fault_of.get("stage") not in STAGES or not fault_of["message"]):
            return "finding", f"refused without a stage: {fault_of}"
        if any(line.startswith("exec ") for line in run.report) and not table.allows(role, call, args, {"refused late"}):
            return "finding", f"refused, but the command ran: {fault_of or text}"
        return "refused", ""
    named = fault_of["type"] if fault_of else next(iter(re.findall(r"cloche: (exec_failed|init_lost): ", text)), None)
    if named == "exec_failed" and call == "execve" and run.end in ("end exit 126", "end exit 127"):
        return "refused", ""
    if named == "init_lost" and run.end == "end exit 125" and table.allows(role, call, args, {"init_lost"}):
        return "refused", ""
    if "cloche: error: " in text and run.end.startswith("end exit ") and run.end != "end exit 0":
        return "refused", ""
    differs = {k for k in set(now) | set(want) if now.get(k) != want.get(k)}
    if not differs and fault in SOFT:
        return "unchanged", ""
    if table.allows(role, call, args, differs):
        return "allowed", ""
    shown = "; ".join(f"{k}: {want.get(k)} -> {now.get(k)}" for k in sorted(differs, key=lambda k: (k not in ("exit", "fault"), k))[:4])
    return "finding", f"success without a row in allowed.tsv: {shown or 'unchanged'} {text[:200]}"


def faults_of(call):
    return () if call in NEVER else tuple(map(str, FAULTS.get(call, (ENOMEM, EPERM))))


def plan(calls, names, spread):
    """(role, n, fault) to try."""
    todo, seen, k = [], set(), 0
    for role, n, nr, args in calls:
        call = names.get(nr, str(nr))
        faults = faults_of(call)
        if not faults:
            continue
        first = (role, call) not in seen
        seen.add((role, call))
        k += 1
        if spread and not first:
            if k % spread:
                continue
            faults = faults[k // spread % len(faults):][:1]
        elif spread:
            faults = faults[:1]
        todo += [(role, n, f) for f in faults]
    return todo


def scenario(bench, sc, opts, table, total):
    base = bench.run(sc)
    calls = [(f[1], int(f[2]), int(f[3]), " ".join(f[4:])) for f in (line.split() for line in base.report) if f[0] == "call"]
    want = base.facts()
    fault = base.outcome["fault"] if base.outcome else None
    assert not base.bad and base.end == f"end exit {sc.rc}" and (fault["type"] if fault else None) == sc.want, (sc.name, base.bad, base.end, fault, base.err)
    todo = [(r, n, f) for r, n, f in plan(calls, bench.names, opts.spread)]
    if opts.call:
        role, n, f = opts.call.split(":")
        todo = [(role, int(n), f)]
    found = []

    def one(item):
        role, n, f = item
        for _ in range(TRIES):
            run = bench.run(sc, ("-r", role, "-n", str(n), "-f", f))
            # What waits may wait a time more or less: then the n-th call is another one, which may not be able to fail so.
            if run.hit and f in faults_of(bench.names.get(int(run.hit[3]), "?")):
                break
            run.hit = None
        return item, run

    count = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        for (role, n, f), run in pool.map(one, todo):
            if not run.hit:
                count["missed"] += 1
                continue
            call, args = bench.names.get(int(run.hit[3]), run.hit[3]), " ".join(run.hit[4:])
            verdict, why = judge(want, run, call, args, f, table)
            count[verdict] += 1
            if opts.verbose:
                print(f"{sc.name} {role}:{n}:{f} {call} {args[:80]}: {verdict} {why}", flush=True)
            if verdict == "finding":
                found.append(f"{sc.name} {role}:{n}:{f} {call} {args[:100]}: {why[:700]}")
    total.update(count)
    total["calls"] += len(calls)
    print(f"{sc.name:11} {len(calls):5} calls, {sum(count.values()) - count['missed']:5} faults: {count['refused']} refused by stage, "
          f"{count['allowed']} best effort, {count['unchanged']} without effect, {count['finding']} findings", flush=True)
    for line in found:
        print("  " + line, flush=True)
    return found


def as_user(argv):
    """The same from a copy that everybody can read, as uid 12345."""
    with tempfile.TemporaryDirectory(prefix="ct-faults-user-", dir="/tmp") as top:
        os.chmod(top, 0o755)
        for d in ("faults", "lib"):
            shutil.copytree(HERE.parent / d, pathlib.Path(top) / "tests" / d, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(boxlib.CLOCHE, top + "/cloche")
        os.mkdir(top + "/home")
        subprocess.run(["chmod", "-R", "a+rX", top], check=True)
        os.chown(top + "/home", 12345, 12345)
        env = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")} | {"HOME": top + "/home", "CLOCHE": top + "/cloche"}
        return subprocess.run(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", sys.executable, "-B", top + "/tests/faults/faults.py", *argv],
                              env=env, cwd=top, check=False).returncode


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--every", action="store_true")
    p.add_argument("--spread", type=int, default=40)
    p.add_argument("--only", action="append")
    p.add_argument("--call")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--passes", default="both", choices=("both", "mine"))
    p.add_argument("-v", "--verbose", action="store_true")
    opts = p.parse_args()
    if opts.every:
        opts.spread = 0
    table, total, found = Table(), collections.Counter(), []
    top = tempfile.mkdtemp(prefix="ct-faults-", dir="/tmp")
    os.chmod(top, 0o755)
    try:
        bench = Bench(top)
        for sc in SCENARIOS:
            if not opts.only or sc.name in opts.only:
                found += scenario(bench, sc, opts, table, total)
        left = [f"left mount {line}" for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if top in line]
        found += left
        print("\n".join(left), end="\n" if left else "")
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f"== faults as uid {os.geteuid()}: {total['calls']} calls, {total['refused'] + total['allowed'] + total['unchanged'] + total['finding']} faults, "
          f"{total['refused']} refused by stage, {total['allowed']} best effort, {total['unchanged']} without effect, {len(left)} left behind, "
          f"{len(found)} findings", flush=True)
    rc = as_user(sys.argv[1:]) if boxlib.IS_ROOT and opts.passes == "both" else 0
    sys.exit(1 if found else rc)


if __name__ == "__main__":
    main()
