"""Layers that are wrong, sly or merely odd, with the right outcome each: the tree that a box then sees, or the reason of the refusal.

Each row is one or more layers above the image `busybox`. integration/test_image_hostile.py takes them through the built program. {outside} in
a name or target is a directory of the test with a file `canary` in it, which nothing may touch.
"""
import copy
import dataclasses
import gzip
import struct
import tarfile

from layout import entry, folder, hardlink, symlink, tar

BLOCK = 512


def head(name, kind=b"0", size=0, link=b"", mode=0o644, magic=b"ustar\00000", size_field=None, uid=0):
    """A raw header with a valid checksum, whatever it says."""
    name, link = (x if isinstance(x, bytes) else x.encode() for x in (name, link))
    h = bytearray(BLOCK)
    h[0:len(name[:100])] = name[:100]
    h[100:108], h[108:116], h[116:124] = b"%07o\0" % mode, b"%07o\0" % uid, b"%07o\0" % 0
    h[124:136], h[136:148] = size_field or b"%011o\0" % size, b"%011o\0" % 1700000000
    h[156:157] = kind
    h[157:157 + len(link[:100])] = link[:100]
    h[257:265] = magic
    return mend(h)


def mend(h):
    h[148:156] = b" " * 8
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)


def padded(data):
    return data + b"\0" * (-len(data) % BLOCK)


def record(key, value):
    """A record of a pax header."""
    body = b" " + key + b"=" + value + b"\n"
    n = len(body)
    while len(b"%d" % n) + len(body) != n:
        n = len(b"%d" % n) + len(body)
    return b"%d" % n + body


def pax(*records, kind=b"x"):
    body = b"".join(record(*r) for r in records)
    return head("PaxHeaders/x", kind, len(body)) + padded(body)


def old_sparse(name, real, pieces):
    """GNU's old sparse file: `pieces` of (offset, bytes)."""
    h = bytearray(head(name, b"S", sum(len(d) for _, d in pieces), magic=b"ustar  \0"))
    for i, (at, data) in enumerate(pieces):
        h[386 + 24 * i:398 + 24 * i], h[398 + 24 * i:410 + 24 * i] = b"%011o\0" % at, b"%011o\0" % len(data)
    h[483:495] = b"\x80" + struct.pack(">Q", real).rjust(11, b"\0")
    return mend(h) + padded(b"".join(d for _, d in pieces))


def pax_sparse(name, real, pieces):
    """The same as GNU tar's pax format 1.0 writes it."""
    table = padded(b"%d\n" % len(pieces) + b"".join(b"%d\n%d\n" % (at, len(d)) for at, d in pieces))
    body = table + b"".join(d for _, d in pieces)
    return pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", name), (b"GNU.sparse.realsize", b"%d" % real)) \
        + head("GNUSparseFile.0/x", size=len(body)) + padded(body)


END = b"\0" * (2 * BLOCK)
HUGE = 7 << 29  # 3.5 GiB


@dataclasses.dataclass
class Hostile:
    """`layers` are lists of entries, or bytes. `tree`: what a box sees, {path: what}, where what is bytes (a file's content) or a word:
    dir, fifo, gone, link:TARGET, mode:OCTAL, same:PATH (one file), size:BYTES, kib-below:N (room it takes). `refuse`: a part of the message."""

    layers: list
    tree: dict = None
    refuse: str = None


def one(*entries, **kw):
    return Hostile([list(entries)], **kw)


def refused(why, *entries):
    return Hostile([list(entries)], refuse=why)


