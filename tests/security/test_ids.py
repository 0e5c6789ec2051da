"""Who runs in a box, with which rights, and what it inherited: ids, capabilities, environment, descriptors, signals, limits."""
import os
import pathlib
import signal
import subprocess
import sys
import uuid

import pytest

from . import attack
from .attack import boxlib

KINDS = [(), ("--security-profile", "untrusted"), ("--user", "0"), ("--cap-drop", "ALL"), ("--network", "host"), ("--read-only",),
         ("--supervised",)]
CAPS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def status(r):
    rows = {}
    for line in r.o.out.splitlines():
        key, _, value = line.partition(":")
        rows[key] = value.strip()
    return rows


@pytest.mark.parametrize("opts", KINDS, ids=lambda o: "_".join(o) or "-")
def test_locks_read_back(box, opts):
    r = box(*opts, "--", "cat", "/proc/self/status")
    s = status(r)
    assert {c: int(s[c], 16) for c in CAPS} == dict.fromkeys(CAPS, 0)
    assert (s["NoNewPrivs"], s["Seccomp"]) == ("1", "2")
    control = attack.status_of("self")
    if boxlib.IS_ROOT:
        assert int(control["CapBnd"], 16) != 0 and control["Seccomp"] == "0", "no control"


def test_a_kept_capability_is_kept_alone(box):
    s = status(box("--cap-add", "NET_BIND_SERVICE", "--", "cat", "/proc/self/status"))
    assert {int(s[c], 16) for c in CAPS} <= {1 << 10}
    assert int(s["CapBnd"], 16) == 1 << 10


@pytest.mark.parametrize("name", ["SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "DAC_READ_SEARCH"])
def test_a_strong_capability_opens_nothing(probe, ws, name):
    """Kept inside the box's own user namespace: the filter stands all the same."""
    r = probe.run("sys", "unshare:user", "chroot", "clone3", "open_by_handle_at", "ptrace:child", opts=("--cap-add", name), json=False)
    if r.rc == 2:  # not to be had at all
        return
    got = attack.answers(r.out)
    assert "ok" not in got.values(), r
    r = probe.run("end", "mount", opts=("--cap-add", name))
    assert r.rc == 159 and r.o.fault_type == "escape_blocked", r


@pytest.mark.parametrize("opts", [(), ("--user", "0"), ("--user", "65534"), ("--user", "0:0", "--network", "host")], ids=lambda o: "_".join(o) or "-")
def test_ids_seen_from_the_host(probe, ws, opts):
    """The kernel's own ids of a process in the box: never the host's root; without root exactly the caller."""
    mark = uuid.uuid4().hex
    with boxlib.running(*probe.mount, *opts, "--", attack.PROBE, "sleep", mark):
        pids = attack.wait_marked(mark)
        assert pids
        s = attack.status_of(pids[0])
        uids, gids = {int(x) for x in s["Uid"].split()}, {int(x) for x in s["Gid"].split()}
        if boxlib.IS_ROOT:
            assert min(uids) >= 1000 and min(gids) >= 1000, (uids, gids)
            assert {int(g) for g in s["Groups"].split()} <= gids
        else:
            assert uids == {os.geteuid()} and gids == {os.getegid()}


@pytest.mark.root
def test_no_group_of_roots_stays(probe):
    """Root's supplementary groups are groups of the host; setgroups is denied in the box, so they must be gone before."""
    mark = uuid.uuid4().hex
    outer = subprocess.run(["setpriv", "--groups", "4,6", "id", "-G"], capture_output=True, text=True, check=True).stdout
    assert {"4", "6"} <= set(outer.split()), "no control"
    argv = ["setpriv", "--groups", "4,6", boxlib.CLOCHE, "run", *map(str, probe.mount), "--", attack.PROBE, "sleep", mark]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=boxlib.base_env()) as p:
        try:
            pids = attack.wait_marked(mark)
            assert pids
            assert not {int(g) for g in attack.status_of(pids[0])["Groups"].split()} & {0, 4, 6}
        finally:
            p.kill()
    assert attack.no_marked(mark)


@pytest.mark.parametrize("user", [None, "0", "1000", "4242"])
def test_files_made_belong_to_the_workspaces_owner(box, ws, user):
    opts = ("--user", user) if user else ()
    r = box("--workspace", ws, *opts, "--", "sh", "-c", "id -u; echo x >made; mkdir d; ln -s x l; stat -c %u made")
    assert r.rc == 0, r
    assert r.o.out.split() == [user or "1000"] * 2
    for name in ("made", "d", "l"):
        st = (ws / name).lstat()
        assert (st.st_uid, st.st_gid) == (os.geteuid(), os.getegid())


@pytest.mark.root
@pytest.mark.parametrize("user", ["0", "1000"])
def test_root_caller_gives_no_power_over_other_ids(box, ws, user):
    """In a workspace of root's: a file of somebody else's can't be read or taken, and none can be given away."""
    other = ws / "other"
    other.write_text("s3cret")
    other.chmod(0o600)
    os.chown(other, 54321, 54321)
    r = box("--workspace", ws, "--user", user, "--", "sh", "-c", "cat other; chmod 644 other; chown 0:0 other; chown 1000 other; echo x >own;"
            "chown 65534 own; chown 54321 own; chmod 4755 own; true")
    assert r.rc == 0 and "s3cret" not in r.o.out, r
    st, own = other.stat(), (ws / "own").stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (54321, 54321, 0o600)
    assert (own.st_uid, own.st_mode & 0o7000) == (0, 0)


def test_environment_is_an_allowlist(box):
    """T37: keys in the caller's environment, looked for in the box's environment and in every process there."""
    secret = uuid.uuid4().hex
    planted = {k: secret for k in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN",
                                   "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH",
                                   "BASH_ENV", "http_proxy", "KUBECONFIG", "XDG_RUNTIME_DIR", "CLOCHE_PROBE", "LC_ALL")}
    planted["LD_PRELOAD"] = planted["LD_LIBRARY_PATH"] = planted["XDG_RUNTIME_DIR"] = "/nonexistent/" + secret
    out = subprocess.run(["env"], env={**boxlib.base_env(), **planted}, capture_output=True, text=True, check=False).stdout
    assert out.count(secret) >= len(planted), "no control"
    r = box("--", "sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; set", env=planted)
    assert r.rc == 0, r
    assert secret not in r.o.out
    names = {line.split("=")[0] for line in box("--", "env", env=planted).o.out.splitlines()}
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "TMPDIR", "HOSTNAME", "SHELL", "XDG_CACHE_HOME", "MPLCONFIGDIR",
                     "JAVA_TOOL_OPTIONS", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "npm_config_cache", "PIP_CACHE_DIR",
                     "GOCACHE", "GOPATH", "GOMODCACHE", "CARGO_HOME", "PWD", "container", "CLOCHE"}, names


