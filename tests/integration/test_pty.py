"""-t: a terminal of the box's own, which behaves like one and is not the caller's."""
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import boxlib


class Terminal:
    """cloche on a terminal of ours, as a session leader with it as controlling terminal."""

    def __init__(self, *args, cols=91, rows=37):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execve(boxlib.CLOCHE, boxlib.argv_of(["-it", *args], False), dict(boxlib.base_env(), TERM="xterm"))
            finally:
                os._exit(98)
        self.resize(cols, rows)
        self.seen = b""

    def resize(self, cols, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.fd, data)

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

    def wait(self):
        end = time.monotonic() + boxlib.HANG
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    pass
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


def test_job_control_in_a_shell():
    with Terminal("bash", "--norc", "-i") as t:
        t.send(b"PS1='%''% '\n")
        t.until(rb"%% ")
        t.send(b"sleep 301\n")
        time.sleep(0.5)
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


def test_the_callers_terminal_is_restored():
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    p = boxlib.start("-it", "sh", "-c", "stty raw -echo; echo up; sleep 0.2", stdin=slave, stdout=slave, stderr=slave)
    try:
        assert boxlib.wait_for(lambda: select.select([master], [], [], 0)[0])
        assert p.wait(boxlib.HANG) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        p.kill()
        p.wait()
        os.close(slave)
        os.close(master)


def test_hangup_of_the_callers_terminal_ends_the_box():
    mark = "302.5" + str(os.getpid())
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


def test_an_idle_terminal_costs_nothing():
    """Nobody types and nothing prints: cloche sleeps. (On the supervised rung it looks at the box 50 times a second.)"""
    with Terminal("sh", "-c", "echo ready; read x") as t:
        t.until(rb"ready")
        before = cpu_ticks(t.pid)
        time.sleep(1.5)
        spent = (cpu_ticks(t.pid) - before) / os.sysconf("SC_CLK_TCK")
        assert spent < (0.1 if boxlib.IS_ROOT else 0.3), spent
        t.send(b"\n")
        assert t.wait() == 0


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
