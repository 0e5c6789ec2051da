"""Sessions against code in their boxes, boxes of one session against another, and clients that are no friends: what was tried, and held since."""
import contextlib
import itertools
import json
import os
import resource
import select
import signal
import socket
import tarfile
import time

import boxlib
import pytest
import serving

MARK = "cloche-session-mark"


@pytest.fixture(scope="module")
def serve(leftovers):
    with serving.Serve() as s:
        yield s


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


# ---- the end of a sandbox ----

@pytest.mark.parametrize("how", ["runs", "has ended", "nobody takes its output", "its wait is given up"])
def test_close_does_not_wait_for_a_call_that_nobody_asks_for(leftovers, how):
    with serving.Serve(ack=True) as s:
        sb = s.open()
        much = how == "nobody takes its output"
        n = s.request("start", sandbox=sb, argv=["head", "-c", "1100000", "/dev/zero"] if much else ["sleep", "0" if how == "has ended" else "600"],
                      stream=much)
        assert "error" not in s.answer(n)
        if how == "has ended":
            s.wait_event(n, "ended")
        if much:
            assert boxlib.wait_for(lambda: s.ask("info")["boxes"] == 0), "its box has ended, its output is not taken"
        given_up = s.request("wait", call=n) if how == "its wait is given up" else None
        done = s.request("close", sandbox=sb)
        if given_up:
            s.request("cancel", call=given_up)
        assert "error" not in s.answer(done)
        assert s.ask("info")["calls"] == 0


# ---- what a call is told ----

def test_a_cancel_finds_its_way_through_any_number_of_orders(serve):
    """The keeper stands still, as it does while it walks a large workspace; what waits for it has no room for one more."""
    sb = serve.open()
    n = serve.request("run", sandbox=sb, argv=["sh", "-c", "sleep 600; :", MARK], pty={"rows": 5, "cols": 5})
    serve.wait_event(n, "started")
    keeper = parent(parent(boxlib.wait_for(lambda: boxlib.find_marked(MARK))[0]))
    os.kill(keeper, signal.SIGSTOP)
    try:
        orders = [next(serve.ids) for _ in range(2000)]
        serve.raw(b"".join(json.dumps({"id": i, "op": "resize", "call": n, "rows": 6, "cols": 6}).encode() + b"\n" for i in orders))
        said = [serve.answer(i).get("error", {}).get("type") for i in orders]
        assert said[0] is None and said[-1] == "busy", "an order that found no room is said to be told"
        cancel = serve.request("cancel", call=n)
        serve.ask("info")
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert "error" not in serve.answer(cancel)
    assert serve.answer(n)["outcome"]["fault"]["type"] == "cancelled"
    serve.ask("close", sandbox=sb)


def test_the_last_signal_is_one_too(serve):
    sb = serve.open()
    n = serve.request("start", sandbox=sb, argv=["sleep", "600"])
    assert "error" not in serve.ask("signal", call=n, signal=64), "before the command runs, as a rule"
    assert serve.result(serve.request("wait", call=n))["signal"] == 64
    serve.ask("close", sandbox=sb)


def test_options_as_large_as_a_line_do_not_end_the_session(serve):
    """`info` tells all options, those that were not given among them, and more."""
    small, large = (serve.open(env={"A": "x" * n}) for n in (60000, 65400))
    assert len(serve.ask("info", sandbox=small)["options"]["env"]["A"]) == 60000
    assert serve.ask("info", sandbox=large)["error"]["type"] == "too_large"
    for sb in (small, large):
        assert serve.run(sb, "true")["exit_code"] == 0
        serve.ask("close", sandbox=sb)


# ---- ports ----

SERVER = """import socket
s = socket.socket(); s.bind(("127.0.0.1", 8000)); s.listen(99); print("up", flush=True)
kept = []
while True: kept.append(s.accept())"""


