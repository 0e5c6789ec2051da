"""Packages of the programs that are built, installed as people do, without a network. With static programs, in other root file systems and for
another architecture, all this is in long/test_packages.py."""
import base64
import csv
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile

import boxlib
import packs
import pytest

VERSION = subprocess.run([boxlib.CLOCHE, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
pytestmark = pytest.mark.skipif(packs.ARCH is None, reason="packages are made for x86_64 and aarch64")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return packs.pack(tmp_path_factory.mktemp("packages"))


def test_what_is_in_them(made, tmp_path):
    """The sums are right, the same input gives the same bytes, and the archives hold what they say and no more."""
    packs.run("sha256sum", "-c", "SHA256SUMS", cwd=made.path)
    files = {p.name for p in made.path.iterdir()}
    assert {line.split("  ")[1] for line in (made.path / "SHA256SUMS").read_text().splitlines()} | {"SHA256SUMS"} == files
    again = packs.pack(tmp_path)
    assert all((again.path / name).read_bytes() == (made.path / name).read_bytes() for name in files)

    wheel = zipfile.ZipFile(made.one("*manylinux*.whl"))
    rows = list(csv.reader(io.StringIO(wheel.read(f"cloche-{VERSION}.dist-info/RECORD").decode())))
    assert sorted(r[0] for r in rows) == sorted(wheel.namelist())
    for name, digest, size in rows[:-1]:
        data = wheel.read(name)
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() and int(size) == len(data)
    modes = {i.filename: i.external_attr >> 16 for i in wheel.infolist()}
    assert all(stat.S_ISREG(m) for m in modes.values())
    assert {n for n, m in modes.items() if m & 0o111} == {
        "cloche/bin/cloche", "cloche/lib/cloche/cloche-image", "cloche/lib/cloche/cloche-serve", f"cloche-{VERSION}.data/scripts/cloche"}
    for archive in ("*.tar.gz", "cloche-linux-*.tgz"):
        with tarfile.open(made.one(archive)) as tar:
            members = tar.getmembers()
        assert all(m.isreg() or m.isdir() for m in members) and {m.uid for m in members} == {0}
        assert {m.name.split("/", 1)[1] for m in members if m.isreg() and m.mode & 0o111} == {
            "bin/cloche", "lib/cloche/cloche-image", "lib/cloche/cloche-serve"}


def test_the_wheel_in_a_clean_environment(made, tmp_path):
    bin_ = packs.wheel(made, tmp_path / "env")
    env = {"PATH": f"{bin_}:/usr/bin:/bin"}
    assert packs.run("sh", "-c", "command -v cloche && cloche --version", env=env).stdout.split() == [f"{bin_}/cloche", "cloche", VERSION]
    assert packs.run(bin_ / "cloche", "run", "echo", "from a box").stdout == "from a box\n"
    assert packs.run(bin_ / "cloche", "run", "sh", "-c", "exit 7", check=False).returncode == 7
    assert packs.run(bin_ / "cloche", "doctor", check=False).returncode in (0, 1)
    assert "cloche pull" in packs.run(bin_ / "cloche", "pull", check=False).stderr  # cloche-image was found
    r = packs.run(bin_ / "python", "-c", "import cloche; r = cloche.run_code('print(6 * 7)'); print(cloche.version, r.stdout, r.fault)",
                  env={"PATH": "/nowhere"})
    assert r.stdout.split() == [VERSION, "42", "None"]
    packs.run(bin_ / "pip", "uninstall", "-qy", "cloche")
    assert not (bin_ / "cloche").exists() and not list(tmp_path.glob("env/lib/*/site-packages/cloche*"))


@pytest.mark.skipif(not packs.node_cli("npm"), reason="there is no npm")
def test_the_npm_packages_in_a_clean_folder(made, tmp_path):
    folder = packs.npm(made, tmp_path / "node")
    assert packs.run(folder / "node_modules/.bin/cloche", "--version").stdout.split() == ["cloche", VERSION]
    assert packs.run(*packs.node_cli("npx"), "--offline", "--no-install", "cloche", "run", "echo", "from a box", cwd=folder,
                     env={"npm_config_cache": f"{folder}/.cache"}).stdout == "from a box\n"
    assert packs.run(folder / "node_modules/.bin/cloche", "run", "sh", "-c", "exit 7", check=False).returncode == 7
    code = "runCode('print(6 * 7)').then((r) => console.log(version, r.stdout.trim(), r.fault))"
    for name, text in (("a.cjs", "const { runCode, version } = require('cloche');"), ("a.mjs", "import { runCode, version } from 'cloche';")):
        (folder / name).write_text(f"{text}\n{code}\n", encoding="utf-8")
        assert packs.run("node", name, cwd=folder).stdout.split() == [VERSION, "42", "null"]


def everything(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))


def test_the_tarball_by_its_script(made, tmp_path):
    """No root is needed; a second time goes over the first; uninstall removes what came and nothing else."""
    prefix = tmp_path / "prefix"
    (prefix / "share").mkdir(parents=True)
    (prefix / "share/mine").write_text("mine")
    before = everything(prefix)
    r = made.install(prefix)
    assert f"installed cloche {VERSION}" in r.stdout and f"{prefix}/bin is not in PATH" in r.stdout
    assert packs.run(prefix / "bin/cloche", "run", "echo", "from a box").stdout == "from a box\n"
    assert "cloche pull" in packs.run(prefix / "bin/cloche", "pull", check=False).stderr
    assert (prefix / "share/man/man1/cloche.1").read_bytes().startswith(b".TH")
    (prefix / "lib/cloche/old").write_text("of an earlier version")
    with (prefix / "lib/cloche/installed").open("a") as f:
        f.write("lib/cloche/old\n")
    first = everything(prefix)
    made.install(prefix)
    assert everything(prefix) == [p for p in first if p != "lib/cloche/old"]
    made.install(prefix, "--uninstall")
    assert everything(prefix) == before
    assert "no cloche of this script's" in made.install(prefix, "--uninstall", check=False).stderr


def test_the_script_refuses(made, tmp_path):
    copy = tmp_path / "release"
    shutil.copytree(made.path, copy)
    bad, prefix = packs.Packages(copy), tmp_path / "prefix"
    assert bad.install(prefix).returncode == 0  # the control
    bad.install(prefix, "--uninstall")
    with bad.one("*.tar.gz").open("ab") as f:
        f.write(b"\0")
    r = bad.install(prefix, check=False)
    assert r.returncode == 1 and "is not what SHA256SUMS says" in r.stderr
    (copy / "SHA256SUMS").write_text("")
    assert "SHA256SUMS does not name" in bad.install(prefix, check=False).stderr
    (copy / "SHA256SUMS").unlink()
    assert "has no SHA256SUMS" in bad.install(prefix, check=False).stderr
    assert "https://" in bad.install(prefix, "--from", "http://example.com/cloche", check=False).stderr
    assert everything(prefix) == []
    (tmp_path / "file").touch()
    assert "can't be written to" in made.install(tmp_path / "file", check=False).stderr


@pytest.mark.parametrize("system, machine, says", [
    ("Darwin", "arm64", "inside a Linux virtual machine"), ("MINGW64_NT-10.0", "x86_64", "inside a Linux virtual machine"),
    ("Linux", "riscv64", "build it from the source"), ("Linux", packs.MACHINE, None)])
def test_the_script_on_other_machines(made, tmp_path, system, machine, says):
    (tmp_path / "bin").mkdir()
    uname = tmp_path / "bin/uname"
    uname.write_text(f"#!/bin/sh\n[ $1 = -s ] && echo {system} || echo {machine}\n")
    uname.chmod(0o755)
    r = made.install(tmp_path / "prefix", check=False, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    if says is None:
        assert r.returncode == 0
    else:
        assert r.returncode == 1 and says in r.stderr and r.stderr.count("\n") == 1
        assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize("tag, kind", [
    ("macosx_11_0_arm64", "any"), ("win_amd64", "any"), ("manylinux_2_17_riscv64", "any"),
    (f"manylinux_2_17_{packs.MACHINE}", "manylinux"), (f"musllinux_1_1_{packs.MACHINE}", "musllinux"), (f"musllinux_1_2_{packs.MACHINE}", None)])
def test_which_wheel_a_machine_gets(made, tmp_path, tag, kind):
    """pip's own choice for the platform that it is told."""
    packs.run("/usr/bin/python3", "-m", "pip", "download", "-q", "--no-index", "--find-links", made.path, "--no-deps", "--only-binary=:all:",
              "--platform", tag, "-d", tmp_path, "cloche")
    (got,) = tmp_path.iterdir()
    assert kind is None or kind in got.name


def test_macos_and_windows_get_one_line(made, tmp_path):
    """Of both packages and of the command, where a machine says that it is none of Linux."""
    with zipfile.ZipFile(made.one("*-any.whl")) as z:
        z.extractall(tmp_path / "any")
    (command,) = (tmp_path / "any").glob("*.data/scripts/cloche")
    lines = []
    for name in ("darwin", "win32"):
        pretend = f"import sys, asyncio; sys.path.insert(0, {os.fspath(tmp_path / 'any')!r}); sys.platform = {name!r}; "
        r = packs.run("/usr/bin/python3", "-c", pretend + "import cloche\ntry:\n cloche.run_code('1')\nexcept cloche.SandboxError as e:\n print(e)")
        lines.append(r.stdout)
        r = packs.run("/usr/bin/python3", "-c", pretend + f"import runpy; runpy.run_path({os.fspath(command)!r})", check=False)
        assert r.returncode == 125
        lines.append(r.stderr)
        if shutil.which("node"):
            js = (f"Object.defineProperty(process, 'platform', {{ value: {name!r} }}); "
                  f"require({os.fspath(boxlib.ROOT / 'bindings/node/index.js')!r}).runCode('1').catch((e) => console.log(e.message))")
            lines.append(packs.run("node", "-e", js).stdout)
    for line in lines:
        assert line.count("\n") == 1 and "Linux virtual machine" in line, lines


def test_the_command_never_starts_itself(made, tmp_path):
    """Without a program in the package the first one on PATH that is no script is taken; when there is none, that is said."""
    with zipfile.ZipFile(made.one("*-any.whl")) as z:
        z.extractall(tmp_path / "any")
    (command,) = (tmp_path / "any").glob("*.data/scripts/cloche")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin/cloche"
    script.write_bytes(command.read_bytes().replace(b"#!python", b"#!/usr/bin/python3"))
    script.chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin", "PYTHONPATH": os.fspath(tmp_path / "any")}
    r = packs.run(script, "--version", env=env, check=False)
    assert r.returncode == 125 and "no program for this machine" in r.stderr
    env["PATH"] += f":{os.path.dirname(os.path.realpath(boxlib.CLOCHE))}"
    assert packs.run(script, "--version", env=env).stdout.split() == ["cloche", VERSION]
