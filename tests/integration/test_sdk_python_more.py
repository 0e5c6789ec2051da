"""What the Python package does beyond the scenarios: many calls at once, streams of any size, callbacks, faults that somebody outside causes, files that change
under the reader."""
import asyncio
import hashlib
import io
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import boxlib
import pytest
import sdk
import setups

MIB = 1 << 20


@pytest.fixture(scope="module")
def cloche(leftovers):
    with setups.directory() as home, sdk.in_home(home) as module:
        yield module


@pytest.fixture(scope="module")
def sbx(cloche):
    with cloche.Sandbox() as sandbox:
        yield sandbox


def at_once(calls, workers):
    """All results, in order, of calls that so many threads make."""
    results, todo, lock = [None] * len(calls), iter(range(len(calls))), threading.Lock()

    def work():
        while True:
            with lock:
                n = next(todo, None)
            if n is None:
                return
            results[n] = calls[n]()
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(boxlib.HANG * 4)
        assert not t.is_alive(), "hang guard"
    return results


def test_eight_threads_and_200_calls_on_one_sandbox(sbx):
    calls = [lambda n=n: sbx.run(["sh", "-c", f"echo {n}; echo err {n} >&2; exit {n % 7}"], env={"N": str(n)}, track_files=False) for n in range(200)]
    for n, r in enumerate(at_once(calls, 8)):
        assert (r.stdout, r.stderr, r.exit_code, r.fault) == (f"{n}\n", f"err {n}\n", n % 7, None)


def test_200_tasks_at_once_on_one_sandbox(cloche):
    """More than may run at once: the rest waits its turn."""
    async def main():
        async with cloche.AsyncSandbox(track_files=False) as sandbox:
            return await asyncio.gather(*(sandbox.run(["echo", str(n)]) for n in range(200)))
    results = asyncio.run(main())
    assert [r.stdout for r in results] == [f"{n}\n" for n in range(200)]


def test_policies_do_not_mix(cloche):
    """Sandboxes of different options at once in one session: each call has its own sandbox's, as the kernel shows it."""
    kinds = [({"user": "1001", "env": {"K": "a"}, "shm_mb": 1}, "1001 a 1024"), ({"user": "1002", "env": {"K": "b"}, "shm_mb": 2}, "1002 b 2048"),
             ({"user": "1003", "env": {"K": "c"}, "shm_mb": 3}, "1003 c 3072"), ({"user": "1004", "shm_mb": 4}, "1004  4096")]
    boxes = [cloche.Sandbox(track_files=False, **options) for options, _ in kinds]
    try:
        script = "echo $(id -u) \"$K\" $(df -k /dev/shm | awk 'END {print $2}')"
        order = [n % len(kinds) for n in range(40)]
        random.Random(1).shuffle(order)
        results = at_once([lambda n=n: boxes[n].run(["sh", "-c", script]) for n in order], 8)
        assert [r.stdout.strip() for r in results] == [" ".join(kinds[n][1].split(" ")).strip() for n in order]
    finally:
        for b in boxes:
            b.close()


def test_threads_and_asyncio_share_one_program(cloche, sbx):
    async def main():
        async with cloche.AsyncSandbox() as sandbox:
            return sandbox._work.client is sbx._work.client
    assert asyncio.run(main())
    mine = [p for p, name in boxlib.children_of(os.getpid()).items() if name == "cloche-serve"]
    assert len(mine) == 1


def test_a_slow_callback_holds_up_its_own_call_alone(sbx):
    started, go = threading.Event(), threading.Event()
    got = bytearray()

    def slow(data):
        started.set()
        go.wait(boxlib.HANG)
        got.extend(data)
    result = []
    t = threading.Thread(target=lambda: result.append(sbx.run(["head", "-c", str(20 * MIB), "/dev/zero"], on_stdout=slow)))
    t.start()
    assert started.wait(boxlib.HANG)
    for n in range(5):
        assert sbx.run(["echo", "quick"]).stdout == "quick\n"
    assert len(got) == 0 and t.is_alive()
    go.set()
    t.join(boxlib.HANG)
    assert len(got) == 20 * MIB and got.count(0) == len(got) and result[0].exit_code == 0 and not result[0].truncated


def test_a_slow_callback_does_not_put_off_the_deadline(sbx):
    """yes, whose reader sleeps: the deadline holds."""
    r = sbx.run(["yes"], timeout_s=1, on_stdout=lambda b: time.sleep(0.2), track_files=False)
    assert r.fault.type == "timeout"


