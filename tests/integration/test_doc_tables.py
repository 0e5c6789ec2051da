"""Tables of the documents that repeat a table of the sources: what one has, the other has."""
import json
import re

import boxlib
import pytest

DOCS = boxlib.ROOT / "docs"
SRC = boxlib.ROOT / "src"


def mount_rules():
    """(class, how, pattern) of every row of mount_table.c."""
    text = (SRC / "box" / "mount_table.c").read_text(encoding="utf-8")
    body = text[text.index("mount_rules[] = {"):text.index("mount_rules_n =")]
    names = dict(re.findall(r'\[(CLASS_\w+)\] = \{ "([^"]+)"', text))
    how = {"NAMES": "anywhere in a path", "BELOW": "it and all below", "EXACT": "itself", "HOME": "below your home",
           "ENV": "what the variable names"}
    rows = {(names[c], how[k], ("$" if k == "ENV" else "") + p)
            for k, c, p in re.findall(r'\b(NAMES|BELOW|EXACT|HOME|ENV)\((CLASS_\w+), "([^"]+)"\)', body)}
    rows |= {(names[c], how["BELOW"], p) for p, c in re.findall(r'\{ "([^"]+)", RULE_BELOW, (CLASS_\w+),', body)}
    return rows


def test_refused_mounts():
    text = (DOCS / "MOUNTS.md").read_text(encoding="utf-8")
    table = text[text.index("| class | how | patterns |"):text.index("\n\n", text.index("| class | how | patterns |"))]
    said = set()
    for line in table.splitlines()[2:]:
        name, how, patterns = [cell.strip() for cell in line.strip("|").split("|")]
        patterns = re.sub(r"\(not below `[^`]+`\)", "", patterns)
        said |= {(name, how, p) for p in re.findall(r"`([^`]+)`", patterns)}
    said = {row for row in said if row[1] != "it, all below, all above"}
    assert len(said) > 200
    assert said == mount_rules()


@pytest.mark.parametrize("group, page", [("SC_ENOSYS", "SECCOMP"), ("SC_EPERM", "SECCOMP"), ("SC_DENY", "SECCOMP"), ("SC_END", "SECCOMP"),
                                         ("SC_IF_SETUP", "SETUP")])
def test_groups_of_system_calls(group, page):
    policy = (SRC / "box" / "seccomp_policy.c").read_text(encoding="utf-8")
    want = set()
    for strings in re.findall(r"\{ " + group + r',\s+((?:"[^"]*"\s*)+)\}', policy):
        want |= set(" ".join(re.findall(r'"([^"]*)"', strings)).split())
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    part = re.search(r"<!-- group: " + group + r" -->\n(.*?)\n\n", text, re.S)[1]
    assert set(re.findall(r"`(\w+)`", part)) == want


def test_doctor_rows(cloche):
    ids = {row["id"] for row in json.loads(cloche("doctor", "--json").out)["rows"]}
    text = (DOCS / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.M)) == ids


def test_fields_of_the_outcome(box):
    text = (DOCS / "OUTCOME.md").read_text(encoding="utf-8")
    said = set(" ".join(re.findall(r"`([^`\n]+)`", text)).split())
    for opts in (("--timing", "true"), ("mount", "-t", "tmpfs", "x", "/tmp"), ("printf", "\\377")):
        todo = [box(*opts).o]
        while todo:
            at = todo.pop()
            if isinstance(at, dict):
                assert set(at) <= said, set(at) - said
                todo += at.values()
            elif isinstance(at, list):
                todo += at


def test_stages():
    text = (SRC / "base" / "err.c").read_text(encoding="utf-8")
    stages = {s for s in re.findall(r'\[STAGE_\w+\] = "(\w*)"', text) if s}
    row = re.search(r"^\| `stage` .*: `([^`]+)` \|$", (DOCS / "OUTCOME.md").read_text(encoding="utf-8"), re.M)[1]
    assert set(row.split()) == stages


def test_documented_limits(box):
    text = (DOCS / "OUTCOME.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+)`", re.search(r"^\w+ rows: (.*?)\. Each", text, re.M | re.S)[1])) == set(box("true").o["limits"])
