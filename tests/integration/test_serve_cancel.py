"""Operations on files that are cancelled (docs/PROTOCOL.md, `cancel`): carried out whole, or not at all."""
import contextlib
import os
import signal
import threading
import time

import boxlib
import pytest
import serving


@pytest.fixture(scope="module")
def serve(leftovers):
    with serving.Serve() as s:
        yield s


@pytest.fixture
def sandbox(serve, ws):
    """One over a directory that the test sees: (its number, the directory)."""
    sb = serve.open(workspace=str(ws))
    yield sb, ws
    serve.ask("close", sandbox=sb)


def workers(serve):
    """The processes that work with files."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if parent == serve.p.pid and words[1:2] == [b"files"]:
            found.append(int(pid))
    return found


def stopped(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "T"


@contextlib.contextmanager
def held(serve, pid=None):
    """The worker does nothing meanwhile."""
    if pid is None:
        pid, = workers(serve)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert boxlib.wait_for(lambda: stopped(pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def error(serve, n):
    return serve.answer(n).get("error", {}).get("type")


def test_what_waits_for_its_turn(serve, sandbox):
    sb, ws = sandbox
    assert serve.ask("write_file", b"1", sandbox=sb, path="there")["size"] == 1
    with held(serve):
        ops = {name: serve.request(op, payload, sandbox=sb, **fields) for name, op, payload, fields in (
            ("first", "write_file", b"1", {"path": "first"}), ("write", "write_file", b"2", {"path": "not"}),
            ("remove", "remove", None, {"path": "there"}), ("make_dir", "make_dir", None, {"path": "d"}),
            ("rename", "rename", None, {"path": "there", "to": "elsewhere"}), ("read", "read_file", None, {"path": "there"}),
            ("list", "list_files", None, {}), ("stat", "stat", None, {"path": "there"}), ("last", "write_file", b"3", {"path": "last"}))}
        given_up = [n for name, n in ops.items() if name not in ("first", "last")]
        cancels = [serve.request("cancel", call=n) for n in given_up]
        again = serve.request("cancel", call=given_up[0])
        assert "error" not in serve.answer(again)
    assert [error(serve, n) for n in given_up] == ["cancelled"] * len(given_up)
    assert all("error" not in serve.answer(n) for n in cancels)
    assert [serve.answer(ops[name])["size"] for name in ("first", "last")] == [1, 1]
    assert sorted(os.listdir(ws)) == ["first", "last", "there"]
    assert error(serve, serve.request("cancel", call=ops["first"])) == "not_found"


def test_a_file_whose_parts_still_come(serve, sandbox):
    sb, ws = sandbox
    (ws / "f").write_text("as it was")
    n = serve.request("write_file", b"x" * 1000000, sandbox=sb, path="f", more=True)
    serve.send({"id": n, "op": "more", "more": True}, b"y" * 1000000)
    assert "error" not in serve.ask("cancel", call=n) and error(serve, n) == "cancelled"
    serve.send({"id": n, "op": "more", "more": False}, b"z")  # passed over
    assert (ws / "f").read_text() == "as it was" and os.listdir(ws) == ["f"]
    # The control, and the number is free again.
    assert serve.ask("write_file", b"new", sandbox=sb, path="f")["size"] == 3 and (ws / "f").read_text() == "new"
    # 64 at once are written, and no more.
    many = [serve.request("write_file", b"x", sandbox=sb, path=f"f{i}", more=True) for i in range(65)]
    assert error(serve, many[64]) == "busy"
    for n in many[:64]:
        assert "error" not in serve.ask("cancel", call=n) and error(serve, n) == "cancelled"
    assert os.listdir(ws) == ["f"]
    # Those that were given up count no more.
    for _ in range(70):
        n = serve.request("write_file", b"x", sandbox=sb, path="f", more=True)
        assert "error" not in serve.ask("cancel", call=n)
    assert serve.ask("write_file", b"newer", sandbox=sb, path="f")["size"] == 5


def test_a_file_that_is_read(serve, sandbox):
    sb, ws = sandbox
    with open(ws / "large", "wb") as f:
        f.truncate(8 << 30)
    n = serve.request("read_file", sandbox=sb, path="large", max_bytes=16 << 30)
    serve.wait_event(n, "data")
    assert "error" not in serve.ask("cancel", call=n) and error(serve, n) == "cancelled"
    serve.events[n].clear()
    assert serve.ask("stat", sandbox=sb, path="large")["file"]["size"] == 8 << 30


def test_a_number_that_is_used_again(serve, sandbox):
    """A cancel is of one operation, whatever has its number later."""
    sb, ws = sandbox
    serve.ask("list_files", sandbox=sb)
    with held(serve):
        serve.send({"id": 1 << 40, "op": "write_file", "sandbox": sb, "path": "a"}, b"1")
        c = serve.request("cancel", call=1 << 40)
        serve.ask("info")  # it was read
    assert error(serve, 1 << 40) == "cancelled" and "error" not in serve.answer(c)
    for _ in range(3):
        serve.events.pop(1 << 40)
        serve.send({"id": 1 << 40, "op": "write_file", "sandbox": sb, "path": "a"}, b"1")
        assert serve.answer(1 << 40)["size"] == 1
    assert os.listdir(ws) == ["a"]


def test_no_more_wait_than_are_allowed(serve, sandbox):
    sb, ws = sandbox
    serve.ask("list_files", sandbox=sb)
    with held(serve):
        many = [serve.request("stat", sandbox=sb, path="nothing") for _ in range(4100)]
        assert serve.answer(many[-1])["error"]["type"] == "busy"
        last = serve.request("cancel", call=many[4095])
        serve.ask("info")
    assert [error(serve, n) for n in many[4090:4097]] == ["not_found"] * 5 + ["cancelled", "busy"]
    assert "error" not in serve.answer(last)


def test_requests_without_an_answer_are_bounded(serve, sandbox):
    """Of all sandboxes together."""
    sb, ws = sandbox
    others = [serve.open(workspace=str(ws)) for _ in range(2)]
    with contextlib.ExitStack() as all_held:
        for one in (sb, *others):
            before = set(workers(serve))
            serve.ask("list_files", sandbox=one)
            pid, = set(workers(serve)) - before
            all_held.enter_context(held(serve, pid))
        many = [serve.request("stat", sandbox=(sb, *others)[i // 4000], path="nothing") for i in range(8200)]
        refused = serve.answer(many[-1])["error"]
        assert refused["type"] == "busy" and "8192 requests" in refused["message"]
    assert [error(serve, n) for n in many[8188:8196]] == ["not_found"] * 4 + ["busy"] * 4
    for one in others:
        serve.ask("close", sandbox=one)


def test_who_works_with_files_takes_what_it_can_and_no_more_is_read(serve, sandbox):
    """The session does not gather for it."""
    sb, ws = sandbox
    serve.ask("list_files", sandbox=sb)

    def memory():
        with open(f"/proc/{serve.p.pid}/status", encoding="ascii") as f:
            return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) << 10

    def send():
        for i in range(150):
            serve.send({"id": n, "op": "more", "more": i < 149}, bytes(1 << 20))

    before = memory()
    with held(serve):
        n = serve.request("write_file", b"x", sandbox=sb, path="large", more=True)
        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(1)
        assert memory() - before < 60 << 20 and sender.is_alive(), "150 MB"
    assert serve.answer(n)["size"] == 1 + (150 << 20)
    sender.join()


def test_a_fork_of_a_sandbox_that_closes(serve, ws):
    """It is made whole, or told that there is nothing to fork."""
    (ws / "f").write_text("1")
    said = set()
    for _ in range(20):
        sb = serve.open(workspace=str(ws))
        fork, close = next(serve.ids), next(serve.ids)
        serve.raw(b"".join(b'{"id":%d,"op":"%s","sandbox":%d}\n' % (n, op, sb) for n, op in ((fork, b"fork"), (close, b"close"))))
        done = serve.answer(fork)
        said.add(done.get("error", {}).get("type"))
        if "error" not in done:
            assert serve.ask("stat", sandbox=done["sandbox"], path="f")["file"]["size"] == 1
            serve.ask("close", sandbox=done["sandbox"])
        assert "error" not in serve.answer(close)
    assert said <= {None, "closed"} and "closed" in said, said
