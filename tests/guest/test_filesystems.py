"""A workspace and shared directories on other file systems, for root and for a user. Each works, with the owners that are stated, or is refused
in one line that says what to change; nothing in between."""
import os
import pathlib
import subprocess

import boxlib
import pytest

TESTER = 1000
AS = {"root": [], "user": ["setpriv", "--reuid=tester", "--regid=tester", "--init-groups", "env", "-u", "XDG_RUNTIME_DIR", "HOME=/home/tester"]}


def sh(script):
    subprocess.run(["sh", "-euc", script], check=True, timeout=120, stdout=subprocess.DEVNULL)


# How each is made at $d; %s is its size. A loop device needs no help from udev.
MAKE = {
    "ext4": "mke2fs -q -t ext4 $d.img && mount -o loop $d.img $d",
    "tmpfs": "mount -t tmpfs none $d",
    "btrfs": "mkfs.btrfs -q $d.img && mount -o loop $d.img $d",
    "xfs": "mkfs.xfs -q $d.img && mount -o loop $d.img $d",
    "vfat": "mkfs.vfat $d.img && mount -o loop,uid=%d,gid=%d $d.img $d",
    "fuse": "mkdir $d.below && chown %d:%d $d.below && bindfs -o allow_other $d.below $d",
}


@pytest.fixture(scope="module", params=list(MAKE))
def filesystem(request, tmp_path_factory):
    """(kind, directory of the caller `who`: a function)."""
    if not boxlib.IS_ROOT:
        pytest.skip("mounts file systems")
    top = pathlib.Path("/srv/fs")
    top.mkdir(mode=0o755, exist_ok=True)
    made = {}

    def at(who):
        owner = TESTER if who == "user" else 0
        if who not in made:
            d = top / f"{request.param}-{who}"
            d.mkdir()
            how = MAKE[request.param].replace("%d", str(owner))
            sh(f"d={d}; truncate -s 320M $d.img; {how}")
            made[who] = d
            os.chmod(d, 0o755)
            if request.param not in ("vfat", "fuse"):
                os.chown(d, owner, owner)
        return made[who]

    yield request.param, at
    for d in made.values():
        sh(f"umount {d}; rm -rf {d} {d}.img {d}.below")


@pytest.fixture(params=["root", "user"])
def place_at(request, filesystem):
    kind, at = filesystem
    return kind, request.param, at(request.param)


def kernel():
    return tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))


def cloche(who, *args):
    return boxlib.communicate([*AS[who], boxlib.CLOCHE, "run", "-q", *map(os.fspath, args)])


def can_not_map(r, kind, who):
    """Root's files are shown to a box through an id-mapped mount only, which these can't have: refused, with what to do."""
    if who == "user" or kind not in ("fuse", "tmpfs") or (kind == "tmpfs" and kernel() >= (6, 3)):
        return False
    assert r.rc == 125 and r.out == b"" and r.err.count(b"\n") == 1, r
    assert b"run cloche as the directory's owner, or copy it to ext4" in r.err, r
    return True


def test_workspace(place_at):
    kind, who, d = place_at
    (d / "given").write_text("given\n")
    os.chown(d / "given", d.stat().st_uid, d.stat().st_gid)
    r = cloche(who, "--workspace", d, "--", "sh", "-c", "cat given; echo made >made; mkdir -p sub; echo more >>given; stat -c %u given made .")
    if can_not_map(r, kind, who):
        assert not (d / "made").exists() and (d / "given").read_text() == "given\n"
        return
    assert r.rc == 0, (kind, who, r)
    assert r.out.split() == [b"given", b"1000", b"1000", b"1000"], (kind, who, r)
    assert (d / "made").read_text() == "made\n" and (d / "given").read_text() == "given\nmore\n"
    assert (d / "made").stat().st_uid == d.stat().st_uid and (d / "sub").is_dir(), (kind, who)


def test_read_only_volume(place_at):
    kind, who, d = place_at
    (d / "given").write_text("given\n")
    args = ("-v", f"{d}:/data:ro", "--", "sh", "-c", "cat /data/given; echo x 2>/dev/null >/data/new; rm -f /data/given; ls /data/given")
    r = cloche(who, *args)
    if can_not_map(r, kind, who):
        return
    assert r.rc == 0, (kind, who, r)
    assert r.out == b"given\n/data/given\n", (kind, who, r)
    assert (d / "given").read_text() == "given\n" and not (d / "new").exists()
    # No overlay stands over a file system that takes names as the same whatever their case: a bind then, which is not enough for hostile code.
    r = cloche(who, "--security-profile", "untrusted", *args)
    if kind == "vfat":
        assert r.rc == 125 and r.out == b"" and b"untrusted profile takes nothing less" in r.err, (kind, who, r)
    else:
        assert r.rc == 0 and r.out == b"given\n/data/given\n", (kind, who, r)


SUBVOLUME = """
import fcntl, os, struct, time
top = os.open("/workspace", os.O_RDONLY)
fcntl.ioctl(top, 0x5000940e, bytearray(struct.pack("q", 0) + b"sub".ljust(4088, bytes(1))))  # BTRFS_IOC_SUBVOL_CREATE
with open("/workspace/sub/f", "wb") as f:
    f.write(bytes(1 << 20) * 40)
    f.flush()
    os.fsync(f.fileno())
time.sleep(%d)
print("hidden")
"""


def test_a_subvolume_is_part_of_the_workspace(place_at):
    """Anybody may make one; it has a device number of its own, as a file system that is mounted there."""
    kind, who, d = place_at
    if kind != "btrfs":
        return
    ws = d / "ws"
    ws.mkdir()
    os.chown(ws, d.stat().st_uid, d.stat().st_gid)
    r = cloche(who, "--workspace-max", "10m", "--workspace", ws, "--", "python3", "-c", SUBVOLUME % 30)
    assert r.rc == 137 and b"workspace_full" in r.err, (who, r)
    sh(f"rm -rf {ws}/*")
    r = cloche(who, "--workspace-max", "100m", "--workspace", ws, "--", "python3", "-c", SUBVOLUME % 0)
    assert r.rc == 0 and r.out == b"hidden\n", (who, r)
