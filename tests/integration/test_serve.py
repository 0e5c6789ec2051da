"""The protocol of `cloche serve` (docs/PROTOCOL.md): every operation, and every wrong frame, field and order of them."""
import os
import re
import socket

import boxlib
import pytest
import serving
import setups
import spawner

REQUEST_C = boxlib.ROOT / "src" / "session" / "request.c"
PROTOCOL = boxlib.ROOT / "docs" / "PROTOCOL.md"


@pytest.fixture(scope="module")
def serve(leftovers):
    """One session for what leaves it as it was."""
    with serving.Serve() as s:
        yield s


@pytest.fixture(scope="module")
def sandbox(serve):
    return serve.open()


def quiet(serve):
    """Nothing runs, nothing waits."""
    info = serve.ask("info")
    return (info["boxes"], info["queued"], info["calls"]) == (0, 0, 0)


# ---- what there is ----

def operations():
    """{op: {field}} of request.c; a call's common ones by their macro."""
    text = REQUEST_C.read_text(encoding="utf-8")
    macros = {}
    for name, body in re.findall(r"#define (SANDBOX|CALL|PATH|TIMEOUT|CALL_FIELDS)\s+((?:.*\\\n)*.*)\n", text):
        macros[name] = body
    ops = {}
    table = text[text.index("ses_ops[OP_ID_N] = {"):]
    table = table[:table.index("\n};")]
    for chunk in re.split(r"\[OP_\w+\] = ", table)[2:]:
        for _ in range(3):
            chunk = re.sub(r"\b(SANDBOX|CALL|PATH|TIMEOUT|CALL_FIELDS)\b(?!\")", lambda m: macros[m[1]], chunk)
        name = re.match(r'\{\s*"(\w+)"', chunk)[1]
        ops[name] = {n + ("" if need == "NEED" else "?") for need, n in re.findall(r'\b(NEED|MAY)\("(\w+)"', chunk)}
    return ops


def test_the_page_has_the_table():
    text = PROTOCOL.read_text(encoding="utf-8")
    shared = re.search(r"^Fields of all but `wait`:(.*?)\n\n", text, re.M | re.S)[1]
    common = set(re.findall(r"`(\w+\?)`", shared))
    said = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        name = re.fullmatch(r"`(\w+)`", cells[0])
        if name and name[1] in operations() and line.startswith("|") and len(cells) >= 2 and name[1] not in said:
            said[name[1]] = set(re.findall(r"`(\w+\??)`", re.sub(r"\([^)]*\)", "", cells[1])))
    for name in ("run", "run_code", "start"):
        said[name] |= common
    real = operations()
    for name in ("run", "start"):
        real[name] = {f.replace("argv?", "argv") for f in real[name]}  # argv, or a payload
    for name in set(real) - {"hello", "open", "more"}:  # which the page shows as they are sent
        assert said.get(name) == real[name], name
    for name in ("hello", "open", "more"):
        assert f'"op": "{name}"' in text
    assert {"protocol", "client?", "ack?"} == real["hello"] and all(f'"{f.strip("?")}"' in text for f in real["hello"])


def test_the_page_has_the_errors():
    text = PROTOCOL.read_text(encoding="utf-8")
    names = re.findall(r'\[SES_\w+\] = "(\w+)"', (boxlib.ROOT / "src/session/error.c").read_text(encoding="utf-8"))
    table = text[text.index("| type | what was wrong"):]
    assert re.findall(r"^\| `(\w+)` \|", table[:table.index("\n\n")], re.M) == names


def test_hello(serve):
    hello = serve.hello
    assert hello["protocol"] == 1 and re.fullmatch(r"\d+\.\d+\.\d+", hello["version"])
    text = PROTOCOL.read_text(encoding="utf-8")
    said = re.search(r"`features` are names of groups of operations: (.*?)\. ", text, re.S)[1]
    assert set(hello["features"]) == set(re.findall(r"`(\w+)`", said))
    assert serve.ask("hello", protocol=1)["error"]["type"] == "protocol"


