"""100,000 calls of one session: what the session, its spawner and the kernel hold does not grow.

Some minutes: `make test-long`, or `CLOCHE_SOAK=1000 tests/run tests/long/test_soak.py`.
"""
import concurrent.futures
import os
import pathlib
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
    """The session's program and all that it keeps running between calls."""
    found = [pid]
    for p in found:
        found += children(p)
    return found


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


def test_a_session_does_not_grow(monkeypatch):
    sys.path.insert(0, str(ROOT / "bindings" / "python"))
    import cloche

    monkeypatch.setenv("CLOCHE_BIN", str(boxlib.CLOCHE))
    with cloche.Sandbox(memory_mb=64, track_files=True) as sbx, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        def call(i):
            r = sbx.run(["sh", "-c", "echo $0 >n; cat n", str(i % 7)]) if i % 10 == 0 else sbx.run(["true"])
            assert r.success, r

        def calls(n):
            for _ in pool.map(call, range(n)):
                pass

        calls(max(CALLS // 50, 200))  # whatever is made once
        serve = [p for p in children(os.getpid()) if pathlib.Path(f"/proc/{p}/comm").read_text().startswith("cloche")]
        assert len(serve) == 1, serve
        kin, kernel = family(serve[0]), settled_kernel_kb()
        before = {p: held(p) for p in kin}
        calls(CALLS)
        after = {p: held(p) for p in family(serve[0])}
        grown = settled_kernel_kb() - kernel
        print(f"{CALLS} calls: {before} -> {after}, kernel {grown:+} kB")
        assert len(after) <= len(before) + 1, (before, after)  # a keeper that is made ahead may be on its way
        for p in kin:
            if p in after:
                assert after[p]["fds"] == before[p]["fds"] and after[p]["threads"] == before[p]["threads"], (p, before[p], after[p])
                assert after[p]["kb"] <= before[p]["kb"] + PAGES_SLACK_KB, (p, before[p], after[p])
        # A leak of one small object a call would be some 200 bytes times the calls.
        assert grown * 1024 < 200 * CALLS + (8 << 20), grown
