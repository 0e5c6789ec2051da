"""100,000 calls of one session: what the session, its spawner and the kernel hold does not grow.

The kernel's memory is counted in a group of the session's own, exactly and with the caches that it would drop; where the caller can't have one, it
is the machine's that can't be reclaimed, and then others had better be quiet. Some minutes: `make test-long`, or
`CLOCHE_SOAK=1000 tests/run tests/long/test_soak.py`.
"""
import concurrent.futures
import ctypes
import json
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import time

import boxlib
import kernel

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALLS = int(os.environ.get("CLOCHE_SOAK", "100000"))
AT_ONCE = 4
SETTLE_S = 30  # what the kernel takes apart in its own time
PAGES_SLACK_KB = 1024
# Bytes of the kernel's that a call may cost, and all of them together: less than any object that could be forgotten.
OWN, MACHINE = (20, 1 << 20), (100, 4 << 20)
LEAKED = 100000  # objects of the control


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(n) for n in (task / "children").read_text().split()]
    return found


def family(pid):
    """The session's program, its spawner and its workers; what the spawner has is a call's, or the next one's."""
    return [pid, *children(pid)]


def held(pid):
    status = dict(row.split(":", 1) for row in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in row)
    return {"fds": len(os.listdir(f"/proc/{pid}/fd")), "kb": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"])}


def look_of(group):
    return kernel.Charged(pathlib.Path(group)).held if group else lambda: kernel.unreclaimable_kb() << 10


def settled(look):
    """Until it has not fallen for a while. Orphans come to the test's process, and unreaped they are held."""
    best, quiet, until = look(), 0, time.monotonic() + SETTLE_S
    while quiet < 5 and time.monotonic() < until:
        time.sleep(1)
        boxlib.reap()
        now = look()
        quiet = quiet + 1 if now >= best - (100 << 10) else 0
        best = min(best, now)
    return best


def soak(group):
    """In a process of its own: its session ends with it."""
    import cloche

    look = look_of(group)
    with cloche.Sandbox(memory_mb=64, track_files=True) as sbx, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        def call(i):
            r = sbx.run(["sh", "-c", "echo $0 >n; cat n", str(i % 7)]) if i % 10 == 0 else sbx.run(["true"])
            assert r.success, r

        def calls(n):
            for _ in pool.map(call, range(n)):
                pass

        calls(max(CALLS // 50, 200))  # whatever is made once
        (serve,) = children(os.getpid())
        at_first, machine = settled(look), kernel.unreclaimable_kb()
        before = {p: held(p) for p in family(serve)}
        calls(CALLS)
        grown = settled(look) - at_first
        after = {p: held(p) for p in family(serve)}
    print(json.dumps({"before": before, "after": after, "grown": grown, "machine_kb": kernel.unreclaimable_kb() - machine}))


def areas(n):
    """Holds so many areas of memory, which nobody uses: of each the kernel knows where it is and what may be done there, and no more."""
    libc, page = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE
    memory = mmap.mmap(-1, n * page)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i in range(0, n, 2):
        assert libc.mprotect(ctypes.c_void_p(at + i * page), ctypes.c_size_t(page), mmap.PROT_READ) == 0, os.strerror(ctypes.get_errno())
    return memory


def leak(group):
    """The control: one small object of the kernel's for each of so many calls, and what the look sees of them."""
    look = look_of(group)
    at_first, went = settled(look), []
    for _ in range(2):  # a process may have some 65,000
        ready, end = os.pipe()
        went.append(os.fork())
        if went[-1] == 0:
            held_here = areas(LEAKED // 2)
            os.write(end, b"x")
            signal.pause()
            del held_here
        assert os.read(ready, 1) == b"x"
    print(settled(look) - at_first)
    for pid in went:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def measured(what, group):
    """This file as a program, within the group."""
    env = {**os.environ, "CLOCHE_BIN": str(boxlib.CLOCHE), "PYTHONPATH": f"{ROOT}/bindings/python:{ROOT}/tests/lib"}
    r = subprocess.run([sys.executable, __file__, what, str(group.path) if group else ""], env=env, capture_output=True, text=True, check=False,
                       timeout=3600, preexec_fn=group.stand if group else None)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_a_session_does_not_grow():
    with kernel.charged() as group:
        o = measured("soak", group)
    print(o)
    before, after = o["before"], o["after"]
    assert set(before) == set(after) and len(before) >= 2, o  # cloche-serve and its spawner, at least
    for pid in before:
        was, now = before[pid], after[pid]
        assert now["fds"] == was["fds"] and now["threads"] == was["threads"], (pid, o)
        assert now["kb"] <= was["kb"] + PAGES_SLACK_KB, (pid, o)
    call, room = OWN if group else MACHINE
    assert o["grown"] < call * CALLS + room, o


def test_a_leak_would_be_seen():
    """The control: one of the smallest objects for each of so many calls is more than is allowed."""
    with kernel.charged() as group:
        grown = measured("leak", group)
    call, room = OWN if group else MACHINE
    assert grown > call * LEAKED + room, grown


if __name__ == "__main__":
    {"soak": soak, "leak": leak}[sys.argv[1]](sys.argv[2])
