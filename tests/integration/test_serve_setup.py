"""A set-up of a session (docs/PROTOCOL.md): what the client is told while it runs, of the download before it and of the command."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import textwrap
import threading
import uuid

import boxlib
import pytest
import registry
import serving
import setups

BIN = pathlib.Path(boxlib.CLOCHE).resolve().parent
FINISH = 7


@pytest.fixture(scope="module")
def home():
    with setups.directory() as path:
        yield setups.Home(path)


@pytest.fixture(scope="module")
def serve(home, leftovers):
    with serving.Serve(env={**boxlib.base_env(), **home.env}) as s:
        yield s


def printed(serve, n, name):
    return b"".join(p for head, p in serve.events.get(n, ()) if head["event"] == name)


def phases(serve, n):
    return [head["phase"] for head, _ in serve.events[n] if head["event"] == "progress"]


COMMAND = "printf 'a\\377b\\n'; echo words >&2; ls /proc/self/fd; echo 'X = 1' >/opt/deps/%s.py"


def test_live_output_of_open_and_setup(serve):
    n = serve.request("open", options={"setup": COMMAND % "one"}, stream=True)
    done = serve.answer(n)
    assert done["fault"] is None, done
    # The descriptors that it is told over are not the command's.
    assert printed(serve, n, "stdout") == b"a\xffb\n0\n1\n2\n3\n" and printed(serve, n, "stderr") == b"words\n"
    assert phases(serve, n) == ["setup", "keep"] and serve.events[n][-1][0]["event"] == "done"
    sb = done["sandbox"]
    m = serve.request("setup", sandbox=sb, command=COMMAND % "two", stream=True)
    assert serve.answer(m)["fault"] is None and printed(serve, m, "stdout") == printed(serve, n, "stdout") and phases(serve, m) == ["setup", "keep"]
    # It comes while the command runs, not after it.
    m = serve.request("setup", sandbox=sb, command="echo up; sleep 600", stream=True)
    assert serve.wait_event(m, "stdout")[1] == b"up\n"
    assert "error" not in serve.ask("cancel", call=m) and serve.answer(m)["error"]["type"] == "cancelled"
    assert serve.code(sb, "import one, two; print(one.X + two.X)")["stdout"] == b"2\n"


def said_in_words(mark):
    found = []
    for p in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if p.isdigit() and mark in pathlib.Path("/proc", p, "cmdline").read_bytes():
                found.append(p)
    return found


def test_a_cancelled_one_is_gone_when_that_is_told(serve):
    mark = uuid.uuid4().hex
    sb = serve.ask("open")["sandbox"]
    m = serve.request("setup", sandbox=sb, command=f": {mark}; trap '' TERM INT HUP; echo up; while :; do sleep 0.2; done", stream=True)
    assert serve.wait_event(m, "stdout")[1] == b"up\n" and said_in_words(mark.encode()), "no control"
    assert "error" not in serve.ask("cancel", call=m) and said_in_words(mark.encode()) == []
    assert serve.answer(m)["error"]["type"] == "cancelled" and "error" not in serve.ask("close", sandbox=sb)


def test_one_of_a_session_that_is_killed_is_gone_with_it(leftovers, home):
    """It prints nothing by which it could notice."""
    mark = uuid.uuid4().hex
    with serving.Serve(env={**boxlib.base_env(), **home.env}) as s:
        m = s.request("setup", sandbox=s.open(), command=f": {mark}; trap '' TERM INT HUP; echo up; while :; do sleep 0.2; done", stream=True)
        assert s.wait_event(m, "stdout")[1] == b"up\n"
        boxlib.STARTED.update(of_its_own(s, b"setup"))
        assert said_in_words(mark.encode()), "no control"
        s.kill()
        assert boxlib.wait_for(lambda: said_in_words(mark.encode()) == [])
    assert boxlib.cloche("gc", env=home.env).rc == 0


def of_its_own(serve, verb):
    """The children of the session that run this verb."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parent = int(pathlib.Path("/proc", p, "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
            words = pathlib.Path("/proc", p, "cmdline").read_bytes().split(b"\0")
            if parent == serve.p.pid and words[1:2] == [verb]:
                found.append(int(p))
    return found