def test_environment_is_given_by_name_only(box):
    r = box("-e", "GIVEN", "-e", "SET=1", "--", "env", env={"GIVEN": "yes", "OTHER": "no"})
    rows = set(r.o.out.splitlines())
    assert {"GIVEN=yes", "SET=1"} <= rows and not any(x.startswith("OTHER=") for x in rows)


def high_fds():
    """Runs in the child before exec: descriptors of the root directory, of a file and of a socket, at numbers that a careless loop misses."""
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    for n in (3, 7, 50, 255, 256, 700, 1000):
        os.dup2(root, n, inheritable=True)


@pytest.mark.parametrize("opts", [(), ("--network", "host"), ("--rootfs", None)], ids=["host", "net", "rootfs"])
def test_only_three_descriptors(probe, opts, public):
    """T28: cloche itself inherits many; nothing of it is in the box, neither as a number nor as a way back to the host's root."""
    if None in opts:
        (public / "probe").mkdir()
        opts = ("--rootfs", public)
    control = subprocess.run([str(probe.path), "fds"], preexec_fn=high_fds, close_fds=False, capture_output=True, text=True, check=True).stdout
    assert "\n50 /\n" in control, "no control"
    r = probe.run("fds", opts=opts, preexec_fn=high_fds, close_fds=False)
    assert r.rc == 0, r
    rows = [line.split(" ", 1) for line in r.o.out.splitlines()]
    assert [n for n, _ in rows] == ["0", "1", "2"], r
    assert all(t.startswith(("pipe:", "/dev/null", "socket:")) for _, t in rows), rows


def test_working_directory_can_not_be_a_descriptor(probe, box):
    """The class of runc's leaked descriptor: -w through /proc/self/fd of a process that held the host's root."""
    seen = []
    for n in (3, 4, 5, 6, 7, 8, 9, 10, 12, 20, 50):
        for where in (f"/proc/self/fd/{n}", f"/proc/self/fd/{n}/etc", f"/proc/1/fd/{n}"):
            r = box("-w", where, "--", "sh", "-c", "pwd -P; ls -A", preexec_fn=high_fds, close_fds=False)
            if r.rc == 0:
                seen.append((where, r.o.out))
            else:
                assert r.o.fault_type in ("startup_failed", "exec_failed"), r
    assert seen == []


