"""Many boxes at once and in a row: each is well, and the kernel gets everything back (bench/many is the measure; `make test-long` runs it with
1,000 and 10,000)."""
import json
import os
import subprocess
import sys

import boxlib
import kernel
import pytest


def test_no_leak(tmp_path):
    """The figures are the machine's: what others do beside it may spoil one look, a leak spoils all three."""
    said = tmp_path / "many.json"
    for _ in range(3):
        r = subprocess.run([sys.executable, boxlib.ROOT / "bench" / "many", "--at-once", "100", "--in-a-row", "300", "--cloche", boxlib.CLOCHE,
                            "--json", said], capture_output=True, text=True, timeout=600, env=boxlib.base_env(), check=False)
        if r.returncode == 0:
            break
    assert r.returncode == 0, r.stdout + r.stderr
    found = json.loads(said.read_text())
    assert found["at once"]["boxes"] == 100 and found["at once"]["grew"]["processes"] >= 200, found
    assert found["in a row"]["boxes"] == 300, found


def test_short_runs_in_parallel():
    """No flake among short runs that overlap; a long run makes it 10,000."""
    n = os.environ.get("CLOCHE_PARALLEL", "400")
    r = subprocess.run([sys.executable, boxlib.ROOT / "bench" / "many", "--at-once", "0", "--in-a-row", n, "--jobs", "20", "--cloche", boxlib.CLOCHE],
                       capture_output=True, text=True, timeout=3600, env=boxlib.base_env(), check=False)
    assert f"{n} boxes, 20 at any time" in r.stdout and "bench/many:" not in r.stderr, r


def test_policies_do_not_mix(ws):
    """Forty boxes alive at once under four policies: each has its own and none of another's."""
    (ws / "seen").write_text("shared")
    script = 'echo "$WHO"; cat /workspace/seen 2>/dev/null; echo .; touch /usr/x 2>/dev/null || echo ro; touch /x 2>/dev/null && echo root; ' \
             '[ $(ulimit -n) = 64 ] && echo few; cat /proc/sys/kernel/hostname'
    policies = [
        (("-e", "WHO=plain"), "plain\n.\nro\nroot\ncloche\n"),
        (("-e", "WHO=shares", "--workspace", ws), "shares\nshared.\nro\nroot\ncloche\n"),
        (("-e", "WHO=fixed", "--read-only"), "fixed\n.\nro\ncloche\n"),
        (("-e", "WHO=few", "--open-files", "64"), "few\n.\nro\nroot\nfew\ncloche\n"),
    ]
    started = [(boxlib.start(*policies[i % 4][0], "sh", "-c", script), policies[i % 4][1]) for i in range(40)]
    for p, expected in started:
        out, err = p.communicate(timeout=boxlib.HANG)
        assert (p.returncode, out.decode(), boxlib.without_rung(err)) == (0, expected, b"")


def test_the_kernel_caches_nothing_of_a_box():
    """Not even what it would drop if memory were short. A file that is open while its group goes is such a thing: the control."""
    boxes, limit = 100, 40 << 10  # less than an entry of the kernel's cache of names for each
    with kernel.charged() as group:
        if not group:
            pytest.skip("no cgroup v1 that counts the kernel's memory")
        for _ in range(boxes):
            r = boxlib.communicate([boxlib.CLOCHE, "run", "-q", "--", "true"], preexec_fn=group.stand)
            assert r.rc == 0, r
        assert group.falls_below(limit), group.held()
        open_ones = f'for i in $(seq {boxes}); do mkdir "$0/$i"; exec 9<"$0/$i/memory.failcnt"; rmdir "$0/$i"; done'
        r = boxlib.communicate(["sh", "-ec", open_ones, group.path], preexec_fn=group.stand)
        assert r.rc == 0, r
        assert not group.falls_below(limit, timeout=5)
