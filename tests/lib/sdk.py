"""The Python package of this tree, driving the program under test."""
import contextlib
import os
import sys

import boxlib

PACKAGE = boxlib.ROOT / "bindings" / "python"
IMAGES = ("busybox", "python", "node", "nonroot")


def module():
    """`cloche`, which starts the program under test."""
    if str(PACKAGE) not in sys.path:
        sys.path.insert(0, str(PACKAGE))
    os.environ["CLOCHE_BIN"] = boxlib.CLOCHE
    import cloche
    return cloche


@contextlib.contextmanager
def in_home(home):
    """The package with its directories at `home`. At the end nothing of it runs any more."""
    cloche, before = module(), os.environ.get("CLOCHE_HOME")
    cloche.shutdown()
    os.environ["CLOCHE_HOME"] = str(home)
    try:
        yield cloche
    finally:
        cloche.shutdown()
        os.environ.pop("CLOCHE_HOME")
        if before is not None:
            os.environ["CLOCHE_HOME"] = before


def load_image(home, path, name):
    """Puts a layout of lib/images.py into the store as local/NAME."""
    tar = boxlib.communicate(["tar", "-C", str(path), "-cf", "-", "."])
    loaded = boxlib.communicate([boxlib.CLOCHE, "load", "-q", "--name", name, "-"], stdin=tar.out, env={"CLOCHE_HOME": str(home)})
    assert loaded.rc == 0, loaded


def env():
    """For a program that imports the package by itself."""
    return {**boxlib.base_env(), "CLOCHE_BIN": boxlib.CLOCHE, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
