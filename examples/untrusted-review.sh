#!/bin/sh
# Usage: examples/untrusted-review.sh [DIRECTORY]
# A look at code that may be hostile: it is shown read-only, it runs under the strict profile, and what it tried is listed. Without DIRECTORY a
# specimen is made that reads where it should not and traces its parent. Needs cloche on PATH and python3.
set -eu
tmp=$(mktemp -d /tmp/cloche-review-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
if [ $# -gt 0 ]; then
	dir=$1
else
	dir=$tmp/specimen
	mkdir "$dir"
	cat >"$dir/main.py" <<'PY'
import ctypes, os, pathlib, socket

def attempt(what, do):
    try:
        print(what, "->", do())
    except OSError as why:
        print(what, "->", why.strerror)

attempt("list the homes", lambda: os.listdir("/home"))
attempt("read the password hashes", lambda: pathlib.Path("/etc/shadow").read_text())
attempt("change its own source", lambda: pathlib.Path("/src/main.py").write_text("pwned"))
attempt("call home", lambda: socket.create_connection(("192.0.2.1", 443), 2))
ctypes.CDLL(None).ptrace(16, os.getppid(), None, None)
PY
fi

rc=0
cloche run --json --security-profile untrusted -v "$dir:/src" --memory 256m --pids 64 --timeout 20 -- python3 /src/main.py >"$tmp/outcome.json" || rc=$?
[ "$rc" != 2 ] || exit 2
python3 - "$tmp/outcome.json" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
print("ended:", o["fault"]["type"] if o["fault"] else f"by itself, with {o['exit_code']}")
print(f"used: {o['usage']['memory_peak_bytes'] or 0} bytes of memory at most, {o['duration_ms']:.0f} ms")
print("held by:", ", ".join(f"{k} {v['rung']}" for k, v in o["limits"].items() if v["requested"] is not None))
for d in o["denied"]:
    print("refused:", d["what"], "by", ascii(d["comm"]))
# Its own words are shown escaped: they may hold sequences for the terminal.
for line in o["stdout"].splitlines()[:20]:
    print("said:", ascii(line)[1:-1])
PY
