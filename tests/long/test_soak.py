"""100,000 calls of one session: what the session, its spawner and the kernel hold does not grow.

Some minutes: `make test-long`, or `CLOCHE_SOAK=1000 tests/run tests/long/test_soak.py`.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

import boxlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALLS = int(os.environ.get("CLOCHE_SOAK", "100000"))
AT_ONCE = 4
SETTLE_S = 30  # what the kernel takes apart in its own time
PAGES_SLACK_KB = 1024


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


def kernel_kb():
    rows = dict(row.split(":", 1) for row in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return sum(int(rows[k].split()[0]) for k in ("SUnreclaim", "KernelStack", "PageTables", "Percpu"))


def settled_kernel_kb():
    """Until it no longer falls, for as long as the kernel may take."""
    best, until = kernel_kb(), time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        time.sleep(1)
        now = kernel_kb()
        if now >= best - 100:
            return min(now, best)
        best = now
    return best


def soak():
    """In a process of its own: its session ends with it."""
    import cloche

    with cloche.Sandbox(memory_mb=64, track_files=True) as sbx, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        def call(i):
            r = sbx.run(["sh", "-c", "echo $0 >n; cat n", str(i % 7)]) if i % 10 == 0 else sbx.run(["true"])
            assert r.success, r

        def calls(n):
            for _ in pool.map(call, range(n)):
                pass

        calls(max(CALLS // 50, 200))  # whatever is made once
        (serve,) = children(os.getpid())
        kernel = settled_kernel_kb()
        before = {p: held(p) for p in family(serve)}
        calls(CALLS)
        grown = settled_kernel_kb() - kernel
        after = {p: held(p) for p in family(serve)}
    print(json.dumps({"before": before, "after": after, "grown_kb": grown}))


def test_a_session_does_not_grow():
    env = {**os.environ, "CLOCHE_BIN": str(boxlib.CLOCHE), "PYTHONPATH": f"{ROOT}/bindings/python:{ROOT}/tests/lib"}
    r = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=False, timeout=3600)
    assert r.returncode == 0, r.stderr
    o = json.loads(r.stdout)
    print(o)
    before, after = o["before"], o["after"]
    assert set(before) == set(after) and len(before) >= 2, o  # cloche-serve and its spawner, at least
    for pid in before:
        was, now = before[pid], after[pid]
        assert now["fds"] == was["fds"] and now["threads"] == was["threads"], (pid, o)
        assert now["kb"] <= was["kb"] + PAGES_SLACK_KB, (pid, o)
    # A leak of one small object a call would be some 200 bytes times the calls.
    assert o["grown_kb"] * 1024 < 200 * CALLS + (8 << 20), o


if __name__ == "__main__":
    soak()
