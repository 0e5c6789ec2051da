"""What every test of the built program shares: starting it, reading its outcome, and seeing what it left behind.

Each call has a hang guard: a test that waits for ever would take the whole run with it. The guard is far above the usual time, so that it
measures nothing; a test that cares about time compares two runs.
"""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import uuid

TESTS = pathlib.Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
CLOCHE = os.environ.get("CLOCHE") or str(ROOT / "build" / "cloche")
HANG = int(os.environ.get("CLOCHE_HANG", "60"))
STARTED = set()  # pids of every cloche this run started
IS_ROOT = os.geteuid() == 0


class Outcome(dict):
    """The object printed by --json."""

    @property
    def out(self):
        return self["stdout"]

    @property
    def err(self):
        return self["stderr"]

    @property
    def fault(self):
        return self["fault"]

    @property
    def fault_type(self):
        return self["fault"]["type"] if self["fault"] else None


def without_rung(err):
    """stderr without the note that a caller without kernel limits gets with every start; test_limits.py tests the note itself."""
    return b"".join(line for line in err.splitlines(keepends=True) if not line.startswith(b"cloche: note: limits are supervised"))


class Result:
    """One finished `cloche`: its exit code, its own streams as bytes, and the outcome when --json was asked."""

    def __init__(self, argv, rc, out, err, seconds):
        self.argv, self.rc, self.out, self.seconds = argv, rc, out, seconds
        self.err, self.raw_err = without_rung(err), err
        self.o = None

    def parse(self):
        try:
            self.o = Outcome(json.loads(self.out.decode("utf-8")))
        except ValueError as why:
            raise AssertionError(f"no outcome on stdout ({why}): {self!r}") from None
        return self

    def __repr__(self):
        shown = " ".join(map(str, self.argv[1:]))
        return f"<cloche {shown}: rc={self.rc} out={self.out[:2000]!r} err={self.err[:2000]!r}>"


@functools.cache
def sanitized():
    """Is the program built with the address sanitizer, which reserves terabytes of addresses before its first line runs?"""
    return b"__asan_init" in pathlib.Path(CLOCHE).read_bytes()


def no_leak_check():
    """Variables for a sanitized program where its look for leaks can't be: a thread of its own traces the others, which needs a thread more, /proc, and
    that nobody else traces them."""
    return {"ASAN_OPTIONS": ":".join([*filter(None, [os.environ.get("ASAN_OPTIONS")]), "detect_leaks=0"])} if sanitized() else {}


def base_env():
    """A caller's usual environment, without anything that would move cloche's directories or change its words."""
    keep = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
            "ASAN_OPTIONS", "UBSAN_OPTIONS")
    env = {k: v for k, v in os.environ.items() if k in keep}
    env["LANG"] = "C.UTF-8"
    return env


def argv_of(args, json_=True):
    return [CLOCHE, "run", *(["--json"] if json_ else []), *[os.fspath(a) for a in map(_text, args)]]


def _text(a):
    return a if isinstance(a, (str, bytes, os.PathLike)) else str(a)


def communicate(argv, stdin=None, timeout=HANG, env=None, cwd=None, base=True, **popen):
    """Runs argv to its end; bytes in, bytes out. stdin None is /dev/null. A hang ends the process group and fails the test. Without `base` the
    environment is `env` and no more."""
    began = time.monotonic()
    full = base_env() if base else {}
    full.update(env or {})
    how = {"stdin": subprocess.DEVNULL if stdin is None else subprocess.PIPE}
    if hasattr(stdin, "fileno"):
        how["stdin"], stdin = stdin, None
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=full, cwd=cwd, start_new_session=True,
                          **how, **popen) as p:
        STARTED.add(p.pid)
        try:
            out, err = p.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, err = p.communicate()
            raise AssertionError(f"hang guard: {argv} did not end in {timeout} s; out={out[-500:]!r} err={err[-500:]!r}") from None
    return Result(argv, p.returncode, out, err, time.monotonic() - began)


def cloche(*args, **kw):
    """`cloche VERB ...` as it is, without --json."""
    return communicate([CLOCHE, *map(os.fspath, args)], **kw)


def box(*args, json=True, **kw):
    """`cloche run [--json] ARGS`; with json the outcome is parsed into `.o`."""
    r = communicate(argv_of(args, json), **kw)
    return r.parse() if json else r


def start(*args, json=False, env=None, **popen):
    """`cloche run ARGS` left running; the caller ends it (see `running`)."""
    full = base_env()
    full.update(env or {})
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    how.update(popen)
    p = subprocess.Popen(argv_of(args, json), env=full, **how)
    STARTED.add(p.pid)
    return p


class running:
    """`with running(...) as p:` a started box that is ended with the block whatever happens."""

    def __init__(self, *args, **kw):
        self.p = start(*args, **kw)

    def __enter__(self):
        return self.p

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.kill()
        for f in (self.p.stdout, self.p.stderr, self.p.stdin):
            if f:
                f.close()
        self.p.wait(HANG)