def test_what_a_callback_raises_is_raised_after_the_call(sbx):
    seen = []

    def bad(data):
        seen.append(data)
        raise LookupError("mine")
    with pytest.raises(LookupError, match="mine"):
        sbx.run(["sh", "-c", "echo one; sleep 0.3; echo two; touch after"], on_stdout=bad)
    assert len(seen) == 1 and seen[0].startswith(b"one\n") and sbx.stat("after").type == "file"
    sbx.remove("after")
    process = sbx.start(["sh", "-c", "echo one; sleep 0.2; echo two"], on_stdout=bad)
    with pytest.raises(LookupError):
        process.wait()


def test_callbacks_of_the_sandbox_and_of_the_call(cloche):
    mine, other = bytearray(), bytearray()
    with cloche.Sandbox(on_stdout=mine.extend) as sandbox:
        sandbox.run(["echo", "a"])
        sandbox.run(["echo", "b"], on_stdout=None)
        sandbox.run(["echo", "c"], on_stdout=other.extend)
        sandbox.start(["echo", "d"]).wait()
        sandbox.start(["echo", "e"], on_stdout=None).wait()
        sandbox.start(["echo", "f"], on_stdout=other.extend).wait()
        with sandbox.start(["sh", "-c", "echo g; echo h"], stream=True) as p:  # then all of it is the reader's
            assert b"".join(data for _, data in p.output()) == b"g\nh\n" and p.wait().stdout == "g\nh\n"
        plain = sandbox.start(["echo", "i"])
        with pytest.raises(cloche.OptionError, match="stream=True") as why:
            next(plain.output())
        assert plain.wait().success and (why.value.option, why.value.allowed) == ("stream", "True")
    assert (mine, other) == (b"a\nd\ni\n", b"c\nf\n")

    async def main():
        got = []

        async def later(data):
            await asyncio.sleep(0.01)
            got.append(data)
        async with cloche.AsyncSandbox() as sandbox:
            await sandbox.run(["echo", "async"], on_stdout=later)
        return got
    assert asyncio.run(main()) == [b"async\n"]


def test_64_mib_on_stdin(sbx):
    """T41, as bytes, as a file, as an iterator."""
    data = random.Random(5).randbytes(64 * MIB)
    want = hashlib.sha256(data).hexdigest()
    assert sbx.run(["sha256sum"], stdin=data, timeout_s=300).stdout.split()[0] == want
    assert sbx.run(["sha256sum"], stdin=io.BytesIO(data), timeout_s=300).stdout.split()[0] == want
    assert sbx.run(["cat"], stdin=iter([data[:100], "ü", bytearray(b"x")])).stdout_bytes == data[:100] + "ü".encode() + b"x"


@pytest.mark.parametrize("option,value", [("nope", 1), ("pty", (1, 2, 3)), ("on_stdout", 5), ("on_stderr", "x"), ("id", 5), ("op", "open"),
                                          ("sandbox", 1), ("bytes", 9), ("more", True)])
def test_an_option_of_a_call_that_is_wrong(cloche, sbx, option, value):
    with pytest.raises(cloche.OptionError) as why:
        sbx.run(["true"], **{option: value})
    assert why.value.option == option and why.value.allowed
    good = {"pty": (20, 60), "on_stdout": print, "on_stderr": print}
    assert sbx.run(["true"], **{option: good[option]} if option in good else {}).success
    if option.startswith("on_"):
        with pytest.raises(cloche.OptionError) as why:
            cloche.Sandbox(**{option: value})
        assert why.value.option == option


def test_stdin_that_fails_or_is_none(cloche, sbx):
    def bad():
        yield b"x"
        raise LookupError("mine")
    with pytest.raises(LookupError):
        sbx.run(["cat"], stdin=bad())
    with pytest.raises(LookupError):
        sbx.start(["cat"], stdin=bad()).wait()
    for wrong in ([5], 5, [None]):
        with pytest.raises(cloche.OptionError) as why:
            sbx.run(["cat"], stdin=wrong)
        assert why.value.option == "stdin"
    with pytest.raises(cloche.OptionError):
        sbx.run(["cat"], stdin=True)

    async def main():
        async def parts():
            yield b"a"
            await asyncio.sleep(0.01)
            yield "b"
        async with cloche.AsyncSandbox() as sandbox:
            return (await sandbox.run(["cat"], stdin=parts())).stdout
    assert asyncio.run(main()) == "ab"


