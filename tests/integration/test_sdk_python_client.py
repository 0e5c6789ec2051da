"""The Python package's client against a peer that is a few lines of this file: what it sends, what it makes of answers, and that a hostile program at the
other end costs it nothing but the session."""
import asyncio
import contextlib
import json
import os
import random
import stat
import subprocess
import sys
import threading
import tracemalloc

import pytest
import sdk

cloche = sdk.module()
from cloche import client as client_module  # noqa: E402
from cloche.calls import Work, chunks  # noqa: E402
from cloche.client import Client, now  # noqa: E402
from cloche.sandbox import AsyncSandbox, SandboxCore  # noqa: E402

GUARD = 60
OPEN = {"event": "done", "sandbox": 7, "fault": None, "image": None, "workspace": None, "notes": [], "max_output_bytes": 1000}
OUTCOME = {"exit_code": 0, "signal": None, "fault": None, "duration_ms": 1.5, "truncated": False, "usage": {"cpu_user_us": 5},
           "limits": {"memory": {"requested": 1, "effective": 1, "rung": "cgroup1", "enforced": True}}, "events": {}, "image": None}


class Peer:
    """A `cloche serve` that answers as `answer(peer, head, payload)` says, in a thread."""

    def __init__(self, answer):
        self.requests, self.answer = [], answer
        (self.reading, theirs_out), (theirs_in, self.writing) = os.pipe(), os.pipe()
        self.client = Client(theirs_in, theirs_out, name="peer")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def send(self, head, payload=b""):
        if payload:
            head = {**head, "bytes": len(payload)}
        self.raw(json.dumps(head).encode() + b"\n" + payload)

    def raw(self, data):
        with contextlib.suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self.writing, view):]

    def serve(self):
        with os.fdopen(self.reading, "rb") as f:
            while line := f.readline():
                assert len(line) <= 65536
                head = json.loads(line)
                payload = f.read(head.get("bytes", 0))
                assert len(payload) <= 1 << 20
                self.requests.append((head, payload))
                begun = head if head["op"] != "more" else begun
                if head["op"] != "ack" and not head.get("more"):
                    self.answer(self, begun, payload)
        with contextlib.suppress(OSError):
            os.close(self.writing)

    def sandbox(self, **options):
        sandbox = cloche.Sandbox.__new__(cloche.Sandbox)
        SandboxCore.__init__(sandbox, **options)
        now(sandbox._open(Work(self.client, None)))
        return sandbox


@contextlib.contextmanager
def peer(answer):
    p = Peer(answer)
    try:
        yield p
    finally:
        p.client.close()
        with contextlib.suppress(OSError):
            os.close(p.writing)
        p.thread.join(GUARD)
        assert not p.thread.is_alive()


def usual(p, head, payload):
    """Answers as it should be."""
    answer = {"id": head["id"]}
    if head["op"] == "open":
        p.send({**answer, **OPEN})
    elif head["op"] in ("run", "run_code"):
        p.send({**answer, "event": "started"})
        p.send({**answer, "event": "output", "stream": "stdout"}, b"out \xff")
        p.send({**answer, "event": "output", "stream": "stderr"}, b"err")
        p.send({**answer, "event": "files", "files": [{"path": "a", "change": "renamed", "size": 3, "from": "b"}]})
        p.send({**answer, "event": "denied", "denied": {"kind": "syscall", "what": "ptrace", "policy": "filter", "allow_with": "--x", "more": 1}})
        p.send({**answer, "event": "note", "text": "said"})
        p.send({**answer, "event": "unheard of", "x": 1})
        p.send({**answer, "event": "done", "outcome": {**OUTCOME, "new": 1}})
    else:
        p.send({**answer, "event": "done", "size": 0, "protocol": 1, "version": "99.0", "features": []})


