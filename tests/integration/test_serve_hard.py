"""`cloche serve` and clients that are wrong, slow, many, or gone: typed errors before anything is started, bounded memory, nothing left."""
import hashlib
import json
import os
import pathlib
import pty
import random
import select
import signal
import subprocess
import time
import tty
import uuid

import boxlib
import pytest
import serving

MARK = f"ct-serve-{uuid.uuid4().hex}"  # nobody else's on this machine


@pytest.fixture(scope="module")
def serve(leftovers):
    with serving.Serve() as s:
        yield s


@pytest.fixture(scope="module")
def sandbox(serve):
    return serve.open()


# ---- wrong requests: {request} -> (type, option or words of the message) ----

CALL = {"op": "run", "sandbox": 1, "argv": ["true"]}
WRONG = {
    "no such op": ({"op": "rum", "sandbox": 1}, "protocol", 'did you mean "run"'),
    "op is no string": ({"op": 1}, "protocol", '"op"'),
    "no op": ({}, "protocol", '"op"'),
    "a field that is not known": ({**CALL, "shell": True}, "option", "shell"),
    "a field that is missing": ({"op": "run_code"}, "protocol", '"sandbox"'),
    "no words": ({"op": "run", "sandbox": 1}, "protocol", "words"),
    "bytes where none are taken": ({"op": "info", "payload": b"x"}, "protocol", "takes no bytes"),
    "words twice": ({**CALL, "payload": b"true\0"}, "protocol", "words"),
    "code that is missing": ({"op": "run_code", "sandbox": 1}, "protocol", '"bytes"'),
    "parts where there are none": ({"op": "stat", "sandbox": 1, "path": "x", "more": True}, "option", "more"),
    "more is no boolean": ({**CALL, "more": 1}, "option", "more"),
    "a NUL in a string": ({**CALL, "argv": ["a\0b"]}, "protocol", "NUL"),
    "a sandbox that is none": ({**CALL, "sandbox": 999}, "not_found", "999"),
    "a sandbox that is no number": ({**CALL, "sandbox": "1"}, "option", "sandbox"),
    "argv is a string": ({**CALL, "argv": "true"}, "option", "argv"),
    "argv is empty": ({**CALL, "argv": []}, "option", "argv"),
    "argv has a number": ({**CALL, "argv": ["a", 1]}, "option", "argv"),
    "the command is empty": ({**CALL, "argv": [""]}, "option", "argv"),
    "words that do not end": ({"op": "run", "sandbox": 1, "payload": b"true"}, "option", "argv"),
    "env is a list": ({**CALL, "env": ["A=1"]}, "option", "env"),
    "env has a number": ({**CALL, "env": {"A": 1}}, "option", "env"),
    "env has a name with =": ({**CALL, "env": {"A=B": "1"}}, "option", "env"),
    "timeout_s is 0": ({**CALL, "timeout_s": 0}, "option", "timeout_s"),
    "timeout_s is a string": ({**CALL, "timeout_s": "1"}, "option", "timeout_s"),
    "timeout_s is too long": ({**CALL, "timeout_s": 1e12}, "option", "timeout_s"),
    "cwd is empty": ({**CALL, "cwd": ""}, "option", "cwd"),
    "stdin is a string": ({**CALL, "stdin": "x"}, "option", "stdin"),
    "stream is a number": ({**CALL, "stream": 1}, "option", "stream"),
    "pty has no cols": ({**CALL, "pty": {"rows": 1}}, "option", "pty"),
    "pty is too large": ({**CALL, "pty": {"rows": 1, "cols": 65536}}, "option", "pty"),
    "a language there is not": ({"op": "run_code", "sandbox": 1, "language": "perl", "payload": b"1"}, "option", "language"),
    "wait for none": ({"op": "wait", "call": 999999}, "not_found", "999999"),
    "cancel none": ({"op": "cancel", "call": 999999}, "not_found", "999999"),
    "a signal that is none": ({"op": "signal", "call": 1, "signal": "FOO"}, "option", "signal"),
    "signal 0": ({"op": "signal", "call": 1, "signal": 0}, "option", "signal"),
    "resize to nothing": ({"op": "resize", "call": 1, "rows": 0, "cols": 1}, "option", "rows"),
    "port 0": ({"op": "port", "call": 1, "port": 0}, "option", "port"),
    "options is a list": ({"op": "open", "options": []}, "option", "options"),
    "an option there is not": ({"op": "open", "options": {"memory": 1}}, "option", "memory"),
    "an option of a wrong type": ({"op": "open", "options": {"memory_mb": "1"}}, "option", "memory_mb"),
    "an option out of range": ({"op": "open", "options": {"pids": 0}}, "option", "pids"),
    "a workspace that is refused": ({"op": "open", "options": {"workspace": "/etc"}}, "mount_refused", "workspace"),
    "path is empty": ({"op": "write_file", "sandbox": 1, "path": "", "payload": b""}, "option", "path"),
    "path is too long": ({"op": "stat", "sandbox": 1, "path": "x" * 4096}, "option", "path"),
    "path leaves": ({"op": "stat", "sandbox": 1, "path": "../x"}, "path", ".."),
    "mode is set-id": ({"op": "write_file", "sandbox": 1, "path": "x", "mode": 0o4755, "payload": b""}, "option", "mode"),
    "offset is negative": ({"op": "read_file", "sandbox": 1, "path": "x", "offset": -1}, "option", "offset"),
    "recursive is a string": ({"op": "remove", "sandbox": 1, "path": "x", "recursive": "no"}, "option", "recursive"),
    "file is relative": ({"op": "snapshot", "sandbox": 1, "file": "x.tar.gz"}, "option", "file"),
    "format there is not": ({"op": "snapshot", "sandbox": 1, "file": "/tmp/x", "format": "zip"}, "option", "format"),
    "command is empty": ({"op": "setup", "sandbox": 1, "command": ""}, "option", "command"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_request(serve, sandbox, what):
    fields, kind, words = WRONG[what]
    fields = dict(fields)
    payload = fields.pop("payload", None)
    op = fields.pop("op", None)
    n = next(serve.ids)
    head = {"id": n, **({"op": op} if op is not None else {}), **fields}
    serve.send(head, payload)
    error = serve.answer(n)["error"]
    assert error["type"] == kind and words in json.dumps(error["message"], ensure_ascii=False).replace('\\"', '"'), error
    if kind == "option":
        assert error["option"] == words and (error.get("allowed") or "did you mean" in error["message"]), error
    info = serve.ask("info")
    assert (info["boxes"], info["queued"], info["calls"], info["sandboxes"]) == (0, 0, 0, 1)
    assert serve.run(sandbox, "true")["exit_code"] == 0, "no control"


@pytest.mark.parametrize("head", [{"op": "info"}, {"id": 0, "op": "info"}, {"id": "1", "op": "info"}, {"id": 2**53, "op": "info"}])
def test_a_request_without_an_id(serve, head):
    serve.send(head)
    assert serve.loose.get(timeout=boxlib.HANG)["error"]["type"] == "protocol"


def test_an_id_that_is_in_use(serve, sandbox):
    n = serve.request("run", sandbox=sandbox, argv=["sleep", "600"])
    serve.wait_event(n, "started")
    serve.send({"id": n, "op": "info"})
    assert "in use" in serve.loose.get(timeout=boxlib.HANG)["error"]["message"]
    serve.ask("cancel", call=n)
    assert serve.result(n)["fault"]["type"] == "cancelled"


FATAL = {
    "no JSON": b"hello\n", "an array": b"[1]\n", "a number": b"1\n", "an empty line": b"\n", "two objects": b"{} {}\n",
    "a key twice": b'{"id": 1, "id": 2, "op": "info"}\n', "no UTF-8": b'{"id": 1, "op": "\xff"}\n',
    "half a surrogate": b'{"id": 1, "op": "\\ud800"}\n', "a large number": b'{"id": 99999999999999999999, "op": "info"}\n',
    "too deep": b'{"id": 1, "op": ' + b"[" * 16 + b"]" * 16 + b"}\n", "a line too long": b'{"id": 1, "op": "' + b"x" * 65536 + b'"}\n',
    "no end of a line": b"x" * 65536, "bytes below 0": b'{"id": 1, "op": "info", "bytes": -1}\n',
    "too many bytes": b'{"id": 1, "op": "info", "bytes": 1048577}\n', "bytes as a string": b'{"id": 1, "op": "info", "bytes": "1"}\n',
    "an end within a line": b'{"id": 1', "an end within bytes": b'{"id": 1, "op": "run", "bytes": 10}\nxxx',
}


@pytest.mark.parametrize("what", FATAL)
def test_what_is_no_frame_ends_the_session(what):
    with serving.Serve() as s:
        sb = s.open()
        n = s.request("run", sandbox=sb, argv=["sleep", "600"])
        s.wait_event(n, "started")
        s.raw(FATAL[what])
        if what.startswith("an end"):
            s.p.stdin.close()
        last = s.loose.get(timeout=boxlib.HANG)
        assert last["event"] == "fatal" and last["error"]["type"] == "protocol" and last["error"]["message"]
        assert s.p.wait(boxlib.HANG) == 1


def test_the_largest_frame_is_taken():
    with serving.Serve() as s:
        sb = s.open()
        head = b'{"id": 100, "op": "write_file", "sandbox": %d, "path": "f", "bytes": 1048576' % sb
        s.raw(head + b" " * (65536 - len(head) - 2) + b"}\n" + bytes(1 << 20))
        assert s.answer(100)["size"] == 1 << 20
        assert s.ask("hello", **{"protocol": 1})["error"]["type"] == "protocol", "depth 16 is taken:"
        n = next(s.ids)
        s.raw(b'{"id": %d, "op": "open", "options": ' % n + b'{"x": ' * 14 + b"1" + b"}" * 14 + b"}\n")
        assert s.answer(n)["error"]["type"] == "option"


def test_a_workspace_that_was_exchanged_is_judged_anew(serve, ws):
    (ws / "w").mkdir()
    (ws / "w" / "f").write_text("x")
    kept, late = serve.open(workspace=str(ws / "w")), serve.open(workspace=str(ws / "w"))
    assert serve.ask("stat", sandbox=kept, path="f")["file"]["size"] == 1
    (ws / "w").rename(ws / "moved")
    (ws / "w").symlink_to("/etc")
    assert serve.ask("stat", sandbox=late, path="passwd")["error"]["type"] == "mount_refused"
    assert serve.ask("stat", sandbox=kept, path="passwd")["error"]["type"] == "not_found", "the one that was given is still the one"
    assert serve.ask("stat", sandbox=kept, path="f")["file"]["size"] == 1
    r = serve.run(late, "cat", "/workspace/passwd")
    assert r["fault"]["type"] == "startup_failed" and r["fault"]["stage"] == "workspace", r
    for sb in (kept, late):
        serve.ask("close", sandbox=sb)


# ---- many ----

def test_two_hundred_at_once():
    with serving.Serve("--boxes", "16") as s:
        sb = s.open()
        calls = [s.request("run", sandbox=sb, argv=["sh", "-c", "echo $X"], env={"X": str(i)}) for i in range(200)]
        done = [s.result(n, timeout=3 * boxlib.HANG) for n in calls]
        assert [r["stdout"] for r in done] == [b"%d\n" % i for i in range(200)]
        assert max(r["usage"]["queued_us"] for r in done) > min(r["usage"]["queued_us"] for r in done)


def test_the_queue_is_bounded():
    with serving.Serve("--boxes", "2", "--queue", "3") as s:
        sb = s.open()
        calls = [s.request("run", sandbox=sb, argv=["sleep", "600"]) for _ in range(8)]
        refused = [s.answer(n)["error"]["type"] for n in calls[5:]]
        assert refused == ["busy"] * 3
        s.wait_event(calls[1], "started")
        assert (s.ask("info")["boxes"], s.ask("info")["queued"]) == (2, 3)
        assert "error" not in s.ask("cancel", call=calls[3]) and s.answer(calls[3])["error"]["type"] == "cancelled"
        s.ask("cancel", call=calls[0])
        s.wait_event(calls[2], "started")
        s.ask("close", sandbox=sb)


def test_operations_of_all_kinds_at_once():
    """In no order; each has its own answer, and no one else's."""
    with serving.Serve("--boxes", "8") as s:
        boxes = [s.open() for _ in range(3)]
        todo = []
        for i in range(120):
            sb = boxes[i % 3]
            call = i % 4 == 3
            todo.append((s.request("run_code", b"echo", sandbox=sb, language="sh") if call
                         else s.request("write_file", b"%d" % i, sandbox=sb, path=f"f{i}"), i, call))
        for n, i, call in todo:
            done = s.answer(n, timeout=3 * boxlib.HANG)
            assert "error" not in done and (call or done["size"] == len(str(i))), done
        for i, sb in enumerate(boxes):
            n = s.request("list_files", sandbox=sb)
            assert s.answer(n)["count"] == len([j for j in range(120) if j % 3 == i and j % 4 != 3])


# ---- slow clients ----

def memory(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) << 10


def test_a_client_that_does_not_read_stops_the_command_and_costs_no_memory():
    with serving.Serve(reads=False, hello=False) as s:
        for head in ({"id": 1, "op": "hello", "protocol": 1}, {"id": 2, "op": "open", "options": {"max_output_bytes": 1000, "timeout_s": 300}}):
            s.send(head)
            assert "error" not in s.frame()[0]
        s.send({"id": 3, "op": "run", "sandbox": 1, "stream": True,
                "argv": ["sh", "-c", "i=0; while [ $i -lt 400 ]; do head -c 1000000 /dev/zero; i=$((i+1)); echo $i >done; done"]})
        assert s.frame()[0]["event"] == "started"
        time.sleep(3)
        assert memory(s.p.pid) < 60 << 20, "400 MB would be on their way"
        total = 0
        while True:
            head, payload = s.frame()
            if head["event"] == "done":
                break
            total += len(payload or b"") if head["event"] == "stdout" else 0
        assert total == 400 * 1000000 and head["outcome"]["fault"] is None
        s.reader.start()


@pytest.mark.parametrize("what", ["whole frames", "the rest of one"])
def test_what_was_not_read_for_want_of_room_is_no_broken_frame(ws, what):
    """A client that takes no answers has gone: that is the end of a session as any other."""
    with serving.Serve(reads=False, hello=False) as s:
        s.send({"id": 1, "op": "hello", "protocol": 1})
        s.send({"id": 2, "op": "open", "options": {"workspace": str(ws), "env": {"A": "x" * 60000}}})
        assert "error" not in s.frame()[0] and "error" not in s.frame()[0]
        if what == "whole frames":
            s.raw(b'{"id":3,"op":"info","sandbox":1}\n' * 50)  # with 3 MB of answers, of which it holds 1
        else:
            run = {"id": 3, "op": "run", "sandbox": 1, "stream": True, "argv": ["sh", "-c", "while head -c 100000 /dev/zero; do echo >>done; done"]}
            s.raw(json.dumps(run).encode() + b'\n{"id":4,')
            told, last = ws / "done", [-1, 0]

            def stands():
                last[:] = last[1], told.stat().st_size if told.exists() else 0
                return last[0] == last[1] > 10

            assert boxlib.wait_for(stands, every=0.5)
            s.raw(b'"op":"info"}\n')
        assert s.close() == 0


def test_requests_wait_with_a_client_that_takes_no_answers():
    """They are read as far as there is room for what they are answered with, and then no further."""
    many = 3000
    with serving.Serve(reads=False, hello=False) as s:
        s.send({"id": 1, "op": "hello", "protocol": 1})
        s.send({"id": 2, "op": "open", "options": {"env": {"A": "x" * 60000}}})
        assert "error" not in s.frame()[0] and "error" not in s.frame()[0]
        s.raw(b'{"id":3,"op":"info","sandbox":1}\n' * many)
        time.sleep(1)
        assert memory(s.p.pid) < 60 << 20, "180 MB of answers"
        for _ in range(many):
            assert len(s.frame()[0]["options"]["env"]["A"]) == 60000
        s.reader.start()


def test_much_for_a_client_that_is_quick(serve, sandbox):
    """What has to wait for room goes on when there is some again, however often."""
    for _ in range(4):
        assert len(serve.run(sandbox, "head", "-c", "20000000", "/dev/zero")["stdout"]) == 20000000
    ids = [next(serve.ids) for _ in range(10000)]
    serve.raw(b"".join(b'{"id":%d,"op":"info"}\n' % n for n in ids))
    assert all(serve.answer(n)["sandboxes"] for n in ids)


def test_unacknowledged_output_holds_up_that_call_alone():
    with serving.Serve(ack=True) as s:
        sb = s.open()
        n = s.request("run", sandbox=sb, stream=True, argv=["head", "-c", "5000000", "/dev/zero"])

        def got():
            return sum(len(p) for head, p in s.events.get(n, []) if head["event"] == "stdout")

        assert boxlib.wait_for(lambda: got() == 1 << 20)
        assert s.run(sb, "echo", "x", stream=True)["live"] == b"x\n", "others go on"
        assert got() == 1 << 20
        acked = 0
        while acked < 5000000:
            assert boxlib.wait_for(lambda: got() > acked)
            have = got()
            s.request("ack", call=n, size=have - acked)
            acked = have
        assert s.result(n)["stdout"] == bytes(5000000) and got() == 5000000
        n = s.request("run", sandbox=sb, stream=True, timeout_s=3, argv=["cat", "/dev/zero"])
        assert boxlib.wait_for(lambda: got() == 1 << 20)
        time.sleep(3.5)
        s.request("ack", call=n, size=1 << 20)
        assert s.result(n)["fault"]["type"] == "timeout", "its deadline went on"


def test_a_sandbox_that_closes_takes_nothing_more(serve, ws, tmp_path):
    sb = serve.open(workspace=str(ws))
    n = serve.request("run", sandbox=sb, argv=["sleep", "600"])
    serve.wait_event(n, "started")
    asked = ({"op": "close"}, {"op": "run", "argv": ["true"]}, {"op": "start", "argv": ["true"]}, {"op": "list_files"}, {"op": "make_dir", "path": "d"},
             {"op": "snapshot", "file": f"{tmp_path}/s.tar.gz"}, {"op": "fork"}, {"op": "setup", "command": "true"}, {"op": "info"}, {"op": "close"})
    ids = [next(serve.ids) for _ in asked]
    serve.raw(b"".join(json.dumps({"id": i, "sandbox": sb, **head}).encode() + b"\n" for i, head in zip(ids, asked)))
    assert [serve.answer(i).get("error", {}).get("type") for i in ids] == [None] + ["closed"] * (len(ids) - 1)
    assert serve.answer(n)["outcome"]["fault"]["type"] == "cancelled" and os.listdir(ws) == []


def test_who_else_has_what_a_command_wrote_to_does_not_hold_up_its_end(serve, sandbox):
    """Its pipe can be had from outside of the box, by whoever may look into it, and then has no end."""
    n = serve.request("run", sandbox=sandbox, argv=["sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.05; done; :", MARK], stream=True)
    serve.wait_event(n, "stdout")
    pid = next(p for p in boxlib.find_marked(MARK) if os.readlink(f"/proc/{p}/exe").endswith("sh"))
    fd = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
    try:
        os.write(fd, b"from outside\n")
        assert serve.ask("write_file", b"", sandbox=sandbox, path="go")["size"] == 0
        assert (serve.result(n)["exit_code"], serve.result(n)["stdout"]) == (0, b"up\nfrom outside\n")
    finally:
        os.close(fd)
    assert "error" not in serve.ask("remove", sandbox=sandbox, path="go")


def test_only_what_was_begun_in_the_background_is_waited_for(serve, sandbox):
    n = serve.request("run", sandbox=sandbox, argv=["sleep", "600"])
    serve.wait_event(n, "started")
    assert "not begun by start" in serve.ask("wait", call=n)["error"]["message"]
    assert "error" not in serve.ask("cancel", call=n) and serve.result(n)["fault"]["type"] == "cancelled"


def test_input_before_the_last_was_taken(serve, sandbox):
    """A command has one piece of its input on the way; which is whole, whatever was refused meanwhile."""
    n = serve.request("run", sandbox=sandbox, argv=["sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.05; done; sha256sum"], stdin=True, stream=True)
    serve.wait_event(n, "stdout")
    data = random.Random(1).randbytes(1 << 20)
    first = serve.request("stdin", data, call=n)
    again = [serve.request("stdin", b"y" * 1000, call=n, eof=True) for _ in range(3)]
    assert [serve.answer(a)["error"]["type"] for a in again] == ["protocol"] * 3
    assert serve.ask("write_file", b"", sandbox=sandbox, path="go")["size"] == 0 and serve.answer(first)["size"] == 1 << 20
    assert serve.ask("stdin", b"", call=n, eof=True)["size"] == 0
    assert serve.result(n)["stdout"].split()[1].decode() == hashlib.sha256(data).hexdigest()
    assert "error" not in serve.ask("remove", sandbox=sandbox, path="go")


def test_calls_are_bounded_wherever_they_wait():
    with serving.Serve("--boxes", "1", "--queue", "9999") as s:
        sb = s.open()
        calls = [s.request("run", sandbox=sb, argv=["sleep", "600"]) for _ in range(4100)]
        assert [s.answer(n)["error"]["type"] for n in calls[4096:]] == ["busy"] * 4 and s.ask("info")["calls"] == 4096
        assert "error" not in s.ask("cancel", call=calls[4095])
        calls.append(s.request("run", sandbox=sb, argv=["sleep", "600"]))
        assert s.ask("info")["calls"] == 4096
        assert "error" not in s.ask("close", sandbox=sb)


def test_a_payload_that_never_ends(serve):
    n = serve.request("run_code", b"x" * (1 << 20), sandbox=1, more=True)
    for _ in range(64):
        serve.send({"id": n, "op": "more", "more": True}, b"x" * (1 << 20))
    error = serve.answer(n)["error"]
    assert (error["type"], error["option"], error["allowed"]) == ("too_large", "code", f"at most {64 << 20} bytes")
    parts = [serve.request("run_code", b"x", sandbox=1, more=True) for _ in range(65)]
    assert serve.answer(parts[-1])["error"]["type"] == "busy"
    for n in parts[:-1]:
        serve.ask("cancel", call=n)
        assert serve.answer(n)["error"]["type"] == "cancelled"


def test_payloads_that_wait_are_bounded_together():
    with serving.Serve("--boxes", "1") as s:
        sb, part = s.open(), b"#" * (1 << 20)
        running = s.request("run", sandbox=sb, argv=["sleep", "600"], stdin=True)
        s.wait_event(running, "started")
        assert s.ask("stdin", b"x", call=running)["size"] == 1, "no control"
        calls = []
        for _ in range(5):
            calls.append(s.request("run_code", part, sandbox=sb, language="sh", more=True))
            for i in range(59):
                s.send({"id": calls[-1], "op": "more", "more": i < 58}, part)
        assert s.answer(calls[4])["error"]["type"] == "busy"
        assert s.ask("info")["queued"] == 4
        # To the last byte: 16 MiB more, and then nothing, whatever it is for.
        last = s.request("run_code", part, sandbox=sb, language="sh", more=True)
        for _ in range(15):
            s.send({"id": last, "op": "more", "more": True}, part)
        assert s.ask("stdin", b"x", call=running)["error"]["type"] == "busy"
        s.ask("cancel", call=last)
        assert s.ask("stdin", b"x", call=running)["size"] == 1
        s.ask("cancel", call=running)
        assert [s.result(n)["exit_code"] for n in calls[:4]] == [0] * 4
        assert s.code(sb, "echo on", language="sh")["stdout"] == b"on\n"


# ---- the end ----

def busy(s):
    """A session in the middle of all that it can be in the middle of."""
    sb = s.open()
    for argv in (["sleep", "600", MARK], ["sh", "-c", "setsid sleep 600 & trap '' TERM; sleep 600"]):
        n = s.request("run", sandbox=sb, argv=[*argv, MARK] if argv[0] == "sh" else ["sh", "-c", "sleep 600; :", MARK])
        s.wait_event(n, "started")
    n = s.request("start", sandbox=sb, stream=True, stdin=True, argv=["sh", "-c", "cat /dev/zero; :", MARK])
    s.wait_event(n, "stdout")
    s.ask("write_file", b"x", sandbox=sb, path="f")
    s.request("write_file", b"x", sandbox=sb, path="g", more=True)
    s.request("run_code", b"x", sandbox=sb, more=True)
    s.request("fork", sandbox=sb)
    s.request("snapshot", sandbox=sb, file=f"/tmp/{MARK}-{os.getpid()}.tar.gz")
    s.request("open")
    return sb


def nothing_left(pids):
    for draft in pathlib.Path("/tmp").glob(f"{MARK}-{os.getpid()}.*"):
        draft.unlink()  # the archive, or, of one that was killed, its beginning
    assert boxlib.wait_for(lambda: not boxlib.find_marked(MARK)), "processes of a box are left"
    assert boxlib.wait_for(lambda: not [p for p in pids if os.path.exists(f"/proc/{p}") and alive(p)]), "processes of the session are left"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("how", ["eof", signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_everything_ends_with_the_session(how):
    s = serving.Serve()
    busy(s)
    pids = list(boxlib.children_of(s.p.pid))
    assert boxlib.find_marked(MARK) and len(pids) > 5, "no control"
    boxlib.STARTED.update(pids)
    if how == "eof":
        assert s.close() == 0
    else:
        assert s.kill(how) == (-9 if how == signal.SIGKILL else 128 + how)
    nothing_left(pids)
    if how != "eof":
        s.close()
    if how == signal.SIGKILL:
        assert boxlib.cloche("gc").rc == 0


def test_killed_at_any_moment():
    random.seed(7)
    for _ in range(12):
        s = serving.Serve(hello=False)
        for head in ({"id": 1, "op": "hello", "protocol": 1}, {"id": 2, "op": "open"},
                     {"id": 3, "op": "open", "options": {"track_files": True}},
                     *({"id": i, "op": "run", "sandbox": 1 + i % 2, "argv": ["sh", "-c", "sleep 600; :", MARK]} for i in range(10, 20))):
            s.send(head)
        time.sleep(random.random() * 0.15)
        pids = list(boxlib.children_of(s.p.pid))
        boxlib.STARTED.update(pids)
        s.kill()
        nothing_left(pids)
        s.close()
    assert boxlib.cloche("gc").rc == 0


def test_a_keeper_or_spawner_that_is_killed(serve):
    sb = serve.open()
    n = serve.request("run", sandbox=sb, argv=["sh", "-c", "sleep 600; :", MARK])
    serve.wait_event(n, "started")
    spawners = [p for p in boxlib.children_of(serve.p.pid) if parent(p) == serve.p.pid and boxlib.children_of(p)]
    assert spawners, "no control"
    for p in spawners:
        os.kill(p, signal.SIGKILL)
    assert serve.result(n)["fault"]["type"] == "init_lost"
    assert boxlib.wait_for(lambda: not boxlib.find_marked(MARK))
    assert serve.run(sb, "true")["fault"]["type"] == "startup_failed"
    fresh = serve.open()
    assert serve.run(fresh, "true")["fault"] is None
    for it in (sb, fresh):
        assert "error" not in serve.ask("close", sandbox=it)


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def test_words_of_the_command_line():
    for args, words in ((["x"], "takes no words"), (["--boxes", "0"], "--boxes"), (["--queue", "x"], "--queue")):
        r = boxlib.cloche("serve", *args)
        assert r.rc == 2 and words in r.err.decode(), r


def test_without_a_client():
    p = subprocess.run([boxlib.CLOCHE, "serve"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=boxlib.HANG, check=False)
    assert (p.returncode, p.stderr) == (0, b"")


def test_on_a_terminal():
    """Whoever typed it is told what waits, in a line; and then it is a session like any other."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    with open(master, "r+b", buffering=0) as typed:
        p = subprocess.Popen([boxlib.CLOCHE, "serve"], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        boxlib.STARTED.add(p.pid)
        os.close(slave)
        line = p.stderr.readline() if select.select([p.stderr], [], [], boxlib.HANG)[0] else b"nothing is said"
        assert line.startswith(b"cloche serve: ") and b"docs/PROTOCOL.md" in line and len(line) < 200, line
        typed.write(b'{"id": 1, "op": "hello", "protocol": 1}\n')
        assert json.loads(p.stdout.readline())["protocol"] == 1
    assert p.wait(boxlib.HANG) == 0 and p.stdout.read() == b"" and p.stderr.read() == b""