def test_signal_state_is_fresh(box):
    def spoil():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD])
        for s in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGPIPE):
            signal.signal(s, signal.SIG_IGN)
        os.umask(0)
        os.nice(3)
    control = subprocess.run(["cat", "/proc/self/status"], preexec_fn=spoil, capture_output=True, text=True, check=True).stdout
    assert "SigBlk:\t0000000000000000" not in control
    s = status(box("--", "cat", "/proc/self/status", preexec_fn=spoil))
    assert int(s["SigBlk"], 16) == 0
    assert int(s["SigIgn"], 16) == 0
    assert int(s["Umask"], 8) == 0o022


def test_core_dumps_are_off(box):
    r = box("--", "sh", "-c", "ulimit -Sc; ulimit -Hc; ulimit -c unlimited 2>/dev/null && echo RAISED; grep 'core file' /proc/self/limits")
    assert "RAISED" not in r.o.out
    assert r.o.out.splitlines()[-1].split()[4:6] == ["1", "1"], r


def test_limits_can_not_be_raised(box):
    code = ("import resource\nfor n in ('RLIMIT_NOFILE','RLIMIT_NPROC','RLIMIT_CORE','RLIMIT_MEMLOCK'):\n r=getattr(resource,n)\n"
            " s,h=resource.getrlimit(r)\n"
            " if h!=resource.RLIM_INFINITY:\n"
            "  try: resource.setrlimit(r,(h+1,h+1));print('RAISED',n)\n  except (ValueError,OSError): pass\n")
    r = box("--", "python3", "-c", code)
    assert r.rc == 0 and r.o.out == "", r


