"""Calls that an older kernel lacks and that a boundary stands on: without them no box runs, and the message names what is missing."""
import platform
import subprocess

import pytest

from . import attack  # noqa: F401 - puts the suite's library on the path
from .attack import boxlib
from outer_filter import ENOSYS, filter_calls

# What stays where it is missing: descriptors that must be closed in the box, its first process, read-only mounts, the filter. Common numbers.
NEEDED = {"close_range": 436, "clone3": 435, "mount_setattr": 442, "seccomp": {"x86_64": 317, "aarch64": 277}}
SPARE = {"landlock_create_ruleset": 444, "openat2": 437}


def run_without(number):
    return subprocess.run([boxlib.CLOCHE, "run", "-q", "--", "true"], preexec_fn=filter_calls([number], ENOSYS), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env=boxlib.base_env(), timeout=boxlib.HANG)


@pytest.mark.parametrize("call", SPARE)
def test_control(call):
    """The same filter over a call that has a substitute: the box runs."""
    assert run_without(SPARE[call]).returncode == 0


@pytest.mark.parametrize("call", NEEDED)
def test_nothing_runs_without(call):
    number = NEEDED[call]
    if isinstance(number, dict):
        number = number[platform.machine()]
    r = run_without(number)
    assert r.returncode == 125 and len(r.stderr.splitlines()) == 1 and "startup_failed" in r.stderr, r
