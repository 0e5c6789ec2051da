#!/bin/sh
# Usage: examples/agent-loop.sh
# What an agent does with code that a model wrote: run it in a box, read the outcome, decide. Here four snippets stand in for the model: one that
# works, one with a bug, one that never ends, and one that tries to leave. Needs cloche on PATH and python3.
set -eu
work=$(mktemp -d /tmp/cloche-agent-XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

# decide FILE: one line from the outcome in it, without jq.
decide() {
	python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
fault = o["fault"]
if fault is None and o["exit_code"] == 0:
    print("use it:", o["stdout"].strip())
elif fault is None:
    print("tell the model:", (o["stderr"].strip().splitlines() or ["exit code %d" % o["exit_code"]])[-1])
elif fault["type"] == "escape_blocked":
    print("stop, it called", fault.get("syscall"))
else:
    print("tell the model:", fault["type"], "-", fault["message"])
' "$1"
}

# try NAME CODE: the code comes by a file of the workspace, never by a shell.
try() {
	printf '%s\n' "$2" >"$work/step.py"
	# A code other than 0 is part of the answer, not of our own trouble; 2 is.
	rc=0
	cloche run --json --workspace "$work" --timeout 2 --memory 256m --pids 32 -- python3 step.py >"$work.json" || rc=$?
	[ "$rc" != 2 ] || exit 2
	printf '%-8s %s\n' "$1" "$(decide "$work.json")"
	rm -f "$work.json"
}

try works 'print(sum(n * n for n in range(10)))'
try bug 'print(1 / 0)'
try endless 'while True: pass'
try leaves 'import ctypes; ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None)'
