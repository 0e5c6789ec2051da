"""T1: the ways in which a host forbids user namespaces. One line says so and how to mend it, doctor says the same, and once it is mended boxes run."""
import json
import pathlib
import subprocess

import boxlib
import pytest

TESTER = ["setpriv", "--reuid=tester", "--regid=tester", "--init-groups", "env", "-u", "XDG_RUNTIME_DIR", "HOME=/home/tester"]


def doctor_row(name, before=()):
    r = boxlib.communicate([*before, boxlib.CLOCHE, "doctor", "--json"], timeout=120)
    o = json.loads(r.out)
    return o["verdict"], next(row for row in o["rows"] if row["id"] == name)


def works(before=()):
    r = boxlib.communicate([*before, boxlib.CLOCHE, "run", "-q", "--", "echo", "ran"])
    assert (r.rc, r.out, r.err) == (0, b"ran\n", b""), r


def refused(words, before=()):
    r = boxlib.communicate([*before, boxlib.CLOCHE, "run", "-q", "--", "echo", "ran"])
    assert r.rc == 125 and r.out == b"" and r.err.count(b"\n") == 1, r
    verdict, row = doctor_row("userns", before)
    assert verdict == "unusable" and row["status"] == "missing", row
    for word in words:
        assert word in r.err.decode(), (word, r)
        assert word in row["detail"] + row["fix"], (word, row)


@pytest.mark.root
@pytest.mark.parametrize("name", ["kernel.unprivileged_userns_clone", "user.max_user_namespaces"])
def test_by_sysctl(name):
    """Root too: its boxes are made by an unprivileged id."""
    path = pathlib.Path("/proc/sys", *name.split("."))
    before = path.read_text()
    works(TESTER)
    try:
        path.write_text("0")
        assert subprocess.run([*TESTER, "unshare", "-Ur", "true"], capture_output=True, check=False).returncode != 0, "the lock does nothing"
        for before_it in (TESTER, []):
            refused([name + "=0", f"echo {name}=1", "sudo sysctl --system"], before_it)
    finally:
        path.write_text(before)
    works(TESTER)
    works()
