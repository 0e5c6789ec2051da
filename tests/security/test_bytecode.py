"""What a box does to bytecode ends with it: the next box, of the same or of another session, imports what the image and its setup have."""
import pytest
import setups

from . import attack

# Rewrites the bytecode of a module so that python never looks at the source again, as an attacker would who was given one cell of many.
REWRITE = """
import importlib.util, py_compile, sys
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    with open("/tmp/evil.py", "w") as f:
        f.write("EVIL = True\\n")
    py_compile.compile("/tmp/evil.py", cfile=importlib.util.cache_from_source(spec.origin), doraise=True,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""
LOOK = "import {0}; print(hasattr({0}, 'EVIL'))"


@pytest.fixture(scope="module")
def home(image):
    with setups.directory() as path:
        h = setups.Home(path)
        h.fill(image("python"), name="python")
        lib = "import site, os, compileall; d = site.getsitepackages()[0]; os.makedirs(d, exist_ok=True); "
        r = h.setup("python", "deps", "python3", "-c", lib + "open(d + '/dep.py', 'w').write('A = 1\\n'); compileall.compile_file(d + '/dep.py', quiet=1)")
        assert r.rc == 0, r
        yield h


@pytest.mark.parametrize("module", ["dep", "json.tool"])
@pytest.mark.parametrize("user", ["0", "1000"])
def test_a_cell_rewrites_bytecode_for_the_next(home, module, user):
    """In its own box the attack works; the next box knows nothing of it, nor does the store."""
    look = ("python3", "-c", LOOK.format(module))
    assert home.run("local/deps", *look).o.out == "False\n"
    layers = {str(d): attack.snapshot(d) for d in home.layers.iterdir() if d.is_dir()}
    cell = home.run("local/deps", "sh", "-c", f'python3 -c "$1" {module} && python3 -c "{LOOK.format(module)}"', "sh", REWRITE, opts=("--user", user))
    assert cell.o.out == "True\n", ("no control", cell)
    after = home.run("local/deps", *look, opts=("--user", user))
    assert after.o.out == "False\n", after
    assert {str(d): attack.snapshot(d) for d in home.layers.iterdir() if d.is_dir()} == layers


def test_the_layer_is_no_place_to_write(home):
    """Below a read-only root not even its own box is fooled."""
    r = home.run("local/deps", "python3", "-c", REWRITE, "dep", opts=("--read-only",))
    assert r.rc != 0 and "Read-only file system" in r.o.err, r


def test_a_setup_over_it_makes_another_image(home):
    """A setup may write what it likes, into a layer of its own: who did not ask for that image does not get it."""
    r = home.setup("local/deps", "evil", "python3", "-c", REWRITE, "dep")
    assert r.rc == 0, r
    assert home.run("local/evil", "python3", "-c", LOOK.format("dep"), opts=("--no-pyc-cache",)).o.out == "True\n", "no control"
    assert home.run("local/deps", "python3", "-c", LOOK.format("dep")).o.out == "False\n"