def test_the_callers_stdin_is_not_the_boxs():
    """T9: the caller's own stdin stays open; the first returns at once, those who read see its end, the deadline fires."""
    body = """
import cloche
with cloche.Sandbox() as sbx:
    print(sbx.run(["echo", "hello"]).stdout.strip(), repr(sbx.run(["cat"]).stdout), sbx.run(["sh", "-c", "read x; echo $?"]).stdout.strip(),
          repr(sbx.run_code("import sys; print(repr(sys.stdin.read()))").stdout), sbx.run(["sh", "-c", "read x; sleep 1000"], timeout_s=0.5).fault.type)
"""
    with subprocess.Popen([sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=sdk.env()) as p:
        assert p.stdout.read().split() == [b"hello", b"''", b"1", b'"\'\'\\n"', b"timeout"]
        p.stdin.close()
        assert p.wait(boxlib.HANG) == 0


def test_a_file_that_gives_nothing_does_not_keep_the_call(sbx):
    """stdin is a pipe that nobody writes to; the command does not read it."""
    a, b = os.pipe()
    with os.fdopen(a, "rb") as f:
        assert sbx.run(["echo", "hello"], stdin=f).stdout == "hello\n"
        os.close(b)


def test_a_flood_costs_the_caller_no_memory(sbx):
    """T12: yes for a while, taken or not; kept is what was asked for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = [0]

    def count(data):
        seen[0] += len(data)
    r = sbx.run(["sh", "-c", "yes | head -c 400000000"], on_stdout=count, timeout_s=120)
    assert seen[0] == 400000000 and r.truncated and len(r.stdout) == 64 * MIB and r.stdout_cut.bytes == 400000000 - 64 * MIB
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 400 * MIB, grown  # what is kept, as bytes and as text, and no more


FAULTS = {
    "gradually": ("l = []\nwhile True: l.append(bytearray(1 << 20))", "oom"),
    "in one mapping": ("import mmap\nm = mmap.mmap(-1, 200 << 20)\nfor i in range(0, 200 << 20, 4096): m[i] = 1\nimport time; time.sleep(20)", "oom"),
    "in a child": ("import subprocess, sys\n"
                   "subprocess.run([sys.executable, '-c', 'b = bytearray(200 << 20); import time; time.sleep(20)'])\nprint('went on')", "oom"),
    "exits 137": ("import sys; sys.exit(137)", None),
    "killed by itself": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
    "deadline": ("while True: pass", "timeout"),
}


@pytest.mark.parametrize("how", FAULTS)
def test_six_ends_have_six_faults(cloche, how):
    """T5"""
    code, want = FAULTS[how]
    with cloche.Sandbox(memory_mb=64) as sandbox:
        r = sandbox.run_code(code, timeout_s=1.5 if how == "deadline" else 60)
    assert (r.fault and r.fault.type) == want and r.exit_code == (124 if want == "timeout" else 137) and "went on" not in r.stdout
    if want:
        with pytest.raises(cloche.FaultError) as why:
            r.raise_for_fault()
        assert why.value.fault is r.fault and why.value.result is r and want in str(why.value)


def test_killed_from_outside(sbx):
    """T5: by somebody on this machine."""
    mark = f"99{random.randrange(10 ** 8):08d}"
    result = []
    t = threading.Thread(target=lambda: result.append(sbx.run(["sleep", mark])))
    t.start()
    found = boxlib.wait_for(lambda: [p for p in boxlib.find_marked(mark) if boxlib.comm(p) == "sleep"])
    os.kill(found[0], signal.SIGKILL)
    t.join(boxlib.HANG)
    assert (result[0].fault.type, result[0].exit_code, result[0].signal) == ("killed", 137, 9)


def test_a_file_that_is_replaced_all_the_time(cloche, tmp_path):
    """T26: the box changes a name between a file, a link out, a link to a directory, a FIFO; whoever reads gets the box's own bytes or an error, and what is
    outside stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "out").write_text("secret")
    (tmp_path / "w").mkdir()
    for p in (tmp_path, outside, tmp_path / "w"):
        p.chmod(0o755)
    code = f"""
import os, itertools
def do(call, *args):
    try: call(*args)
    except OSError: pass
for n in itertools.count():
    do(os.mkdir, "real")
    for make in (lambda p: open(p, "w").write("inside"), lambda p: os.symlink({str(outside / "out")!r}, p), os.mkfifo,
                 lambda p: open(p, "w").write("inside")):
        do(make, "tmp"); do(os.rename, "tmp", "real/out"); do(os.remove, "tmp")
    if n % 4 == 0:
        do(os.rename, "real", "kept"); do(os.symlink, {str(outside)!r}, "real"); do(os.remove, "real"); do(os.rename, "kept", "real")
    if n == 0: open("ready", "w").close()
"""
    seen = set()
    with cloche.Sandbox(workspace=tmp_path / "w", track_files=False) as sandbox, sandbox.start(["python3", "-c", code]):
        assert boxlib.wait_for(lambda: (tmp_path / "w" / "ready").exists())
        both, n = ({"PathRefused", "NotFound"}, {b"inside", b"mine", b""}), 0
        end = time.monotonic() + boxlib.HANG
        while n < 300 or not all(seen & some for some in both) and time.monotonic() < end:  # the box may not have its turn for a while
            n += 1
            try:
                if n % 3 == 1:
                    sandbox.write_file("real/out", "mine")
                elif n % 3 == 2:
                    sandbox.remove("real/out")
                else:
                    seen.add(sandbox.read_file("real/out"))
            except (cloche.PathRefused, cloche.NotFound, cloche.AlreadyExists, cloche.SystemFault) as why:
                seen.add(type(why).__name__)
    assert b"secret" not in seen and all(seen & some for some in both), seen
    assert (outside / "out").read_text() == "secret" and os.listdir(outside) == ["out"]


