"""Python wheels: the package of bindings/python with the static programs of one architecture, and one without for every other machine.

    cloche/...                      the package
    cloche/bin/cloche               the programs, laid out as `make install` does
    cloche/lib/cloche/cloche-image, cloche-serve
    cloche-VERSION.data/scripts/cloche      the command, see COMMAND

The programs need no library, so the tags name the oldest C libraries that pip asks for by name. A machine that none of these wheels
fits (macOS, Windows, another processor) gets the one without programs, which says what is missing when it is used.
"""
import tomllib

from archives import Entry, record, zip_file

TAGS = {
    "amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    None: "any",
}

# Becomes the program without importing the package, which would take longer than a box does. pip puts its Python into the first line.
# In the wheel without programs it is the one that is installed otherwise; another script could be this one again.
COMMAND = b"""\
#!python
import importlib.util
import os
import sys

spec = importlib.util.find_spec("cloche")
packaged = [os.path.join(d, "bin", "cloche") for d in (spec.submodule_search_locations if spec else [])]
for program in packaged + [os.path.join(d, "cloche") for d in os.get_exec_path()]:
    try:
        with open(program, "rb") as f:
            found = f.read(4) == b"\\x7fELF"
    except OSError:
        continue
    if found and sys.platform == "linux":
        os.execv(program, ["cloche", *sys.argv[1:]])
if sys.platform == "linux":
    print("cloche: this package has no program for this machine, and PATH has none: build one from the source", file=sys.stderr)
else:
    print("cloche: boxes are made by the Linux kernel: use cloche inside a Linux virtual machine (macOS: Lima, Colima; Windows: WSL2)",
          file=sys.stderr)
sys.exit(125)
"""


def metadata(project, readme):
    """METADATA of what pyproject.toml says. A key that is not known here would be lost without a word."""
    known = {"name", "version", "description", "readme", "requires-python", "license", "keywords", "classifiers", "urls"}
    if set(project) - known:
        raise ValueError(f"pyproject.toml: [project] has {', '.join(sorted(set(project) - known))}, which the wheel would not have")
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}", f"Summary: {project['description']}",
             f"License: {project['license']['text']}", f"Requires-Python: {project['requires-python']}"]
    if project.get("keywords"):
        lines.append(f"Keywords: {','.join(project['keywords'])}")
    lines += [f"Project-URL: {name}, {url}" for name, url in project.get("urls", {}).items()]
    lines += [f"Classifier: {c}" for c in project.get("classifiers", [])]
    lines += ["License-File: LICENSE", "License-File: THIRD_PARTY", "Description-Content-Type: text/markdown"]
    return ("\n".join(lines) + "\n\n" + readme).encode()


def wheel(source, version, programs, arch, texts, epoch):
    """(file name, bytes). `source` is bindings/python, `programs` a dict of name -> bytes (empty without an architecture), `texts`
    LICENSE and perhaps THIRD_PARTY."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project["version"] != version:
        raise ValueError(f"bindings/python/pyproject.toml says version {project['version']}, meson.build {version}")
    info = f"cloche-{version}.dist-info"
    tree = {}
    for path in sorted((source / "cloche").rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and "__pycache__" not in path.parts and not name.startswith(("cloche/bin/", "cloche/lib/")):
            tree[name] = Entry(path.read_bytes(), 0o644)
    for name, data in programs.items():
        tree[f"cloche/{name}"] = Entry(data, 0o755)
    tree[f"cloche-{version}.data/scripts/cloche"] = Entry(COMMAND, 0o755)
    tags = TAGS[arch]
    readme = (source / project["readme"]).read_text(encoding="utf-8")
    head = metadata(project, readme).decode()
    if "THIRD_PARTY" not in texts:
        head = head.replace("License-File: THIRD_PARTY\n", "")
    tree[f"{info}/METADATA"] = Entry(head.encode(), 0o644)
    tree[f"{info}/WHEEL"] = Entry(("Wheel-Version: 1.0\nGenerator: cloche\nRoot-Is-Purelib: " + ("false" if arch else "true") + "\n" +
                                   "".join(f"Tag: py3-none-{t}\n" for t in tags.split("."))).encode(), 0o644)
    for name, data in texts.items():
        tree[f"{info}/{name}"] = Entry(data, 0o644)
    tree[f"{info}/RECORD"] = record(tree, f"{info}/RECORD")
    return f"cloche-{version}-py3-none-{tags}.whl", zip_file(tree, epoch)
