"""An image's Python library is compiled once, before the first box; every later box finds the bytecode below its root."""
import os

import boxlib
import pytest
import setups

SHOW = ("python3", "-v", "-c", "import json")
NOTE = b"compiling the Python library"


@pytest.fixture(scope="module")
def home(image):
    with setups.directory() as path:
        h = setups.Home(path)
        h.fill(image("python"), name="python")
        yield h


def broken(home, image, name):
    """An image whose python says that it can do nothing."""
    home.python(name, lambda where: setups.unpack(image("busybox"), where), "exit 7")


def loaded(r):
    """Where json's code came from, as python -v tells."""
    line = next(row for row in r.err.decode().splitlines() if "json/" in row and "code object from" in row)
    return line.split("code object from ")[1].strip("'")


def run(home, *command, opts=()):
    return boxlib.box("--image", "python", *opts, "--", *command, env=home.env, json=False)


def test_compiled_once_and_used(home):
    plain = run(home, *SHOW, opts=("--no-pyc-cache",))
    assert loaded(plain).endswith("json/__init__.py") and NOTE not in plain.err and not home.kept(), plain
    first = run(home, *SHOW)
    assert NOTE in first.err and loaded(first).endswith(".pyc"), first
    layers = home.kept()
    assert len(layers) == 1
    second = run(home, *SHOW)
    assert NOTE not in second.err and loaded(second) == loaded(first) and home.kept() == layers
    assert loaded(run(home, *SHOW, opts=("--no-pyc-cache",))).endswith(".py")  # not used when it is there
    assert boxlib.cloche("prune", env=home.env).rc == 0 and home.kept() == layers  # the image's, as long as that is there
    # Nothing but bytecode is in it, and none of it looks at its source (PEP 552): it belongs to the image's id.
    files = [p for p, row in home.tree(layers[0]).items() if not os.path.isdir(home.layers / layers[0] / p)]
    assert len(files) > 100 and {os.path.splitext(p)[1] for p in files} == {".pyc"}
    assert {(home.layers / layers[0] / p).read_bytes()[4:8] for p in files} == {b"\x01\0\0\0"}


def test_by_hand_and_not_for_others(home):
    r = boxlib.cloche("setup", "--bytecode", "--image", "python", env=home.env)
    assert r.rc == 0 and b"bytecode of" in r.out and b"there already" in r.out, r  # by the first run
    assert NOTE not in run(home, "true").err
    home.small(name="empty")
    r = boxlib.cloche("setup", "--bytecode", "--image", "empty", env=home.env)
    assert r.rc == 0 and b"no Python library" in r.out, r
    assert boxlib.cloche("setup", "--bytecode", "--image", "python", "--", "true", env=home.env).rc == 2
    assert boxlib.cloche("setup", "--bytecode", "--image", "python", "--name", "x", env=home.env).rc == 2


def test_a_python_that_can_not_is_asked_once(home, image):
    """Foreign code all of it; the box that was asked for runs."""
    before = home.kept()
    broken(home, image, "odd")
    first = boxlib.box("--image", "odd", "--", "echo", "runs", env=home.env, json=False)
    assert first.out == b"runs\n" and NOTE in first.err, first
    made = set(home.kept()) - set(before)
    assert len(made) == 1 and not home.tree(made.pop())
    again = boxlib.box("--image", "odd", "--", "echo", "runs", env=home.env, json=False)
    assert again.out == b"runs\n" and NOTE not in again.err, again


def test_under_the_callers_profile(image):
    """Where that profile is not loaded, python does not run: nor does the box. (guest/test_apparmor.py has one that is.)"""
    with setups.directory() as path:
        home = setups.Home(path)
        home.python("tells", lambda where: setups.unpack(image("busybox"), where), "echo ran >/usr/lib/python3.99/told")
        told = ("cat", "/usr/lib/python3.99/told")
        r = boxlib.box("--image", "tells", "--apparmor", "cloche-nonesuch", "--", *told, env=home.env, json=False)
        assert NOTE in r.err and r.rc == 125 and b"apparmor" in r.err.lower() and r.out == b"" and not home.kept(), r
        r = boxlib.box("--image", "tells", "--", *told, env=home.env, json=False)
        assert NOTE in r.err and r.out == b"ran\n" and len(home.kept()) == 1, r


def test_a_store_that_can_not_be_written(image):
    """The box runs all the same, as it would without."""
    with setups.directory() as path:
        home = setups.Home(path)
        broken(home, image, "odd")
        (home.top / "draft").rmdir()
        (home.top / "draft").symlink_to("/nowhere")
        r = boxlib.box("--image", "odd", "-q", "--no-pyc-cache", "--", "echo", "runs", env=home.env, json=False)
        with_it = boxlib.box("--image", "odd", "-q", "--", "echo", "runs", env=home.env, json=False)
        assert (with_it.rc, with_it.out) == (r.rc, r.out) and not home.kept(), (r, with_it)