def test_a_module_function_is_a_sandbox_of_its_own(cloche):
    r = cloche.run_code("import os; print(os.environ['A'], input(), os.getcwd())", env={"A": "1"}, stdin="line\n", timeout_s=20, cwd="/tmp")
    assert r.stdout == "1 line /tmp\n"
    assert cloche.run_code("echo $((40 + 2))", language="sh").stdout == "42\n"
    assert cloche.run(["stty", "size"], pty=(10, 20)).stdout == "10 20\r\n"
    with pytest.raises(cloche.OptionError):
        cloche.run("echo hello")
    with pytest.raises(cloche.OptionError) as why:
        cloche.run(["true"], tiemout_s=5)
    assert why.value.option == "tiemout_s"


def test_output_of_a_process_as_it_comes(cloche, sbx):
    with sbx.start(["sh", "-c", "echo a; read x; echo $x >&2; read x || echo end"], stream=True, stdin=True) as p:
        output = p.output()
        assert next(output) == ("stdout", b"a\n")
        with pytest.raises(TimeoutError):
            p.wait(timeout_s=0.1)
        for bad in ("1", -1, float("nan"), float("inf")):
            with pytest.raises(cloche.OptionError) as why:
                p.wait(timeout_s=bad)
            assert why.value.option == "timeout_s" and "seconds" in why.value.allowed
        p.write_stdin("typed\n")
        assert next(output) == ("stderr", b"typed\n")
        p.close_stdin()
        assert list(output) == [("stdout", b"end\n")]
        r = p.wait()
        assert (r.stdout, r.stderr, r.exit_code) == ("a\nend\n", "typed\n", 0) and p.wait() is r

    async def main():
        async with cloche.AsyncSandbox() as sandbox:
            p = await sandbox.start(["sh", "-c", "echo a; echo b"], stream=True)
            got = b"".join([data async for _, data in p.output()])
            both = await asyncio.gather(p.wait(), p.wait())
            return got, both[0] is both[1]
    assert asyncio.run(main()) == (b"a\nb\n", True)


def test_a_process_that_nobody_writes_to(cloche, sbx):
    """The control is above: one that was started with stdin=True."""
    def holds(why):
        assert (why.value.option, why.value.allowed) == ("stdin", "a call started with stdin")

    with sbx.start(["sleep", "1000"]) as p:
        for write in (lambda: p.write_stdin("x"), p.close_stdin):
            with pytest.raises(cloche.OptionError) as why:
                write()
            holds(why)

    async def main():
        async with cloche.AsyncSandbox() as sandbox, await sandbox.start(["sleep", "1000"]) as q:
            for write in (lambda: q.write_stdin("x"), q.close_stdin):
                with pytest.raises(cloche.OptionError) as why:
                    await write()
                holds(why)
    asyncio.run(main())


def test_a_port_of_the_box(sbx):
    code = "import socket; s = socket.create_server(('', 8000)); print('up', flush=True)\n" \
           "while True: c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()"
    import socket
    with sbx.start(["python3", "-c", code], stream=True) as p:
        assert next(p.output()) == ("stdout", b"up\n")
        address = p.port(8000)
        assert address.host.startswith("127.")
        for _ in range(2):
            with socket.create_connection(address, timeout=boxlib.HANG) as s:
                s.sendall(b"hello")
                assert s.recv(100) == b"HELLO"
    with pytest.raises(OSError):
        socket.create_connection(address, timeout=5).close()


