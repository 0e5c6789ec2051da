"""What a command sees of its box when nothing goes wrong."""
import os
import pathlib
import signal
import socket
import stat

import boxlib
import pytest


@pytest.mark.parametrize("code", [0, 3, 7, 255])
def test_exit_code_passes_through(box, code):
    r = box("sh", "-c", f"exit {code}")
    assert (r.rc, r.o["exit_code"], r.o.fault, r.o["signal"]) == (code, code, None, None)
    assert box("sh", "-c", f"exit {code}", json=False).rc == code


def test_streams_are_separate_and_byte_exact(box):
    r = box("sh", "-c", r"printf 'out\001\n'; printf 'err\377\n' >&2", json=False)
    assert (r.rc, r.out, r.err) == (0, b"out\x01\n", b"err\xff\n")
    o = box("sh", "-c", "echo out; echo err >&2").o
    assert (o.out, o.err) == ("out\n", "err\n")


def test_streaming_adds_nothing_of_its_own(box):
    r = box("true", json=False)
    assert (r.rc, r.out, r.err) == (0, b"", b"")


@pytest.mark.parametrize("arg", [b"", b"a b", b"two\nlines", b"\xff\xfe", b"--", b"-x", b"'\"$(id)`", b"*", "žluť".encode(), b"\t\x7f\x1b[31m"])
def test_arguments_arrive_unchanged(box, arg):
    r = box("--", "printf", "%s.", arg, b"end", json=False)
    assert (r.rc, r.out) == (0, arg + b".end."), r


def test_many_and_long_arguments(box):
    r = box("--", "sh", "-c", 'echo $#; printf %s "$1" | wc -c', "sh", "x" * 100000, *["y"] * 2000, json=False)
    assert r.out.split() == [b"2001", b"100000"]


def test_options_after_the_command_are_the_commands(box):
    assert box("echo", "--json", "--memory", "1", json=False).out == b"--json --memory 1\n"


SECRETS = {"AWS_SECRET_ACCESS_KEY": "planted-aws", "OPENAI_API_KEY": "planted-openai", "GITHUB_TOKEN": "planted-gh",
           "LD_PRELOAD_X": "planted-ld", "SSH_AUTH_SOCK": "/planted.sock", "DBUS_SESSION_BUS_ADDRESS": "planted-bus",
           "PYTHONPATH": "/planted-python", "BASH_ENV": "/planted-rc"}


def test_environment_is_rebuilt(box):
    o = box("env", env=SECRETS).o
    assert o["exit_code"] == 0
    got = dict(line.split("=", 1) for line in o.out.splitlines())
    assert not set(got) & set(SECRETS)
    assert "planted" not in o.out
    assert {"PATH", "HOME"} <= set(got)
    assert got["HOME"] == "/home/user"
    assert "/usr/bin" in got["PATH"].split(":")


def test_environment_of_every_process_is_clean(box):
    script = "for f in /proc/[0-9]*/environ; do cat $f 2>/dev/null | tr '\\0' '\\n'; done; cat /proc/*/cmdline | tr '\\0' ' '"
    o = box("sh", "-c", script, env=SECRETS).o
    assert "HOME=/home/user" in o.out  # the control: the probe does read environments
    assert "planted" not in o.out


def test_environment_asked_for(box, ws):
    (ws / "vars").write_text("# comment\n\nFROM_FILE=one two\nBOTH=file\n")
    o = box("-e", "A=1", "-e", "EMPTY=", "-e", "WITH=a=b", "-e", "COPIED", "-e", "NOT_THERE", "-e", "BOTH=option", "--env-file",
            ws / "vars", "env", env={"COPIED": "from caller"}).o
    got = dict(line.split("=", 1) for line in o.out.splitlines())
    assert got["A"] == "1" and got["EMPTY"] == "" and got["WITH"] == "a=b" and got["COPIED"] == "from caller"
    assert got["FROM_FILE"] == "one two" and got["BOTH"] == "option"
    assert "NOT_THERE" not in got


