"""The network: none but a loopback of the box's own; and which kinds of sockets can be made at all."""
import socket

import pytest

from . import attack
from .attack import boxlib

# What programs need.
GOOD = ("inet_tcp", "inet_udp", "inet6_tcp", "unix_stream", "netlink_route")
# Reach other machines, the hypervisor or the kernel's insides. They are answered as on a kernel without them.
BAD = ("vsock", "vsock_dgram", "vsock_high", "vsock_pair", "alg", "packet", "packet_raw", "packet_high", "inet_raw", "inet_raw_icmp",
       "inet6_raw", "inet_packet", "netlink_sock_diag", "netlink_xfrm", "netlink_audit", "netlink_connector",
       "netlink_netfilter", "netlink_generic", "netlink_crypto", "netlink_usersock", "key", "can", "bluetooth", "tipc",
       "rds", "xdp", "smc", "qipcrtr", "llc", "kcm", "mctp", "x25", "phonet")
CONTROL = ("vsock", "vsock_high", "netlink_sock_diag", "netlink_audit", "netlink_netfilter", "netlink_generic", "netlink_connector")
CONTROL_ROOT = ("packet", "packet_raw", "packet_high", "inet_raw", "inet_raw_icmp", "inet6_raw", "inet_packet")


@pytest.fixture(scope="module")
def outside(probe):
    return probe.outside("family")


@pytest.fixture(scope="module", params=["none", "host"])
def inside(request, probe):
    return probe.inside("family", opts=("--network", request.param))


@pytest.mark.parametrize("name", GOOD)
def test_family_works(name, inside, outside):
    assert (outside[name], inside[name]) == ("ok", "ok")


@pytest.mark.parametrize("name", BAD)
def test_family_refused(name, inside, outside):
    if name in CONTROL or (boxlib.IS_ROOT and name in CONTROL_ROOT):
        assert outside[name] == "ok", "no control"
    assert inside[name] != "ok"
    if name == "vsock":
        assert inside[name] == "EAFNOSUPPORT"


def test_raw_sockets_on_the_hosts_network(probe):
    got = probe.inside("family", "inet_raw", "inet_raw_icmp", "packet", "packet_raw", opts=("--network", "host", "--user", "0"))
    assert set(got.values()) <= {"EPERM", "EAFNOSUPPORT", "EACCES"}, got


def test_raw_sockets_with_the_capability(probe):
    """NET_RAW kept is a right in the box's own network only."""
    r = probe.run("family", "inet_raw", "packet", opts=("--cap-add", "NET_RAW", "--network", "host"))
    got = attack.answers(r.o.out)
    assert "ok" not in got.values(), r


def test_only_loopback(box):
    r = box("--", "cat", "/proc/net/dev")
    names = [line.split(":")[0].strip() for line in r.o.out.splitlines()[2:]]
    assert names == ["lo"], r
    assert len(open("/proc/net/dev").read().splitlines()) > 3, "no control: the host itself has only loopback"


def test_loopback_is_up(box):
    r = box("--", "python3", "-c", "import socket\ns=socket.create_server(('127.0.0.1',0))\nsocket.create_connection(s.getsockname())\nprint('up')")
    assert r.o.out == "up\n", r


@pytest.mark.parametrize("address", ["192.0.2.1", "169.254.169.254", "10.0.0.1", "255.255.255.255"])
def test_elsewhere_is_unreachable(probe, address):
    got = probe.inside("inet", address, 80)
    assert got[f"tcp:{address}"] == "ENETUNREACH"
    assert got[f"udp:{address}"] in ("ENETUNREACH", "EACCES")


def host_addresses():
    found = {"127.0.0.1"}
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        s.connect(("192.0.2.1", 9))
        found.add(s.getsockname()[0])
    except OSError:
        pass
    finally:
        s.close()
    return sorted(found)


def test_services_of_the_host_are_unreachable(probe):
    """A listener on every address of the host; outside it is reached, from the box it is not."""
    tcp = socket.create_server(("0.0.0.0", 0), backlog=16)
    port = tcp.getsockname()[1]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("0.0.0.0", port))
    tcp.setblocking(False)
    udp.setblocking(False)

    def heard():
        got = []
        for s, name in ((tcp, "tcp"), (udp, "udp")):
            try:
                while True:
                    s.accept()[0].close() if s is tcp else s.recv(16)
                    got.append(name)
            except BlockingIOError:
                pass
        return got
    args = [w for a in host_addresses() for w in (a, port)]
    try:
        control = probe.outside("inet", *args)
        assert set(control.values()) == {"ok"}
        assert set(heard()) == {"tcp", "udp"}
        got = probe.inside("inet", *args)
        assert all(v != "ok" for k, v in got.items() if k.startswith("tcp:")), got
        assert heard() == []
        # and when the caller does ask for the host's network, it is there
        got = probe.inside("inet", "127.0.0.1", port, opts=("--network", "host"))
        assert got["tcp:127.0.0.1"] == "ok"
        assert "tcp" in heard()
    finally:
        tcp.close()
        udp.close()


def test_low_ports_need_no_capability(box):
    code = "import socket\nfor p in (1,80,443,1023): socket.create_server(('',p)).close()\nprint('bound')"
    r = box("--", "python3", "-c", code)
    assert r.o.out == "bound\n", r
    r = box("--", "grep", "CapEff", "/proc/self/status")
    assert int(r.o.out.split()[1], 16) == 0


@pytest.mark.parametrize("network", ["none", "host"])
def test_the_hosts_network_settings_are_untouched(probe, network):
    """The low ports are freed in the box's own network namespace, nowhere else."""
    path = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
    before = open(path).read()
    probe.inside("fds", opts=("--network", network))
    assert open(path).read() == before != "0\n"


def test_boxes_do_not_meet(probe, box):
    """Two boxes at once on the same port, neither reaching the other."""
    serve = "import socket,sys\ns=socket.create_server(('0.0.0.0',4242))\nprint('up',flush=True)\ns.accept()\nprint('REACHED',flush=True)"
    with boxlib.running("--", "python3", "-c", serve, stdout=-1) as p:
        assert p.stdout.readline() == b"up\n"
        got = probe.inside("inet", "127.0.0.1", 4242)
        assert got["tcp:127.0.0.1"] == "ECONNREFUSED"
        r = box("--timeout", "20s", "--", "python3", "-c", serve.replace("s.accept()", "s.close()"))
        assert "up" in r.o.out, r


def test_interfaces_can_not_be_changed(box):
    """netlink is there to read addresses; it changes nothing without a right."""
    code = ("import socket,struct\ns=socket.socket(16,3,0)\n"
            "s.send(struct.pack('IHHII',32,16,5,1,0)+struct.pack('BBHiII',0,0,1,1,0,1))\n"
            "d=s.recv(4096)\nprint(struct.unpack('i',d[16:20])[0])")
    r = box("--", "python3", "-c", code)
    assert r.o.out.strip() == "-1", r