def test_a_setup_is_watched_while_it_runs(cloche, ws):
    """By the callbacks of the sandbox, or its own; who is interrupted in one, or cancelled, leaves it when it is gone."""
    mine, other, seen, forever = bytearray(), bytearray(), [], f": {ws}; echo up; exec sleep 600"

    def stop(data):
        raise KeyboardInterrupt
    with cloche.Sandbox(setup=f"echo {ws}", on_stdout=mine.extend, on_progress=seen.append) as sandbox:
        sandbox.setup(f"echo two {ws}")
        sandbox.setup(f"echo three {ws}", on_stdout=None, on_progress=None)
        sandbox.setup(f"echo four {ws}", on_stdout=other.extend)
        assert (mine.decode(), other.decode()) == (f"{ws}\ntwo {ws}\n", f"four {ws}\n")
        assert [p["phase"] for p in seen] == ["setup", "keep"] * 3
        with pytest.raises(KeyboardInterrupt):
            sandbox.setup(forever, on_stdout=stop)
        assert sandbox.setup(f"echo five {ws}").fault is None and mine.endswith(b"\n")
        with pytest.raises(TypeError):
            sandbox.setup("true", on_stdin=stop)
        with pytest.raises(cloche.OptionError, match="on_stderr"):
            sandbox.setup("true", on_stderr=5)
    with pytest.raises(KeyboardInterrupt):
        cloche.Sandbox(setup=forever, on_stdout=stop)

    async def main():
        async with cloche.AsyncSandbox() as sandbox:
            up = asyncio.Event()

            async def heard(data):
                up.set()
            task = asyncio.create_task(sandbox.setup(forever, on_stdout=heard))
            await asyncio.wait_for(up.wait(), boxlib.HANG)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await sandbox.run(["echo", "after"])
    assert asyncio.run(main()).stdout == "after\n"


@pytest.mark.parametrize("name", ["on_stdout", "on_stderr", "on_progress"])
def test_what_a_callback_raises_is_raised_after_the_setup(cloche, ws, name):
    seen = []

    def bad(data):
        seen.append(data)
        raise LookupError("mine")

    def command(n):
        return f"echo {n} {ws} {name}; echo >&2; sleep 0.2; echo; echo >&2; echo 'Z = {n}' >/opt/deps/last{n}.py"
    with pytest.raises(LookupError, match="mine"):
        cloche.Sandbox(setup=command(1), **{name: bad})
    assert len(seen) == 1
    with cloche.Sandbox(setup=command(1)) as sandbox:
        assert sandbox.run_code("import last1; print(last1.Z)").stdout == "1\n"
        with pytest.raises(LookupError):
            sandbox.setup(command(2), **{name: bad})
        assert len(seen) == 2 and sandbox.run_code("import last2; print(last2.Z)").stdout == "2\n"
    asking = cloche.AsyncSandbox(setup=command(3), **{name: bad})
    with pytest.raises(LookupError):
        asyncio.run(asking.open())
    with pytest.raises(cloche.Closed):
        asyncio.run(asking.run(["true"]))


def test_progress_of_a_setup_and_its_result(cloche):
    seen = []
    with cloche.Sandbox(setup="echo 'Y = 1' >/opt/deps/first.py", on_progress=seen.append) as sandbox:
        assert sandbox.fault is None and all(isinstance(p, dict) for p in seen)
        done = sandbox.setup("echo 'Y = 2' >/opt/deps/second.py")
        assert done.fault is None and done.layer and not done.found
        assert sandbox.run_code("import first, second; print(first.Y, second.Y)").stdout == "1 2\n"
        failed = sandbox.setup("echo why it failed; exit 5")
        assert failed.fault.type == "startup_failed" and failed.fault.stage == "setup" and "why it failed" in failed.fault.output
    with cloche.Sandbox(setup="echo 'Y = 1' >/opt/deps/first.py") as again:
        assert again.run_code("import first; print(first.Y)").stdout == "1\n"


def test_an_object_is_a_result_that_can_be_shown(sbx):
    r = sbx.run(["echo", "x"])
    assert r and r.success and not sbx.run(["false"]) and "exit_code=0" in repr(r)
    shown = cloche_result(r)
    assert shown.formats() == ["text/plain", "image/png", "application/json"] and shown.text == "t" and shown.png == b"png" and shown.json == {"a": 1}
    assert shown.html is None and shown.jpeg is None and shown.svg is None and shown.markdown is None
    json.dumps(r.events)


def cloche_result(_):
    return sdk.module().Result({"text/plain": "t", "image/png": "cG5n", "application/json": {"a": 1}})