def wait_for(what, timeout=HANG, every=0.02):
    """The first true value of what(), or None at the hang guard."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(every)
    return None


def reap():
    """Orphans that came to this process and have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def children_of(pid):
    """All living descendants of pid: {pid: name}. Zombies do not count."""
    parents, names = {}, {}
    for d in os.listdir("/proc"):
        if not d.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", d, "stat").read_text(errors="replace")
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
        if rest[0] in "ZX":
            continue
        parents[int(d)], names[int(d)] = int(rest[1]), name
    found, grew = {pid}, True
    while grew:
        more = {p for p, q in parents.items() if q in found} - found
        found |= more
        grew = bool(more)
    return {p: names.get(p, "?") for p in found - {pid}}


def seconds():
    """A number of seconds that nobody else on this machine sleeps for: a mark for find_marked()."""
    return f"300.{uuid.uuid4().int % 10**15:015}"


def comm(pid):
    """The name of a process; nothing when it has gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def cheapest(look, bound, looks=3):
    """The least of several looks at what something costs, until one is below the bound: what others do on the machine makes a look dearer, and none
    cheaper."""
    least = look()
    while least >= bound and looks > 1:
        least, looks = min(least, look()), looks - 1
    return least


def find_marked(mark):
    """Processes anywhere on the host whose command line holds `mark`, other than a cloche's own: [pid]."""
    found = []
    for d in os.listdir("/proc"):
        if not d.isdigit() or int(d) == os.getpid():
            continue
        try:
            line = pathlib.Path("/proc", d, "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line and os.path.basename(line.split(b"\0")[0]) != b"cloche":
            found.append(int(d))
    return found


def own_groups():
    """Where cloche may make groups: this process's own, one a hierarchy that is mounted; on v2 those above it, too."""
    mounts = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        kind, _, opts = right.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            mounts.append((kind, left.split()[4], left.split()[3], set(opts.split(","))))
    dirs = set()
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for kind, where, root, opts in mounts:
            if (kind == "cgroup2") != (names == "") or (names and not set(names.split(",")) <= opts):
                continue
            below = os.path.relpath(path, root) if path.startswith(root) else "."
            dirs.add(os.path.normpath(os.path.join(where, below)))
            if kind == "cgroup2":
                up = [p for p in pathlib.Path(os.path.normpath(os.path.join(where, below))).parents if p.is_relative_to(where)]
                dirs |= set(map(str, up))
    return dirs


def groups_left():
    """Groups are named cloche-PID-..: those whose cloche this run started and that has ended."""
    left = set()
    for d in own_groups():
        try:
            names = os.listdir(d)
        except OSError:
            continue
        for n in names:
            owner = n.split("-")[1] if n.startswith("cloche-") else ""
            if owner.isdigit() and int(owner) in STARTED and not os.path.exists("/proc/" + owner):
                left.add(os.path.join(d, n))
    return left


def elsewhere(name, ours):
    """Whether a directory owner-PID-.. is that of somebody who lives and is not below this process: another run on this machine."""
    pid = name.split("-")[1] if name.startswith("owner-") else ""
    return pid.isdigit() and int(pid) not in ours and int(pid) not in STARTED and os.path.exists("/proc/" + pid)


def temp_left():
    """Files of cloche under /tmp; its private runtime directory may stay, but nothing in it."""
    left, ours = set(), children_of(os.getpid())
    for n in os.listdir("/tmp"):
        if not n.startswith("cloche-"):
            continue
        path = os.path.join("/tmp", n)
        if n == f"cloche-{os.geteuid()}":
            for base, dirs, files in os.walk(path):
                dirs[:] = [d for d in dirs if base != path or not elsewhere(d, ours)]
                left |= {os.path.join(base, f) for f in files if not f.endswith("lock")}
            continue
        try:
            if os.stat(path).st_uid == os.geteuid():
                left.add(path)
        except OSError:
            pass
    return left


def mounts_now():
    """All but those of lib/images.py, where another run on this machine may be at work."""
    rows = set()
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        f = line.split()
        if "/bundle-" not in f[4]:
            rows.add((f[2], f[3], f[4]))
    return rows


def ready_probe(out):
    ready = os.environ.get("CLOCHE_PROBES")
    if ready:
        shutil.copy(pathlib.Path(ready) / out.name, out)
        out.chmod(0o755)
    return bool(ready)


def build_probe(source, into):
    """Compiles one C file statically (musl when there is one, so that it runs in any root) and returns the program's path. With CLOCHE_PROBES
    it is there already: the guest has no compiler."""
    out = pathlib.Path(into) / pathlib.Path(source).stem
    if ready_probe(out):
        return out
    cc = "musl-gcc" if shutil.which("musl-gcc") else "gcc"
    cmd = [cc, "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-D_GNU_SOURCE", "-o", str(out), str(source), "-pthread"]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=HANG * 2)
    if r.returncode:
        raise AssertionError(f"probe {source}: {r.stderr}")
    out.chmod(0o755)
    return out


def note(*words):
    print(*words, file=sys.stderr)
