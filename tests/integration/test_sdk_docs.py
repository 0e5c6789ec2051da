"""Every example in Python or JavaScript of the documents runs as it stands."""
import re
import sys

import boxlib
import pytest
import sdk
from test_sdk_node import NODE, PACKAGE, node

FENCE = re.compile(r"^```(python|js)\n(.*?)^```$", re.M | re.S)
# Examples that need what a test machine does not have, by their first line that says so.
BY_OTHERS = ("PYTHON.md", "MIGRATION.md")  # test_sdk_python_types.py runs what they have in Python
NOT_RUN = ("pip install", "npm install", "image=\"", "image: \"")


def examples():
    found = []
    for path in [boxlib.ROOT / "README.md", *sorted((boxlib.ROOT / "docs").glob("*.md")), *sorted((boxlib.ROOT / "bindings").glob("*/README.md"))]:
        for n, m in enumerate(FENCE.finditer(path.read_text(encoding="utf-8"))):
            if m.group(1) == "python" and (path.name in BY_OTHERS or "bindings" in path.parts):
                continue
            if not any(word in m.group(2) for word in NOT_RUN):
                found.append(pytest.param(m.group(1), m.group(2), id=f"{path.relative_to(boxlib.ROOT)} {n} {m.group(1)}".replace("/", "|")))
    return found


@pytest.mark.parametrize("language, text", examples())
def test_example(tmp_path, language, text):
    if language == "python":
        (tmp_path / "example.py").write_text(text, encoding="utf-8")
        r = boxlib.communicate([sys.executable, tmp_path / "example.py"], env=sdk.env(), cwd=tmp_path)
    elif NODE is None:
        pytest.skip("no node here")
    else:
        (tmp_path / "node_modules").mkdir()
        (tmp_path / "node_modules" / "cloche").symlink_to(PACKAGE)
        file = tmp_path / ("example.cjs" if "require(" in text else "example.mjs")
        file.write_text(text, encoding="utf-8")
        r = node(file, cwd=tmp_path)
    assert r.rc == 0 and r.out, r