def test_working_directory(box, ws):
    assert box("pwd").o.out == "/home/user\n"
    assert box("--workspace", ws, "pwd").o.out == "/workspace\n"
    assert box("-w", "/tmp", "pwd").o.out == "/tmp\n"
    assert box("--workspace", ws, "-w", "/usr/bin", "pwd").o.out == "/usr/bin\n"


def test_identity(box):
    o = box("sh", "-c", "id -u; id -g; id -un; cat /proc/sys/kernel/hostname; uname -n").o
    assert o.out.split() == ["1000", "1000", "user", "cloche", "cloche"]


@pytest.mark.parametrize("user,want", [("0", "0 0"), ("65534", "65534 65534"), ("501:20", "501 20"), ("root", "0 0")])
def test_user_option(box, user, want):
    o = box("--user", user, "sh", "-c", "echo $(id -u) $(id -g); touch $HOME/x && echo home").o
    assert o.out.splitlines() == [want, "home"], o


def test_writable_places(box):
    script = ("for d in $HOME $TMPDIR /tmp /var/tmp /var/cache /run /dev/shm / /etc; do "
              "echo x >$d/.probe && cat $d/.probe >/dev/null || echo no $d; done; : >$HOME/.cache-probe; "
              "mkdir -p ${XDG_CACHE_HOME:-$HOME/.cache}/a/b && echo cache; "
              "echo x >/usr/.probe && echo usr-written; echo x >/bin/.probe && echo bin-written; exit 0")
    o = box("sh", "-c", script).o
    assert o.out.split() == ["cache"], o
    assert not os.path.exists("/usr/.probe")
    assert not os.path.exists("/etc/.probe")


def test_writes_are_thrown_away(box):
    assert box("sh", "-c", "echo x >/tmp/kept; echo x >$HOME/kept; cat /tmp/kept").o.out == "x\n"
    assert box("sh", "-c", "ls /tmp $HOME").o.out.find("kept") == -1


def test_read_only_root(box):
    script = ("echo x >/probe && echo root-written; echo x >/etc/probe && echo etc-written; "
              "for d in /tmp /run /dev/shm $HOME; do echo x >$d/p && echo ok $d; done; exit 0")
    o = box("--read-only", "sh", "-c", script).o
    assert o.out.splitlines() == ["ok /tmp", "ok /run", "ok /dev/shm", "ok /home/user"], o


def test_host_directories_are_absent(box):
    o = box("sh", "-c", "ls -A /home /root /srv /opt /mnt /media 2>/dev/null; ls /; cut -d: -f1 /etc/passwd; ls /etc").o
    names = o.out.split()
    hosts = set(os.listdir("/root")) if boxlib.IS_ROOT else set()
    assert not {n for n in hosts if n.startswith(".")} & set(names)
    assert "shadow" not in names and "ssh" not in names
    with open("/etc/passwd", encoding="utf-8") as f:
        people = {line.split(":")[0] for line in f if 1000 < int(line.split(":")[2]) < 60000}
    assert not people & set(names)


def test_cpus_are_told_to_programs(box):
    o = box("--cpus", "1", "sh", "-c", "nproc; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat").o
    assert o.out.split() == ["1", "1", "1", "1"], o
    assert box("nproc").o.out.strip() == str(len(os.sched_getaffinity(0)))


def test_python_agrees_about_cpus(box):
    script = "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))"
    assert box("--cpus", "0.5", "python3", "-c", script).o.out.split() == ["1", "1"]


@pytest.mark.parametrize("mib", [128, 300])
def test_meminfo_is_the_boxs(box, mib):
    o = box("--memory", f"{mib}m", "sh", "-c", "cat /proc/meminfo").o
    rows = dict(line.split(":") for line in o.out.splitlines())
    assert int(rows["MemTotal"].split()[0]) == mib * 1024
    assert int(rows["MemAvailable"].split()[0]) <= mib * 1024
    assert int(rows["SwapTotal"].split()[0]) == 0


