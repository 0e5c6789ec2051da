"""A workspace as an archive and back, by the program that `cloche serve` starts for it: what comes through, what other tools make of it, what is
refused, and that a workspace is whole or as it was.

The hostile archives are those of lib/hostile.py, which are layers: each is taken for a snapshot here, and may neither touch what is outside nor leave
anything but what was there before, or its own whole tree.
"""
import fcntl
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import time

import boxlib
import hostile
import pytest
from layout import entry, folder, hardlink, pack, symlink, tar

PROGRAM = pathlib.Path(boxlib.CLOCHE).parent / "cloche-image"
FORMATS = {"gzip": ".tar.gz", "zstd": ".tar.zst"}


def run_with(fds, verb, *args):
    """The program with these as its descriptors 3, 4."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in fds]

    def place_them():
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
    try:
        return subprocess.Popen([PROGRAM, verb, *args], preexec_fn=place_them, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
    finally:
        for fd in high:
            os.close(fd)


def start(verb, workspace, archive, *args, mode="rb"):
    d = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open(archive, mode) as f:
            return run_with((d, f.fileno()), verb, *args)
    finally:
        os.close(d)


def finish(p, rc=0):
    out, err = p.communicate(timeout=boxlib.HANG)
    assert (p.returncode, err) == (rc, b"") and out.count(b"\n") == 1, (p.returncode, out, err)
    return json.loads(out)


def snapshot(workspace, archive, fmt="gzip", rc=0):
    return finish(start("snapshot", workspace, archive, "--format", fmt, mode="xb"), rc)


def restore(workspace, archive, *args, rc=0):
    return finish(start("restore", workspace, archive, *args), rc)


def described(top):
    """Everything about a tree that is to come through."""
    found = {}
    for path in sorted(pathlib.Path(top).rglob("*")):
        st = path.lstat()
        what = {"mode": oct(st.st_mode), "mtime": st.st_mtime_ns, "owner": (st.st_uid, st.st_gid)}
        if path.is_symlink():
            what["to"] = os.readlink(path)
        elif path.is_file():
            with open(path, "rb") as f:
                what |= {"size": st.st_size, "links": st.st_nlink, "begin": f.read(64)}
                f.seek(max(0, st.st_size - 64))
                what |= {"end": f.read(), "xattrs": {n: os.getxattr(path, n) for n in os.listxattr(path) if n.startswith("user.")}}
        found[os.fsencode(path.relative_to(top))] = what
    return found


@pytest.fixture
def place(tmp_path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text("as it was")
    yield tmp_path
    assert described(tmp_path / "outside").keys() == {b"canary"}
    assert (tmp_path / "outside" / "canary").read_text() == "as it was"
    subprocess.run(["chmod", "-R", "u+rwX", tmp_path], check=False, stderr=subprocess.DEVNULL)


def fill(ws):
    (ws / "d" / "deep").mkdir(parents=True)
    (ws / "d" / "deep" / "f").write_text("content")
    os.chmod(ws / "d" / "deep" / "f", 0o751)
    os.utime(ws / "d" / "deep" / "f", ns=(1, 981173106789000000))
    os.link(ws / "d" / "deep" / "f", ws / "second")
    (ws / "link").symlink_to("/etc/passwd")
    (ws / "up").symlink_to("../" * 30 + "nowhere")
    (ws / "empty").mkdir(mode=0o711)
    (ws / ".wh.name").write_text("no whiteout")
    (ws / b"n\xff\n\x1b[2J".decode("utf-8", "surrogateescape")).write_text("an odd name")
    long = ws / ("p" * 200) / ("q" * 200) / ("r" * 200)
    long.mkdir(parents=True)
    (long / ("s" * 255)).write_text("a long name")
    with open(ws / "sparse", "wb") as f:
        f.truncate(20 << 30)
        f.seek(10 << 30)
        f.write(b"in the middle")
    try:
        os.setxattr(ws / "second", "user.mark", b"here")
    except OSError:
        pass  # a file system without
    (ws / "closed").mkdir()
    (ws / "closed" / "f").write_text("x")
    os.chmod(ws / "closed", 0o500)
    os.utime(ws / "d", ns=(5, 7000000009))


@pytest.mark.parametrize("fmt", FORMATS)
def test_there_and_back(place, fmt):
    ws, archive = place / "ws", place / f"a{FORMATS[fmt]}"
    fill(ws)
    os.mkfifo(ws / "fifo")
    said = snapshot(ws, archive, fmt)
    os.unlink(ws / "fifo")
    before = described(ws)
    assert said["event"] == "done" and said["left_out"] == 1 and said["files"] == len(before) and said["size"] == archive.stat().st_size
    assert said["size"] < 1 << 20  # 20 GB of holes
    other = place / "other"
    other.mkdir()
    (other / "was").mkdir()
    (other / "was" / "here").write_text("old")
    os.chmod(other / "was", 0o500)
    assert restore(other, archive)["event"] == "done"
    assert described(other) == before
    assert (other / "sparse").stat().st_blocks * 512 < 1 << 20
    assert (other / "second").stat().st_ino == (other / "d" / "deep" / "f").stat().st_ino
    # The same again: it stands in its own place.
    assert restore(ws, archive)["event"] == "done"
    assert described(ws) == before


def test_other_tools_read_it_and_are_read(place):
    """GNU tar and Python both ways; plain tar, too, since the bytes tell what they are."""
    ws, archive = place / "ws", place / "a.tar.gz"
    fill(ws)
    snapshot(ws, archive)
    with tarfile.open(archive) as t:
        names = t.getnames()
        assert "d/deep/f" in names and t.getmember("link").linkname == "/etc/passwd" and t.getmember("sparse").size == 20 << 30
    out = place / "out"
    out.mkdir()
    r = subprocess.run(["tar", "-xpzf", archive, "--no-same-owner", "-C", out], capture_output=True, check=False, timeout=boxlib.HANG)
    assert r.returncode == 0, r.stderr
    names = described(ws)
    got = described(out)
    assert got.keys() == names.keys()
    for name, what in names.items():
        assert got[name].get("begin") == what.get("begin") and got[name]["mode"] == what["mode"], name
    for codec, flags in (("plain", "-cf"), ("gzip", "-czf")):
        made, into = place / f"made.{codec}", place / f"into.{codec}"
        into.mkdir()
        subprocess.run(["tar", flags, made, "--sparse", "--format=posix", "-C", out, "."], check=True, timeout=boxlib.HANG)
        restore(into, made)
        assert described(into).keys() == names.keys()
    # Devices, FIFOs: an archive of ours has none.
    plain = place / "python.tar.gz"
    plain.write_bytes(gzip.compress(tar(folder("x"), entry("x/y", "z"))))
    assert restore(ws, plain)["files"] == 2
    assert (ws / "x" / "y").read_text() == "z" and described(ws).keys() == {b"x", b"x/y"}


REFUSED = {
    "absolute": [entry("{outside}/new", "x")],
    "absolute, over a file": [entry("{outside}/canary", "x")],
    "dot-dot": [entry("../outside/new", "x")],
    "dot-dot within": [folder("a"), entry("a/../../outside/new", "x")],
    "below a link": [symlink("l", "{outside}"), entry("l/new", "x")],
    "below a link, upwards": [symlink("l", "../outside"), entry("l/new", "x")],
    "a directory below a link": [symlink("l", "../outside"), folder("l/new")],
    "a directory becomes a link": [folder("a"), symlink("a", "../outside"), entry("a/new", "x")],
    "hard link out": [hardlink("a", "../outside/canary"), entry("a", "x")],
    "hard link to an absolute name": [hardlink("a", "{outside}/canary")],
    "hard link through a link": [symlink("l", "../outside"), hardlink("a", "l/canary")],
    "device": [entry("n", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [entry("n", type=tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "whiteout device": [entry("n", type=tarfile.CHRTYPE)],
    "FIFO": [entry("p", type=tarfile.FIFOTYPE)],
    "twice": [entry("a", "1"), entry("a", "2")],
    "twice, a link first": [symlink("a", "../outside/canary"), entry("a", "2")],
    "twice, spelt otherwise": [entry("d/a", "1"), entry("./d//a", "2")],
    "a file over a directory": [folder("a"), entry("a", "1")],
    "a directory over a file": [entry("a", "1"), folder("a")],
    "a hard link over a file": [entry("a", "1"), entry("b", "2"), hardlink("b", "a")],
    "more than there may be": [entry("a", b"\0" * 3000000)],
    "of an unknown type": [hostile.head("a", b"Z")],
    "a size below zero": [hostile.head("a", size_field=b"\x80" + b"\xff" * 11)],
    "a wrong checksum": [hostile.head("a")[:148] + b"000000\0 " + hostile.head("a")[156:]],
    "a directory with content": [hostile.head("a/", b"5", 512) + b"x" * 512],
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(place, case):
    ws, archive = place / "ws", place / "a.tar.gz"
    (ws / "kept").mkdir()
    (ws / "kept" / "f").write_text("kept")
    before = described(ws)
    good = [entry("good", "x"), folder("dir")]
    archive.write_bytes(gzip.compress(hostile.archive([*good, *REFUSED[case]], str(place / "outside")), 1))
    said = restore(ws, archive, "--max-bytes", "1000000", rc=1)
    assert said["event"] == "error" and said["type"] == "option" and said["message"].startswith("the archive: "), said
    assert described(ws) == before
    # The control: what stands beside it is taken.
    archive.write_bytes(gzip.compress(tar(*good), 1))
    restore(ws, archive)
    assert described(ws).keys() == {b"good", b"dir"}


def test_not_whole(place):
    """Each end that is too early, and garbage."""
    ws, archive = place / "ws", place / "a"
    (ws / "kept").write_text("kept")
    before = described(ws)
    for codec in ("plain", "gzip", "zstd"):
        whole = pack(tar(*[entry(f"f{i}", os.urandom(3000)) for i in range(20)]), codec)
        # Of a plain one, what is behind the end marker may be missing, and the contents have no sum.
        end = len(whole.rstrip(b"\0")) if codec == "plain" else len(whole)
        wrong = [whole[:n] for n in range(0, end, end // 10)] + [whole[:end - 1], whole + b"garbage"]
        for data in wrong + ([whole[:700] + b"\xff\x00" + whole[702:]] if codec != "plain" else []):
            archive.write_bytes(data)
            said = restore(ws, archive, rc=1)
            assert said["type"] == "option", (codec, len(data), said)
            assert described(ws) == before
        archive.write_bytes(whole)
        restore(ws, archive)
        assert len(described(ws)) == 20
        shutil.rmtree(ws)
        ws.mkdir()
        (ws / "kept").write_text("kept")
        before = described(ws)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_bombs(place, codec):
    """A gigabyte out of a megabyte; and out of a kilobyte, a file that has the size but not the content."""
    ws, archive = place / "ws", place / "a"
    zeros = subprocess.Popen(["head", "-c", str(1 << 30), "/dev/zero"], stdout=subprocess.PIPE)
    with open(archive, "wb") as f:
        h = hostile.head("bomb", size=1 << 30)
        p = subprocess.Popen([codec, "-1", "-c"], stdin=subprocess.PIPE, stdout=f)
        p.stdin.write(h)
        shutil.copyfileobj(zeros.stdout, p.stdin, 1 << 20)
        p.stdin.write(hostile.END)
        p.stdin.close()
        assert p.wait() == 0 and zeros.wait() == 0
    said = restore(ws, archive, "--max-bytes", str(1 << 20), rc=1)
    assert said["type"] == "option" and "more than 1048576 bytes" in said["message"], said
    assert described(ws) == {}
    archive.write_bytes(pack(hostile.old_sparse("holes", hostile.HUGE, [(0, b"x")]) + hostile.END, codec))
    restore(ws, archive, "--max-bytes", str(1 << 20))
    assert (ws / "holes").stat().st_size == hostile.HUGE and (ws / "holes").stat().st_blocks < 64


def test_layers_that_are_hostile(place):
    """Every one of them as a snapshot: refused, and all is as it was; or taken, and nothing outside is touched (the fixture looks)."""
    ws, archive = place / "ws", place / "a.tar"
    for name, row in hostile.ROWS.items():
        for entries in row.layers:
            subprocess.run(["chmod", "-R", "u+rwX", ws], check=True)
            shutil.rmtree(ws)
            ws.mkdir()
            (ws / "kept").write_text("kept")
            archive.write_bytes(hostile.archive(entries, str(place / "outside")))
            p = start("restore", ws, archive)
            out, err = p.communicate(timeout=boxlib.HANG)
            assert p.returncode in (0, 1) and not err and out.count(b"\n") == 1, (name, out, err)
            if p.returncode:
                assert described(ws).keys() == {b"kept"} and json.loads(out)["type"] == "option", (name, out)
            else:
                assert not [n for n in os.listdir(ws) if n.startswith(".cloche")], name
            for path in pathlib.Path(ws).rglob("*"):
                mode = path.lstat().st_mode
                assert not mode & 0o4000 and (path.is_dir() or not mode & 0o2000 or path.is_symlink()), (name, path)
                assert path.is_symlink() or path.is_dir() or path.is_file(), (name, path)


@pytest.mark.parametrize("how", ["by a signal", "by its parent's death"])
def test_told_to_end(place, how):
    """While it unpacks: the workspace is as it was, and nothing is left of the draft."""
    ws, archive = place / "ws", place / "a.tar"
    (ws / "kept").write_text("kept")
    before = described(ws)
    if os.geteuid() == 0:
        os.chown(ws, 12345, 23456)  # who becomes another is to end all the same
    os.mkfifo(place / "slow")
    # Opened for both, so that the other end need not be there yet.
    fd = os.open(place / "slow", os.O_RDWR)
    os.write(fd, hostile.head("f", size=1 << 20) + b"x" * 2048)
    d = os.open(ws, os.O_RDONLY | os.O_DIRECTORY)
    parent = None
    if how == "by a signal":
        p = run_with((d, fd), "restore")
    else:
        parent = subprocess.Popen(["/bin/sh", "-c", '"$0" restore 3<"$1" 4<>"$2"; :', PROGRAM, ws, place / "slow"], stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + boxlib.HANG
    while not list(ws.glob(".cloche-restore-*/new/f")):
        assert time.monotonic() < deadline and (parent or p).poll() is None
        time.sleep(0.01)
    if parent:
        parent.kill()
        parent.wait()
        while list(ws.glob(".cloche-restore-*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    else:
        p.send_signal(signal.SIGTERM)
        assert "told to end" in finish(p, rc=1)["message"]
    os.close(fd)
    os.close(d)
    os.chown(ws, os.geteuid(), os.getegid())
    assert described(ws) == before
    archive.write_bytes(tar(entry("f", "x")))
    restore(ws, archive)
    assert described(ws).keys() == {b"f"}


def test_of_another_owner(place):
    """Root's snapshot of another's workspace: what comes back is the owner's, and what is root's own in it is not shown to him."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    ws, archive = place / "ws", place / "a.tar.gz"
    (ws / "d").mkdir()
    (ws / "d" / "f").write_text("x")
    for p in (ws, ws / "d", ws / "d" / "f"):
        os.chown(p, 12345, 23456)
    snapshot(ws, archive)
    other = place / "other"
    other.mkdir()
    os.chown(other, 12345, 23456)
    restore(other, archive)
    assert {(p.stat().st_uid, p.stat().st_gid) for p in other.rglob("*")} == {(12345, 23456)}
    (ws / "secret").write_text("root's")
    os.chmod(ws / "secret", 0o600)
    assert snapshot(ws, place / "b.tar.gz", rc=1)["type"] == "system"


