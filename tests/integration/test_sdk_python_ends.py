"""How calls of the Python package end when their caller does not wait for them: killed, interrupted, forked, cancelled, forgotten. Nothing may be left: what
runs in a box carries a mark in its command line, by which the host finds it."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import boxlib
import pytest
import sdk

TIMES = int(os.environ.get("CLOCHE_LONG_TIMES", "10"))
HEAD = """
import asyncio, cloche, gc, os, pathlib, signal, sys, threading, time
MARK = sys.argv[1]
def marked():
    found = []
    for d in os.listdir("/proc"):
        try:
            line = pathlib.Path("/proc", d, "cmdline").read_bytes() if d.isdigit() else b""
        except OSError:
            continue
        if line.startswith(b"sleep\\0" + MARK.encode()):
            found.append(d)
    return found
def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "hang guard"
        time.sleep(0.01)
    return True
SLEEP = ["sh", "-c", f"sleep {MARK} & setsid sleep {MARK} & sleep {MARK}"]
"""


@pytest.fixture
def mark():
    """A number of seconds that nobody else sleeps for."""
    text = f"99{random.randrange(10 ** 8):08d}"
    yield text
    assert boxlib.wait_for(lambda: not sleepers(text)), f"left behind: {sleepers(text)}"


def sleepers(text):
    return [p for p in boxlib.find_marked(text) if pathlib.Path(f"/proc/{p}/comm").exists() and
            pathlib.Path(f"/proc/{p}/comm").read_text() in ("sleep\n", "sh\n")]


def start(body, mark, **kw):
    return subprocess.Popen([sys.executable, "-c", HEAD + body, mark], env={**sdk.env(), "PYTHONWARNINGS": "ignore"}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **kw)


def run(body, mark, rc=0):
    p = start(body, mark)
    try:
        out, err = p.communicate(timeout=boxlib.HANG * 2)
    except subprocess.TimeoutExpired:
        p.kill()
        raise AssertionError(f"hang guard: {p.communicate()}") from None
    assert p.returncode == rc, (p.returncode, out, err)
    return out.split(), err


def test_the_control_sees_what_runs(mark):
    """The same search finds a call's processes while it runs: three of them."""
    out, _ = run("""
with cloche.Sandbox() as sbx:
    p = sbx.start(SLEEP)
    print(until(lambda: len(marked()) == 3))
    p.kill()
    print(marked())
    print(p.wait().fault.type)
""", mark)
    assert out == ["True", "[]", "cancelled"]


def test_an_interrupt_raises_when_the_box_is_dead(mark):
    p = start("""
with cloche.Sandbox() as sbx:
    threading.Thread(target=lambda: until(lambda: len(marked()) == 3) and print("runs", flush=True)).start()
    try:
        sbx.run(SLEEP)
    except KeyboardInterrupt:
        print(marked(), flush=True)
    print(sbx.run(["echo", "usable"]).stdout)
""", mark)
    assert p.stdout.readline() == "runs\n"
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=boxlib.HANG)
    assert out.split() == ["[]", "usable"] and p.returncode == 0, (out, err)


def test_an_exception_out_of_a_signal_handler_too(mark):
    """Whatever a handler raises, in a call of whatever kind."""
    out, _ = run("""
def handler(*_):
    raise ZeroDivisionError
signal.signal(signal.SIGALRM, handler)
with cloche.Sandbox() as sbx:
    for call in (lambda: sbx.run(SLEEP), lambda: sbx.run_code(f"import os; os.execvp('sleep', ['sleep', '{MARK}'])"),
                 lambda: sbx.run(SLEEP, on_stdout=print), lambda: sbx.run(SLEEP, stdin=iter(lambda: time.sleep(0.01) or b"x", None))):
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            call()
        except ZeroDivisionError:
            print(marked())
""", mark)
    assert out == ["[]"] * 4


def test_a_cancelled_task_ends_when_the_box_is_dead(mark):
    out, _ = run("""
async def main():
    async with cloche.AsyncSandbox() as sbx:
        task = asyncio.ensure_future(sbx.run(SLEEP))
        while len(marked()) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            print(marked())
        try:
            await asyncio.wait_for(sbx.run(SLEEP), 0.5)
        except asyncio.TimeoutError:
            print(marked())
        async with await sbx.start(SLEEP) as p:
            while len(marked()) < 3:
                await asyncio.sleep(0.01)
            try:
                await asyncio.wait_for(p.wait(), 0.3)
            except asyncio.TimeoutError:
                print("waits", len(marked()) > 0)
        print(marked(), (await p.wait()).fault.type)
        print((await sbx.run(["echo", "usable"])).stdout)
asyncio.run(main())
""", mark)
    assert out == ["[]", "[]", "waits", "True", "[]", "cancelled", "usable"]


def test_a_loop_that_ends_in_the_middle(mark):
    """asyncio.run cancels what is left of its tasks."""
    out, _ = run("""
async def main():
    sbx = await cloche.AsyncSandbox().open()
    asyncio.ensure_future(sbx.run(SLEEP))
    while len(marked()) < 3:
        await asyncio.sleep(0.01)
asyncio.run(main())
print(until(lambda: not marked()))
""", mark)
    assert out == ["True"]


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "os._exit(3)", "1 / 0", "os.kill(os.getpid(), signal.SIGTERM)", "os.abort()"])
def test_the_process_ends_in_the_middle(mark, end):
    rc = {"pass": 0, "sys.exit(3)": 3, "os._exit(3)": 3, "1 / 0": 1, "os.abort()": -signal.SIGABRT}.get(end, -signal.SIGTERM)
    err = run(f"""
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sbx = cloche.Sandbox()
sbx.start(SLEEP)
def again():
    while True: sbx.run(["true"])
threading.Thread(target=lambda: sbx.run(SLEEP), daemon=True).start()
threading.Thread(target=again, daemon=True).start()
until(lambda: len(marked()) == 6)
{end}
""", mark, rc)[1]
    # Nothing is heard of the daemon threads, which are in the middle of a call, or begin one.
    assert "Thread" not in err and "cloche" not in err and (err == "" or end == "1 / 0"), err