def test_an_answer_in_full():
    with peer(usual) as p, p.sandbox(memory_mb=64, mounts={sdk.PACKAGE: ("/x", "ro")}) as sbx:
        r = sbx.run(["a b", b"\xff", "ü"], timeout_s=3, env={"A": "1"}, track_files=False)
        assert r.stdout == "out \ufffd" and r.stdout_bytes == b"out \xff" and r.stderr == r.code_stderr == "err" and r and r.success
        assert r.files == [cloche.FileInfo("a", 3, "renamed", "b")] and r.notes == r.runtime_notes == ["said"]
        assert r.denied[0].what == "ptrace" and r.denied[0].allow_with == "--x" and r.usage.cpu_user_us == 5 and r.usage.pids_peak is None
        assert r.limits["memory"] == cloche.Limit(1, 1, "cgroup1", True) and r.raise_for_fault() is r and r.duration_ms == 1.5
        (opened, _), (run, argv) = p.requests[:2]
        assert opened == {"op": "open", "options": {"memory_mb": 64, "mounts": {str(sdk.PACKAGE): ["/x", "ro"]}}, "id": 1}
        assert argv == b"a b\0\xff\0\xc3\xbc\0"
        assert run == {"op": "run", "sandbox": 7, "timeout_s": 3, "env": {"A": "1"}, "track_files": False, "id": 2, "bytes": len(argv)}
    assert p.requests[-1][0]["op"] == "close"


def test_a_large_payload_comes_in_parts():
    with peer(usual) as p, p.sandbox() as sbx:
        data = random.Random(1).randbytes(5 << 19)
        sbx.write_file("x", bytearray(data))
        parts = p.requests[1:4]
        assert [(h["op"], h.get("more"), h["id"]) for h, _ in parts] == [("write_file", True, 2), ("more", True, 2), ("more", None, 2)]
        assert b"".join(b for _, b in parts) == data


UNSENDABLE = [
    ({"env": {"A": "a\0b"}}, "env"), ({"env": {"A\ud800": "x"}}, "env"), ({"memory_mb": 10 ** 5000}, "memory_mb"),
    ({"memory_mb": -(1 << 63) - 1}, "memory_mb"), ({"tmpfs": {("a",): "1m"}}, "tmpfs"), ({"cpus": float("nan")}, "cpus"), ({"cpus": float("inf")}, "cpus"),
    ({"env": {"A": {1, 2}}}, "env"), ({"workspace": b"/x"}, "workspace"), ({"name": object()}, "name"),
]


@pytest.mark.parametrize("options, name", UNSENDABLE)
def test_what_json_cannot_say_is_refused_before_it_is_sent(options, name):
    with peer(usual) as p:
        with pytest.raises(cloche.OptionError) as why:
            p.sandbox(**options)
        assert why.value.option == name and p.requests == []
        assert f"{name}: {why.value.allowed} is wanted, not " in str(why.value) and "\n" not in str(why.value) and len(str(why.value)) < 250
        deep = []
        for _ in range(50):
            deep = [deep]
        with pytest.raises(cloche.OptionError):
            p.sandbox(devices=deep)
        with pytest.raises(cloche.TooLarge):
            p.sandbox(env={"A": "x" * 70000})
        assert p.requests == [] and p.sandbox()


def test_timeout_none_is_for_the_program_to_refuse():
    """Other options that are None are as good as left out."""
    with peer(usual) as p, p.sandbox(timeout_s=None, memory_mb=None):
        assert p.requests[0][0]["options"] == {"timeout_s": None}


@pytest.mark.parametrize("kind", client_module.error_of.__globals__["CLASSES"])
def test_errors_have_their_classes(kind):
    def answer(p, head, payload):
        p.send({"id": head["id"], "event": "done", "error": {"type": kind, "message": "no", "option": "o", "allowed": "a", "rule": "r"}})
    with peer(answer) as p, pytest.raises(cloche.SandboxError) as why:
        p.sandbox()
    assert type(why.value) is client_module.error_of.__globals__["CLASSES"][kind]
    assert (str(why.value), why.value.type, why.value.option, why.value.allowed, why.value.rule) == ("no", kind, "o", "a", "r")


