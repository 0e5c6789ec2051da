"""coverage.tsv: what the reference's cases and inventory ask for, and the test that shows it.

Usage: coverage_rows.py [[--places] RAN]; RAN is the list of ids that passed and, behind a "-", of those that were skipped for a reason of skips.txt
(written by conftest.py). A row whose test was skipped alone is named; where CI is set, it is a problem. Rows: case, sub-case, and either ids of tests
("integration/test_x.py::test_y", several separated by spaces; "unit:NAME" for a suite of tests/unit; "PLACE@ID" for a test that a row of
guest/places.tsv runs) or one of five reasons. RAN speaks for the ids without a place; with --places, for those with one.
"""
import os
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
REASONS = {"later wave", "needs another kernel", "needs another architecture", "needs hardware", "decided otherwise"}
# How many sub-cases each case has at least. A row more is welcome; a row less means that something was forgotten.
AT_LEAST = {
    "T1": 3, "T2": 4, "T3": 5, "T4": 4, "T5": 6, "T6": 3, "T7": 5, "T8": 3, "T9": 6, "T10": 2, "T11": 5, "T12": 4, "T13": 5, "T14": 7,
    "T15": 3, "T16": 17, "T17": 2, "T18": 5, "T19": 3, "T20": 5, "T21": 3, "T22": 4, "T23": 5, "T24": 3, "T25": 6, "T26": 7, "T27": 12,
    "T28": 15, "T29": 10, "T30": 5, "T31": 2, "T32": 8, "T33": 9, "T34": 9, "T35": 4, "T36": 4, "T37": 2, "T38": 12, "T39": 7, "T40": 4,
    "T41": 1, "A2": 14, "packages": 6, "9.1": 10, "9.2": 25, "9.3": 10, "9.4": 3, "9.5": 4, "9.6": 1, "9.7": 8,
}


def rows():
    found = []
    for n, line in enumerate((TESTS / "coverage.tsv").read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        found.append((n, parts))
    return found


def defined():
    """Every test function of the suites: "integration/test_x.py::test_y"."""
    ids = set()
    for path in [*TESTS.glob("integration/test_*.py"), *TESTS.glob("security/test_*.py"), *TESTS.glob("guest/test_*.py")]:
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M):
            ids.add(f"{path.relative_to(TESTS).as_posix()}::{name}")
    return ids


def unit_suites():
    meson = TESTS / "unit" / "meson.build"
    return meson.read_text(encoding="utf-8") if meson.exists() else ""


def places():
    lines = (TESTS / "guest" / "places.tsv").read_text(encoding="utf-8").splitlines()
    return {line.split("\t")[0] for line in lines if line and not line.startswith("#")}


def problems(ran=None, in_places=False):
    """(what is wrong, what can't be shown here)."""
    guests, not_here = places(), []
    bad, counts, known, suites, seen = [], dict.fromkeys(AT_LEAST, 0), defined(), unit_suites(), set()
    for n, parts in rows():
        if len(parts) != 3 or not all(p.strip() for p in parts):
            bad.append(f"coverage.tsv:{n}: not three columns")
            continue
        case, sub, proof = parts
        if case not in AT_LEAST:
            bad.append(f"coverage.tsv:{n}: there is no case {case}")
            continue
        if (case, sub) in seen:
            bad.append(f"coverage.tsv:{n}: {case} {sub} stands there twice")
        seen.add((case, sub))
        counts[case] += 1
        if proof in REASONS:
            continue
        for name in proof.split():
            if name.startswith("unit:"):
                if f"'{name[5:]}'" not in suites:
                    bad.append(f"coverage.tsv:{n}: no unit suite {name[5:]}")
                continue
            place, _, test = name.rpartition("@")
            if test not in known or (place and place not in guests) or (test.startswith("guest/") and not place):
                bad.append(f"coverage.tsv:{n}: {name} is no test, nor one of the reasons")
            elif ran is not None and bool(place) == in_places and name not in ran:
                skipped = f"-{name}" in ran and not os.environ.get("CI")
                (not_here if skipped else bad).append(f"coverage.tsv:{n}: {name} " + ("was skipped" if skipped else "did not run, or did not pass"))
    bad += [f"coverage.tsv: {case} has {counts[case]} rows of at least {least}" for case, least in AT_LEAST.items() if counts[case] < least]
    return bad, not_here


def main():
    ran = None
    if len(sys.argv) > 1:
        lines = pathlib.Path(sys.argv[-1]).read_text(encoding="utf-8").splitlines()
        ran = {line.split("[")[0] for line in lines}
    bad, not_here = problems(ran, sys.argv[1:2] == ["--places"])
    for line in not_here + bad:
        print(line)
    total = len(rows())
    tested = sum(parts[-1] not in REASONS for _, parts in rows())
    print(f"coverage: {total} sub-cases, {tested} with a test, {total - tested} with a reason, {len(not_here)} skipped here, {len(bad)} problems")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
