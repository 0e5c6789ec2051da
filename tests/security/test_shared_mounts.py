"""What the boxes of one sandbox share: overlays of the host's directories, held by a process of its own (box/holder.h). A box must not get more
of them than a box of `cloche run` has of its own, another sandbox must not get them at all, and the process must not be a way to anywhere."""
import os
import pathlib
import signal

import pytest

import spawner
from spawner import Spawner

from . import attack
from .attack import boxlib

SHOW = ("cat", "/proc/self/mountinfo")
FONTS = "/etc/fonts"  # of what a host image shows, what a test can put a directory of its own over


def mounts(text):
    """{place: (device, root, attributes, type, source, options)}"""
    found = {}
    for line in text.splitlines():
        left, right = (half.split() for half in line.split(" - "))
        found[left[4]] = (left[2], left[3], left[5], *right)
    return found


def usr(s):
    return mounts(s.run(*SHOW).out)["/usr"]


def test_one_overlay_a_sandbox():
    with Spawner() as one, Spawner() as other:
        first, again = usr(one), usr(one)
        assert first[3] == "overlay" and first == again
        assert usr(other)[0] != first[0]
        alone = [mounts(boxlib.box("--", *SHOW).o.out)["/usr"] for _ in range(2)]
        # But for whose it is, it is the one that every box has: attributes, root, kind, options.
        assert {m[1:4] for m in (first, *alone)} == {("/", "ro,nosuid,nodev,relatime", "overlay")}
        assert first[4] == alone[0][4] and first[5].startswith("ro,lowerdir=.:/proc/self/fd/")


@pytest.mark.parametrize("options", [(), ("--user", "0"), ("--security-profile", "untrusted"), ("--read-only",)], ids=lambda o: "_".join(o) or "-")
def test_nothing_can_be_changed_through_it(options):
    change = "for f in /usr/new /usr/bin/env; do : >$f || echo refused; done; chmod 777 /usr/bin; ln /usr/bin/env /usr/bin/new; : >/tmp/control && echo control"
    with Spawner(*options) as s:
        c = s.run("bash", "-c", change)
        assert c.out == "refused\nrefused\ncontrol\n", (c.out, c.err)
        assert c.err.count("Read-only file system") == 4, c.err
        names = {p: m for p, m in mounts(s.run(*SHOW).out).items() if p == "/usr" or p.startswith("/etc/")}
        assert names["/usr"][3] == "overlay"
        for m in names.values():
            assert m[2].startswith("ro,nosuid,nodev") and m[5].startswith("ro"), names


@pytest.mark.parametrize("how", ["umount2(b'/usr', 2)", "mount(None, b'/usr', None, 32 | 4096, None)", "mount(None, b'/usr', None, 32, None)"])
def test_it_stays_where_it_is(how):
    """Capabilities of a set-up box's kind do not help: the call ends the box."""
    script = f"import ctypes; print('trying', flush=True); ctypes.CDLL(None).{how}; print('went on')"
    with Spawner() as s:
        c = s.run("python3", "-c", script)
        assert (c.out, c.fault) == ("trying\n", "escape_blocked"), c.outcome
        assert usr(s)[2].startswith("ro,nosuid,nodev")


@pytest.fixture
def behind(public):
    """A sandbox on a host whose /etc/fonts is this directory."""
    where = ["unshare", "-m" if boxlib.IS_ROOT else "-Urm", "sh", "-ec", f'mount --bind {public} {FONTS}; exec "$@"', "sh"]
    with Spawner(wrap=where) as s:
        yield s


@pytest.mark.skipif(not os.path.isdir(FONTS), reason="the host has no /etc/fonts")
def test_sockets_and_fifos_of_the_host_are_not_reached_through_it(behind, probe, public):
    traps = attack.Traps(public)
    program = public / "probe"
    program.write_bytes(probe.path.read_bytes())
    program.chmod(0o755)
    try:
        kinds = ("stream", "dgram", "seqpacket")
        assert probe.outside("connect", *(traps.dir / k for k in kinds))[f"{traps.dir}/stream:stream"] == "ok" and set(traps.hits()) >= {"stream"}
        m = mounts(behind.run(*SHOW).out)[FONTS]
        assert m[3] == "overlay" and m[1] == "/" and str(public) not in str(m)
        c = behind.run(f"{FONTS}/probe", "connect", *(f"{FONTS}/{k}" for k in kinds))
        got = attack.answers(c.out)
        assert len(got) >= 3 and "ok" not in got.values(), (got, c.err)
        got = attack.answers(behind.run(f"{FONTS}/probe", "fifo", f"{FONTS}/fifo").out)
        assert got[f"{FONTS}/fifo"] != "ok"
        assert traps.hits() == []
    finally:
        traps.close()


