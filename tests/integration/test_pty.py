"""-t: a terminal of the box's own, which behaves like one and is not the caller's (T14)."""
import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

import boxlib
import pytest

COOKED = (True, True)


class Terminal:
    """`cloche run -it ARGS`, or another program, on a terminal of ours: a session leader with it as controlling terminal."""

    def __init__(self, *args, argv=None, cols=91, rows=37):
        argv = argv or boxlib.argv_of(["-it", *args], False)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                self.fd = 0
                self.resize(cols, rows)
                os.execvpe(argv[0], argv, dict(boxlib.base_env(), TERM="xterm", PS1="%% ", PS2="", HISTFILE=""))
            finally:
                os._exit(98)
        self.seen = b""

    def resize(self, cols, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.fd, data)

    def line_modes(self):
        """Does the terminal echo and gather lines, as a shell leaves it?"""
        flags = termios.tcgetattr(self.fd)[3]
        return bool(flags & termios.ECHO), bool(flags & termios.ICANON)

    def until(self, pattern):
        end = time.monotonic() + boxlib.HANG
        while time.monotonic() < end:
            m = re.search(pattern, self.seen)
            if m:
                self.seen = self.seen[m.end():]
                return m
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    part = os.read(self.fd, 65536)
                except OSError as e:
                    if e.errno != errno.EIO:
                        raise
                    part = b""
                if not part:
                    break
                self.seen += part
        raise AssertionError(f"{pattern} did not come: {self.seen!r}")

    def more(self):
        """What is there to read now, added to `seen`. False at its end, or when there is none."""
        if not select.select([self.fd], [], [], 0)[0]:
            return False
        try:
            part = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += part
        return bool(part)

    def wait(self):
        end = time.monotonic() + boxlib.HANG
        while time.monotonic() < end:
            if self.more():
                continue
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        raise AssertionError(f"hang guard; {self.seen!r}")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def test_is_a_terminal_of_the_right_size(probe):
    path = probe.path("terminal")
    with Terminal(*probe.mount, "sh", "-c", f"sleep 0.3; {path}") as t:
        t.until(rb"isatty=111\r\ncontrolling=1\r\nforeground=1\r\nname=/dev/pts/\d+\r\nsize=91x37\r\n")
        assert t.wait() == 0


def test_size_of_nothing(probe):
    """A terminal that has no size says so; one that loses its size keeps the last."""
    with Terminal(*probe.mount, probe.path("terminal"), "wait", cols=0, rows=0) as t:
        t.until(rb"size=0x0\r\nwaiting\r\n")
        t.resize(80, 24)
        t.until(rb"resized=80x24")
        t.resize(0, 0)
        time.sleep(0.2)
        t.resize(81, 25)
        t.until(rb"resized=81x25")
        assert t.wait() == 0


def test_size_when_only_the_output_is_a_terminal(probe):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    p = boxlib.start("-t", *probe.mount, probe.path("terminal"), stdout=slave, stderr=slave)
    try:
        assert p.wait(boxlib.HANG) == 0
        assert b"size=77x33" in os.read(master, 65536)
    finally:
        p.kill()
        p.wait()
        os.close(slave)
        os.close(master)


def test_no_terminal_unless_asked(box, probe):
    o = box(*probe.mount, probe.path("terminal")).o
    assert "isatty=000" in o.out and "controlling=0" in o.out


def test_resize_and_interrupt_reach_the_command(probe):
    with Terminal(*probe.mount, probe.path("terminal"), "wait") as t:
        t.until(rb"waiting\r\n")
        t.resize(120, 50)
        t.until(rb"resized=120x50")
        t.send(b"\x03")
        t.until(rb"interrupted")
        assert t.wait() == 0


def test_interrupt_ends_a_plain_command_by_its_own_signal():
    with Terminal("sh", "-c", "echo up; exec sleep 300") as t:
        t.until(rb"up")
        t.send(b"\x03")
        assert t.wait() == 128 + signal.SIGINT


def test_quit_key():
    with Terminal("sh", "-c", "echo up; exec sleep 300") as t:
        t.until(rb"up")
        t.send(b"\x1c")
        assert t.wait() == 128 + signal.SIGQUIT


