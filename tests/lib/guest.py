"""The guests of tools/guest as Python sees them: the rows of guest/places.tsv, whether there can be any here, and one order in one of them."""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / "tools" / "guest"
IMAGES = ROOT / "build" / "guest"
PROBES = ROOT / "build" / "probes"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
DIED = 125  # tools/guest/run: not the command's own end
NEEDS = "qemu-system-x86_64", "qemu-img", "zstd", "mmdebstrap", "mke2fs"


def places():
    """[(name, suite, who, arguments of pytest)], as in the file."""
    lines = (ROOT / "tests/guest/places.tsv").read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines if line[:1] not in ("", "#")]


def why_none(suites):
    """Why no guest can run here, or None."""
    missing = [p for p in NEEDS if not shutil.which(p, path=PATH)]
    if missing:
        return f"this host has no {', '.join(missing)}"
    if os.geteuid() != 0 and not all((IMAGES / s / "key").exists() for s in suites):
        return "no guest in build/guest, and building one needs root: sudo make test-guest"
    return None


def build(suite):
    return subprocess.run([TOOLS / "build", IMAGES / suite, suite], check=False).returncode == 0


def build_probes():
    PROBES.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, TOOLS / "probes", PROBES], check=True)


def order(place, out, hang, words):
    """Words for sh, in a fresh guest of this row; what they put into $GUEST_OUT is in `out` afterwards. One that died (its kernel, no test) is woken
    once more, and that is said."""
    name, suite, who, _ = place
    words = f"export CLOCHE_PLACE={name} CLOCHE_PROBES=$PWD/build/probes; {words}"
    argv = [TOOLS / "run", "-a", who, "-o", out, "-t", str(hang), IMAGES / suite, "--", words]
    for again in (True, False):
        shutil.rmtree(out, ignore_errors=True)
        r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if r.returncode != DIED or not again:
            return r
        print(f"== guest: {name}: died, once more; its last words:\n{r.stdout}", flush=True)