def test_who_holds_it_is_the_boxs_own_user_and_holds_nothing_else():
    with Spawner("-e", "WORD=secret-word") as s:
        pid = s.holder()
        status = attack.status_of(pid)
        outer = attack.status_of(os.getpid())["Uid"].split()[0] if not boxlib.IS_ROOT else status["Uid"].split()[0]
        assert set(status["Uid"].split()) == {outer} and outer != "0"
        assert status["NoNewPrivs"].strip() == "1"
        assert b"secret-word" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        if boxlib.IS_ROOT:  # of a process that can't be looked into by its own user, either
            assert len(os.listdir(f"/proc/{pid}/fd")) == 1
            held = mounts(pathlib.Path(f"/proc/{pid}/mountinfo").read_text())
            assert {m[3] for m in held.values()} == {"tmpfs", "overlay"} and len(held) >= 2, held
            assert os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user")
        else:
            with pytest.raises(PermissionError):
                os.listdir(f"/proc/{pid}/fd")


def test_without_it_boxes_have_their_own():
    """It is killed: who has a mount keeps it, and the next box makes one."""
    with Spawner() as s:
        shared = usr(s)[0]
        lives = s.call("sh", "-c", "cat; exec cat /proc/self/mountinfo", stdin=b"")
        assert lives.until(lambda: lives.started)
        os.kill(s.holder(), signal.SIGKILL)
        assert boxlib.wait_for(lambda: s.holder() is None)
        own = {usr(s)[0] for _ in range(4)} - {shared}  # some were built ahead
        assert len(own) >= 2, own
        lives.close_input()
        assert mounts(lives.wait().out)["/usr"][0] == shared


@pytest.mark.parametrize("end", ["close", "kill"])
def test_it_goes_with_its_sandbox(end):
    with Spawner() as s:
        assert s.run("true").fault is None
        pid = s.holder()
        assert pid
        s.close() if end == "close" else s.kill()
    assert boxlib.wait_for(lambda: spawner.comm(pid) != spawner.HOLDER or attack.status_of(pid)["State"].startswith(("Z", "X")))


def test_a_stopped_one_holds_nothing_up_for_good():
    with Spawner() as s:
        os.kill(s.holder(), signal.SIGSTOP)
        s.close()
        s.p.wait(boxlib.HANG)


def in_memory(ws, *options):
    s = Spawner("--workspace", ws, "--own-workspace", *options)
    assert len(s.brought) == 2
    for fd in s.brought:
        os.close(fd)
    return s


def test_a_workspace_in_memory_has_its_size(ws):
    with in_memory(ws, "--workspace-max", "1m") as s:
        c = s.run("sh", "-c", "head -c 1000000 /dev/zero >f && echo control; head -c 3000000 /dev/zero >>f; stat -c %s f")
        assert c.out == f"control\n{1 << 20}\n" and "No space left" in c.err and c.fault is None, c.outcome
    assert list(ws.iterdir()) == []


def test_without_who_holds_it_no_box_has_another_workspace(ws):
    with in_memory(ws) as s:
        assert s.run("sh", "-c", "echo kept >f; cat f").out == "kept\n"
        os.kill(s.holder(), signal.SIGKILL)
        ends = [s.run("sh", "-c", "cat f; echo more >>f") for _ in range(4)]  # some were built ahead
        assert all(c.out.startswith("kept\n") or c.fault == "startup_failed" for c in ends), [c.outcome for c in ends]
        assert ends[-1].outcome["fault"]["stage"] == "workspace"
    assert list(ws.iterdir()) == []