@pytest.mark.parametrize("mode", ["raw", "-isig"])
def test_keys_are_bytes_where_the_command_says_so(mode):
    with Terminal("sh", "-c", f"stty {mode} -icanon -echo; echo up; head -c 4 | od -An -tx1; stty sane; echo en''d") as t:
        t.until(rb"up")
        t.send(b"\x03\x1a\x1cx")
        t.until(rb"03 1a 1c 78\r?\n")
        t.until(rb"end")
        assert t.wait() == 0


MIB = bytes(range(256)) * 4096


def test_a_mebibyte_out_of_it():
    with Terminal("-q", "sh", "-c", "stty raw; echo up; python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)'") as t:
        t.until(rb"up\n")
        assert t.wait() == 0
        while t.more():
            pass
        assert hashlib.sha256(t.seen).digest() == hashlib.sha256(MIB).digest(), len(t.seen)


def test_a_mebibyte_into_it():
    with Terminal("sh", "-c", "stty raw -echo; echo up; head -c 1048576 | sha256sum") as t:
        t.until(rb"up")
        done = 0
        os.set_blocking(t.fd, False)
        while done < len(MIB):
            assert select.select([], [t.fd], [], boxlib.HANG)[1], done
            done += os.write(t.fd, MIB[done:done + 4096])
        t.until(hashlib.sha256(MIB).hexdigest().encode())
        assert t.wait() == 0


def test_job_control_in_a_shell():
    with Terminal("bash", "--norc", "-i") as t:
        t.send(b"PS1='%''% '\n")
        t.until(rb"%% ")
        t.send(b"sleep 301\n")
        assert boxlib.wait_for(lambda: "sleep" in boxlib.children_of(t.pid).values())
        t.send(b"\x1a")
        t.until(rb"Stopped")
        t.send(b"kill %1; wait; echo wa''s $?\n")
        t.until(rb"was \d+")
        t.send(b"stty -isig; echo no''sig; stty isig\n")
        t.until(rb"nosig[^%]*%% ")
        t.send(b"exit\n")
        assert t.wait() in (0, 143)


def test_bytes_typed_arrive_and_eof_is_ctrl_d():
    with Terminal("sh", "-c", "stty -echo; echo up; cat >/tmp/got; od -An -c /tmp/got; exit 4") as t:
        t.until(rb"up")
        t.send("ž x\n".encode())
        t.send(b"\x04")
        t.until(rb"305 276\s+x\s+\\n")
        assert t.wait() == 4


def test_a_pipe_typed_into_it_ends_for_every_reader(box):
    """Also where the last line has no end, and where two read one after the other."""
    r = box("-it", "sh", "-c", "stty -echo; echo up; cat; cat; echo end", stdin=b"abc", json=False)
    assert r.rc == 0 and r.out.endswith(b"abcend\r\n"), r
    r = box("-it", "sh", "-c", "read x; echo got $x; read y || echo end", stdin=b"line\n", json=False)
    assert r.rc == 0 and b"got line\r\nend\r\n" in r.out, r


