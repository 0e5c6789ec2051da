"""The terminal (T15): a box with -t has one of its own; the caller's is out of reach, and nothing can be typed into it."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pytest

from . import attack
from .attack import boxlib

INJECTIONS = ("sti", "sti+2^32", "sti+2^63", "sti+high", "sti:/dev/tty")
OTHERS = ("tioclinux", "tioclinux+2^32", "tiocsetd", "console")


def under_terminal(argv):
    """Runs argv as the leader of a session with a terminal of its own. Returns (exit code, its output, bytes that wait as typed input)."""
    master, slave = pty.openpty()
    attrs = termios.tcgetattr(slave)
    attrs[3] &= ~(termios.ECHO | termios.ICANON)  # so that a single typed byte can be counted
    termios.tcsetattr(slave, termios.TCSANOW, attrs)

    def enter():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    p = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, preexec_fn=enter, env={**boxlib.base_env(), "TERM": "dumb"})
    out, end = b"", time.monotonic() + 40
    while time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            out += os.read(master, 65536)
        elif p.poll() is not None:
            break
    p.kill()
    rc = p.wait()
    # cloche puts the terminal back as it found it: not canonical, so the queue can be counted.
    typed = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0" * 4))[0]
    os.close(slave)
    os.close(master)
    return rc, out.replace(b"\r\n", b"\n"), typed


def legacy_tiocsti():
    try:
        return open("/proc/sys/dev/tty/legacy_tiocsti").read().strip() != "0"
    except FileNotFoundError:
        return True


def test_control(probe):
    """Outside, the injection lands in the terminal's input queue."""
    rc, out, typed = under_terminal([str(probe.path), "tty"])
    got = attack.answers(out)
    assert rc == 0 and got["winsize"] == "ok", out
    if legacy_tiocsti():
        assert {got[n] for n in INJECTIONS} == {"ok"} and typed == len(INJECTIONS), (got, typed)


@pytest.mark.parametrize("flags", [("-t",), ("-it",), ()], ids=["t", "it", "none"])
def test_nothing_is_typed_into_the_callers_terminal(probe, flags):
    rc, out, typed = under_terminal([boxlib.CLOCHE, "run", *flags, *probe.mount, "--", attack.PROBE, "tty"])
    got = attack.answers(out)
    assert rc == 0, out
    for name in (*INJECTIONS, *OTHERS):
        assert got[name] != "ok", (name, got)
    if flags:
        assert got["winsize"] == "ok", "no control: it has no terminal at all"
        assert got["sti"] == got["sti+2^32"] == "EPERM"
    assert typed == 0


def test_own_terminal_is_another_one(probe):
    """The box's terminal lives in its own /dev/pts; the caller's is neither its standard input nor to be opened."""
    rc, out, _ = under_terminal([boxlib.CLOCHE, "run", "-q", "-t", *probe.mount, "--", "sh", "-c", "tty; ls /dev/pts; ls -l /proc/self/fd | wc -l"])
    lines = out.decode().split()
    assert rc == 0, out
    assert lines[0] == "/dev/pts/0"
    assert set(lines[1:-1]) == {"0", "ptmx"}


def test_without_t_there_is_none(box):
    r = box("--", "sh", "-c", "tty; (: </dev/tty) 2>/dev/null && echo TTY; true")
    assert r.o.out.strip() == "not a tty", r


def test_other_terminals_of_the_host_are_not_there(box):
    """A terminal of the same user, made by somebody else on the host."""
    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave)
        r = box("--", "sh", "-c", f"echo typed >{name}; ls /dev/pts; true")
        assert not select.select([master], [], [], 0.3)[0]
        assert r.o.out.split() == ["ptmx"], r
    finally:
        os.close(master)
        os.close(slave)


def test_escape_line_on_a_terminal_is_clean(probe, ws):
    """cloche's own line about a hostile process name has no control character of the attacker's in it."""
    rc, out, _ = under_terminal([boxlib.CLOCHE, "run", "--workspace", str(ws), *probe.mount, "--", attack.PROBE, "grandchild",
                                 "\x1b]0;owned\x07", "/workspace/t"])
    assert rc == 159, out
    assert b"\x1b]0" not in out and b"\x07" not in out