def test_killed_at_any_moment(mark):
    """The caller dies in its first milliseconds, in the middle of opening, of calls, of closing."""
    chance = random.Random(3)
    for n in range(TIMES):
        p = start("""
print("begins", flush=True)
while True:
    with cloche.Sandbox() as sbx:
        threads = [threading.Thread(target=lambda: sbx.run(SLEEP, timeout_s=0.3)) for _ in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
""", mark)
        p.stdout.readline()
        time.sleep(chance.random() * (0.03 if n % 2 else 0.6))
        p.kill()
        p.communicate()
    assert boxlib.wait_for(lambda: not sleepers(mark))


def test_a_fork_in_the_middle_of_a_call(mark):
    """The child's copy of the sandbox is closed, its own one works, and it does not keep the parent's alive."""
    out, err = run("""
sbx = cloche.Sandbox()
result = []
t = threading.Thread(target=lambda: result.append(sbx.run(["sh", "-c", "sleep 1; echo parent"]).stdout))
t.start()
time.sleep(0.3)
pid = os.fork()
if pid == 0:
    try:
        try:
            sbx.run(["true"])
        except cloche.Closed as e:
            print("closed" if "forked" in str(e) else e, flush=True)
        sbx.close()
        print(cloche.run_code("print('child')").stdout.strip(), flush=True)
    finally:
        os._exit(0)
os.waitpid(pid, 0)
t.join()
print(result[0].strip(), sbx.run(["echo", "still"]).stdout.strip())
""", mark)
    assert out == ["closed", "child", "parent", "still"], (out, err)


def test_a_forked_child_does_not_keep_the_box_of_a_parent_that_was_killed(mark):
    p = start("""
sbx = cloche.Sandbox()
threading.Thread(target=lambda: sbx.run(SLEEP), daemon=True).start()
until(lambda: len(marked()) == 3)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
    os._exit(0)
time.sleep(600)
""", mark)
    child = int(p.stdout.readline())
    try:
        p.kill()
        p.wait()
        assert boxlib.wait_for(lambda: not sleepers(mark)), "the box lives as long as the child"
        assert pathlib.Path(f"/proc/{child}").exists()
    finally:
        os.kill(child, signal.SIGKILL)
        p.communicate()


def test_multiprocessing(mark):
    out, _ = run("""
import multiprocessing
def work(n):
    return cloche.run_code(f"print({n} * 2)").stdout.strip()
cloche.run_code("1")
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(*pool.map(work, range(6)))
""", mark)
    assert out == ["0", "2", "4", "6", "8", "10"]


def test_a_sandbox_that_nobody_holds_closes(mark):
    out, _ = run("""
sbx = cloche.Sandbox(workspace=None)
p = sbx.start(SLEEP)
until(lambda: len(marked()) == 3)
del sbx
gc.collect()
print(len(marked()) == 3)   # the process still holds it
del p
gc.collect()
print(until(lambda: not marked()))
asyncio.run((lambda: (lambda s: s.open())(cloche.AsyncSandbox()))())
with cloche.Sandbox() as s:
    print(until(lambda: s._work.client and True))
""", mark)
    assert out == ["True", "True", "True"]


def test_cancel_from_another_thread(mark):
    out, _ = run("""
with cloche.Sandbox() as sbx:
    results = []
    threads = [threading.Thread(target=lambda: results.append(sbx.run(SLEEP))) for _ in range(3)]
    for t in threads: t.start()
    until(lambda: len(marked()) == 9)
    sbx.cancel()
    print(marked())
    for t in threads: t.join()
    print(*{r.fault.type for r in results}, sbx.run(["echo", "open"]).stdout)
""", mark)
    assert out == ["[]", "cancelled", "open"]


def test_close_in_the_middle_of_calls(mark):
    out, _ = run("""
sbx = cloche.Sandbox()
seen = []
def call():
    try:
        seen.append(sbx.run(SLEEP).fault.type)
    except cloche.SandboxError as e:
        seen.append(type(e).__name__)
threads = [threading.Thread(target=call) for _ in range(3)]
for t in threads: t.start()
until(lambda: len(marked()) == 9)
sbx.close()
print(marked())
for t in threads: t.join()
print(*set(seen) - {"cancelled", "Closed"})
sbx.close()
""", mark)
    assert out == ["[]"]


def test_the_program_is_killed(mark):
    """`cloche serve` dies: its calls raise, its boxes are gone, and the next sandbox has a new one."""
    out, _ = run("""
sbx = cloche.Sandbox()
client = sbx._work.client
def call():
    try:
        sbx.run(SLEEP)
    except cloche.Closed as e:
        print("closed", flush=True)
t = threading.Thread(target=call)
t.start()
until(lambda: len(marked()) == 3)
client._child.kill()
t.join()
print(until(lambda: not marked()), cloche.run_code("print('again')").stdout)
sbx.close()
""", mark)
    assert out == ["closed", "True", "again"]