# How a run may end: what is done to it, with its pid, and its exit code.
ENDS = {
    "well": (("sh", "-c", "stty raw -echo; echo up; sleep 0.2; exit 3"), None, 3),
    "deadline": (("--timeout", "3s", "sh", "-c", "echo up; sleep 300"), None, 124),
    "out of memory": (("-m", "64m", "sh", "-c", "echo up; exec python3 -c 'x = bytearray(1 << 28)'"), None, 137),
    "no such command": (("no-such-command-here",), None, 127),
    "interrupted twice": (("sh", "-c", "trap '' INT; echo up; sleep 300"), "interrupts", 130),
    "terminated": (("sh", "-c", "echo up; exec sleep 300"), signal.SIGTERM, 130),
    "hung up": (("sh", "-c", "echo up; exec sleep 300"), signal.SIGHUP, 130),
    "its init killed": (("sh", "-c", "echo up; exec sleep 300"), "init", 125),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_callers_terminal_is_restored(how):
    args, what, code = ENDS[how]
    with Terminal(*args) as t:
        before = t.line_modes()
        assert before == COOKED
        if args[0][0] != "n":
            t.until(rb"up")
            assert boxlib.wait_for(lambda: t.line_modes() == (False, False) or os.waitid(os.P_PID, t.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        if isinstance(what, signal.Signals):
            os.kill(t.pid, what)
        if what == "init":
            for pid in boxlib.children_of(t.pid):
                with contextlib.suppress(OSError):  # some end by themselves
                    if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1] == str(t.pid):
                        os.kill(pid, signal.SIGKILL)
        if what == "interrupts":  # one at a time: two that wait together are one
            def ended():
                os.kill(t.pid, signal.SIGINT)
                return os.waitid(os.P_PID, t.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            assert boxlib.wait_for(ended, every=0.3)
        assert t.wait() == code, t.seen
        assert t.line_modes() == COOKED


def test_a_terminal_that_does_not_control_is_restored_too():
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    p = boxlib.start("-it", "sh", "-c", "echo up; read x", stdin=slave, stdout=slave, stderr=slave)
    try:
        assert boxlib.wait_for(lambda: not termios.tcgetattr(slave)[3] & termios.ECHO)
        os.write(master, b"x\r")
        assert p.wait(boxlib.HANG) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        p.kill()
        p.wait()
        os.close(slave)
        os.close(master)


def shell():
    """A shell of the host's, with job control, on a terminal."""
    t = Terminal(argv=["bash", "--norc", "--noprofile", "-i"])
    t.until(rb"%% ")
    return t


def below(t, name):
    """The one process of this name below the terminal's."""
    return boxlib.wait_for(lambda: [p for p, n in boxlib.children_of(t.pid).items() if n == name])[0]


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def run_line(*args):
    return " ".join(["'" + str(a).replace("'", "'\\''") + "'" for a in boxlib.argv_of(["-q", *args], False)]).encode()


def test_stop_key_outside_stops_the_command_with_cloche():
    """Without -t the key is the caller's shell's: both stop, and both go on."""
    mark = boxlib.seconds()
    with shell() as t:
        t.send(run_line("sh", "-c", f"echo u''p; exec sleep {mark}") + b"\n")
        t.until(rb"up")
        pid = boxlib.wait_for(lambda: boxlib.find_marked(mark))[0]  # an exec has no words for a moment
        assert state(pid) != "T"
        t.send(b"\x1a")
        t.until(rb"Stopped")
        assert boxlib.wait_for(lambda: state(pid) == "T" and state(below(t, "cloche")) == "T")
        t.send(b"fg\n")
        assert boxlib.wait_for(lambda: state(pid) != "T" and state(below(t, "cloche")) != "T")
        t.send(b"\x03")
        t.until(rb"%% ")
        t.send(b"echo wa''s $?; exit\n")
        t.until(rb"was 130")


def test_stopped_by_a_signal_the_terminal_is_the_shells_again():
    with shell() as t:
        t.send(run_line("-it", "sh", "-c", "echo u''p; read x; echo go''t $x; exit 5") + b"\n")
        t.until(rb"up")
        assert boxlib.wait_for(lambda: t.line_modes() == (False, False))
        os.kill(below(t, "cloche"), signal.SIGTSTP)
        t.until(rb"Stopped")
        t.until(rb"%% ")
        t.send(b"stty -a | tr ';' '\\n' | grep -o ' icanon'; stty sane\n")
        t.until(rb"\r icanon")
        t.resize(70, 20)
        t.send(b"fg\n")
        assert boxlib.wait_for(lambda: t.line_modes() == (False, False))
        t.send(b"back\r")
        t.until(rb"got back")
        t.until(rb"%% ")
        t.send(b"echo wa''s $?; exit\n")
        t.until(rb"was 5")


def test_killed_the_shell_takes_its_terminal_back():
    """Nothing of cloche's is left to do it; a shell with job control does."""
    with shell() as t:
        t.send(run_line("-it", "sh", "-c", "echo u''p; sleep 300") + b"\n")
        t.until(rb"up")
        assert boxlib.wait_for(lambda: t.line_modes() == (False, False))
        os.kill(below(t, "cloche"), signal.SIGKILL)
        t.until(rb"Killed")
        t.until(rb"%% ")
        t.send(b"stty -a | tr ';' '\\n' | grep -o ' icanon'; exit\n")
        t.until(rb"\r icanon")


def test_in_the_background_where_that_stops_who_prints():
    """stty tostop: cloche is not stopped, so that the deadline holds; it keeps the output until it may print."""
    with shell() as t:
        t.send(b"stty tostop; sh -c 'sleep 0.2; echo con''trol' &\n")
        pid = boxlib.wait_for(lambda: [p for p, n in boxlib.children_of(t.pid).items() if n == "sh"])[0]
        assert boxlib.wait_for(lambda: state(pid) == "T")  # the control: an ordinary program is
        t.send(b"kill -9 %1\n")
        t.send(run_line("sh", "-c", "echo ou''t; sleep 1") + b" &\n")
        assert boxlib.wait_for(lambda: "cloche" in boxlib.children_of(t.pid).values())
        time.sleep(1.5)
        assert state(below(t, "cloche")) != "T"
        t.more()
        assert not re.search(rb"[\r\n]out", t.seen)
        t.send(b"fg %2\n")
        t.until(rb"[\r\n]out")
        t.until(rb"%% ")
        t.send(run_line("--timeout", "300ms", "sh", "-c", "echo ou''t; sleep 300") + b" &\nwait %1; echo wa''s $?; exit\n")
        t.until(rb"was 124")


def test_hangup_of_the_callers_terminal_ends_the_box():
    mark = boxlib.seconds()
    t = Terminal("sh", "-c", f"echo up; sleep {mark}")
    t.until(rb"up")
    assert boxlib.wait_for(lambda: boxlib.find_marked(mark))
    os.close(t.fd)
    assert boxlib.wait_for(lambda: os.waitpid(t.pid, os.WNOHANG)[0])
    assert boxlib.wait_for(lambda: not boxlib.find_marked(mark))


def test_terminal_without_a_terminal_is_refused_or_works(box):
    r = box("-t", "sh", "-c", "test -t 1 && echo tty", json=False)
    assert (r.rc == 0 and r.out == b"tty\r\n") or (r.rc == 2 and r.err.count(b"\n") == 1), r


def cpu_ticks(pid):
    fields = open(f"/proc/{pid}/stat", encoding="utf-8").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def spent(pid, seconds):
    """Of a processor, in so long."""
    before = cpu_ticks(pid)
    time.sleep(seconds)
    return (cpu_ticks(pid) - before) / os.sysconf("SC_CLK_TCK")


IDLE = 0.1 if boxlib.IS_ROOT else 0.3


def test_an_idle_terminal_costs_nothing():
    """Nobody types and nothing prints: cloche sleeps. (On the supervised rung it looks at the box 50 times a second.)"""
    with Terminal("sh", "-c", "echo ready; read x") as t:
        t.until(rb"ready")
        assert boxlib.cheapest(lambda: spent(t.pid, 1.5), IDLE) < IDLE
        t.send(b"\n")
        assert t.wait() == 0


def test_a_command_that_left_its_terminal_costs_nothing():
    with Terminal("sh", "-c", "echo ready; exec </dev/null >/dev/null 2>&1; sleep 300") as t:
        t.until(rb"ready")
        time.sleep(0.2)
        assert boxlib.cheapest(lambda: spent(t.pid, 1.5), IDLE) < IDLE


def test_deadline_on_a_terminal():
    with Terminal("--timeout", "500ms", "sh", "-c", "echo up; sleep 300") as t:
        t.until(rb"timeout: ")
        assert t.wait() == 124


def test_the_hosts_terminal_is_out_of_reach():
    """T15: what a box types into a terminal arrives at its own, if anywhere; both numbers of the request, and the aliases."""
    code = ("import fcntl, os, ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "for req in (0x5412, 0x541C, 0x5412 + (1 << 32), 0x541C + (1 << 32), 0x5412 + (7 << 33)):\n"
            "  libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]\n"
            "  b = ctypes.create_string_buffer(b'Z'); print('pushed' if libc.syscall(ctypes.c_long(16), ctypes.c_long(0), "
            "ctypes.c_ulong(req), b) == 0 else 'no')\n")
    for args in (("python3", "-c", code), ("-e", "X=1", "sh", "-c", "exec python3 -c \"$0\" </dev/tty", code)):
        with Terminal(*args) as t:
            t.until(rb"(no\r\n){5}")
            t.wait()
            assert b"pushed" not in t.seen and b"Z" not in t.seen


# Programs that draw on a terminal, in a box on a terminal of tmux's: what is run, keys and what the screen shows then, the exit code.
SCREENS = {
    "vim": (["vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "f"],
            [("", r"~"), ("ihello there", r"INSERT"), ("\x1b:w\r", r"written"), (":!cat f\r", r"\nhello there\n"), ("\r:q\r", None)], 0),
    "less": (["sh", "-c", "seq 1 500 >f; less -X f"], [("", r"^1\n2\n"), ("G", r"\n500\n"), ("/^42$\r", r""), ("g/^42$\r", r"^42\n43\n"), ("q", None)], 0),
    "top": (["top"], [("", r"PID.*COMMAND"), ("q", None)], 0),
    "tmux": (["sh", "-c", "tmux -f /dev/null new-session 'PS1=% sh'"],
             [("", r"\A%[\s\S]*\[0\]"), ("echo in''side\r", r"\ninside\n"), ("\x02%", r"│"), ("exit\r", r"\A[^│]*\Z"), ("exit\r", None)], 0),
}


class Screen:
    """A tmux of the host's, of its own, with one window of 80 by 24."""

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="ct-tmux-", dir="/tmp")
        return self

    def tmux(self, *args, fails=False):
        env = dict(boxlib.base_env(), TERM="xterm", TMUX_TMPDIR=self.dir)
        r = subprocess.run(["tmux", "-f", "/dev/null", "-S", f"{self.dir}/s", *args], env=env, capture_output=True, text=True,
                           timeout=boxlib.HANG, check=False)
        assert fails or r.returncode == 0, (args, r.stderr)
        return r.stdout

    def start(self, *args):
        line = run_line("-it", *args).decode() + f"; echo $? >{self.dir}/rc; exec sleep 300"
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", line)

    def shows(self, pattern):
        seen = []

        def look():
            seen.append(self.tmux("capture-pane", "-p"))
            return re.search(pattern, seen[-1], re.M)
        assert boxlib.wait_for(look, every=0.05), f"{pattern} did not come: {seen[-1]}"

    def rc(self):
        path = pathlib.Path(self.dir, "rc")
        return int(boxlib.wait_for(lambda: path.exists() and path.read_text()))

    def __exit__(self, *exc):
        self.tmux("kill-server", fails=True)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.mark.parametrize("name", SCREENS)
def test_programs_that_draw(name):
    argv, steps, code = SCREENS[name]
    for program in ("tmux", name):
        if not shutil.which(program, path="/usr/bin:/bin"):
            pytest.skip(f"no {program} here")
    with Screen() as s:
        s.start(*argv)
        for keys, pattern in steps:
            if keys:
                s.tmux("send-keys", "-l", keys)
            if pattern:
                s.shows(pattern)
        assert s.rc() == code


def test_an_idle_program_under_a_multiplexer_costs_nothing():
    if not shutil.which("tmux", path="/usr/bin:/bin"):
        pytest.skip("no tmux here")
    with Screen() as s:
        s.start("sh", "-c", "echo ready; read x")
        s.shows("ready")
        server = int(s.tmux("display-message", "-p", "#{pid}"))
        pid = [p for p, n in boxlib.children_of(server).items() if n == "cloche"][0]
        assert boxlib.cheapest(lambda: spent(pid, 2), IDLE) < IDLE
        s.tmux("resize-window", "-x", "60", "-y", "20")
        s.tmux("send-keys", "-l", "\r")
        assert s.rc() == 0