def test_a_type_of_error_that_is_new():
    with peer(lambda p, head, _: p.send({"id": head["id"], "event": "done", "error": {"type": "new", "message": 5}})) as p:
        with pytest.raises(cloche.SandboxError) as why:
            p.sandbox()
        assert type(why.value) is cloche.SandboxError


def flood(p, head, payload):
    if head["op"] == "open":
        return usual(p, head, payload)
    for _ in range(64):
        p.send({"id": head["id"], "event": "stdout"}, b"x" * (1 << 19))
    return p.send({"id": head["id"], "event": "done", "outcome": OUTCOME})


def too_much_kept(p, head, payload):
    if head["op"] == "open":
        return usual(p, head, payload)
    p.send({"id": head["id"], "event": "output", "stream": "stdout"}, b"x" * 2001)
    return p.send({"id": head["id"], "event": "done", "outcome": OUTCOME})


def answering(text):
    def answer(p, head, payload):
        p.raw(text.replace(b"$ID", str(head["id"]).encode()))
    return answer


HOSTILE = {
    "no JSON": answering(b"hello\n"),
    "no object": answering(b"[1]\n"),
    "a key twice": answering(b'{"id": $ID, "id": $ID, "event": "done"}\n'),
    "a long line": answering(b'{"id": $ID, "x": "' + b"x" * 70000 + b'"}\n'),
    "a line without end": answering(b"x" * 300000),
    "deep": answering(b"[" * 60000 + b"\n"),
    "no UTF-8": answering(b'{"id": $ID, "event": "\xff"}\n'),
    "not a number": answering(b'{"id": $ID, "event": "done", "sandbox": NaN}\n'),
    "a huge number": answering(b'{"id": $ID, "event": "done", "sandbox": ' + b"9" * 6000 + b"}\n"),
    "a payload too large": answering(b'{"id": $ID, "event": "done", "bytes": 1048577}\n'),
    "a negative payload": answering(b'{"id": $ID, "event": "done", "bytes": -1}\n'),
    "a payload of true": answering(b'{"id": $ID, "event": "done", "bytes": true}\n'),
    "a payload that nobody asked for": answering(b'{"id": $ID, "event": "done", "sandbox": 1, "bytes": 1}\nx'),
    "no id": answering(b'{"event": "done"}\n'),
    "an id of text": answering(b'{"id": "$ID", "event": "done"}\n'),
    "no event": answering(b'{"id": $ID}\n'),
    "an error that is none": answering(b'{"id": $ID, "event": "done", "error": 5}\n'),
    "a sandbox that is none": answering(b'{"id": $ID, "event": "done", "sandbox": "1"}\n'),
    "a sandbox of true": answering(b'{"id": $ID, "event": "done", "sandbox": true}\n'),
    "a fault that is none": answering(b'{"id": $ID, "event": "done", "sandbox": 1, "fault": {"type": 1}}\n'),
    "fatal": answering(b'{"event": "fatal", "error": {"type": "protocol", "message": "m"}}\n'),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_program(how):
    with peer(HOSTILE[how]) as p:
        with pytest.raises(cloche.ProtocolError):
            p.sandbox()
            pytest.fail("no error")
        with contextlib.suppress(cloche.SandboxError):
            p.sandbox()  # whatever it is, it does not hang


@pytest.mark.parametrize("how", [flood, too_much_kept])
def test_more_than_was_asked_for(how):
    with peer(how) as p:
        sbx = p.sandbox()
        tracemalloc.start()
        with pytest.raises(cloche.ProtocolError) as why:
            sbx.run(["x"], on_stdout=lambda b: threading.Event().wait(0.2))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
        tracemalloc.stop()
        assert "more than was asked for" in str(why.value)


def test_more_of_a_file_than_was_asked_for():
    def answer(p, head, payload):
        if head["op"] != "read_file":
            return usual(p, head, payload)
        p.send({"id": head["id"], "event": "data"}, b"x" * 11)
        return p.send({"id": head["id"], "event": "done", "size": 11})
    with peer(answer) as p:
        assert p.sandbox().read_file("x", length=11) == b"x" * 11
        with pytest.raises(cloche.ProtocolError):
            p.sandbox().read_file("x", length=10)


BROKEN_OUTCOMES = [
    None, 5, {}, {"exit_code": "0"}, {"fault": 5}, {"fault": {}}, {"usage": {"wall_us": "1"}}, {"limits": {"memory": 5}, "exit_code": True},
    {"limits": {"memory": {"requested": []}}}, {"stdout_cut": {}}, {"stdout_cut": [1]}, {"results": [1]}, {"files_cut": 1.5}, {"signal": {}},
    {"duration_ms": "1"}, {"duration_ms": 10 ** 400},
]


@pytest.mark.parametrize("outcome", BROKEN_OUTCOMES)
def test_an_outcome_that_is_wrong(outcome):
    def answer(p, head, payload):
        if head["op"] == "open":
            return usual(p, head, payload)
        return p.send({"id": head["id"], "event": "done", "outcome": outcome})
    with peer(answer) as p:
        sbx = p.sandbox()
        try:
            r = sbx.run(["x"])
            assert outcome in ({},) and r.exit_code is None and not r
        except cloche.ProtocolError:
            assert outcome != {}


def test_any_bytes_at_all():
    """What comes is an error or a result, never another exception, a hang, or much memory; the same seed each time."""
    chance = random.Random(7)
    good = [json.dumps({"id": 1, **OPEN}).encode() + b"\n", b'{"id": 2, "event": "stdout", "bytes": 3}\nabc', b'{"id": 2, "event": "started"}\n',
            b'{"id": 2, "event": "output", "stream": "stdout", "bytes": 2}\nhi',
            json.dumps({"id": 2, "event": "files", "files": [{"path": "a"}]}).encode() + b"\n",
            json.dumps({"id": 2, "event": "done", "outcome": OUTCOME}).encode() + b"\n", b'{"call": 2, "event": "ended"}\n']

    def mutated(data):
        data = bytearray(data)
        for _ in range(chance.randrange(1, 6)):
            at, kind = chance.randrange(len(data)), chance.randrange(4)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                del data[at:at + chance.randrange(1, 9)]
            elif kind == 2:
                data[at:at] = bytes(chance.choices(b'{}[]":,0123456789-e\n\0\xff', k=chance.randrange(1, 9)))
            else:
                data[at:at] = data[max(0, at - 20):at]
            if not data:
                data = bytearray(b"{}\n")
        return bytes(data)

    tracemalloc.start()
    for _ in range(300):
        first, rest = mutated(good[0]) if chance.random() < .3 else good[0], mutated(b"".join(good[1:]))

        def answer(p, head, payload, first=first, rest=rest):
            if head["op"] == "open":
                p.raw(first)
            elif head["op"] == "run":
                p.raw(rest)
                p.client._queue.put(None)  # the end of the session: whatever is still waited for will not come
        with peer(answer) as p:
            try:
                threading.Timer(GUARD, p.client.close).cancel()
                sandbox = cloche.Sandbox.__new__(cloche.Sandbox)
                SandboxCore.__init__(sandbox)
                end = threading.Timer(0.5, lambda p=p: p.client._queue.put(None))
                end.start()
                now(sandbox._open(Work(p.client, None)))
                end.cancel()
                assert isinstance(sandbox.run(["x"], on_stdout=lambda b: None), cloche.ExecutionResult)
            except cloche.SandboxError:
                end.cancel()
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_slow_reader_is_waited_for():
    """No more than a window is on its way; the peer sends on as it is acknowledged, and all of it arrives."""
    total, sent, most = 8 << 20, threading.Semaphore(0), []

    def answer(p, head, payload):
        if head["op"] != "run":
            return usual(p, head, payload)

        def send():
            done = 0
            while done < total:
                acked = sum(h["size"] for h, _ in p.requests if h["op"] == "ack" and h["call"] == head["id"])
                most.append(done - acked)
                if done - acked + 65536 <= 1 << 20:
                    p.send({"id": head["id"], "event": "stdout"}, b"x" * 65536)
                    done += 65536
            p.send({"id": head["id"], "event": "done", "outcome": OUTCOME})
            sent.release()
        return threading.Thread(target=send, daemon=True).start()
    got = []
    with peer(answer) as p:
        p.sandbox().run(["x"], on_stdout=lambda b: got.append(len(b)))
        assert sent.acquire(timeout=GUARD)
    assert sum(got) == total and max(most) <= 1 << 20


def test_acks_come_for_what_was_dropped_too():
    """After a callback's exception the rest is still taken."""
    def answer(p, head, payload):
        if head["op"] != "run":
            return usual(p, head, payload)
        for _ in range(8):
            p.send({"id": head["id"], "event": "stdout"}, b"x" * (1 << 17))
        return p.send({"id": head["id"], "event": "done", "outcome": OUTCOME})

    def fails(data):
        raise LookupError("mine")
    with peer(answer) as p:
        with pytest.raises(LookupError, match="mine"):
            p.sandbox().run(["x"], on_stdout=fails)
    assert sum(h["size"] for h, _ in p.requests if h["op"] == "ack") == 1 << 20
    assert not [h for h, _ in p.requests if h["op"] == "cancel"]


def test_the_program_ends_in_the_middle():
    def answer(p, head, payload):
        if head["op"] == "open":
            return usual(p, head, payload)
        return os.close(p.writing)
    with peer(answer) as p:
        sbx = p.sandbox()
        with pytest.raises(cloche.Closed):
            sbx.run(["x"])
        with pytest.raises(cloche.Closed):
            sbx.run(["x"])
        p.writing = os.open("/dev/null", os.O_WRONLY)
        sbx.close()


def program(tmp_path, text):
    path = tmp_path / "cloche"
    path.write_text(f"#!{sys.executable}\n" + text)
    path.chmod(0o755)
    return str(path)


SAYS = """
import json, sys
if sys.argv[1] == "--version":
    print("cloche 0.0.9")
    raise SystemExit
head = json.loads(sys.stdin.readline())
"""


@pytest.mark.parametrize("text, named", [
    ("raise SystemExit(2)", ["has no `cloche serve`", "which has no --version"]),
    (SAYS + "raise SystemExit(2)", ["cloche 0.0.9", "has no `cloche serve`"]),
    (SAYS + 'print(json.dumps({"id": head["id"], "event": "done", "protocol": 1, "version": "0.0.9", "features": []}), flush=True); sys.stdin.read()',
     ["is cloche 0.0.9", client_module.version]),
    (SAYS + 'print(json.dumps({"id": head["id"], "event": "done", "protocol": 2, "version": "9.0", "features": []}), flush=True); sys.stdin.read()',
     ["is cloche 9.0", "protocol 2", client_module.version]),
    (SAYS + 'print(json.dumps({"id": head["id"], "event": "done", "error": {"type": "protocol", "message": "cloche 9.0 speaks 5 to 6, '
     'cloche-python/" + head["client"] + " 1"}}), flush=True); sys.stdin.read()', ["cloche 9.0", client_module.version]),
], ids=["no program of ours", "without serve", "old", "new", "new, in its own words"])
def test_another_version_is_refused_by_name(tmp_path, text, named):
    with pytest.raises(cloche.ProtocolError) as why:
        Client.start(program(tmp_path, text))
    assert all(n in str(why.value) for n in named), why.value


def test_no_program(tmp_path, monkeypatch):
    monkeypatch.delenv("CLOCHE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(cloche.SystemFault, match="CLOCHE_BIN"):
        client_module.find_program()
    (tmp_path / "cloche").write_text("#!/bin/sh\n")
    (tmp_path / "cloche").chmod(0o755)
    with pytest.raises(cloche.SystemFault):
        client_module.find_program()  # a script of that name is a package's own, which would look here again
    (tmp_path / "cloche").write_bytes(b"\x7fELF")
    assert client_module.find_program() == str(tmp_path / "cloche")
    monkeypatch.setenv("CLOCHE_BIN", "/elsewhere")
    assert client_module.find_program() == "/elsewhere"
    with pytest.raises(cloche.SystemFault, match="/elsewhere"):
        Client.start("/elsewhere")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(cloche.Unsupported, match="Linux virtual machine"):
        client_module.find_program()


def test_cancelled_twice_and_still_not_before_the_box_is_dead():
    cancelled, dead = threading.Event(), threading.Event()

    def answer(p, head, payload):
        if head["op"] == "cancel":
            def later(number=head["id"]):
                cancelled.set()
                dead.wait(GUARD)
                p.send({"id": number, "event": "done"})
            threading.Thread(target=later, daemon=True).start()
        elif head["op"] != "run":
            usual(p, head, payload)

    async def main(p):
        sbx = AsyncSandbox()
        await sbx._open(Work(p.client, asyncio.get_running_loop()))
        task = asyncio.ensure_future(sbx.run(["x"]))
        while not [h for h, _ in p.requests if h["op"] == "run"]:
            await asyncio.sleep(0.01)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.05)
        while not cancelled.is_set():
            await asyncio.sleep(0.01)
        assert not task.done()
        dead.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    with peer(answer) as p:
        asyncio.run(main(p))
        assert [h["call"] for h, _ in p.requests if h["op"] == "cancel"] == [h["id"] for h, _ in p.requests if h["op"] == "run"]


def test_files_are_read_as_they_come():
    a, b = os.pipe()
    os.write(b, b"early")
    with os.fdopen(a, "rb") as f:
        assert next(iter(chunks(f))) == b"early"
    os.close(b)
    assert list(chunks([b"x"])) == [b"x"]


def test_the_package_is_small_typed_and_has_one_version():
    root = sdk.PACKAGE
    meson = (sdk.boxlib.ROOT / "meson.build").read_text()
    assert f"version: '{cloche.version}'" in meson and f'version = "{cloche.version}"' in (root / "pyproject.toml").read_text()
    assert stat.S_ISREG((root / "cloche" / "py.typed").stat().st_mode)
    assert sorted(cloche.__all__) == cloche.__all__ and all(hasattr(cloche, n) for n in cloche.__all__)
    code = subprocess.run([sys.executable, "-c", "import cloche, threading; print(threading.active_count())"], env=sdk.env(), capture_output=True, check=True)
    assert code.stdout == b"1\n"  # nothing starts before it is used


def test_asyncio_is_not_imported_for_threads():
    """It takes longer than all the rest together. What reads, waits, times out, streams and is interrupted does without."""
    used = """if 1:
        import signal, sys, time, cloche
        with cloche.Sandbox(on_stdout=lambda data: None) as sbx:
            assert sbx.run(["cat"], stdin=iter(["a", "b"])).stdout == "ab"
            with sbx.start(["sleep", "100"], stream=True) as p:
                try:
                    p.wait(0.01)
                except TimeoutError:
                    print("asyncio" in sys.modules)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                sbx.run(["sleep", "100"])
            except KeyboardInterrupt:
                print("asyncio" in sys.modules)
        import asyncio
        async def main():
            async with cloche.AsyncSandbox() as sbx:
                print((await sbx.run(["echo", "asyncio" in sys.modules and "yes"])).stdout, end="")
        asyncio.run(main())
    """
    p = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(sdk.PACKAGE)!r})\n{used}"], env=sdk.env(), capture_output=True,
                       text=True, timeout=sdk.boxlib.HANG, check=False)
    assert (p.stdout, p.stderr) == ("False\nFalse\nyes\n", "")
