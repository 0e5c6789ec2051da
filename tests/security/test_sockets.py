"""Unix sockets and FIFOs of the host: authority that no file mode shows. A box must not reach one through anything it was given to read.

Through a read-write directory in the default profile they ARE reachable; that is stated in the documents, and it is the control here: the
same probe, in a box, gets through. The untrusted profile closes it.
"""
import os
import re
import socket

import pytest

from . import attack
from .attack import boxlib

KINDS = ("stream", "dgram", "seqpacket")


def reach(path):
    return [f"{path}/{k}" for k in KINDS]


def test_control_outside(probe, traps):
    got = probe.outside("connect", *reach(traps.dir), f"@{traps.abstract}")
    for k in KINDS:
        assert got[f"{traps.dir}/{k}:{k}"] == "ok"
    assert got[f"{traps.dir}/dgram:sendto"] == "ok"
    assert got[f"@{traps.abstract}:stream"] == "ok"
    assert probe.outside("fifo", traps.dir / "fifo") == {str(traps.dir / "fifo"): "ok"}
    assert {*KINDS, "fifo", "abstract"} <= set(traps.hits())


@pytest.mark.parametrize("opts", [(), ("--user", "0"), ("--network", "host"), ("--security-profile", "untrusted")], ids=lambda o: "_".join(o) or "-")
def test_through_a_read_only_directory(probe, traps, opts):
    opts = ("-v", f"{traps.dir}:/ro:ro", *opts)
    got = probe.inside("connect", *reach("/ro"), opts=opts)
    assert got and "ok" not in got.values(), got
    got = probe.inside("fifo", "/ro/fifo", opts=opts)
    assert got["/ro/fifo"] != "ok"
    assert traps.hits() == []


def test_through_a_parent_of_a_read_only_directory(probe, traps, public):
    """The socket lies deeper, behind a link, or appears after the box has started."""
    (traps.dir / "deep").mkdir()
    deep = attack.Traps(traps.dir / "deep")
    try:
        (traps.dir / "link").symlink_to("deep/stream")
        (traps.dir / "up").symlink_to("../../../../../.." + str(traps.dir / "stream"))
        got = probe.inside("connect", "/ro/deep/stream", "/ro/deep/dgram", "/ro/link", "/ro/up", "/ro/deep/../stream",
                           "/proc/self/root/ro/stream", opts=("-v", f"{traps.dir}:/ro:ro"))
        assert "ok" not in got.values(), got
        assert deep.hits() == [] and traps.hits() == []
    finally:
        deep.close()


def test_a_socket_made_later(probe, public):
    """Through an overlay a name made by the host afterwards may or may not show; it must not connect."""
    command = f"ls /ro; echo up; sleep 1.5; {attack.PROBE} connect /ro/stream /ro/dgram; ls /ro; echo done"
    with boxlib.running("-v", f"{public}:/ro:ro", *probe.mount, "--", "sh", "-c", command, stdout=-1) as p:
        assert p.stdout.readline() == b"up\n"
        traps = attack.Traps(public)
        try:
            text = p.stdout.read()
            assert text.endswith(b"done\n")
            assert "ok" not in attack.answers(text).values(), text
            assert traps.hits() == []
        finally:
            traps.close()


@pytest.mark.parametrize("name", ["stream", "dgram", "fifo"])
@pytest.mark.parametrize("how", ["", ":ro", ":rw"])
def test_a_single_socket_is_refused(box, traps, name, how):
    r = box("-v", f"{traps.dir}/{name}:/s{how}", "--", "true", json=False)
    assert r.rc in (2, 125), r
    assert r.err.count(b"\n") == 1 and str(traps.dir / name).encode() in r.err, r
    assert re.search(rb"socket|fifo|pipe", r.err, re.I), r
    assert traps.hits() == []


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/dev/tty"])
def test_a_single_device_is_refused(box, path):
    r = box("-v", f"{path}:/s", "--", "true", json=False)
    assert r.rc in (2, 125), r
    assert r.err.count(b"\n") == 1 and path.encode() in r.err, r