def busy(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


def test_connections_leave_descriptors_for_calls(leftovers, public):
    """Whoever is on this machine can connect to a port of a box: 16 ports of 64 connections are more than there are descriptors."""
    few = public / "few"
    few.write_text(f'#!/bin/sh\nulimit -n 1024\nexec {boxlib.CLOCHE} "$@"\n')
    few.chmod(0o755)
    with serving.Serve("--boxes", "8", program=few) as s, contextlib.ExitStack() as made:
        sb = s.open()
        n = s.request("start", sandbox=sb, argv=["python3", "-c", SERVER], stream=True)
        s.wait_event(n, "stdout")
        for _ in range(10):
            at = s.ask("port", call=n, port=8000)
            for _ in range(60):
                made.enter_context(socket.create_connection((at["host"], at["port"])))
        assert s.run(sb, "true")["exit_code"] == 0
        assert s.ask("list_files", sandbox=sb)["count"] == 0
        assert len(os.listdir(f"/proc/{s.p.pid}/fd")) > 600, "the control: connections there are"


def listeners(number):
    """Addresses of this machine on which somebody listens at that port, as /proc/net/tcp has them."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{table}", encoding="ascii") as f:
            rows = [line.split() for line in f][1:]
        found |= {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == number}
    return found


def test_ports_are_this_machines_alone_and_bounded(leftovers):
    with serving.Serve() as s, contextlib.ExitStack() as made:
        n = s.request("start", sandbox=s.open(), argv=["python3", "-c", SERVER], stream=True)
        s.wait_event(n, "stdout")
        ports = [s.ask("port", call=n, port=8000) for _ in range(17)]
        assert all("error" not in at for at in ports[:16]) and ports[16]["error"]["type"] == "busy"
        assert [listeners(at["port"]) for at in ports[:16]] == [{"0100007F"}] * 16, "127.0.0.1 it is"
        made_to_one = [made.enter_context(socket.create_connection((ports[0]["host"], ports[0]["port"]))) for _ in range(70)]
        # 64 of one port stand; what comes then is closed at once.
        assert boxlib.wait_for(lambda: len(select.select(made_to_one, [], [], 0)[0]) == 6)
        assert all(c.recv(1) == b"" for c in select.select(made_to_one, [], [], 0)[0])
        other = made.enter_context(socket.create_connection((ports[1]["host"], ports[1]["port"])))
        assert not select.select([other, *made_to_one[:10]], [], [], 0.3)[0], "the control: others stand, of this port and of that"


def test_a_connection_for_which_there_is_no_descriptor_is_closed(leftovers):
    with serving.Serve() as s, contextlib.ExitStack() as made:
        n = s.request("start", sandbox=s.open(), argv=["python3", "-c", SERVER], stream=True)
        s.wait_event(n, "stdout")
        at = s.ask("port", call=n, port=8000)
        used = set(map(int, os.listdir(f"/proc/{s.p.pid}/fd")))
        there = next(n for n in itertools.count() if n not in used)  # none below it is free
        resource.prlimit(s.p.pid, resource.RLIMIT_NOFILE, (there, there))
        all_of_them = [made.enter_context(socket.create_connection((at["host"], at["port"]))) for _ in range(40)]
        closed, _, _ = select.select(all_of_them, [], [], boxlib.HANG)
        assert closed and closed[0].recv(1) == b""
        before = busy(s.p.pid)
        time.sleep(0.3)
        assert busy(s.p.pid) - before < 10, "it is told of it for ever"


SENDER = """import socket, threading
s = socket.socket(); s.bind(("127.0.0.1", 8000)); s.listen(99); print("up", flush=True)
def send(c, n):
    c.sendall(b"x" * n); c.close()
while True:
    c, _ = s.accept()
    threading.Thread(target=send, args=(c, int(c.recv(20)))).start()"""


@pytest.mark.parametrize("room", [0, 4096])
def test_a_box_that_has_closed_is_heard_to_its_end(serve, room):
    """By a client that has said all it has to say, and reads late: with the usual room, which takes much at a time, and with little."""
    sb = serve.open()
    n = serve.request("start", sandbox=sb, argv=["python3", "-c", SENDER], stream=True)
    serve.wait_event(n, "stdout")
    at = serve.ask("port", call=n, port=8000)
    for size in (100000, 4000000, 5000000, 5000000, 6000000, 6000000):
        with socket.socket() as c:
            if room:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            c.settimeout(boxlib.HANG)
            c.connect((at["host"], at["port"]))
            c.sendall(str(size).encode())
            c.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            before = busy(serve.p.pid)
            time.sleep(0.2)
            assert busy(serve.p.pid) - before < 10, "it is told of the box's end for ever"
            got = 0
            while more := c.recv(65536):
                got += len(more)
            assert got == size
    serve.ask("close", sandbox=sb)


# ---- workspaces and what is beside them ----

def test_a_workspace_within_anothers_can_not_be_turned_elsewhere(serve, ws):
    """A box renames what another sandbox was opened on, and puts a link in its place."""
    for d in ("outer/inner", "private"):
        (ws / d).mkdir(parents=True)
    (ws / "private/secret").write_text("1")
    outer, late, kept = serve.open(workspace=str(ws / "outer")), *(serve.open(workspace=str(ws / "outer/inner")) for _ in range(2))
    assert serve.ask("write_file", b"x", sandbox=kept, path="mine")["size"] == 1
    assert serve.run(outer, "sh", "-c", "mv inner moved && ln -s ../private inner")["exit_code"] == 0
    for op, fields in (("read_file", {"path": "secret"}), ("stat", {"path": "secret"}), ("list_files", {}), ("fork", {})):
        assert serve.ask(op, sandbox=late, **fields)["error"]["type"] == "mount_refused", op
    assert serve.ask("write_file", b"x", sandbox=late, path="planted")["error"]["type"] == "mount_refused"
    assert serve.run(late, "ls", "/workspace")["fault"]["stage"] == "workspace"
    assert serve.ask("stat", sandbox=kept, path="mine")["file"]["size"] == 1, "it holds the directory that it was given"
    assert os.listdir(ws / "private") == ["secret"]
    for sb in (outer, late, kept):
        serve.ask("close", sandbox=sb)


def test_archives_are_not_in_the_reach_of_boxes(serve, ws):
    for d in ("w", "private"):
        (ws / d).mkdir()
    (ws / "private/secret").write_text("1")
    with tarfile.open(ws / "private.tar.gz", "w:gz") as t:
        t.add(ws / "private/secret", "secret")
    sb = serve.open(workspace=str(ws / "w"))
    assert serve.run(sb, "sh", "-c", "ln -s ../private out && ln -s ../private.tar.gz in.tar.gz && ln -s . here")["exit_code"] == 0
    (ws / "alias").symlink_to(ws / "w")
    for op, file in (("snapshot", "w/out/s.tar.gz"), ("snapshot", "w/s.tar.gz"), ("snapshot", "alias/here/s.tar.gz"), ("restore", "w/in.tar.gz"),
                     ("restore", "w/out/../private.tar.gz")):
        assert serve.ask(op, sandbox=sb, file=str(ws / file))["error"].get("option") == "file", file
    assert os.listdir(ws / "private") == ["secret"] and not (ws / "w/secret").exists()
    assert "error" not in serve.ask("snapshot", sandbox=sb, file=str(ws / "s.tar.gz"))
    assert "error" not in serve.ask("restore", sandbox=sb, file=str(ws / "s.tar.gz"))
    serve.ask("close", sandbox=sb)


def test_a_fork_has_what_its_owner_alone_may_read(serve, public):
    """The copy is in memory that belongs to another user than the files."""
    (public / "sub").mkdir(mode=0o700)
    (public / "sub/private").write_text("1")
    (public / "sub/private").chmod(0o600)
    os.link(public / "sub/private", public / "twice")
    (public / "link").symlink_to("sub/private")
    sb = serve.open(workspace=str(public))
    done = serve.ask("fork", sandbox=sb)
    assert "error" not in done, done
    r = serve.run(done["sandbox"], "sh", "-c", "cat sub/private link twice && stat -c '%a %h' sub sub/private && echo 2 >sub/private && cat twice")
    assert r["stdout"] == b"111700 2\n600 2\n2\n", r
    assert (public / "twice").read_text() == "1"
    for one in (sb, done["sandbox"]):
        serve.ask("close", sandbox=one)