def waiting(pid):
    """Signals that the process was sent and has not taken."""
    said = re.search(r"^ShdPnd:\t(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return {s for s in (signal.SIGTERM, signal.SIGINT) if int(said[1], 16) >> (s - 1) & 1}


def test_who_makes_it_is_asked_and_not_killed(serve):
    """It ends its box before it ends: the death of both at once would be told before the box is gone."""
    sb = serve.ask("open")["sandbox"]
    m = serve.request("setup", sandbox=sb, command="trap '' TERM INT HUP; echo up; while :; do sleep 0.2; done", stream=True)
    assert serve.wait_event(m, "stdout")[1] == b"up\n"
    maker, = of_its_own(serve, b"setup")
    os.kill(maker, signal.SIGSTOP)
    try:
        assert waiting(maker) == set()
        c = serve.request("cancel", call=m)
        assert boxlib.wait_for(lambda: waiting(maker) == {signal.SIGTERM, signal.SIGINT})
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(maker, signal.SIGCONT)
    assert "error" not in serve.answer(c) and serve.answer(m)["error"]["type"] == "cancelled"
    assert of_its_own(serve, b"setup") == [] and "error" not in serve.ask("close", sandbox=sb)


def test_close_ends_it(serve):
    mark = uuid.uuid4().hex
    sb = serve.ask("open")["sandbox"]
    m = serve.request("setup", sandbox=sb, command=f": {mark}; trap '' TERM INT HUP; echo up; while :; do sleep 0.2; done", stream=True)
    assert serve.wait_event(m, "stdout")[1] == b"up\n" and said_in_words(mark.encode()), "no control"
    assert "error" not in serve.ask("close", sandbox=sb) and serve.answer(m)["error"]["type"] == "closed"
    assert of_its_own(serve, b"setup") == [] and boxlib.wait_for(lambda: said_in_words(mark.encode()) == [])


def test_the_commands_variables_are_its_own(leftovers, home):
    """They say nothing to the programs that make the layer: not where it is kept, nor what a loader is to load. Nor do the session's own say anything
    to the command, by whatever names."""
    elsewhere = home.home / "elsewhere"
    says = {"CLOCHE_HOME": str(elsewhere), "XDG_DATA_HOME": str(elsewhere), "LD_LIBRARY_PATH": str(elsewhere), "MANY": "a\nb = c"}
    with serving.Serve(env={**boxlib.base_env(), **home.env, "CLOCHE_SETUP_ENV_PLANTED": "1"}) as s:
        done = s.ask("open", options={"env": says, "setup": "printenv -0 >/opt/deps/env"})
        assert done["fault"] is None, done
        got = s.run(done["sandbox"], "cat", "/opt/deps/env")["stdout"].decode().split("\0")
    assert {f"{k}={v}" for k, v in says.items()} <= set(got) and not any("SETUP_ENV" in v or "PLANTED" in v for v in got)
    assert not elsewhere.exists()


def test_none_unless_asked(serve):
    sb = serve.open()
    n = serve.request("setup", sandbox=sb, command=COMMAND % "three")
    assert serve.answer(n)["fault"] is None and not printed(serve, n, "stdout") and phases(serve, n) == ["setup", "keep"]
    n = serve.request("open", options={"setup": COMMAND % "three"}, stream=True)
    assert serve.answer(n)["fault"] is None and not phases(serve, n) and not printed(serve, n, "stdout"), "it was there"


def test_the_end_of_the_output_is_in_the_fault(serve):
    sb = serve.open()
    for command in ("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; printf 'the\\0 \\377end'; exit 3",
                    "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo 'the\ufffd \u00e4end'; exit 3"):
        for stream in (False, True):
            n = serve.request("setup", sandbox=sb, command=command, stream=stream)
            fault = serve.answer(n)["fault"]
            assert fault["stage"] == "setup" and 4000 < len(fault["output"]) <= 4096 and fault["output"].rstrip().endswith("end"), fault
            assert "code 3: the" in fault["message"] and bool(printed(serve, n, "stdout")) == stream


def test_who_does_not_take_it_holds_it_up(home):
    """Bounded by the window, alone, and ended all the same."""
    with serving.Serve(env={**boxlib.base_env(), **home.env}, ack=True) as s:
        sb = s.open()
        n = s.request("setup", sandbox=sb, command="head -c 3000000 /dev/zero; echo 'X = 4' >/opt/deps/four.py", stream=True)
        assert boxlib.wait_for(lambda: len(printed(s, n, "stdout")) == 1 << 20)
        assert s.run(sb, "echo", "others go on")["stdout"] == b"others go on\n"
        assert len(printed(s, n, "stdout")) == 1 << 20
        acked = 0
        while acked < 3000000:
            assert boxlib.wait_for(lambda: len(printed(s, n, "stdout")) > acked)
            have = len(printed(s, n, "stdout"))
            s.request("ack", call=n, size=have - acked)
            acked = have
        assert s.answer(n)["fault"] is None
        n = s.request("open", options={"setup": "head -c 3000000 /dev/zero; exit 1"}, stream=True)
        assert boxlib.wait_for(lambda: len(printed(s, n, "stdout")) == 1 << 20)
        s.request("ack", call=n, size=1 << 20)
        assert boxlib.wait_for(lambda: len(printed(s, n, "stdout")) == 2 << 20)
        assert "error" not in s.ask("cancel", call=n) and s.answer(n)["error"]["type"] == "cancelled"
        # The command has ended, and the rest of its output waits: that ends, too.
        for how in ("cancel", "close"):
            n = s.request("setup", sandbox=sb, command=f"head -c 1100000 /dev/zero; : >/opt/deps/{how}", stream=True)
            assert boxlib.wait_for(lambda: len(printed(s, n, "stdout")) == 1 << 20)
            if how == "cancel":
                assert "error" not in s.ask("cancel", call=n) and s.answer(n)["error"]["type"] == "cancelled"
                assert s.code(sb, "print(1)")["stdout"] == b"1\n"
            else:
                assert "error" not in s.ask("close", sandbox=sb) and s.answer(n)["error"]["type"] == "closed"
        assert s.close() == 0


TRUSTING = """\
    #!/bin/sh
    echo "$*" >>"$CALLS"
    case $1 in pull) shift; set -- pull --insecure "$@" ;; esac
    exec REAL "$@"
    """


@pytest.fixture
def trusting(ws):
    """cloche with a cloche-image that takes the registry of a test, which no option of a session can say. Returns the program."""
    for name in ("cloche", "cloche-serve"):
        shutil.copy(BIN / name, ws / name)
    (ws / "cloche-image").write_text(textwrap.dedent(TRUSTING).replace("REAL", str(BIN / "cloche-image")))
    (ws / "cloche-image").chmod(0o755)
    return ws / "cloche"


def test_the_download_before_it(image, ws, trusting):
    """Its progress is told, and what `open` says of it holds for it: pull, image_timeout_s."""
    with setups.directory() as path, registry.Faulty() as far:
        ref, calls = far.serve(image("busybox"), "team/pulled:1"), ws / "calls"
        env = {**boxlib.base_env(), **setups.Home(path).env, "CALLS": str(calls)}
        with serving.Serve(env=env, program=trusting) as s:
            wanted = {"image": ref, "setup": "echo in; mkdir -p /opt; echo 1 >/opt/made", "image_timeout_s": 77.5, "pyc_cache": False}
            never = s.ask("open", options={**wanted, "pull": "never"})
            assert never["fault"]["type"] == "startup_failed" and "; pull never does" in never["fault"]["message"] and not calls.exists()
            n = s.request("open", options=wanted, stream=True)
            done = s.answer(n)
            assert done["fault"] is None, done
            told = phases(s, n)
            assert told[0] == "resolve" and {"download", "unpack", "publish"} <= set(told) and told[-3:] == ["done", "setup", "keep"], told
            sizes = [(head["size"], head["total"]) for head, _ in s.events[n] if head.get("phase") == "download" and "total" in head]
            assert sizes and all(0 <= a <= b and b > 0 for a, b in sizes)
            assert calls.read_text() == f"pull --timeout 77.5 --json {ref}\n" and printed(s, n, "stdout") == b"in\n"
            assert s.run(done["sandbox"], "cat", "/opt/made")["stdout"] == b"1\n"


def test_the_download_of_open_itself(image, ws, trusting):
    with setups.directory() as path, registry.Faulty() as far:
        ref = far.serve(image("busybox"), "team/pulled:1")
        with serving.Serve(env={**boxlib.base_env(), **setups.Home(path).env, "CALLS": str(ws / "calls")}, program=trusting) as s:
            n = s.request("open", options={"image": ref})
            assert s.answer(n)["fault"] is None and phases(s, n)[0] == "resolve" and phases(s, n)[-1] == "done"
            assert all(isinstance(head.get("text", ""), str) and set(head) <= {"id", "event", "phase", "text", "size", "total"}
                       for head, _ in s.events[n] if head["event"] == "progress")
            # One that hangs is given up in its own time, and says so.
            over = threading.Event()
            far.rule = lambda q: over.wait(boxlib.HANG) and q.hang_up()
            fault = s.ask("open", options={"image": ref.replace(":1", ":2"), "image_timeout_s": 0.3})["fault"]
            over.set()
            assert fault["type"] == "startup_failed" and fault["stage"] == "image", fault
            # In the names that options have here; no word of the program that downloads.
            assert fault["message"].startswith(f"image: {ref.replace(':1', ':2')}: ") and fault["message"].endswith("; what was downloaded is kept, "
                   "and the next pull goes on from there (or give more by image_timeout_s)") and "cloche" not in fault["message"], fault


def test_words_of_the_command_line(home, ws):
    r = boxlib.communicate([boxlib.CLOCHE, "setup", "--live", "--json", "--name", "x", "--", "true"], env={**boxlib.base_env(), **home.env})
    assert r.rc == 2 and b"--live: descriptors 3 to 5 have to be open" in r.err, r
    r = boxlib.communicate(["sh", "-c", 'exec "$0" setup --live --name x -- true 3>&1 4>&1 5>&1', str(boxlib.CLOCHE)], env={**boxlib.base_env(), **home.env})
    assert r.rc == 2 and b"--live goes with --json" in r.err, r
    files = {n: ws / n for n in "345"}
    r = boxlib.communicate(["sh", "-c", f'exec "$0" setup --live --json --name x -- sh -c "echo a; echo b >&2; exit {FINISH}" 3>3 4>4 5>5',
                            str(boxlib.CLOCHE)], env={**boxlib.base_env(), **home.env}, cwd=ws)
    assert r.rc == FINISH and json.loads(r.out)["exit_code"] == FINISH and "stdout" not in json.loads(r.out), r
    assert files["3"].read_bytes() == b"a\n" and files["4"].read_bytes() == b"b\n"
    assert [json.loads(x)["phase"] for x in files["5"].read_text().splitlines()] == ["setup"]
