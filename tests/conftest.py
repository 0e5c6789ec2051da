"""Fixtures and rules of the whole suite.

- `box(...)`, `cloche(...)`, `ws`, `probe(name)`: see lib/boxlib.py for what they give.
- `image(name)`, `home`: an image of lib/images.py, and directories of cloche's own that are empty.
- A skip that tests/skips.txt does not list fails the run.
- After each module nothing of ours may be left: no process, mount, cgroup or file.
- With CLOCHE_RAN set, the ids of tests that passed are appended to that file, with CLOCHE_PLACE as PLACE@ID; tests/run and
  tools/guest/suite compare them with coverage.tsv.

The suite runs as whoever calls it. tests/run runs it as root and again as an unprivileged user.
"""
import contextlib
import ctypes
import fnmatch
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import boxlib  # noqa: E402
import images  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
HERE = pathlib.Path(__file__).resolve().parent


def pytest_configure(config):
    config.addinivalue_line("markers", "root: needs a caller who is root")
    config.addinivalue_line("markers", "user: needs a caller who is not root")
    config.unlisted_skips = []
    # Whoever runs us by nohup or in the background would have our programs ignore the signals that some tests end them with.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Orphans of a box must come to us instead of the machine's init, else they would not be seen.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not os.access(boxlib.CLOCHE, os.X_OK):
        pytest.exit(f"no program at {boxlib.CLOCHE}: run `make`, or set CLOCHE", returncode=2)


def pytest_report_header(config):
    return f"program: {boxlib.CLOCHE}; caller: uid {os.geteuid()}"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("root") and not boxlib.IS_ROOT:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        if item.get_closest_marker("user") and boxlib.IS_ROOT:
            item.add_marker(pytest.mark.skip(reason="needs an unprivileged caller"))


def accepted_skips():
    """Rows `id-pattern <tab> root|user|any <tab> reason`."""
    me = "root" if boxlib.IS_ROOT else "user"
    rows = []
    for line in (HERE / "skips.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, who, _ = line.split("\t", 2)
            if who in ("any", me):
                rows.append(pattern)
    return rows


def short_id(nodeid):
    return nodeid[len("tests/"):] if nodeid.startswith("tests/") else nodeid


def tell_coverage(name, skipped=False):
    """A line for lib/coverage_rows.py."""
    place = os.environ.get("CLOCHE_PLACE")
    if os.environ.get("CLOCHE_RAN"):
        with open(os.environ["CLOCHE_RAN"], "a", encoding="utf-8") as f:
            f.write(("-" if skipped else "") + (f"{place}@" if place else "") + name + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.skipped and not hasattr(report, "wasxfail"):
        name = short_id(item.nodeid)
        if any(fnmatch.fnmatchcase(name, p) for p in accepted_skips()):
            if not item.get_closest_marker("root") and not item.get_closest_marker("user"):  # the other pass has those
                tell_coverage(name, skipped=True)
        else:
            item.config.unlisted_skips.append(f"{name}: {report.longrepr[2] if report.longrepr else ''}")
    if report.when == "call" and report.passed:
        tell_coverage(short_id(item.nodeid))


def pytest_terminal_summary(terminalreporter, config):
    if config.unlisted_skips:
        terminalreporter.section("skips that tests/skips.txt does not accept")
        for line in config.unlisted_skips:
            terminalreporter.line(line)


def pytest_sessionfinish(session):
    if session.config.unlisted_skips and session.exitstatus == 0:
        session.exitstatus = 1


@pytest.fixture(scope="session")
def box():
    """box(*args, json=True, stdin=None, timeout=60, env=None, cwd=None) -> Result; with json `.o` is the outcome."""
    return boxlib.box


@pytest.fixture(scope="session")
def cloche():
    """cloche(verb, ...) -> Result, without --json."""
    return boxlib.cloche


@contextlib.contextmanager
def directory(prefix):
    path = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    os.chmod(path, 0o755)
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def ws():
    """A directory of the caller's own to be shared with boxes. Its parents are searchable by all."""
    with directory("ct-ws-") as path:
        yield path


@pytest.fixture(scope="session")
def image():
    """image("python") is the layout of that image (lib/images.py), made once a machine."""
    def get(name):
        try:
            return images.layout(name)
        except images.Unavailable as why:
            return pytest.skip(f"no image: {why}")
    return get


@pytest.fixture
def home():
    """A CLOCHE_HOME of its own, with an empty store: pass `env={"CLOCHE_HOME": str(home)}`."""
    with directory("ct-home-") as path:
        yield path
        # Layers may hold directories that their owner can't enter. And a program whose client has just gone is still tidying up.
        for base, dirs, _ in os.walk(path):
            for d in dirs:
                with contextlib.suppress(FileNotFoundError):
                    if not os.path.islink(os.path.join(base, d)):
                        os.chmod(os.path.join(base, d), 0o700)


@pytest.fixture(scope="session")
def probes_dir():
    with directory("ct-probes-") as path:
        yield path


@pytest.fixture(scope="session")
def probe(probes_dir):
    """probe("memory") builds tests/probes/memory.c (or DIR/NAME.c) once; give the box probe.mount, run probe.path("memory")."""
    built = {}

    def get(name, where=HERE / "probes"):
        if name not in built:
            built[name] = boxlib.build_probe(pathlib.Path(where) / (name + ".c"), probes_dir)
        return built[name]

    get.mount = ("-v", f"{probes_dir}:/probes:ro")
    get.path = lambda name, **kw: "/probes/" + get(name, **kw).name
    return get


@pytest.fixture(autouse=True, scope="module")
def leftovers():
    """What a module started is gone when it ends. A service that a module keeps asks for this fixture, so that it ends before."""
    mounts, groups, temps = boxlib.mounts_now(), boxlib.groups_left(), boxlib.temp_left()
    before = set(boxlib.children_of(os.getpid()))
    yield

    def left():
        boxlib.reap()
        new = {p: n for p, n in boxlib.children_of(os.getpid()).items() if p not in before}
        return [f"process {p} ({n})" for p, n in new.items()] \
            + [f"mount {m}" for m in boxlib.mounts_now() - mounts] \
            + [f"cgroup {g}" for g in boxlib.groups_left() - groups] \
            + [f"file {t}" for t in boxlib.temp_left() - temps]

    def sweep():
        """Groups of a cloche that was killed go with the next start, and there may be none."""
        return not left() or (boxlib.groups_left() - groups and boxlib.cloche("gc") and not left())

    boxlib.wait_for(sweep, timeout=10, every=0.1)
    found = left()
    assert not found, "left behind: " + "; ".join(found)