def test_what_a_process_inherits(box, probe):
    """One probe, asked from a caller who has odd signal dispositions, an odd umask, a lowered priority and stray descriptors."""
    path = probe.path("inherited")

    def spoil():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGALRM})
        os.umask(0o777)
        for fd in (3, 7, 63):
            os.dup2(os.open("/etc/hostname", os.O_RDONLY), fd)
    r = boxlib.communicate(boxlib.argv_of([*probe.mount, path], False), preexec_fn=spoil, close_fds=False)
    got = dict(line.split("=", 1) for line in r.out.decode().splitlines())
    assert got == {"fds": "0,1,2", "ignored": "", "blocked": "", "umask": "022", "session_leader": "yes", "tty": "no",
                   "stdin_kind": "empty", "pid1_visible": got["pid1_visible"], "nice": str(os.nice(0))}, r


def test_standard_streams_are_not_the_callers_files(box, ws):
    with open(ws / "captured", "wb") as f:
        with boxlib.running("sh", "-c", "readlink /proc/self/fd/1; readlink /proc/self/fd/0", stdout=f) as p:
            assert p.wait(boxlib.HANG) == 0
    text = (ws / "captured").read_text()
    assert "captured" not in text and "/tmp" not in text, text
    assert text.splitlines()[0].startswith("pipe:")


def test_network_is_empty_with_loopback_up(box):
    script = ("import socket, os\n"
              "s = socket.socket(); s.bind(('127.0.0.1', 80)); s.listen()\n"
              "c = socket.create_connection(s.getsockname(), 5); print('loopback')\n"
              "print([l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]])\n"
              "try: socket.create_connection(('192.0.2.1', 80), 2); print('out')\n"
              "except OSError as e: print('none', e.errno)\n")
    o = box("python3", "-c", script).o
    assert o.out.splitlines()[:2] == ["loopback", "['lo']"], o
    assert o.out.splitlines()[2].startswith("none")


def test_host_listener_is_out_of_reach_unless_network_host(box):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        code = f"import socket; socket.create_connection(('127.0.0.1', {s.getsockname()[1]}), 3); print('reached')"
        assert "reached" not in box("python3", "-c", code).o.out
        assert box("--network", "host", "python3", "-c", code).o.out == "reached\n"


