#!/bin/sh
# Installs cloche @VERSION@ from a release: sh install.sh [--prefix DIR] [--from DIR-OR-URL] [--uninstall]
#
# What it takes is the tarball for this machine and SHA256SUMS, from the directory that this script is in, or from --from: a directory, or
# an https:// address. Nothing is installed unless the checksum is right. DIR is $PREFIX, else /usr/local for root and ~/.local for others; no
# root is needed. What was installed is listed in DIR/lib/cloche/installed, and --uninstall removes that and nothing else.
#
# For any POSIX shell with tar, gzip and sha256sum (busybox has them), and curl or wget for an address.
set -eu
umask 022
version=@VERSION@
list=lib/cloche/installed

fail() {
	echo "install: $*" >&2
	exit 1
}

usage() {
	echo "usage: sh install.sh [--prefix DIR] [--from DIR-OR-https://ADDRESS] [--uninstall]"
}

# get NAME: puts that file of the release into $tmp.
get() {
	case $from in
	https://*)
		if command -v curl >/dev/null; then
			curl --proto =https --tlsv1.2 -fsSL -o "$tmp/$1" "$from/$1" || fail "$from/$1 can't be downloaded"
		elif command -v wget >/dev/null; then
			wget -q -O "$tmp/$1" "$from/$1" || fail "$from/$1 can't be downloaded"
		else
			fail 'neither curl nor wget is here: download the release, and give its directory by --from'
		fi
		;;
	*) cp "$from/$1" "$tmp/$1" 2>/dev/null || fail "$from has no $1; fix: give the release's directory or address by --from" ;;
	esac
}

# Removes what the list $1 names: files, and directories (with a / at the end) that are empty then.
remove() {
	sort -r "$1" | while IFS= read -r name; do
		case $name in
		'' | /* | *..*) ;;
		*/) rmdir "$prefix/$name" 2>/dev/null || true ;;
		*) rm -f "$prefix/$name" ;;
		esac
	done
}

# The directories of the files in the list $1 that are not there yet.
new_directories() {
	while IFS= read -r name; do
		name=$(dirname "$name")
		while [ "$name" != . ] && [ ! -d "$prefix/$name" ]; do
			echo "$name/"
			name=$(dirname "$name")
		done
	done <"$1" | sort -u
}

uninstall() {
	[ -f "$prefix/$list" ] || fail "no cloche of this script's is in $prefix; fix: give its directory by --prefix"
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	{ cat "$prefix/$list"; echo "$list"; } >"$tmp/list"
	remove "$tmp/list"
	echo "removed cloche from $prefix; images and layers are in ~/.local/share/cloche"
}

install_it() {
	[ "$(uname -s)" = Linux ] ||
		fail 'boxes are made by the Linux kernel: use cloche inside a Linux virtual machine (macOS: Lima, Colima; Windows: WSL2)'
	case $(uname -m) in
	x86_64 | amd64) machine=x86_64 ;;
	aarch64 | arm64) machine=aarch64 ;;
	*) fail "there are programs for x86_64 and aarch64, and this is $(uname -m): build it from the source" ;;
	esac
	name=cloche-$version-linux-$machine
	mkdir -p "$prefix" 2>/dev/null || true
	# On the same file system, so that each file is put into its place by one rename.
	tmp=$(mktemp -d "$prefix/.cloche-XXXXXX" 2>/dev/null) || fail "$prefix can't be written to; fix: give another directory by --prefix"
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 130' INT TERM HUP
	get SHA256SUMS
	get "$name.tar.gz"
	grep "  $name.tar.gz\$" "$tmp/SHA256SUMS" >"$tmp/sum" || fail "SHA256SUMS does not name $name.tar.gz"
	(cd "$tmp" && sha256sum -c sum >/dev/null 2>&1) || fail "$name.tar.gz is not what SHA256SUMS says: download both again"
	tar -C "$tmp" -xzf "$tmp/$name.tar.gz"
	"$tmp/$name/bin/cloche" --version >/dev/null || fail "the program for $machine does not run here"
	(cd "$tmp/$name" && find . -type f | sed 's,^\./,,' | sort) >"$tmp/files"
	new_directories "$tmp/files" >"$tmp/directories"
	: >"$tmp/old"
	if [ -f "$prefix/$list" ]; then
		grep '/$' "$prefix/$list" >>"$tmp/directories" || true
		grep -Fxv -f "$tmp/files" "$prefix/$list" | grep -v '/$' >"$tmp/old" || true
	fi
	while IFS= read -r file; do
		mkdir -p "$prefix/$(dirname "$file")"
		mv -f "$tmp/$name/$file" "$prefix/$file"
	done <"$tmp/files"
	cat "$tmp/files" "$tmp/directories" >"$tmp/list"
	mv -f "$tmp/list" "$prefix/$list"
	remove "$tmp/old" # what an earlier version had and this one has not
	echo "installed $("$prefix/bin/cloche" --version) in $prefix; what this machine gives to boxes: $prefix/bin/cloche doctor"
	case :$PATH: in
	*:"$prefix/bin":*) ;;
	*) echo "$prefix/bin is not in PATH" ;;
	esac
}

main() {
	if [ "$(id -u)" = 0 ]; then prefix=${PREFIX:-/usr/local}; else prefix=${PREFIX:-${HOME:-}/.local}; fi
	from=$(dirname "$0")
	what=install_it
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix | --from) [ $# -ge 2 ] && [ -n "$2" ] || { usage >&2; exit 2; } ;;
		esac
		case $1 in
		--prefix) prefix=$2 && shift ;;
		--from) from=${2%/} && shift ;;
		--uninstall) what=uninstall ;;
		-h | --help) usage && exit 0 ;;
		*) usage >&2; exit 2 ;;
		esac
		shift
	done
	case $prefix in
	/*) ;;
	*) prefix=$PWD/$prefix ;;
	esac
	case $from in
	http://*) fail 'an address has to be one of https://' ;;
	esac
	$what
}

# The last line: of a script that was cut short, nothing runs.
main "$@"