GIVEN = [folder("d"), entry("d/old", "old"), entry("d/keep", "keep"), entry("f", "below")]
ROWS = {
    # T27
    "hard-link whiteout": Hostile([GIVEN, [entry("d/.wh.old", ""), hardlink(".wh.f", "d/.wh.old")]],
                                  {"d/old": "gone", "f": "gone", "d/keep": b"keep"}),
    "opaque after siblings": Hostile([GIVEN, [folder("d"), entry("d/new", "new"), entry("d/.wh..wh..opq", "")]],
                                     {"d/old": "gone", "d/keep": "gone", "d/new": b"new"}),
    "opaque before siblings": Hostile([GIVEN, [folder("d"), entry("d/.wh..wh..opq", ""), entry("d/new", "new")]],
                                      {"d/old": "gone", "d/new": b"new"}),
    "whiteout before and after what it names": Hostile([GIVEN, [entry("d/.wh.old", ""), entry("d/old", "new"), entry("f", "new"), entry(".wh.f", "")]],
                                                       {"d/old": b"new", "f": b"new"}),
    "hard link over a file": one(entry("a", "one"), entry("b", "two"), hardlink("b", "a"), tree={"b": b"one", "a": "same:b"}),
    "hard link over a file below": Hostile([GIVEN, [entry("a", "one"), hardlink("f", "a")]], {"f": b"one", "a": "same:f"}),
    "hard link to a file below": Hostile([GIVEN, [hardlink("g", "f")]], {"g": b"below", "f": b"below"}),
    "0500 directories": Hostile([[folder("r", mode=0o500), entry("r/a", "a"), folder("r/s", mode=0o555), entry("r/s/b", "b")],
                                 [entry("r/c", "c"), entry("r/.wh.a", ""), entry("r/s/d", "d")]],
                                {"r/a": "gone", "r/s/b": b"b", "r/c": b"c", "r/s/d": b"d", "r": "mode:500", "r/s": "mode:555"}),
    "/etc is a link": refused("it is below etc", symlink("etc", "{outside}"), entry("etc/canary", "x")),
    "/proc is a link upwards": refused("it is below proc", symlink("proc", "../../../../../../../.."), entry("proc/canary", "x")),
    "/etc is a link, in the layer above it is written through": Hostile(
        [[symlink("etc", "{outside}")], [entry("etc/canary", "inside"), entry("etc/more", "inside")]], {"{outside}/canary": b"inside"}),
    "a link far up, in the layer above it is written through": Hostile(
        [[symlink("up", "../" * 40 + "{outside}")], [entry("up/canary", "inside")]], {"up/canary": b"inside"}),
    "set-user-id": one(entry("s", "x", mode=0o6755), entry("g", "x", mode=0o2755), folder("t", mode=0o1777), folder("u", mode=0o2775),
                       tree={"s": "mode:755", "g": "mode:755", "t": "mode:1777", "u": "mode:2775"}),
    "devices": one(entry("a", "1"), entry("n", type=tarfile.CHRTYPE, devmajor=1, devminor=3), entry("k", type=tarfile.BLKTYPE, devmajor=8), entry("b", "2"),
                   tree={"a": b"1", "n": "gone", "k": "gone", "b": b"2"}),
    "a device that looks like a whiteout": Hostile([GIVEN, [entry("f", type=tarfile.CHRTYPE, devmajor=0, devminor=0)]], {"d/old": b"old"}),
    "attributes of overlayfs": Hostile(
        [GIVEN, [entry("d", type=tarfile.DIRTYPE, pax_headers={"SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.trusted.overlay.opaque": "y",
                                                                 "SCHILY.xattr.user.overlay.redirect": "/etc"})]], {"d/old": b"old", "d/keep": b"keep"}),
    "over 3 GiB, sparse": one(old_sparse("big", HUGE, [(0, b"begin"), (HUGE - 3, b"end")]), pax_sparse(b"pax", HUGE, [(HUGE - 3, b"end")]),
                              tree={"big": f"size:{HUGE}", "pax": f"size:{HUGE}"}),
    "over 3 GiB takes no room": one(old_sparse("big", HUGE, [(HUGE - 3, b"end")]), tree={"big": "kib-below:1024"}),
    # Inventory 9.5: names
    "absolute": refused("the name is absolute", entry("{outside}/canary", "x")),
    "dot-dot": refused('the name has a ".."', entry("a/../../../../../../..{outside}/canary", "x")),
    "dot-dot within": refused('the name has a ".."', folder("a"), entry("a/../b", "x")),
    "dots and slashes": one(entry("./a//b/./c", "x"), tree={"a/b/c": b"x"}),
    "a name of 256 bytes": refused("a part of the name is longer", entry("n" * 256, "x")),
    "a name of 255 bytes": one(entry("n" * 255, "x"), tree={"n" * 255: b"x"}),
    "a long name": one(entry("/".join(["p" * 200] * 5), "x"), tree={"/".join(["p" * 200] * 5): b"x"}),
    "deep": refused("directories deep", entry("a/" * 300 + "x", "x")),
    "the root as a link": refused("the root is no directory", symlink(".", "{outside}")),
    "the root as a file": refused("the name of a directory", entry("./", "x", type=tarfile.REGTYPE)),
    "a name that would draw": one(entry("e\x1b[2J\x1b]0;x\x07", "x"), tree={"e\x1b[2J\x1b]0;x\x07": b"x"}),
    "a refused name that would draw": refused("it is below", symlink("e\x1b[2J", "/x"), entry("e\x1b[2J/\x9b31m", "x")),
    "bytes that are no text": one(head(b"n\xff\xfe\x80"), tree={b"n\xff\xfe\x80": b""}),
    # links
    "chain of links": refused("it is below l1", folder("a"), symlink("l1", "l2"), symlink("l2", "l3"), symlink("l3", "{outside}"), entry("l1/canary", "x")),
    "a directory becomes a link": refused("it is below a", folder("a"), entry("a/x", "1"), symlink("a", "{outside}"), entry("a/canary", "x")),
    "links in a ring below": Hostile([[symlink("a", "b"), symlink("b", "a")], [entry("a/x", "x")]], refuse="too many links"),
    "a link is replaced, not followed": one(symlink("a", "{outside}/canary"), entry("a", "mine"), tree={"a": b"mine"}),
    "a link below is replaced, not followed": Hostile([[symlink("a", "{outside}/canary")], [entry("a", "mine")]], {"a": b"mine"}),
    "mode of a link": one(symlink("a", "{outside}/canary"), entry("b", "x"), tree={"a": "link:{outside}/canary"}),
    "absolute link": one(symlink("a", "/bin/busybox"), tree={"a": "link:/bin/busybox"}),
    "hard link to an absolute name": refused("the name is absolute", hardlink("a", "{outside}/canary")),
    "hard link upwards": refused('the name has a ".."', hardlink("a", "../../../../../../..{outside}/canary")),
    "hard link through a link": refused("no such file", symlink("l", "{outside}"), hardlink("a", "l/canary")),
    "hard link through a link below": Hostile([[symlink("l", "{outside}")], [hardlink("a", "l/canary")]], refuse="no such file"),
    "hard link to a link": one(symlink("l", "{outside}/canary"), hardlink("a", "l"), tree={"a": "link:{outside}/canary"}),
    "hard link to a directory": refused("no such file", folder("x"), hardlink("a", "x")),
    "hard link to itself": refused("that is itself", entry("a", "x"), hardlink("a", "a")),
    "hard link to nothing": refused("no such file", hardlink("a", "nothing")),
    "hard link with content": refused("no file has content", head("a", b"1", 5, b"b") + padded(b"x" * 5)),
    # the archive
    "an unknown type": refused("unknown type", head("a", b"Z")),
    "several volumes": refused("several volumes", head("a", b"M", 5) + padded(b"x" * 5)),
    "two sources of one name": refused("two sources of one name", pax((b"path", b"a"), (b"path", b"b")) + head("c")),
    "a global header names": refused("a global header sets", pax((b"path", b"etc/passwd"), kind=b"g") + head("a")),
    "a global header comments": one(pax((b"comment", b"0123"), kind=b"g") + head("a", size=1) + padded(b"x"), tree={"a": b"x"}),
    "behind the end": refused("something behind the end", entry("a", "x"), END + head("etc/hidden") + END),
    # The digest says that it is whole; umoci writes such.
    "no end": Hostile([head("a", size=5) + padded(b"xxxxx") + head("b", size=5) + b"yyyyy"], {"a": b"xxxxx", "b": b"yyyyy"}),
    "no end behind a header of a header": Hostile([pax((b"path", b"a"))], refuse="cut short"),
    "cut in a file": Hostile([head("a", size=5000) + b"x" * 1024], refuse="in the middle"),
    "empty": Hostile([b""], refuse="cut short"),
    "no tar": Hostile([b"#!/bin/sh\nexit 0\n" * 100], refuse="no tar archive"),
    "a checksum is wrong": Hostile([head("a")[:148] + b"000000\0 " + head("a")[156:] + END], refuse="wrong checksum"),
    "zeros as tar pads": Hostile([tar(entry("a", "x")) + b"\0" * (1 << 20)], {"a": b"x"}),
    "zero flood": Hostile([tar(entry("a", "x")) + b"\0" * (64 << 20)], refuse="zeros"),
    "base-256 overflow": refused("is malformed", head("a", size_field=b"\x80" + b"\xff" * 11)),
    "base-256 below zero": refused("is malformed", head("a", size_field=b"\xff" * 12)),
    "a size that is no number": refused("is malformed", head("a", size_field=b"12x45678901\0")),
    "8 EiB": refused("a file is larger", head("a", size_field=b"\x80" + struct.pack(">Q", 1 << 62).rjust(11, b"\0"))),
    "a pax header that ends in a character": refused("malformed", head("p", b"x", 12) + padded(b"13 path=ab\xc3\xa4"), head("a")),
    "a pax header of 2 MiB": refused("an extended header has more than", head("p", b"x", 2 << 20) + b"\0" * (2 << 20)),
    "a pax header of nothing": refused("belongs to no entry", pax((b"path", b"a"))),
    "a NUL in a name": refused("a NUL in it", pax((b"path", b"a\0b")) + head("c")),
    "sparse pieces that overlap": refused("a sparse map", old_sparse("a", 4096, [(0, b"x" * 512), (100, b"y" * 512)])),
    "sparse pieces beyond the end": refused("a sparse map", old_sparse("a", 100, [(0, b"x" * 512)])),
    "sparse in format 0": refused("format 0", pax((b"GNU.sparse.map", b"0,1"), (b"GNU.sparse.size", b"9")) + head("a", size=1) + padded(b"x")),
    "a directory with content": refused("no file has content", head("a/", b"5", 512) + b"x" * 512),
    # merging
    "a whiteout of no name": refused("a whiteout of no name", entry(".wh.", "")),
    "a whiteout of the directory": refused("a whiteout of no name", folder("d"), entry("d/.wh..", "")),
    "a whiteout of the parent": refused("a whiteout of no name", folder("d"), entry("d/.wh...", "")),
    "a whiteout of nothing": one(entry(".wh.nothing", ""), entry("a", "x"), tree={"nothing": "gone", "a": b"x"}),
    "a whiteout below a link": Hostile([[symlink("l", "{outside}")], [entry("l/.wh.canary", "")]], {"l": "link:{outside}"}),
    "files of aufs": one(entry(".wh..wh.plnk", "x"), folder(".wh..wh.orph"), entry("a", "x"), tree={".wh..wh.plnk": "gone", "a": b"x"}),
    "a file where a directory was": Hostile([GIVEN, [entry("d", "file")]], {"d": b"file"}),
    "a directory where a file was": Hostile([GIVEN, [folder("f"), entry("f/x", "x")]], {"f/x": b"x", "d/old": b"old"}),
    "a directory comes back empty": Hostile([GIVEN, [entry(".wh.d", "")], [folder("d"), entry("d/new", "n")]], {"d/old": "gone", "d/new": b"n"}),
    "twice": one(entry("a", "first"), folder("b"), entry("b/x", "kept"), entry("a", "second"), folder("b", mode=0o700),
                 tree={"a": b"second", "b/x": b"kept", "b": "mode:700"}),
    "FIFOs are made": one(entry("p", type=tarfile.FIFOTYPE), tree={"p": "fifo"}),
}


def filled(text, outside):
    """{outside} in names and targets; archives want them relative where a name is meant, so that the case decides on the slash."""
    return text.replace("{outside}", outside) if isinstance(text, str) else text


def archive(entries, outside):
    """A layer's tar."""
    if isinstance(entries, bytes):
        return entries
    made = []
    for e in entries:
        if not isinstance(e, bytes):
            info, data = e
            info = copy.copy(info)
            info.name, info.linkname = filled(info.name, outside), filled(info.linkname, outside)
            e = info, data
        made.append(e)
    return tar(*made)


def gzip_of_members(data):
    """One gzip stream of two members, as pigz and some registries write."""
    half = len(data) // 2
    return gzip.compress(data[:half], 1) + gzip.compress(data[half:], 1)