def test_of_a_workspace_that_changes(place):
    """Files come, go, grow, shrink and become links while it is written: the archive is a good one, of what is inside."""
    ws = place / "ws"
    code = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("d"); open("d/canary", "w").write("inside"); os.symlink("../outside", "l"); print("x", flush=True)
n = 0
while True:
    n += 1
    open("grows", "a").write("x" * 100000)
    if n % 5 == 0: os.truncate("grows", 10)
    os.rename("d", "t"); os.rename("l", "d"); os.rename("d", "l"); os.rename("t", "d")
    open(f"f{n % 7}", "w").write("y" * n)
    try: os.unlink(f"f{(n + 3) % 7}")
    except OSError: pass
"""
    p = subprocess.Popen(["/usr/bin/python3", "-c", code, ws], stdout=subprocess.PIPE)
    try:
        p.stdout.readline()
        for i in range(20):
            archive = place / f"a{i}.tar.gz"
            snapshot(ws, archive)
            with tarfile.open(archive) as t:
                for m in t:
                    if m.isreg():
                        data = t.extractfile(m).read()
                        assert b"as it was" not in data and len(data) == m.size
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def test_usage(place):
    archive = place / "a"
    archive.touch()
    for argv in (["snapshot"], ["snapshot", "--format", "lzma"], ["restore", "--max-bytes", "-1"], ["restore", "x"]):
        p = start(argv[0], place / "ws", archive, *argv[1:])
        assert p.communicate(timeout=boxlib.HANG)[0] == b"" and p.returncode == 2
