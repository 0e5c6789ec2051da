"""Each example runs as it stands, from an empty directory, and says what it is there to show."""
import re
import shutil
import subprocess

import boxlib
import pytest

EXAMPLES = boxlib.ROOT / "examples"
SAYS = {
    "agent-loop.sh": [r"works +use it: 285", r"bug +tell the model: ZeroDivisionError", r"endless +tell the model: timeout",
                      r"leaves +stop, it called mount"],
    "ci-build.sh": [r"hello from a box"],
    "untrusted-review.sh": [r"ended: by itself, with 0", r"refused: ptrace by", r"list the homes -> \['user'\]",
                            r"password hashes -> No such file", r"own source -> Read-only file system", r"call home -> Network is unreachable"],
    "serve-client.pl": [r"says: 3 words", r"changed: created upper.txt", r"read: ONE TWO THREE", r"refused: escape_blocked"],
    "rootfs.sh": [r"uid=0", r"etc in the box: .*No such file", r"etc outside: group passwd"],
}


def test_every_example_is_listed():
    assert {p.name for p in EXAMPLES.glob("*") if p.is_file()} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example(name, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cloche").symlink_to(boxlib.CLOCHE)
    assert name != "rootfs.sh" or shutil.which("busybox"), "tools/deps test installs busybox"
    env = boxlib.base_env()
    env["PATH"] = f"{tmp_path}/bin:{env['PATH']}"
    language = "perl" if name.endswith(".pl") else "sh"
    r = subprocess.run([language, str(EXAMPLES / name)], cwd=tmp_path, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                       timeout=2 * boxlib.HANG, check=False)
    assert r.returncode == 0, r.stdout + r.stderr
    for line in SAYS[name]:
        assert re.search(line, r.stdout), f"{line!r} not in: {r.stdout}{r.stderr}"
