"""`cloche spawn`: the boxes of a sandbox are those of `cloche run`, and their keepers obey and die as one `cloche` does."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import uuid

import pytest

import boxlib
import spawner
from spawner import Spawner

MOUNT = "import ctypes; print('trying', flush=True); ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None); print('went on')"
EAT = "b = bytearray(96 << 20); import time; time.sleep(60)"

ENDINGS = [
    ((), ("true",), None),
    ((), ("sh", "-c", "echo out; echo err >&2; exit 7"), None),
    ((), ("sh", "-c", "exit 137"), None),
    ((), ("sh", "-c", "kill -TERM $$"), None),
    ((), ("sh", "-c", "kill -KILL $$"), "killed"),
    ((), ("no-such-command-here",), "exec_failed"),
    ((), ("/usr",), "exec_failed"),
    (("-w", "/no/such/place"), ("pwd",), "startup_failed"),
    (("--memory", "64m", "--pids", "9", "--cpus", "1", "--ulimit", "stack=1048576"), ("python3", "-c", EAT), "oom"),
    (("--timeout", "2s"), ("sh", "-c", "echo so far; sleep 300"), "timeout"),
    ((), ("python3", "-c", MOUNT), "escape_blocked"),
    (("--seccomp-rule", "deny=sync", "--read-only"), ("python3", "-c", "import os; os.sync()"), None),
    (("--security-profile", "untrusted"), ("sh", "-c", "cat /proc/self/status | grep -c Seccomp; touch /x"), None),
]


@pytest.fixture(scope="module")
def plain(leftovers):
    with Spawner() as s:
        yield s


def marked(mark):
    return boxlib.wait_for(lambda: boxlib.find_marked(mark))


def none_marked(mark):
    return boxlib.wait_for(lambda: not boxlib.find_marked(mark))


def without_pids(outcome):
    """Without the host's numbers, and what is measured."""
    o = dict(outcome)
    o["denied"] = [{k: v for k, v in d.items() if k != "pid"} for d in o["denied"]]
    o["usage"] = set(o["usage"])
    o.pop("duration_ms")
    if o["fault"] and o["fault"]["type"] == "escape_blocked":
        o["fault"] = dict(o["fault"], message="")
    if o["fault"] and o["fault"]["type"] == "oom":
        o["fault"] = dict(o["fault"], message="", filled_by="")
    return o


@pytest.mark.parametrize("options,argv,fault", ENDINGS, ids=lambda v: " ".join(v)[:30] if isinstance(v, tuple) else v)
def test_an_outcome_is_that_of_cloche_run(box, options, argv, fault):
    want = box(*options, *argv).o
    with Spawner(*options) as s:
        c = s.run(*argv)
    assert (c.out, c.err, c.fault) == (want.out, want.err, fault)
    streams = {"stdout", "stderr", "stdout_b64", "stderr_b64", "truncated", "stdout_cut", "stderr_cut"}
    assert without_pids(c.outcome) == without_pids({k: v for k, v in want.items() if k not in streams})