def test_dev_has_the_safe_nodes_only(box):
    o = box("sh", "-c", "ls /dev; : >/dev/null && echo null-ok; head -c 4 /dev/urandom | wc -c; head -c 3 /dev/zero | od -An -tx1; "
                        "echo x >/dev/full || echo full-ok; stat -c %F /dev/null").o
    lines = o.out.splitlines()
    nodes = set(lines[:lines.index("null-ok")])
    assert nodes == {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"}
    assert lines[lines.index("null-ok") + 1:] == ["4", " 00 00 00", "full-ok", "character special file"]


def test_proc_shows_only_the_box(box):
    o = box("sh", "-c", "ls /proc | grep -c '^[0-9]'; cat /proc/sys/kernel/hostname; ls /sys 2>/dev/null | tr '\\n' ' '").o
    lines = o.out.splitlines()
    assert int(lines[0]) <= 5
    assert lines[1] == "cloche"
    assert "devices" not in o.out


def test_a_device_on_request(box):
    """One that the rules allow and this host has; the box sees it by name and number, and no other."""
    have = next((d for d in ("/dev/kvm", "/dev/net/tun", "/dev/hwrng") if os.path.exists(d)), None)
    if have is None:
        pytest.skip("the host has none of the devices that a box may have")
    assert box("test", "-e", have).rc == 1
    r = box("--device", have, "sh", "-c", f"test -c {have} && stat -c %t:%T {have}")
    rdev = os.stat(have).st_rdev
    assert r.o.out == f"{os.major(rdev):x}:{os.minor(rdev):x}\n", r
    r = box("--device", "/dev/console", "echo", "ran", json=False)
    assert r.rc in (2, 125) and b"/dev/console" in r.err and r.out == b"", r


def test_timing_and_usage_are_in_the_outcome(box):
    o = box("--timing", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").o
    assert isinstance(o["timing_us"], dict) and o["timing_us"]
    assert all(v is None or isinstance(v, int) and v >= 0 for v in o["timing_us"].values())
    assert sum(v is not None for v in o["timing_us"].values()) > 3
    u = o["usage"]
    assert set(u) == {"cpu_user_us", "cpu_sys_us", "memory_peak_bytes", "pids_peak", "read_bytes", "written_bytes", "wall_us", "start_us",
                      "queued_us"}
    assert u["wall_us"] > 0 and u["start_us"] > 0
    assert u["cpu_user_us"] is None or 0 < u["cpu_user_us"] <= u["wall_us"] * 4
    assert "timing_us" not in box("true").o


def test_outcome_has_exactly_the_documented_fields(box):
    o = box("true").o
    want = {"exit_code", "signal", "stdout", "stderr", "fault", "duration_ms", "truncated", "stdout_cut", "stderr_cut", "usage", "limits",
            "image", "events", "denied", "notes"}
    assert set(o) == want, set(o) ^ want
    assert set(o["limits"]) == {"memory", "pids", "cpus", "timeout", "output", "file_size", "open_files", "workspace_max",
                                "io_weight"}
    for row in o["limits"].values():
        assert set(row) == {"requested", "effective", "rung", "enforced"}
    assert set(o["events"]) == {"pids_max", "oom_kills", "lost_denials", "unlisted_denials"}
    assert o["denied"] == []


def test_rootfs_directory(box, ws, probe):
    """A directory as root file system: what is written goes to a throwaway layer, the directory stays as it was."""
    root = ws / "root"
    for d in ("bin", "etc", "tmp", "proc", "dev"):
        (root / d).mkdir(parents=True)
    (root / "etc" / "marker").write_text("from the root\n")
    (root / "bin" / "probe").write_bytes(probe("rootfs").read_bytes())
    (root / "bin" / "probe").chmod(0o755)
    before = sorted((p.relative_to(root).as_posix(), p.lstat().st_mode) for p in root.rglob("*"))
    r = box("--rootfs", root, "/bin/probe")
    assert r.o.out.splitlines() == ["from the root", "wrote /etc/new", "replaced /etc/marker", "no /usr"], r
    assert sorted((p.relative_to(root).as_posix(), p.lstat().st_mode) for p in root.rglob("*")) == before
    assert (root / "etc" / "marker").read_text() == "from the root\n"
    r = box("--rootfs", root, "--read-only", "/bin/probe")
    assert "wrote /etc/new" not in r.o.out, r


def test_setuid_bits_cannot_be_set(box, ws):
    o = box("--workspace", ws, "sh", "-c", "cp /usr/bin/true t; chmod 755 t && echo plain; chmod 4755 t && echo setuid; "
            "chmod 2755 t && echo setgid; exit 0").o
    assert o.out.split() == ["plain"], o
    assert not stat.S_IMODE(os.stat(ws / "t").st_mode) & 0o6000


def test_plan_runs_nothing(cloche, ws):
    r = cloche("run", "--workspace", ws, "--plan", "--", "touch", "/workspace/ran")
    assert r.rc == 0 and b"workspace" in r.out, r
    assert list(pathlib.Path(ws).iterdir()) == []


def test_many_boxes_at_once(box):
    """Thirty at a time; each has its own answer, and none disturbs another."""
    ps = [boxlib.start("sh", "-c", f"echo {i}; exit {i}") for i in range(30)]
    for i, p in enumerate(ps):
        out, err = p.communicate(timeout=boxlib.HANG)
        assert (p.returncode, out, boxlib.without_rung(err)) == (i, f"{i}\n".encode(), b"")


@pytest.mark.parametrize("name", ["dev", "proc", "etc", "tmp", "workspace"])
def test_rootfs_with_planted_links(box, ws, probe, name):
    """A root whose directories are links out of it: what the box sets up lands inside the box or nowhere."""
    root, trap = ws / "root", ws / "trap"
    (root / "bin").mkdir(parents=True)
    trap.mkdir()
    (root / "bin" / "probe").write_bytes(probe("rootfs").read_bytes())
    (root / "bin" / "probe").chmod(0o755)
    (root / name).symlink_to(trap)
    r = box("--rootfs", root, "--workspace", ws / "root" / "bin", "/bin/probe")
    assert r.o.fault is None or r.o.fault_type == "startup_failed", r
    assert list(trap.iterdir()) == [] and sorted(p.name for p in root.iterdir()) == sorted(["bin", name])