def test_a_linked_socket_is_refused(box, traps, public):
    (public / "innocent").symlink_to(traps.dir / "stream")
    r = box("-v", f"{public}/innocent:/s", "--", "true", json=False)
    assert r.rc in (2, 125), r


def test_read_write_in_the_default_profile_is_the_control(probe, traps):
    """Stated in the documents: what is in a shared read-write directory can be connected to."""
    opts = ("--workspace", traps.dir)
    got = probe.inside("connect", *reach("/workspace"), opts=opts)
    assert got["/workspace/stream:stream"] == "ok", got
    probe.inside("fifo", "/workspace/fifo", opts=opts)
    assert {"stream", "fifo"} <= set(traps.hits())


@pytest.mark.parametrize("how", ["workspace", "mount"])
def test_read_write_in_the_untrusted_profile(probe, traps, how):
    (traps.dir / "fifo").unlink()
    opts = ("--security-profile", "untrusted")
    opts += ("--workspace", traps.dir) if how == "workspace" else ("-v", f"{traps.dir}:/workspace:rw")
    got = probe.inside("connect", *reach("/workspace"), opts=opts)
    assert got and "ok" not in got.values(), got
    assert traps.hits() == []


def test_fifo_in_a_read_write_directory_under_untrusted(probe, traps):
    """A FIFO can't be mediated: opening it is opening a file. Refused before anything starts."""
    r = probe.run("fifo", "/workspace/fifo", opts=("--security-profile", "untrusted", "--workspace", traps.dir), json=False)
    assert r.rc in (2, 125), r
    assert str(traps.dir).encode() in r.err and b"FIFO" in r.err, r
    assert traps.hits() == []


def test_untrusted_follows_no_link_either(probe, traps):
    (traps.dir / "fifo").unlink()
    (traps.dir / "link").symlink_to("stream")
    (traps.dir / "sub").mkdir()
    opts = ("--security-profile", "untrusted", "--workspace", traps.dir)
    got = probe.inside("connect", "/workspace/link", "/workspace/sub/../stream", "/proc/self/root/workspace/stream",
                       "/proc/self/cwd/stream", "stream", "./stream", "//workspace//stream", opts=(*opts, "-w", "/workspace"))
    assert "ok" not in got.values(), got
    assert traps.hits() == []


@pytest.mark.parametrize("opts", [(), ("--security-profile", "untrusted"), ("--network", "host"), ("--user", "0")],
                         ids=lambda o: "_".join(o) or "-")
@pytest.mark.parametrize("where", ["/tmp", "/workspace"])
def test_own_sockets_work(probe, ws, opts, where):
    """Loopback, sockets of one's own in a directory, abstract ones, a low port: a program's usual life."""
    if "host" in opts:  # the host's ports are the host's: port 80 needs a right there
        got = probe.inside("own", where, opts=("--workspace", ws, *opts))
        got.pop("port80")
    else:
        got = probe.inside("own", where, opts=("--workspace", ws, *opts))
        assert got["port80"] == "ok"
    if "untrusted" in opts and where == "/workspace":  # there a socket can't be told from one of the host's
        assert {got.pop("unix"), got.pop("unix-relative")} == {"EPERM"}
    assert set(got.values()) == {"ok"}, got


def test_own_sockets_control(probe, public):
    got = probe.outside("own", public)
    got.pop("port80")
    assert set(got.values()) == {"ok"}


def test_untrusted_python_server(box):
    """A server and a client in one box, both of the language's own library."""
    code = ("import socket,threading\ns=socket.create_server(('127.0.0.1',0))\n"
            "threading.Thread(target=lambda:s.accept()[0].sendall(b'hi')).start()\n"
            "print(socket.create_connection(s.getsockname()).recv(9))\n"
            "import errno\nc=socket.socket();c.setblocking(False)\ns2=socket.create_server(('127.0.0.1',0))\n"
            "print(c.connect_ex(s2.getsockname()) in (0,errno.EINPROGRESS))\n"
            "d=socket.socket();p=s2.getsockname()[1];s2.close();c.close()\n"
            "print(d.connect_ex(('127.0.0.1',p))==errno.ECONNREFUSED)\n")
    r = box("--security-profile", "untrusted", "--", "python3", "-c", code)
    assert r.rc == 0 and r.o.out.split() == ["b'hi'", "True", "True"], r