def test_boxes_of_one_sandbox_share_nothing(plain):
    names = " ".join(f"/proc/self/ns/{n}" for n in ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup"))
    first = plain.call("sh", "-c", f"echo x >/tmp/f; echo y >$HOME/f; cat /tmp/f $HOME/f; readlink {names}; sleep 300")
    assert first.until(lambda: first.out.count("\n") == 9), first.out
    second = plain.run("sh", "-c", f"cat /tmp/f $HOME/f; exec readlink {names}")
    assert second.err.count("No such file") == 2 and len(second.out.split()) == 7
    assert first.out.startswith("x\ny\n") and not set(first.out.split()) & set(second.out.split())
    first.cancel()
    first.wait()


def test_environment_and_directory_of_a_call():
    with Spawner("-e", "A=sandbox", "-e", "B=sandbox", "-w", "/usr") as s:
        c = s.run("sh", "-c", "echo $A $B $C; pwd", env={"B": "call", "C": "a\nb"}, cwd="/usr/bin")
        assert c.out == "sandbox call a b\n/usr/bin\n"
        assert s.run("sh", "-c", "echo $A $B $C; pwd").out == "sandbox sandbox\n/usr\n"
        c = s.run("true", env={"1X": "no"})
        assert c.fault == "startup_failed" and "env" in c.outcome["fault"]["message"], c.outcome
        assert s.run("true", cwd="relative").fault == "startup_failed"


def test_a_deadline_of_the_calls_own():
    with Spawner("--timeout", "300ms") as s:
        slow = s.call("sh", "-c", "sleep 1; echo done", timeout=0)
        assert s.run("sleep", "300").fault == "timeout"
        assert s.run("sleep", "300", timeout=0.2).outcome["limits"]["timeout"]["effective"] == 200000
        assert slow.wait().out == "done\n"


def test_what_waited_is_told(plain):
    assert plain.run("true", queued_us=1234).outcome["usage"]["queued_us"] == 1234


# Streams

def test_stdin(plain):
    assert plain.run("cat", stdin=b"a line\n" * 1000).out == "a line\n" * 1000
    assert plain.run("cat").out == ""
    c = plain.call("sh", "-c", "read x; echo got $x; cat", pty=None, stdin=None)
    assert c.wait().out == "got\n"


def test_streams_are_the_commands_own(plain):
    """Nobody copies, and their names can be opened."""
    c = plain.run("sh", "-c", "echo a >/dev/stdout; echo b >/dev/stderr; readlink /proc/self/fd/1; cat /dev/stdin; ls /proc/self/fd", stdin=b"in\n")
    lines = c.out.split()
    assert c.err == "b\n" and lines[0] == "a" and lines[1].startswith("pipe:[") and lines[2:] == ["in", "0", "1", "2", "3"]  # 3 is ls's own


def test_a_reader_who_stalls_holds_up_neither_deadline_nor_others(plain):
    c = plain.call("sh", "-c", "yes", timeout=0.5)
    assert plain.run("echo", "other").out == "other\n"
    end = time.monotonic() + boxlib.HANG
    while not c.outcome and time.monotonic() < end:  # only its control is read
        data, fds = spawner.take(c.control)
        if data[0] == spawner.OUTCOME:
            c.outcome = spawner.read_json(fds[0])
    assert c.fault == "timeout"
    c.drop()


def test_output_written_before_the_end_is_there_at_the_end(plain):
    for _ in range(20):
        assert plain.run("sh", "-c", "(echo child; echo x >&2) & wait; echo parent").out == "child\nparent\n"


def test_a_terminal(plain):
    c = plain.call("sh", "-c", "stty size; tty <&2; echo $TERM; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.1; done",
                   pty=(33, 101))
    assert c.until(lambda: "ready" in c.out), c.out
    c.resize(44, 202)
    c.wait()
    assert c.out.split("\r\n") == ["33 101", "/dev/pts/0", "xterm", "ready", "44 202", ""] and c.outcome["exit_code"] == 3


def test_a_terminal_is_typed_into(plain):
    c = plain.call("sh", "-c", "read x; echo got $x; cat >/dev/null; echo end", pty=(24, 80))
    os.write(c.input, b"hello\n")
    assert c.until(lambda: "got hello" in c.out), c.out
    c.close_input()  # typed as the end of input
    assert c.wait().out.endswith("end\r\n")


# Orders

def test_cancel(plain):
    mark = boxlib.seconds()
    c = plain.call("sh", "-c", f"setsid sleep {mark} & sleep {mark}")
    assert c.until(lambda: c.started) and marked(mark)
    c.cancel()
    c.wait()
    assert c.fault == "cancelled" and not boxlib.find_marked(mark)


@pytest.mark.parametrize("delay", [0, 0.001, 0.003, 0.006])
def test_cancel_at_any_moment(plain, delay):
    mark = boxlib.seconds()
    for _ in range(5):
        c = plain.call("sleep", mark)
        time.sleep(delay)
        c.cancel()
        assert c.wait().fault == "cancelled" and not boxlib.find_marked(mark)


def test_signals(plain):
    script = "trap 'echo asked; exit 9' TERM; trap 'echo one' USR1; echo ready; while :; do sleep 0.05; done"
    c = plain.call("sh", "-c", script)
    assert c.until(lambda: "ready" in c.out)
    c.signal(signal.SIGUSR1)
    assert c.until(lambda: "one" in c.out)
    c.signal(signal.SIGTERM)
    assert c.wait().out == "ready\none\nasked\n" and c.outcome["exit_code"] == 9 and c.fault is None


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_was_asked_for_is_no_fault(plain, sig):
    c = plain.call("sleep", "300")
    assert c.until(lambda: c.started)
    c.signal(sig)
    c.wait()
    assert (c.fault, c.outcome["signal"], c.outcome["exit_code"]) == (None, sig, 128 + sig)


def test_a_port_of_the_box(plain):
    serve = ("import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
             "while True:\n c, _ = s.accept(); c.sendall(b'from inside: ' + c.recv(100)); c.close()")
    c = plain.call("python3", "-c", serve)
    assert c.until(lambda: c.out.endswith("\n"))
    port = int(c.out)
    for word in (b"one", b"two"):
        with c.connect(port) as s:
            s.setblocking(True)
            s.sendall(word)
            assert s.recv(100) == b"from inside: " + word
    assert c.connect(1) == 111  # refused: nobody listens there
    with socket.socket() as own:  # the control: from outside there is nobody
        assert own.connect_ex(("127.0.0.1", port)) != 0
    c.cancel()
    assert c.wait().fault == "cancelled"


def test_side_by_side(plain):
    calls = [plain.call("sh", "-c", f"echo {i}; read x; echo $x", stdin=None, pty=None) for i in range(3)]
    assert [c.wait().out for c in calls] == [f"{i}\n\n" for i in range(3)]
    began = time.monotonic()
    calls = [plain.call("sh", "-c", f"echo {i}; sleep 2") for i in range(8)]
    assert all(c.until(lambda c=c: c.started) for c in calls)
    alive = len(plain.busy())
    assert [c.wait().out for c in calls] == [f"{i}\n" for i in range(8)]
    assert alive == 8 or time.monotonic() - began > 2


# Code

def test_code_of_every_language(plain):
    for language, code, out in [("python", "import sys; print(sys.argv, sys.path[0], __name__, sorted(k for k in globals() if '_' not in k))",
                                 "['-c']  __main__ ['sys']\n"),
                                ("bash", "a=(1 2); echo ${a[1]} $0; cat", "2 bash\n"), ("sh", "echo $0 $#; cat; ls /proc/self/fd", "sh 0\n0\n1\n2\n3\n")]:
        c = plain.code(code, language)
        assert (c.out, c.fault, c.outcome["exit_code"]) == (out, None, 0), c.err
    assert plain.code("exit 3", "bash").outcome["exit_code"] == plain.code("exit 3", "sh").outcome["exit_code"] == 3
    assert plain.code("raise SystemExit(4)").outcome["exit_code"] == 4
    assert plain.code("").outcome["exit_code"] == 0
    assert plain.code("import sys; print(sys.stdin.read())", stdin=b"text").out == "text\n"


def test_code_of_node(plain):
    if plain.run("node", "-e", "").fault == "exec_failed":
        pytest.skip("needs node")
    c = plain.code("const x = require('os').type(); console.log(x, __filename, process.argv.length)", "node")
    assert c.out == "Linux [eval] 1\n", c.err
    c = plain.code("function f() {\n  throw new Error('no')\n}\nf()", "node")
    assert c.outcome["exit_code"] == 1 and "<code>:2" in c.err and "at f (<code>:2:9)" in c.err and "[eval]" not in c.err, c.err
    assert plain.code("process.exit(5)", "node").outcome["exit_code"] == 5


def test_a_traceback_begins_in_the_code(plain):
    c = plain.code("def f():\n    return 1 / 0\n\nf()\n")
    assert c.outcome["exit_code"] == 1
    lines = c.err.splitlines()
    assert lines[:4] == ["Traceback (most recent call last):", '  File "<code>", line 4, in <module>', "    f()", '  File "<code>", line 2, in f'], c.err
    assert lines[4] == "    return 1 / 0" and lines[-1] == "ZeroDivisionError: division by zero" and "_run" not in c.err
    c = plain.code("x = (1\n")
    assert c.err.startswith('  File "<code>", line 1\n    x = (1\n'), c.err
    c = plain.code("import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()")
    assert "    1 / 0\n" in c.err, c.err
    c = plain.code("import sys\nsys.excepthook = lambda kind, error, trace: print(kind.__name__, trace.tb_frame.f_code.co_filename)\n1 / 0")
    assert c.out == "ZeroDivisionError <code>\n"
    c = plain.code("import os, signal\nos.kill(os.getpid(), signal.SIGINT)")
    assert (c.outcome["signal"], c.fault) == (signal.SIGINT, None) and "KeyboardInterrupt" in c.err


def test_code_has_a_name_of_its_own(plain):
    """Whatever Python did before the code's first line: only that line's own frame takes the name, and nothing of ours goes on."""
    c = plain.code("import sys, inspect\ndef f():\n    return lambda: 1\nprint(sys._getframe().f_code.co_filename, f().__code__.co_filename, sys.gettrace())\n"
                   "print(inspect.getsource(f), end='')")
    assert c.out == "<code> <code> None\ndef f():\n    return lambda: 1\n", c.err
    c = plain.code("x = 1\nif x is 1:\n    import linecache\n    print(repr(linecache.getline('<code>', 1)))\n1 / 0")  # a warning runs Python's own code first
    assert c.out == "'x = 1\\n'\n" and ":2: SyntaxWarning" in c.err and '  File "<code>", line 5, in <module>\n    1 / 0\n' in c.err, c.err
    c = plain.code("exec('def f():\\n  1 / 0')\nf()")
    assert '  File "<code>", line 2, in <module>\n    f()\n' in c.err and c.err.endswith('in f\nZeroDivisionError: division by zero\n'), c.err
    for code, said in [(b"# coding: latin-1\nprint(ascii('\xe9'))", "'\\xe9'\n"), (b"\xef\xbb\xbfprint(ascii('\xc3\xa9'))", "'\\xe9'\n"),
                       (b"import sys\nsys.exit()", ""), (b"if 1:\r\n    print(2)\r\n", "2\n")]:
        c = plain.run(code=code, language="python")
        assert (c.out, c.err, c.outcome["exit_code"]) == (said, "", 0)
    for code, said in [(b"print(1)\0", "null bytes"), (b"# coding: nonsense\n", "nonsense"), (b"print('\xff')", "utf-8")]:
        c = plain.run(code=code, language="python")
        assert (c.out, c.outcome["exit_code"]) == ("", 1) and said in c.err and "_run" not in c.err and "argv" not in c.err, c.err


def everything_said(pid):
    """What anybody on the host may read of a process and those below it."""
    text = b""
    for p in [pid, *boxlib.children_of(pid)]:
        for name in ("cmdline", "comm"):
            try:
                with open(f"/proc/{p}/{name}", "rb") as f:
                    text += f.read()
            except OSError:
                continue
    return text


@pytest.mark.parametrize("language,code", [("python", "# {}\nprint('up', flush=True)\nimport time; time.sleep(300)"),
                                           ("bash", "# {}\necho up; sleep 300")])
def test_code_is_in_no_words_and_in_no_file(ws, language, code):
    mark = "secret" + uuid.uuid4().hex
    with Spawner("--workspace", ws, "-v", f"{ws}:/run/x") as s:
        c = s.call(code=code.format(mark).encode(), language=language)
        assert c.until(lambda: "up" in c.out), c.err
        assert mark.encode() not in everything_said(s.p.pid)
        if boxlib.IS_ROOT:  # of the file, only the box's memory knows
            seen = set()
            for pid in boxlib.children_of(s.p.pid):  # one that was built ahead has none yet
                with contextlib.suppress(OSError):
                    seen.update(os.listdir(f"/proc/{pid}/root/dev/cloche"))
            assert seen == (set() if language == "python" else {"code"})
        c.cancel()
        c.wait()
        control = s.call("sh", "-c", f": {mark}; echo up; sleep 300; :")
        assert control.until(lambda: "up" in control.out) and mark.encode() in everything_said(s.p.pid)
        control.cancel()
        control.wait()
    assert not list(ws.iterdir())


def test_an_interpreter_that_is_not_there(box, probe, tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    os.chmod(tmp_path, 0o755)
    for language, name in zip(spawner.LANGUAGES, ("python3", "bash", "sh", "node")):
        with Spawner("--rootfs", root) as s:
            c = s.code("1", language)
        assert c.fault == "exec_failed" and c.outcome["exit_code"] == 127
        assert f"no command {name} in image {root}" in c.outcome["fault"]["message"]


def test_changed_files(ws):
    (ws / "old").write_text("old")
    with Spawner("--workspace", ws) as s:
        c = s.run("sh", "-c", "echo new > new; mkdir d; mv old d/moved", track=True)
        files = {f["path"]: f["change"] for f in c.files["files"]}
        assert files == {"new": "created", "d/moved": "renamed"} and c.files["cut"] == 0, c.files
        assert s.run("true", track=True).files == {"files": [], "cut": 0}
        assert s.run("sh", "-c", "echo more >>new").files is None


# What can't be

@pytest.mark.parametrize("options,option", [(("--memory", "lots"), "memory"), (("--no-such", "1"), "no-such"), (("--tty",), "tty"),
                                            (("--json",), "json"), (("--shm-size", "0"), "shm-size")])
def test_a_wrong_option_is_named(options, option):
    with Spawner(*options, ready=False) as s:
        assert s.kind == spawner.FAILED and s.hello["err"] == spawner.ERR_USAGE, s.hello
        assert option in s.hello["msg"] and s.hello["option"] in (option, ""), s.hello
    with Spawner("--memory", "64m"):
        pass


def test_a_refused_mount_names_its_rule(ws):
    with Spawner("-v", "/:/host", ready=False) as s:
        assert s.kind == spawner.FAILED and s.hello["err"] == spawner.ERR_REFUSED and s.hello["rule"], s.hello
        assert s.hello["facts"]["denied"][0]["policy"] == s.hello["rule"]
    with Spawner("-v", f"{ws}:/host"):
        pass


def test_an_image_that_is_not_there_is_an_outcome():
    with Spawner("--image", "local/none-of-this-name", "--pull", "never", ready=False) as s:
        assert s.kind == spawner.FAILED and s.hello["err"] != spawner.ERR_USAGE
        fault = s.hello["facts"]["fault"]
        assert fault["type"] == "startup_failed" and fault["stage"] == "image" and fault["message"] == s.hello["msg"]


def test_words_that_could_change_are_refused(plain):
    c = plain.run("true", unsealed=True)
    assert c.fault == "startup_failed" and "sealed" in c.outcome["fault"]["message"]
    for words in (b"", b"\0" * 11, b"\xff" * 40, spawner.words(["true"])[:-1], spawner.words(["true"]) + b"x", spawner.words([])):
        assert plain.run(raw_words=words).fault == "startup_failed"
    assert plain.run(raw_words=spawner.words(["true"])).fault is None


@pytest.mark.parametrize("message", [b"x", b"\0" * 32, b"\x03\0\0\0" + b"\xff" * 28])
def test_what_is_no_call_ends_the_sandbox(message):
    with Spawner() as s:
        s.sock.send(message)
        assert s.p.wait(boxlib.HANG) == 0


def below(pid):
    return set(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def zombies_of(pid):
    return {p for p in below(pid) if pathlib.Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[0] == "Z"}


def test_no_call_leaves_a_zombie_to_whoever_is_above():
    """This process is a subreaper that reaps nothing by itself, as the first process of many a container."""
    before = below(os.getpid())  # one that another test left may end meanwhile
    with Spawner() as s:
        for _ in range(10):
            assert s.run("true").outcome["exit_code"] == 0
    assert zombies_of(os.getpid()) <= before
    # The control: an orphan of a process that is no subreaper.
    orphan = subprocess.run(["sh", "-c", "sleep 0.1 >&- & echo $!"], capture_output=True, text=True, check=True).stdout.strip()
    assert boxlib.wait_for(lambda: orphan in zombies_of(os.getpid()))
    os.waitpid(int(orphan), 0)