def test_process_limit_is_per_box(box):
    """Two boxes of one caller, each with its own count: one that is full does not starve the other."""
    fill = "i=0; while [ $i -lt 40 ]; do sleep 30 & i=$((i+1)); done 2>/dev/null; echo full; wait"
    with boxlib.running("--pids", "20", "--", "sh", "-c", "echo up; " + fill, stdout=-1, stderr=-1) as p:
        assert p.stdout.readline() == b"up\n"
        r = box("--pids", "20", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; wait; echo fine")
        assert r.o.out == "fine\n", r


def test_session_keyring_is_out_of_reach(probe, box):
    """The calls are gone (test_syscalls), the listing is masked, and no process is 'possessing' the caller's keys."""
    got = probe.inside("sys", "keyctl:session", "keyctl:user", "add_key", "request_key")
    assert set(got.values()) == {"ENOSYS"}
    r = box("--", "sh", "-c", "cat /proc/keys; id -u; cat /proc/key-users; true")
    me, *counts = r.o.out.splitlines()
    # Counts of the box's own user are no secret (NOT_HIDDEN), and there are none unless it holds keys; of others there are none at all.
    assert me.isdigit() and all(line.split(":")[0].strip() == me for line in counts), r


@pytest.mark.parametrize("call", ["keyctl", "add_key", "request_key"])
def test_no_rule_reaches_the_callers_keys(call):
    """Keys belong to users, not to namespaces; the control is a rule that is accepted."""
    assert boxlib.box("--seccomp-rule", f"allow={call}", "--", "true", json=False).rc == 2
    assert boxlib.box("--seccomp-rule", "allow=ptrace", "--", "true", json=False).rc == 0




def test_other_processes_of_the_host_are_invisible(box):
    mark = uuid.uuid4().hex
    p = subprocess.Popen(["sleep", "300", ], env={"MARK": mark}, executable="sleep")
    try:
        r = box("--", "sh", "-c", f"ls -d /proc/[0-9]*; kill -0 {p.pid} 2>&1; cat /proc/*/environ | tr '\\0' '\\n'")
        pids = {int(line[6:]) for line in r.o.out.splitlines() if line.startswith("/proc/")}
        assert p.pid not in pids and 1 not in pids and len(pids) <= 4, r
        assert mark not in r.o.out
        assert p.poll() is None
    finally:
        p.kill()
        p.wait()


def test_namespaces_are_all_its_own(box):
    r = box("--", "sh", "-c", "cd /proc/self/ns && for n in *; do echo $n $(readlink $n); done")
    assert r.rc == 0, r
    inside = dict(line.split() for line in r.o.out.splitlines())
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert inside[name] != os.readlink(f"/proc/self/ns/{name}"), name


def test_ipc_of_the_host_is_invisible(box):
    """A message queue that the host made (System V)."""
    code = "import ctypes;c=ctypes.CDLL(None);print(c.msgget(0x5ec0de,0o666{}))"
    made = subprocess.run(["python3", "-c", code.format("|0o1000")], capture_output=True, text=True, check=True).stdout.strip()
    assert int(made) >= 0, "no control"
    try:
        r = box("--", "python3", "-c", code.format(""))
        assert r.o.out.strip() == "-1", r
    finally:
        subprocess.run(["ipcrm", "-q", made], check=True)


def test_new_session_without_a_terminal(box):
    r = box("--", "sh", "-c", "(: </dev/tty) 2>/dev/null && echo TTY; ps -o sid= -p $$ 2>/dev/null; true")
    assert "TTY" not in r.o.out, r


def test_the_workspaces_parent_is_out_of_reach(box, ws):
    parent_secret = ws.parent / (ws.name + "-secret")
    parent_secret.write_text("s3cret")
    try:
        r = box("--workspace", ws, "--", "sh", "-c", f"cat ../{parent_secret.name} ../../tmp/{parent_secret.name} {parent_secret} 2>/dev/null; true")
        assert r.rc == 0 and r.o.out == "", r
    finally:
        parent_secret.unlink()


def test_pathological_link_out_of_the_workspace(box, ws, public):
    """A link in the workspace that names a file of the host leads into the box's own tree."""
    secret = public / "secret"
    secret.write_text("s3cret")
    (ws / "l").symlink_to(secret)
    (ws / "up").symlink_to("../" * 12 + str(secret)[1:])
    r = box("--workspace", ws, "--", "sh", "-c", "cat l up 2>/dev/null; true")
    assert r.rc == 0 and "s3cret" not in r.o.out, r
    assert pathlib.Path(secret).read_text() == "s3cret"


@pytest.mark.parametrize("user", ["-1", "4294967295", "4294967296", "0x0", " 0", "0 ", "+0", "1000:", ":0", "1000:1000:0", "..", "../x", "user\n", "",
                                  "root:x:0", "0;id", "999999999999999999999", "nonesuch", "1e3", "\u0660"])
def test_odd_users(box, user):
    """Refused in one line, never run as somebody else (the class of `exec -u` read as another uid)."""
    r = box("--user", user, "--", "id", "-u", json=False)
    assert r.out == b"" and r.rc in (2, 125), r
    assert r.err.count(b"\n") == 1, r


def test_a_missing_apparmor_profile_refuses(box):
    r = box("--apparmor", "cloche-nonesuch", "--", "true", json=False)
    assert r.rc in (2, 125) and b"apparmor" in r.err.lower(), r


@pytest.mark.parametrize("device", ["/dev/loop0", "/dev/../etc/passwd", "/etc/passwd", "/dev/nonesuch", "/dev", "/dev/fd/0", "/dev/stdin", "dev/null",
                                    "/dev/null/../mem", "/proc/1/mem", ""])
def test_odd_devices(box, device):
    """A device is a character device below /dev by its own name; everything else is refused in one line."""
    r = box("--device", device, "--", "true", json=False)
    assert r.rc in (2, 125) and r.err.count(b"\n") == 1, r


def test_locks_stand_before_anything_foreign_runs(probe, public):
    """A trace of the calls of all processes: the first execve of the box comes after no_new_privs, the filter and Landlock, in that process's
    own line of ancestors; and nothing else is executed by cloche."""
    if not attack.shutil.which("strace"):
        pytest.skip("needs strace")
    log = public / "trace"
    calls = "trace=execve,execveat,seccomp,prctl,landlock_restrict_self"
    r = subprocess.run(["strace", "-f", "-qq", "-o", str(log), "-e", calls, boxlib.CLOCHE, "run", *probe.mount, "--", attack.PROBE, "fds"],
                       env=boxlib.base_env() | boxlib.no_leak_check(), capture_output=True, timeout=60)
    assert r.returncode == 0, r
    rows = [line.split(maxsplit=1) for line in log.read_text(errors="replace").splitlines()]
    execs = [i for i, (_, call) in enumerate(rows) if call.startswith("execve")]
    assert len(execs) == 2, rows
    before = " ".join(call for _, call in rows[execs[0] + 1:execs[1]])
    for lock in ("PR_SET_NO_NEW_PRIVS, 1", "SECCOMP_SET_MODE_FILTER", "landlock_restrict_self", "PR_SET_DUMPABLE, SUID_DUMP_DISABLE"):
        assert lock in before, (lock, rows)