def test_newer_client():
    with serving.Serve(hello=False) as s:
        assert s.ask("hello", protocol=7)["protocol"] == 1


def test_nothing_before_hello():
    with serving.Serve(hello=False) as s:
        assert s.ask("open")["error"]["type"] == "protocol"
        assert s.ask("hello", protocol=1)["protocol"] == 1


# ---- calls ----

def test_run(serve, sandbox):
    r = serve.run(sandbox, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (r["exit_code"], r["signal"], r["fault"], r["stdout"], r["stderr"]) == (3, None, None, b"out\n", b"err\n")
    assert r["results"] == [] and r["truncated"] is False and r["stdout_cut"] is None and r["files_cut"] == 0
    assert r["usage"]["wall_us"] > 0 and r["usage"]["queued_us"] is not None and r["limits"]["memory"]["requested"] == 512 << 20
    assert [e[0]["event"] for e in serve.events[max(serve.events)]][0] == "started"


def test_words_as_bytes(serve, sandbox):
    r = serve.result(serve.request("run", b"printf\0%s.\0\xff\0\0last\0", sandbox=sandbox))
    assert r["stdout"] == b"\xff..last."


@pytest.mark.parametrize("language, code, says", [
    ("python", "import sys; print(sys.argv, __name__)", b"['-c'] __main__\n"), ("sh", "echo $((6*7))", b"42\n"),
    ("bash", "a=(1 2 3); echo ${#a[@]}", b"3\n")])
def test_run_code(serve, sandbox, language, code, says):
    r = serve.code(sandbox, code, language=language)
    assert (r["exit_code"], r["stdout"], r["stderr"]) == (0, says, b"")


def test_code_in_parts(serve, sandbox):
    parts = [b"x = '", b"a" * 1000000, b"b" * 1000000, b"'\nprint(len(x))"]
    n = serve.request("run_code", parts[0], sandbox=sandbox, more=True)
    for i, part in enumerate(parts[1:]):
        serve.send({"id": n, "op": "more", "more": i < 2}, part)
    assert serve.result(n)["stdout"] == b"2000000\n"


def test_env_and_cwd(serve):
    sb = serve.open(env={"A": "sandbox", "B": "sandbox"})
    r = serve.run(sb, "sh", "-c", "echo $A $B $C; pwd", env={"B": "call", "C": "call"}, cwd="/tmp")
    assert r["stdout"] == b"sandbox call call\n/tmp\n"
    serve.ask("close", sandbox=sb)


def test_changes(serve):
    sb = serve.open()
    assert serve.run(sb, "sh", "-c", "echo a >a; mkdir d; echo b >d/b")["files"] == [
        {"path": "a", "change": "created", "size": 2}, {"path": "d/b", "change": "created", "size": 2}]
    r = serve.run(sb, "sh", "-c", "echo more >>a; mv d/b d/c; rm -f x")
    assert [(f["path"], f["change"], f.get("from")) for f in r["files"]] == [("a", "modified", None), ("d/c", "renamed", "d/b")]
    assert serve.run(sb, "sh", "-c", "rm a", track_files=False)["files"] == []
    many = serve.run(sb, "sh", "-c", "i=0; while [ $i -lt 3000 ]; do : >file-with-a-rather-long-name-$i; i=$((i+1)); done")["files"]
    assert len(many) == 3000 == len({f["path"] for f in many})
    serve.ask("close", sandbox=sb)


def test_refusals_are_data(serve, sandbox):
    r = serve.run(sandbox, "mount", "-t", "tmpfs", "x", "/mnt")
    assert r["fault"]["type"] == "escape_blocked" and r["denied"][0]["what"] == "mount"
    r = serve.run(sandbox, "no-such-command")
    assert (r["fault"]["type"], r["exit_code"]) == ("exec_failed", 127)
    r = serve.run(sandbox, "sleep", "60", timeout_s=0.2)
    assert (r["fault"]["type"], r["exit_code"]) == ("timeout", 124)
    assert "(timeout_s)" in r["fault"]["message"] and "--" not in r["fault"]["message"], "a client has no command line"


def test_output_is_cut_in_the_middle(serve):
    sb = serve.open(max_output_bytes=1000)
    r = serve.run(sb, "sh", "-c", "printf %01000d 1; printf %01000d 2 >&2; printf 34")
    assert r["truncated"] and len(r["stdout"]) == 1000 and r["stdout"].endswith(b"34") and r["stdout_cut"] == {"at": 500, "bytes": 2}
    assert r["stderr_cut"] is None
    serve.ask("close", sandbox=sb)


def test_live_output_is_all_of_it(serve, sandbox):
    n = serve.request("run", sandbox=sandbox, stream=True, argv=["sh", "-c", "echo first; read x; head -c 3000000 /dev/zero; echo $x >&2"],
                      stdin=True)
    assert serve.wait_event(n, "stdout")[1] == b"first\n"
    assert serve.ask("stdin", b"word\n", call=n, eof=True)["size"] == 5
    r = serve.result(n)
    assert r["stdout"] == b"first\n" + bytes(3000000) and r["stderr"] == b"word\n" and len(r["live"]) == len(r["stdout"]) + 5


def test_stdin(serve, sandbox):
    n = serve.request("run", sandbox=sandbox, argv=["sha256sum"], stdin=True)
    for _ in range(4):
        assert serve.ask("stdin", b"x" * 1000000, call=n)["size"] == 1000000
    serve.ask("stdin", b"", call=n, eof=True)
    assert serve.result(n)["stdout"].split()[0] == __import__("hashlib").sha256(b"x" * 4000000).hexdigest().encode()
    n = serve.request("run", sandbox=sandbox, argv=["sh", "-c", "exec <&-; sleep 600"], stdin=True)
    assert serve.ask("stdin", b"x" * 1000000, call=n)["size"] < 1000000, "nobody took it"
    serve.ask("cancel", call=n)
    serve.result(n)
    n = serve.request("run", sandbox=sandbox, argv=["sleep", "600"])
    for op, payload, option, size in (("stdin", b"x", "stdin", {}), ("resize", None, "pty", {"rows": 1, "cols": 1})):
        error = serve.ask(op, payload, call=n, **size)["error"]
        assert (error["type"], error["option"], error["allowed"]) == ("option", option, f"a call started with {option}"), error
    serve.ask("cancel", call=n)
    serve.result(n)


def test_terminal(serve, sandbox):
    script = "stty size; read x; until stty size | grep '^40 100'; do sleep 0.05; done"
    n = serve.request("run", sandbox=sandbox, argv=["sh", "-c", script], pty={"rows": 30, "cols": 90}, stdin=True,
                      stream=True)
    serve.wait_event(n, "stdout")
    assert "error" not in serve.ask("resize", call=n, rows=40, cols=100)
    serve.ask("stdin", b"\n", call=n)
    r = serve.result(n)
    assert b"30 90" in r["stdout"] and b"40 100" in r["stdout"] and r["stderr"] == b""


def test_signal(serve, sandbox):
    code = "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.02; done"
    for which in ("TERM", "SIGTERM", 15):
        n = serve.request("run", sandbox=sandbox, argv=["sh", "-c", code], stream=True)
        serve.wait_event(n, "stdout")
        serve.ask("signal", call=n, signal=which)
        assert (serve.result(n)["exit_code"], serve.result(n)["stdout"]) == (5, b"ready\ngot\n")


def test_cancel(serve, sandbox):
    n = serve.request("run", sandbox=sandbox, argv=["sh", "-c", "echo x; sleep 600"], stream=True)
    serve.wait_event(n, "stdout")
    assert "error" not in serve.ask("cancel", call=n)
    r = serve.result(n)
    assert r["fault"]["type"] == "cancelled" and r["stdout"] == b"x\n"
    assert serve.ask("cancel", call=n)["error"]["type"] == "not_found"


def test_background(serve, sandbox):
    n = serve.request("start", sandbox=sandbox, argv=["sh", "-c", "echo a; read x; echo $x; exit 4"], stdin=True, stream=True)
    assert serve.answer(n) == {"id": n, "event": "done"}
    assert serve.wait_event(n, "stdout")[0]["call"] == n
    assert [e[0]["event"] for e in serve.events[n]][0] == "done", "nothing comes before it runs"
    w = serve.request("wait", call=n)
    serve.ask("stdin", b"b\n", call=n)
    serve.wait_event(n, "ended")
    r = serve.result(w)
    assert (r["exit_code"], r["stdout"]) == (4, b"a\nb\n")
    assert serve.ask("wait", call=n)["error"]["type"] == "not_found"
    n = serve.request("start", sandbox=sandbox, argv=["no-such-command"])
    assert "error" not in serve.answer(n)
    assert serve.result(serve.request("wait", call=n))["fault"]["type"] == "exec_failed"


def test_a_wait_can_be_given_up(serve, sandbox):
    n = serve.request("start", sandbox=sandbox, argv=["sleep", "600"])
    serve.answer(n)
    w = serve.request("wait", call=n)
    assert serve.ask("wait", call=n)["error"]["type"] == "not_found", "one waits already"
    assert "error" not in serve.ask("cancel", call=w) and serve.answer(w)["error"]["type"] == "cancelled"
    serve.ask("cancel", call=n)
    assert serve.result(serve.request("wait", call=n))["fault"]["type"] == "cancelled"


def test_port(serve, sandbox):
    code = ("import socket\ns = socket.create_server(('127.0.0.1', 4000)); print('ready', flush=True)\n"
            "while True:\n    c, _ = s.accept()\n    d = b''\n    while (x := c.recv(65536)): d += x\n    c.sendall(d[::-1]); c.close()\n")
    n = serve.request("start", sandbox=sandbox, argv=["python3", "-c", code], stream=True)
    serve.wait_event(n, "stdout")
    at = serve.ask("port", call=n, port=4000)
    data = os.urandom(300000)
    for _ in range(3):
        with socket.create_connection((at["host"], at["port"]), timeout=boxlib.HANG) as c:
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
            got = b""
            while part := c.recv(65536):
                got += part
        assert got == data[::-1]
    nobody = serve.ask("port", call=n, port=4001)
    with socket.create_connection((nobody["host"], nobody["port"]), timeout=boxlib.HANG) as c:
        try:
            assert c.recv(1) == b""
        except ConnectionResetError:
            pass
    serve.ask("cancel", call=n)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((at["host"], at["port"]), timeout=boxlib.HANG)
    serve.result(serve.request("wait", call=n))


# ---- files ----

def listed(serve, sandbox, **fields):
    n = serve.request("list_files", sandbox=sandbox, **fields)
    assert "error" not in serve.answer(n)
    return [f["path"] for head, _ in serve.events[n] if head["event"] == "files" for f in head["files"]]


def read(serve, sandbox, path, **fields):
    n = serve.request("read_file", sandbox=sandbox, path=path, **fields)
    done = serve.answer(n)
    assert "error" not in done, done
    return b"".join(p for head, p in serve.events[n] if head["event"] == "data")


def test_files(serve):
    sb = serve.open()
    assert serve.ask("write_file", b"hello", sandbox=sb, path="a/b.txt", mode=0o640)["size"] == 5
    assert serve.run(sb, "sh", "-c", "cat a/b.txt; stat -c %a a/b.txt; echo x >>a/b.txt")["stdout"] == b"hello640\n"
    assert read(serve, sb, "a/b.txt") == b"hellox\n" and read(serve, sb, "a/b.txt", offset=1, length=2) == b"el"
    assert serve.ask("stat", sandbox=sb, path="a/b.txt")["file"]["type"] == "file"
    assert listed(serve, sb) == ["a", "a/b.txt"] and listed(serve, sb, recursive=False) == ["a"]
    assert "error" not in serve.ask("make_dir", sandbox=sb, path="c/d")
    assert "error" not in serve.ask("rename", sandbox=sb, path="a/b.txt", to="c/d/e")
    assert serve.ask("remove", sandbox=sb, path="c")["error"]["type"] == "path"
    assert "error" not in serve.ask("remove", sandbox=sb, path="c", recursive=True)
    for op, fields, error in [("read_file", {"path": "c"}, "not_found"), ("read_file", {"path": "../x"}, "path"),
                              ("rename", {"path": "no", "to": "x"}, "not_found"), ("make_dir", {"path": "a", "parents": False}, "exists")]:
        assert serve.ask(op, sandbox=sb, **fields)["error"]["type"] == error, op
    serve.ask("close", sandbox=sb)


def test_a_large_file(serve):
    sb, part = serve.open(), os.urandom(1 << 20)
    n = serve.request("write_file", part, sandbox=sb, path="big", more=True)
    for i in range(8):
        serve.send({"id": n, "op": "more", "more": i < 7}, part)
    assert serve.answer(n)["size"] == 9 << 20
    assert read(serve, sb, "big") == part * 9
    assert serve.ask("read_file", sandbox=sb, path="big", max_bytes=1000)["error"]["option"] == "max_bytes"
    n = serve.request("write_file", part, sandbox=sb, path="../x", more=True)
    assert serve.answer(n)["error"]["type"] == "path"
    serve.send({"id": n, "op": "more", "more": False}, part)
    assert serve.ask("info")["sandboxes"] >= 1, "the rest of it is passed over"
    serve.ask("close", sandbox=sb)


def test_a_workspace_of_ones_own(serve, ws):
    made = ws / "not" / "there"
    sb = serve.open(workspace=str(made))
    assert serve.ask("write_file", b"1", sandbox=sb, path="f")["size"] == 1
    serve.run(sb, "sh", "-c", "echo 2 >g")
    assert (made / "f").read_bytes() == b"1" and (made / "g").read_bytes() == b"2\n"
    serve.ask("close", sandbox=sb)
    assert made.is_dir()


def test_snapshot_restore_fork(serve, ws):
    sb = serve.open()
    serve.run(sb, "sh", "-c", "mkdir d; echo 1 >d/f; ln -s d/f l; chmod 750 d")
    for name in ("s.tar.gz", "s.tar.zst"):
        done = serve.ask("snapshot", sandbox=sb, file=str(ws / name))
        assert done["size"] == (ws / name).stat().st_size and done["files"] == 3
    copy = serve.ask("fork", sandbox=sb)["sandbox"]
    serve.run(sb, "sh", "-c", "rm -r d; echo 2 >n")
    assert listed(serve, copy) == ["d", "d/f", "l"] and serve.run(copy, "cat", "l")["stdout"] == b"1\n"
    for name in ("s.tar.gz", "s.tar.zst"):
        serve.run(sb, "sh", "-c", "echo 2 >n")
        assert serve.ask("restore", sandbox=sb, file=str(ws / name))["files"] == 3
        assert serve.run(sb, "sh", "-c", "cat l; stat -c %a d; ls")["stdout"] == b"1\n750\nd\nl\n"
    (ws / "bad.tar.gz").write_bytes(b"no archive")
    assert serve.ask("restore", sandbox=sb, file=str(ws / "bad.tar.gz"))["error"]["type"] == "option"
    assert serve.ask("restore", sandbox=sb, file=str(ws / "none"))["error"]["type"] == "not_found"
    assert serve.ask("snapshot", sandbox=sb, file=str(ws / "x.zip"))["error"]["option"] == "file"
    assert listed(serve, sb) == ["d", "d/f", "l"], "a restore that fails changes nothing"
    assert not [p for p in ws.iterdir() if p.name not in ("s.tar.gz", "s.tar.zst", "bad.tar.gz")]
    serve.ask("close", sandbox=sb)
    assert serve.run(copy, "cat", "l")["stdout"] == b"1\n"
    serve.ask("close", sandbox=copy)


# ---- sandboxes ----

def test_close(serve):
    sb = serve.open()
    calls = [serve.request("run", sandbox=sb, argv=["sleep", "600"]) for _ in range(3)]
    kept = serve.request("start", sandbox=sb, argv=["true"])
    serve.wait_event(kept, "ended")
    serve.wait_event(calls[2], "started")
    assert "error" not in serve.ask("close", sandbox=sb)
    assert [serve.answer(n)["outcome"]["fault"]["type"] for n in calls] == ["cancelled"] * 3
    assert serve.ask("run", sandbox=sb, argv=["true"])["error"]["type"] == "closed"
    assert serve.ask("close", sandbox=sb)["error"]["type"] == "closed"
    assert serve.ask("wait", call=kept)["error"]["type"] == "not_found"


def test_a_sandbox_that_cant_run(serve):
    done = serve.ask("open", options={"image": "cloche.invalid/none:1", "pull": "never"})
    assert done["fault"]["type"] == "startup_failed" and done["fault"]["stage"] == "image"
    sb = done["sandbox"]
    assert serve.run(sb, "true")["fault"] == done["fault"] and serve.run(sb, "true")["exit_code"] is None
    assert serve.ask("write_file", b"x", sandbox=sb, path="f")["size"] == 1 and read(serve, sb, "f") == b"x"
    serve.ask("close", sandbox=sb)


def test_info(serve, sandbox):
    of = serve.ask("info", sandbox=sandbox)
    assert of["options"]["memory_mb"] == 512 and of["fault"] is None and of["image"] is None
    assert quiet(serve)


def test_setup(image):
    with setups.directory() as path:
        home = setups.Home(path)
        home.fill(image("busybox"))
        check_setup({**boxlib.base_env(), **home.env})


def check_setup(env):
    with serving.Serve(env=env) as s:
        sb = s.open(image="small", pull="never")
        before = s.request("start", sandbox=sb, argv=["sh", "-c", "echo old >old; read x; cat new; ls /opt/made"], stdin=True)
        s.answer(before)
        done = s.ask("setup", sandbox=sb, command="mkdir -p /opt && echo 1 >/opt/made")
        assert done["fault"] is None and done["layer"] and not done["found"], done
        made = s.run(sb, "sh", "-c", "cat /opt/made old; echo new >new")
        assert made["stdout"] == b"1\nold\n" and made["limits"]["workspace_max"]["rung"] == "tmpfs", made
        s.ask("stdin", b"\n", call=before)
        old = s.result(s.request("wait", call=before))
        assert old["exit_code"] == 1, "what ran already has the old root"
        assert old["stdout"] == b"new\n", "the workspace is the same one"
        below = {p: boxlib.children_of(p) for p, name in boxlib.children_of(s.p.pid).items() if name == "cloche"}
        (holds,) = [p for p, names in below.items() if spawner.HOLDER in names.values()]
        assert boxlib.wait_for(lambda: list(boxlib.children_of(holds).values()) == [spawner.HOLDER]), "and keeps no boxes ready"
        done = s.ask("setup", sandbox=sb, command="echo some words; echo the reason >&2; exit 3")
        assert done["fault"]["stage"] == "setup" and "the reason" in done["fault"]["message"] and "some words" in done["fault"]["output"]
        assert s.run(sb, "cat", "/opt/made")["stdout"] == b"1\n", "a failed one changes nothing"
        again = s.open(image="small", pull="never", setup="mkdir -p /opt && echo 1 >/opt/made")
        assert s.run(again, "cat", "/opt/made")["stdout"] == b"1\n"
        failed = s.ask("open", options={"image": "small", "pull": "never", "setup": "exit 9"})
        assert failed["fault"]["type"] == "startup_failed" and failed["fault"]["stage"] == "setup"
        n = s.request("setup", sandbox=sb, command="sleep 600")
        s.wait_event(n, "progress")
        assert s.ask("setup", sandbox=sb, command="true")["error"]["type"] == "busy"
        assert "error" not in s.ask("cancel", call=n) and s.answer(n)["error"]["type"] == "cancelled"
