"""What the documents say can be done is done here, and what is claimed to be tested is."""
import gzip
import os
import re
import shutil
import subprocess
import sys

import boxlib
import layout
import pytest
import stored

ROOT = boxlib.ROOT
sys.path.insert(0, str(boxlib.TESTS / "lib"))
import coverage_rows  # noqa: E402

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# What needs something that a test machine lacks or would change it for good, with the reason.
NOT_RUN = {
    "cloche man | man -l -": "needs a pager",
    "cloche run --rootfs ./rootfs -it -- sh": "waits for somebody to type",
    "cloche doctor --fix": "changes the machine",
    "cloche doctor --online": "needs a network",
    "cloche run --image python:3.12-slim -- python3 -c 'print(1)'": "needs a network",
    "cloche pull python:3.12-slim": "needs a network",
    "cloche pull --ca-file /etc/ssl/ours.pem registry.example.com/team/app:1.4": "needs a network",
    "cloche pull --mirror mirror.example.com debian:12": "needs a network",
    "cloche setup --image debian:12 --name with-git -- apt-get install -y git": "long/test_setup_packages.py does it",
    "cloche run --image local/with-git -- git --version": "long/test_setup_packages.py does it",
    "cloche setup --image python:3.12-slim --name np -- pip install numpy": "long/test_setup_packages.py does the like",
    "cloche setup --image node:22-slim --name ts -- npm install -g typescript": "long/test_setup_packages.py does the like",
    "cloche setup --name rich -- pip install rich": "needs a network; test_setup_host.py does the like",
    "cloche run --image local/rich -- python3 -c 'import rich'": "needs a network; test_setup_host.py does the like",
    "cloche run --image local/np -- python3 -c 'import numpy'": "long/test_setup_packages.py does the like",
}


def commands():
    found = []
    docs = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if (ROOT / "docs").exists() else []
    for path in docs:
        if not path.exists():
            continue
        for lang, body in FENCE.findall(path.read_text(encoding="utf-8")):
            if lang not in ("sh", "console", "shell", "bash"):
                continue
            body = re.sub(r"\\\n\s*", "", body)
            for line in body.splitlines():
                line = line.removeprefix("$ ").strip() if lang == "console" else line.strip()
                if re.match(r"(\w+=\S+ )*cloche\s", line):
                    found.append((path.relative_to(ROOT).as_posix(), line))
    return sorted(set(found))


def expected(line):
    """`# exit 3` or `# -> 124` behind a command says how it ends; without, it ends well."""
    m = re.search(r"#\s*(?:exit(?:s with| code)?|->)\s*(\d+)", line)
    return int(m.group(1)) if m else 0


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A directory in which the documents' commands make sense."""
    d = tmp_path_factory.mktemp("docs")
    (d / "bin").mkdir()
    (d / "bin" / "cloche").symlink_to(boxlib.CLOCHE)
    for name, text in (("script.py", "print('hello')\n"), ("job.py", "print('hello')\n"), ("main.py", "print('hello')\n"),
                       ("test.sh", "echo hello\n"), ("build.sh", "echo hello\n"), (".env", "A=1\n"), ("vars.env", "A=1\n"),
                       ("cloche.yaml", "defaults:\n  memory_mb: 600\n"),
                       ("data.csv", "a,b\n1,2\n"), ("input.txt", "text\n"), ("Makefile", "all:\n\techo made\ntest:\n\techo tested\n")):
        (d / name).write_text(text if name[-3:] != ".sh" else "#!/bin/sh\n" + text)
        (d / name).chmod(0o755)
    for name in ("src", "data", "out", "project", "work", "rootfs", "input", "output"):
        (d / name).mkdir()
        (d / name / "script.py").write_text("print('hello')\n")
    (d / "build.sh").write_text("#!/bin/sh\necho hello\n")
    (d / "build.sh").chmod(0o755)
    (d / "rootfs" / "bin").mkdir()
    (d / "rootfs" / "bin" / "sh").symlink_to("busybox")
    shutil.copy(shutil.which("busybox"), d / "rootfs" / "bin" / "busybox")
    layer = layout.tar(layout.folder("etc"), layout.entry("etc/motd", "hello\n"))
    (d / "rootfs.tar.gz").write_bytes(gzip.compress(layer))
    made = layout.Layout(d / "layout")
    made.image([made.layer(layer)], tag="x.invalid/app:1")
    made.archive(d / "app.tar")
    # Not below the first one: a directory that holds the home is never shared.
    home = tmp_path_factory.mktemp("home")
    (home / ".local/share/bash-completion/completions").mkdir(parents=True)
    (home / ".config/fish/completions").mkdir(parents=True)
    for p in [d, home, *d.parents]:
        if str(p).startswith("/tmp/") and p.stat().st_uid == os.geteuid():
            p.chmod(0o755)
    return d, home


def stock(home):
    """The images that the documents speak of, anew: they are removed there, too."""
    store = stored.Store(home, home / ".local/share/cloche/images")
    for name in ("python:3.12-slim", "debian:12"):
        store.image(name, [store.layer(lambda d: (d / "etc").mkdir(exist_ok=True))])


@pytest.mark.parametrize("where,line", commands(), ids=lambda v: str(v).replace("/", "|")[:70])
def test_documented_command(bench, where, line):
    bare = re.split(r"\s{2,}#", line)[0].strip()
    if bare in NOT_RUN or re.search(r" -i?t\b", bare):  # what needs a terminal is in test_pty.py
        return
    d, home = bench
    env = dict(boxlib.base_env(), HOME=str(home))
    env["PATH"] = f"{d}/bin:{env['PATH']}"
    if re.match(r"cloche (images|inspect|rm|prune|save)\b", bare):
        stock(home)
    r = subprocess.run(["sh", "-c", line], cwd=d, env=env, capture_output=True, timeout=boxlib.HANG, check=False,
                       stdin=subprocess.DEVNULL)
    text = (r.stdout + r.stderr).decode(errors="replace")
    assert "unknown option" not in text and "unknown verb" not in text, text
    if "--require-limits" in bare and not boxlib.IS_ROOT:
        assert r.returncode in (0, 125), text
    elif bare.startswith("cloche doctor"):
        assert r.returncode in (0, 1), text
    else:
        assert r.returncode == expected(line), f"{where}: {line}: exit {r.returncode}: {text}"


def test_documents_name_every_fault(cloche):
    """A document with a table of faults has all of them, and no other."""
    import json
    faults = {c["fault"] for c in json.loads(cloche("help", "--json").out)["exit_codes"] if c["fault"]}
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        rows = [line for line in text.splitlines() if line.startswith("|") and re.search(r"`init_lost`", line)]
        if rows:
            missing = {f for f in faults if not re.search(rf"^\|.*`{f}`", text, re.M)}
            assert not missing, f"{path.name}: {missing}"


def test_links_between_documents():
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if not path.exists():
            continue
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_named_tests_exist():
    """THREAT_MODEL names tests for its locks; others name some too. Without a folder they are in security/."""
    for path in [ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md", *(ROOT / "docs").glob("*.md")]:
        for name in re.findall(r"`(?:tests/)?((?:\w+/)?test_\w+\.py)`", path.read_text(encoding="utf-8")):
            assert (boxlib.TESTS / ("" if "/" in name else "security") / name).exists(), f"{path.name}: {name}"


def test_coverage_has_a_row_for_everything():
    assert coverage_rows.problems() == ([], [])
