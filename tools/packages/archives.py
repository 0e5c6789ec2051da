"""Writes archives that come out the same, byte for byte, for the same content: entries sorted, one time for all, no owner.

A tree is a dict of path -> Entry(data, mode); what comes in is checked to be a plain relative path, so that no archive of ours holds
what an unpacker should refuse.
"""
import base64
import collections
import gzip
import hashlib
import io
import tarfile
import time
import zipfile

Entry = collections.namedtuple("Entry", "data mode")


def check(tree):
    for path in tree:
        if path.startswith("/") or not all(p not in ("", ".", "..") for p in path.split("/")):
            raise ValueError(f"{path}: no path of a package")
    return sorted(tree.items())


def tar_gz(tree, epoch):
    """The bytes of a tar.gz: regular files, with a directory before what is in it."""
    raw = io.BytesIO()
    made = set()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, entry in check(tree):
            parents = path.split("/")[:-1]
            for n in range(1, len(parents) + 1):
                parent = "/".join(parents[:n])
                if parent not in made:
                    made.add(parent)
                    info = tarfile.TarInfo(parent)
                    info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, epoch
                    tar.addfile(info)
            info = tarfile.TarInfo(path)
            info.size, info.mode, info.mtime = len(entry.data), entry.mode, epoch
            tar.addfile(info, io.BytesIO(entry.data))
    out = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=0) as z:
        z.write(raw.getvalue())
    return out.getvalue()


def zip_file(tree, epoch):
    out = io.BytesIO()
    when = time.gmtime(max(epoch, 315532800))[:6]  # a zip's time begins in 1980
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for path, entry in check(tree):
            info = zipfile.ZipInfo(path, when)
            info.create_system = 3  # the modes below are Unix's
            info.external_attr = (0o100000 | entry.mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, entry.data)
    return out.getvalue()


def record(tree, path):
    """The RECORD of a wheel: each file with its digest and size, itself without."""
    lines = []
    for name, entry in check(tree):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(entry.data)}\n")
    return Entry("".join([*lines, f"{path},,\n"]).encode(), 0o644)