def race(run, where_outside, name, n):
    counter = attack.Counter(where_outside / name)
    try:
        run(n)
    finally:
        count = counter.close()
        (where_outside / name).unlink()
    return count


def often(look, enough, looks=10):
    """How often it came to pass, in one look or several: who wins a race on a busy machine is the scheduler's choice, and with few turns of both
    threads it is the same one for long."""
    total = 0
    for _ in range(looks):
        total += look()
        if total > enough:
            break
    return total


def test_race_control(probe, public):
    """The attack itself: without a mediator about half of the connections go astray."""
    assert often(lambda: race(lambda n: probe.outside("race", public / "own", public / "bad", n), public, "bad", 2000), 100) > 100


def test_race_under_untrusted(probe, ws):
    """5,000 connects while another thread swaps the address: not one reaches the host's socket, and the box's own still is reached."""
    seen = {}

    def run(n):
        r = probe.run("race", "/tmp/own", "/workspace/bad", n, opts=("--security-profile", "untrusted", "--workspace", ws))
        assert r.rc == 0 and r.o.fault is None, r
        seen["good"] = int(r.o.out.split()[-1])

    def look():
        assert race(run, ws, "bad", 5000) == 0
        return seen["good"]
    assert often(look, 100) > 100, "no control: the box's own socket was never reached"


def test_race_of_a_link(probe, ws, public):
    """The same with the link that the address names: looked at once and opened again would be beaten."""
    seen = {}

    def outside(n):
        probe.outside("race", public / "own", public / "bad", n, public / "link")
        (public / "link").unlink(missing_ok=True)
    assert often(lambda: race(outside, public, "bad", 2000), 20) > 20, "no control"

    def run(n):
        r = probe.run("race", "/tmp/own", "/workspace/bad", n, "/tmp/link", opts=("--security-profile", "untrusted", "--workspace", ws))
        assert r.rc == 0 and r.o.fault is None, r
        seen["good"] = int(r.o.out.split()[-1])

    def look():
        assert race(run, ws, "bad", 5000) == 0
        return seen["good"]
    assert often(look, 20) > 20, "no control: the box's own socket was never reached"


@pytest.mark.parametrize("target", ["/with space", "/with\\backslash", "/with\ttab", "/a/b/c", "/workspace/x", "/home/user/x", "/tmp/x",
                                    "/uml\u00e4ut"])
def test_untrusted_whatever_the_target_is_called(probe, traps, target):
    """The mediator asks where a socket lies; how the kernel spells the mount's place must not confuse it."""
    (traps.dir / "fifo").unlink()
    opts = ("-v", f"{traps.dir}:{target}:rw")
    r = probe.run("connect", f"{target}/stream", opts=opts, json=False)
    if r.rc == 2:  # such a target is refused: fine
        return
    assert attack.answers(r.out).get(f"{target}/stream:stream") == "ok", f"no control: {r}"
    traps.hits()
    got = probe.inside("connect", f"{target}/stream", opts=(*opts, "--security-profile", "untrusted"))
    assert got and "ok" not in got.values(), got
    assert traps.hits() == []


def test_a_stalled_connect_does_not_stop_the_others(probe):
    """A server with a full backlog blocks its clients; the rest of the box must go on connecting."""
    assert probe.inside("stall", "/tmp") == {"unix": "ok", "tcp": "ok"}
    r = probe.run("stall", "/tmp", opts=("--security-profile", "untrusted", "--timeout", "40s"))
    assert attack.answers(r.o.out) == {"unix": "ok", "tcp": "ok"}, r


def test_a_stalled_connect_does_not_hide_an_escape(probe):
    r = probe.run("stall", "/tmp", "mount", opts=("--security-profile", "untrusted", "--timeout", "40s"))
    assert "SURVIVED" not in r.o.out
    assert r.rc == 159 and r.o.fault_type == "escape_blocked", r


def test_the_deadline_holds_over_a_stalled_connect(probe):
    r = probe.run("stall", "/tmp", "mount", 40, opts=("--security-profile", "untrusted", "--timeout", "1s"))
    assert r.o.fault_type == "timeout" and r.rc == 124, r


