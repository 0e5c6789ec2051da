"""The table of programs (lib/programs.py): each does real work in a box without a fault, a warning, or a denial (T29, T30, T31)."""
import os
import re

import boxlib
import programs
import pytest
from programs import CHROMIUM, PROGRAMS, PYTHON

DOC = boxlib.ROOT / "docs" / "PROGRAMS.md"


def run(box, row, ws, *more):
    where = row.setup(ws) if row.setup else ws
    return box(*[o.replace("WORKSPACE", str(ws)) for o in row.opts], *more, "--workspace", where or ws, "sh", "-c", row.run, timeout=180)


def said(r, err=r"\Z"):
    """Nothing but what the row expects: no fault, no denial, no word on stderr."""
    return r.o.fault, r.o["denied"], "" if re.match(err, r.o.err) else r.o.err


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(box, ws, name):
    row = PROGRAMS[name]
    if row.once and boxlib.IS_ROOT:
        pytest.skip("dear; runs as a plain user")
    if programs.missing(row):
        assert not os.environ.get("CI"), f"tools/deps programs did not bring {programs.missing(row)}"
        pytest.skip(f"there is no {programs.missing(row)} here")
    r = run(box, row, ws)
    assert said(r, row.err) == (None, [], "") and r.rc == row.rc, (said(r, row.err), r)
    assert re.search(row.out, r.o.out), r


@pytest.mark.parametrize("what", PYTHON)
def test_python(box, what):
    r = box("python3", "-c", PYTHON[what])
    assert (r.rc, *said(r)) == (0, None, [], ""), r


def test_chromium_without_its_options(box, ws):
    """Its own sandbox asks for a user namespace, which no box gives: it says so, and the outcome does too."""
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"there is no {CHROMIUM} here")
    r = box("-m", "2g", "--workspace", ws, CHROMIUM, "--headless", "--dump-dom", programs.PAGE.strip("'"))
    assert r.o.fault is None and r.rc != 0, r
    assert "sandbox" in r.o.err and "--no-sandbox" in r.o.err, r
    assert [(d["what"], d["comm"]) for d in r.o["denied"]] == [("clone", "chromium")], r


def test_documented_programs():
    """CLOCHE_WRITE_PROGRAMS=1 writes the table of the document anew."""
    text = DOC.read_text(encoding="utf-8")
    at = text.index("| program | options | why |")
    end = text.index("\n\n", at) + 1
    if os.environ.get("CLOCHE_WRITE_PROGRAMS"):
        DOC.write_text(text[:at] + programs.table() + text[end:], encoding="utf-8")
    else:
        assert text[at:end] == programs.table()
