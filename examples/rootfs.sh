#!/bin/sh
# Usage: examples/rootfs.sh
# A root file system of one's own, as small as it gets: busybox and a few links. The box writes to a layer that is thrown away; the directory
# stays as it was. Needs cloche on PATH and a static busybox.
set -eu
busybox=$(command -v busybox) || { echo "needs busybox (package busybox-static)" >&2; exit 1; }
root=$(mktemp -d /tmp/cloche-rootfs-XXXXXX)
trap 'rm -rf "$root"' EXIT
mkdir "$root/bin" "$root/etc" "$root/root"
cp "$busybox" "$root/bin/busybox"
for name in sh ls cat id echo wc rm; do
	ln -s busybox "$root/bin/$name"
done
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
chmod -R go+rX "$root"

cloche run --rootfs "$root" -- sh -c 'id; echo "its root: $(echo /*)"; rm -r /etc; echo "etc in the box: $(ls -d /etc 2>&1)"'
echo "etc outside: $(ls "$root/etc" | tr '\n' ' ')"