def test_race_in_the_default_profile_is_the_control(probe, ws):
    assert often(lambda: race(lambda n: probe.run("race", "/tmp/own", "/workspace/bad", n, opts=("--workspace", ws)), ws, "bad", 2000), 20) > 20


@pytest.mark.parametrize("opts", [(), ("--network", "host"), ("--security-profile", "untrusted")], ids=["none", "host", "untrusted"])
def test_abstract_sockets(probe, traps, opts):
    """X11 and D-Bus listen here. Without a network of the host they are not there; with it Landlock's scope refuses."""
    names = [f"@{traps.abstract}", f"@{traps.abstract}-d"]
    control = probe.outside("connect", *names)
    assert control[f"{names[0]}:stream"] == control[f"{names[1]}:dgram"] == "ok"
    assert set(traps.hits()) == {"abstract", "abstract-dgram"}
    got = probe.inside("connect", *names, opts=opts)
    assert got and "ok" not in got.values(), got
    assert traps.hits() == []


def test_untrusted_on_the_hosts_network(probe, traps):
    """The mediator connects in the caller's place, and it is in no Landlock domain: on the host's network it would reach abstract sockets. The two
    options exclude each other, or it must refuse."""
    r = probe.run("connect", f"@{traps.abstract}", opts=("--network", "host", "--security-profile", "untrusted"), json=False)
    assert r.rc in (0, 2), r
    assert "ok" not in attack.answers(r.out).values(), r
    assert traps.hits() == []


def test_descriptor_passing_into_a_box_is_not_possible_by_stdin(probe, traps):
    """cloche's own standard descriptors may be sockets of the caller's; the box gets pipes."""
    mine, theirs = socket.socketpair()
    try:
        r = boxlib.communicate([boxlib.CLOCHE, "run", "-i", "--", "sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2"],
                               stdin=theirs)
        assert r.rc == 0 and all(line.startswith(b"pipe:") for line in r.out.splitlines()), r
    finally:
        mine.close()
        theirs.close()


@pytest.mark.parametrize("name", ["docker.sock", "podman.sock", "containerd.sock", ".X11-unix", ".ICE-unix", "$SSH_AUTH_SOCK", "$XDG_RUNTIME_DIR"])
def test_well_known_sockets_by_name(box, public, name):
    """The daemons' and the desktop's: the name, or the variable that holds it, is enough; what lies there is not looked at."""
    place = public / name.strip("$")
    place.mkdir(mode=0o700)
    env = {name[1:]: str(place)} if name[0] == "$" else {}
    for mode in ("ro", "rw"):
        r = box("-v", f"{place}:/x:{mode}", "--", "true", env=env)
        assert r.rc == 125 and r.o.fault["stage"] == "mount" and "refused by the rule" in r.o.fault["message"], r
    (public / "plain").mkdir()
    assert box("-v", f"{public / 'plain'}:/x", "--", "true", env=env).rc == 0, "no control"


def test_run_directory_of_the_host(probe):
    """The classic: /run read-only for "just reading", with the sockets of daemons below it. Refused, or connect fails."""
    found = [os.path.join(b, f) for b, _, fs in os.walk("/run") for f in fs if os.path.exists(os.path.join(b, f))
             and (os.stat(os.path.join(b, f)).st_mode & 0o170000) == 0o140000]
    made = None
    if not found and boxlib.IS_ROOT:
        made = attack.Traps(attack.pathlib.Path(attack.tempfile.mkdtemp(prefix="cloche-trap-", dir="/run")))
        os.chmod(made.dir, 0o755)
        found = [str(made.dir / "stream")]
    try:
        inside = ["/hostrun" + f[len("/run"):] for f in found] or ["/hostrun/none"]
        r = probe.run("connect", *inside[:20], opts=("-v", "/run:/hostrun:ro"), json=False)
        assert r.rc in (0, 2, 125), r
        assert "ok" not in attack.answers(r.out).values(), r
        assert not made or made.hits() == []
    finally:
        if made:
            made.close()
            attack.shutil.rmtree(made.dir)
