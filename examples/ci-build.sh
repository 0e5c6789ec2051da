#!/bin/sh
# Usage: examples/ci-build.sh [SOURCE]
# A build as CI runs it: the source is shown read-only, the build happens in the box's memory, and only what it hands over comes out. Without
# SOURCE a small one is made. Needs cloche on PATH and make.
set -eu
out=$(mktemp -d /tmp/cloche-ci-XXXXXX)
trap 'rm -rf "$out"' EXIT
chmod 755 "$out"
mkdir "$out/result"
if [ $# -gt 0 ]; then
	source=$1
else
	source=$out/source
	mkdir "$source"
	printf 'hello:\n\tprintf "#!/bin/sh\\necho hello from a box\\n" >hello\n\tchmod +x hello\ncheck: hello\n\t./hello\n' >"$source/Makefile"
fi

# The build may not write to the source: it works on a copy. It has no network, so what it needs must be there.
cloche run -v "$source:/src:ro" -v "$out/result:/result" --memory 1g --pids 512 --timeout 10m -e MAKEFLAGS=-j2 -- sh -euc '
	cp -r /src /tmp/build
	cd /tmp/build
	make
	if [ -x hello ]; then cp hello /result; fi'

# What came out is the box's word. It is tried in a box as well.
if [ -x "$out/result/hello" ]; then
	cloche run -v "$out/result:/result:ro" -- /result/hello
fi
