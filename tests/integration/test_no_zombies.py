"""In a container the first process is often an application that reaps nothing: there cloche waits for its own."""
import os
import subprocess
import sys
import textwrap

import pytest

import boxlib

# The first process of a pid namespace: runs boxes one after another, reaps only what it started itself, and counts who is left to it.
FIRST = textwrap.dedent("""
    import os, subprocess, sys, time
    wait = len(sys.argv) > 2
    for _ in range(5):
        assert subprocess.run([sys.argv[1], "run", "-q", "true"], stdin=subprocess.DEVNULL).returncode == 0
    if wait:
        subprocess.run(["sh", "-c", "sleep 0.1 & :"])
    def zombies():
        left = [d for d in os.listdir("/proc") if d.isdigit() and int(d) != os.getpid()]
        return sum("\\nState:\\tZ" in open(f"/proc/{d}/status").read() for d in left)
    while wait and not zombies():
        time.sleep(0.05)
    print("zombies:", zombies())
""")


def run_first(*args):
    ids = [] if boxlib.IS_ROOT else ["--map-root-user"]
    argv = ["unshare", *ids, "--pid", "--fork", "--mount-proc", "--mount", sys.executable, "-c", FIRST, boxlib.CLOCHE, *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=boxlib.HANG, env=boxlib.base_env())


@pytest.mark.skipif(not os.access("/usr/bin/unshare", os.X_OK), reason="needs unshare of util-linux")
def test_none_are_left_to_who_does_not_reap():
    control = run_first("wait")
    assert control.stdout.strip() == "zombies: 1", control  # the shell's child, which nobody reaped
    r = run_first()
    assert r.stdout.strip() == "zombies: 0", r
