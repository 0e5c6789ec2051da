"""What a box leaves in a shared directory is met again by cloche: when it measures the workspace, when the next box shares it, when a file of it
is named as a source. Nothing of it may block, lead out, or count for more than it is."""
import os

import boxlib
import pytest

# Left by a box in its workspace; none of it holds more than a page, whatever its name or size say.
LEAVES = {
    "symlink out": "ln -s /usr out",
    "ancestor symlink": "ln -s ../../../../../../usr out; ln -s out/lib further; ln -s nowhere/at/all dangling",
    "fifo": "mkfifo out",
    "hard link": "head -c 900000 /dev/zero >f; for i in 1 2 3 4 5 6 7 8 9; do ln f out$i; done",
    "sparse file": "truncate -s 20G out",
    "loop": "ln -s . out; ln -s loop loop",
}
SMALL = ("--workspace-max", "2m", "--timeout", "20s")


@pytest.mark.parametrize("what", LEAVES)
def test_is_measured_as_what_it_is(box, ws, what):
    """The sampler looks every 20 ms while the first box makes it and the second one shares it."""
    for command in (LEAVES[what] + "; sleep 0.1; echo on", "sleep 0.1; echo on"):
        r = box("--workspace", ws, *SMALL, "--", "sh", "-c", command)
        assert (r.rc, r.o.fault, r.o.out) == (0, None, "on\n"), r
    (ws / "big").write_bytes(b"x" * (4 << 20))
    r = box("--workspace", ws, *SMALL, "--", "sh", "-c", "sleep 15; echo on")
    assert r.o.fault_type == "workspace_full", "no control"


@pytest.mark.parametrize("what", ["symlink out", "fifo", "device"])
def test_as_a_source_it_is_judged_by_what_it_is(box, ws, what):
    """A link to what is refused is refused, and so is what is no file: before anything is opened that could block."""
    if what == "device":
        (ws / "out").symlink_to("/dev/zero")  # a box can't make a node: test_files.py
    else:
        os.symlink("/etc/shadow", ws / "out") if what == "symlink out" else os.mkfifo(ws / "out")
    r = box("-v", f"{ws}/out:/in:ro", "--", "true")
    assert (r.rc, r.o.fault_type) == (125, "startup_failed") and r.o.fault["stage"] == "mount", r
    (ws / "honest").write_text("x")
    assert box("-v", f"{ws}/honest:/in:ro", "--", "cat", "/in").o.out == "x", "no control"


def test_a_fifo_named_as_a_list_of_variables_does_not_block(ws):
    os.mkfifo(ws / "env")
    assert boxlib.cloche("run", "--env-file", ws / "env", "--", "true").rc in (0, 2)
