"""Hostile root file systems: links where the box will mount, files where directories belong, programs that are not what they are called.

Each test makes a tree that leads to a directory of the host (the bait), runs boxes over it in every way, and compares bait and tree before and
after. What the box sees may be a refusal or a running command; the host's tree must be the same to the byte and the nanosecond.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from . import attack
from .attack import boxlib


@pytest.fixture
def bait(public):
    """A directory of the host with something in it, writable for everybody, so that only the locks keep a box out."""
    d = public / "bait"
    d.mkdir()
    (d / "file").write_text("bait")
    (d / "sub").mkdir()
    (d / "null").write_text("bait-null")
    for p in (d, d / "sub"):
        p.chmod(0o777)
    (d / "file").chmod(0o666)
    return d


@pytest.fixture
def root(public, probe):
    """The smallest honest root: the probe and nothing else."""
    d = public / "root"
    (d / "bin").mkdir(parents=True)
    shutil.copy2(probe.path, d / "bin" / "probe")
    (d / "etc").mkdir()
    (d / "root").mkdir()
    (d / "etc" / "mark").write_text("honest")
    return d


def run(root, *args, opts=(), **kw):
    return boxlib.box("--rootfs", root, *opts, "--", "/bin/probe", *args, json=False, **kw)


def test_control(root, probe, ws):
    """The honest tree starts, and what it writes is gone afterwards."""
    before = attack.snapshot(root)
    r = run(root, "read", "/etc/mark", "/proc/self/status", "/dev/null", opts=("--workspace", ws))
    assert r.rc == 0 and attack.answers(r.out) == {"/etc/mark": "ok", "/proc/self/status": "ok", "/dev/null": "ok"}, r
    r = run(root, "setid", "/etc", "plain")
    assert attack.answers(r.out).get("plain") == "ok", r
    assert attack.snapshot(root) == before


def test_the_smallest_root(root):
    """A tree with nothing but a program: its user's home, /tmp and the working directory are made for the box, not in the tree."""
    (root / "root").rmdir()
    (root / "etc" / "mark").unlink()
    (root / "etc").rmdir()
    before = attack.snapshot(root)
    r = run(root, "fds")
    assert r.rc == 0, r
    assert attack.snapshot(root) == before


def test_a_failed_start_is_told_as_one(root):
    """What could not be built is `startup_failed` with its reason, every time: never a lost init."""
    (root / "tmp").write_text("no directory")
    for _ in range(15):
        r = boxlib.box("--rootfs", root, "--", "/bin/probe", "fds")
        assert (r.rc, r.o.fault_type) == (125, "startup_failed") and "/tmp" in r.o.fault["message"], r


@pytest.mark.parametrize("n", [1, 3])
def test_read_only_mounts_over_a_tree(root, public, n):
    opts = []
    for i in range(n):
        (public / f"m{i}").mkdir()
        (public / f"m{i}" / "f").write_text("x")
        opts += ["-v", f"{public}/m{i}:/m{i}:ro"]
    r = run(root, "read", *(f"/m{i}/f" for i in range(n)), opts=opts)
    assert attack.answers(r.out) == {f"/m{i}/f": "ok" for i in range(n)}, r


NAMES = ("dev", "proc", "etc", "workspace", "tmp", "run", "sys", "home", "root", "var", "usr", "opt", "mnt", "dev/pts", "dev/shm", "dev/null",
         "etc/passwd", "etc/hosts", "etc/resolv.conf", "proc/sys", "proc/kcore", "var/run", "home/user", "sys/fs")


@pytest.mark.parametrize("spelling", ["absolute", "relative", "chain"])
@pytest.mark.parametrize("name", NAMES)
def test_planted_links(root, bait, ws, name, spelling):
    """NAME in the tree is a link to the bait."""
    place = root / name
    if place.is_dir():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    goal = str(bait)
    if name in ("dev/null", "etc/passwd", "etc/hosts", "etc/resolv.conf", "proc/kcore"):
        goal = str(bait / "file")
    if spelling == "relative":
        goal = "../" * 14 + goal[1:]
    elif spelling == "chain":
        (root / "hop").symlink_to(goal)
        goal = "/hop"
    place.symlink_to(goal)
    before = attack.snapshot(bait), attack.snapshot(root)
    for opts in (("--workspace", ws), ("--read-only", "--workspace", ws), ("--workspace", ws, "--user", "0")):
        r = run(root, "write", *(f"/{name}", f"/{name}/file", f"/{name}/null", "/dev/null", "/etc/passwd"), opts=opts, timeout=30)
        assert r.rc in (0, 2, 125, 126, 127), r
        if r.rc != 0:
            # With the message that names the place, not a crash.
            assert len(attack.complaints(r.err)) == 1, r
    r = run(root, "read", f"/{name}/file", opts=("--workspace", ws))
    assert attack.answers(r.out).get(f"/{name}/file") != "ok" or name.startswith("dev"), r
    assert (attack.snapshot(bait), attack.snapshot(root)) == before
    assert list(ws.iterdir()) == []


@pytest.mark.parametrize("name", ["dev", "proc", "etc", "tmp", "run", "workspace"])
@pytest.mark.parametrize("kind", ["file", "fifo", "dangling", "loop"])
def test_wrong_kinds(root, ws, name, kind):
    """NAME is no directory at all. Refused in one line, or the box's own is put there."""
    if (root / name).is_dir():
        shutil.rmtree(root / name)
    if kind == "file":
        (root / name).write_text("x")
    elif kind == "fifo":
        os.mkfifo(root / name)
    elif kind == "dangling":
        (root / name).symlink_to("/nonexistent/below")
    else:
        (root / name).symlink_to(name)
    before = attack.snapshot(root)
    r = run(root, "fds", opts=("--workspace", ws), timeout=30)
    assert r.rc in (0, 125), r
    assert r.rc == 0 or (len(attack.complaints(r.err)) == 1 and b"startup_failed" in r.err), r
    assert attack.snapshot(root) == before


def test_nodes_of_the_tree_are_hidden(root, bait):
    """A dev directory in the tree brings nothing into /dev: no file, no link, no forged null (the class of masks made from an attacker's)."""
    (root / "dev").mkdir()
    (root / "dev" / "null").symlink_to(bait / "file")
    (root / "dev" / "evil").write_text("x")
    (root / "dev" / "core").symlink_to("/proc/kcore")
    before = attack.snapshot(bait)
    r = run(root, "read", "/dev/null", "/dev/evil", "/dev/core", "/proc/kcore", "/proc/cmdline", "/proc/keys")
    lines = dict(line.split(" ", 1) for line in r.out.decode().splitlines())
    assert lines["/dev/null"] == "ok 0" and not lines["/dev/evil"].startswith("ok") and not lines["/dev/core"].startswith("ok"), r
    for masked in ("/proc/kcore", "/proc/cmdline", "/proc/keys"):
        assert not lines[masked].startswith("ok") or lines[masked] == "ok 0", r
    assert attack.snapshot(bait) == before


@pytest.mark.parametrize("target", ["/link/inner", "/link", "/link/sub", "/up/x", "/deep/link2/x", "/link/file/x", "/link/new/newer"])
@pytest.mark.parametrize("what", ["dir-ro", "dir-rw", "file", "tmpfs", "workspace-dir"])
def test_mount_targets_through_links(root, bait, public, probe, ws, target, what):
    """-v SRC:TARGET where TARGET leads over planted links: it lands inside the box, or is refused; nothing appears on the host."""
    (root / "link").symlink_to(bait)
    (root / "up").symlink_to("../" * 14 + str(bait)[1:])
    (root / "deep").mkdir()
    (root / "deep" / "link2").symlink_to("../../../../../../.." + str(bait))
    src = public / "src"
    src.mkdir()
    (src / "f").write_text("source")
    opts = {"dir-ro": ("-v", f"{src}:{target}:ro"), "dir-rw": ("-v", f"{src}:{target}"), "file": ("-v", f"{src}/f:{target}:ro"),
            "tmpfs": ("--tmpfs", f"{target}:1m"), "workspace-dir": ("--workspace", ws, "-v", f"{src}:/workspace/link/x")}[what]
    if what == "workspace-dir":
        (ws / "link").symlink_to(bait)
    before = attack.snapshot(bait), attack.snapshot(root), attack.snapshot(ws), attack.snapshot(src)
    r = run(root, "read", f"{target}/f", opts=opts)
    assert r.rc in (0, 2, 125), r
    assert r.rc == 0 or len(attack.complaints(r.err)) == 1, r
    assert (attack.snapshot(bait), attack.snapshot(root), attack.snapshot(ws), attack.snapshot(src)) == before


@pytest.mark.parametrize("target", ["/a/../../etc", "relative", "/..", "/../x", "/./x/../../y", "//", "/", "", "/proc", "/proc/self", "/dev", "/sys",
                                    "/a\nb", "/workspace/../etc"])
def test_odd_targets(box, public, target):
    """Refused in one line, or mounted inside; never a crash and nothing made on the host."""
    src = public / "src"
    src.mkdir()
    before = attack.snapshot(public)
    r = box("-v", f"{src}:{target}:ro", "--", "true", json=False)
    assert r.rc in (0, 2, 125), r
    assert r.rc == 0 or len(attack.complaints(r.err)) == 1, r
    assert attack.snapshot(public) == before


def test_programs_that_are_links_to_the_runtime(root):
    """/bin/sh of the image is a link to /proc/self/exe, or a script whose interpreter is: the class that overwrote a container runtime."""
    for name, how in (("sh", "link"), ("script", "script")):
        if how == "link":
            (root / "bin" / name).symlink_to("/proc/self/exe")
        else:
            (root / "bin" / name).write_text("#!/proc/self/exe\n")
            (root / "bin" / name).chmod(0o755)
        r = boxlib.box("--rootfs", root, "--", f"/bin/{name}", "version")
        assert r.o.fault_type == "exec_failed", r
        assert "cloche" not in r.o.out


def test_a_working_directory_behind_a_link(root, bait):
    (root / "link").symlink_to(bait)
    r = run(root, "write", "file", "./file", "../bait/file", opts=("-w", "/link"))
    assert "ok" not in attack.answers(r.out).values(), r
    assert (bait / "file").read_text() == "bait"


def test_setid_programs_of_the_tree_give_nothing(root, probe):
    """A set-id file in the image: no_new_privs and nosuid both hold."""
    tool = root / "bin" / "su"
    shutil.copy2(probe.path, tool)
    tool.chmod(0o6755)
    r = boxlib.box("--rootfs", root, "--user", "1000", "--", "/bin/su", "read", "/proc/self/status")
    assert r.rc == 0
    r = boxlib.box("--rootfs", root, "--user", "1000", "--", "/bin/su", "sys", "setuid:0", "capset")
    assert "ok" not in attack.answers(r.o.out).values(), r


@pytest.mark.parametrize("how", ["rootfs", "mount"])
def test_planted_overlay_attributes(root, public, probe, how):
    """Attributes that an overlay reads from its layers: a directory that says it is another one, a file that says its data is elsewhere."""
    (public / "outside").mkdir()
    (public / "outside" / "mark").write_text("bait")
    (root / "a").mkdir()
    (root / "a" / "own").write_text("own")
    (root / "f").write_text("own")
    for name, key, value in (("a", "redirect", b"/bin"), ("a", "origin", b"x" * 24), ("f", "metacopy", b""), ("f", "redirect", b"/bin/probe"),
                             ("bin", "redirect", b"../outside")):
        os.setxattr(root / name, f"user.overlay.{key}", value)
    before = attack.snapshot(public)
    if how == "rootfs":
        r = run(root, "read", "/a/own", "/a/probe", "/bin/mark", "/f")
        base = ""
    else:
        r = boxlib.box(*probe.mount, "-v", f"{root}:/r:ro", "--", attack.PROBE, "read", "/r/a/own", "/r/a/probe", "/r/bin/mark", "/r/f", json=False)
        base = "/r"
    got = attack.answers(r.out)
    if r.rc == 0:
        assert got[f"{base}/a/probe"] != "ok" and got[f"{base}/bin/mark"] != "ok", r
    else:
        assert r.rc in (2, 125, 126, 127), r
    assert attack.snapshot(public) == before


# -- races on the host's side --

class Swapper:
    """Exchanges two names on the host for ever."""

    def __init__(self, probe, a, b):
        self.p = subprocess.Popen([str(probe.path), "swap", str(a), str(b)], stdout=subprocess.PIPE)
        assert self.p.stdout.readline() == b"swapping\n"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.p.send_signal(signal.SIGKILL)
        self.p.stdout.close()
        self.p.wait()


@pytest.mark.parametrize("how", ["ro", "rw", "workspace", "rootfs"])
def test_source_swapped_for_a_link_to_what_is_refused(probe, public, how):
    """SRC is by turns a directory and a link to a directory that may not be mounted. A check followed by a mount by name would sooner or
    later mount the wrong one; here the thing checked is the thing mounted."""
    good, link = public / "good", public / "link"
    good.mkdir()
    (good / "sub").mkdir()
    (good / "bin").mkdir()
    shutil.copy2(probe.path, good / "bin" / "probe")
    link.symlink_to("/etc")
    path = {"workspace": "/workspace"}.get(how, "/m")
    opts = {"ro": ("-v", f"{good}:/m:ro"), "rw": ("-v", f"{good}:/m:rw"), "workspace": ("--workspace", good), "rootfs": ("--rootfs", good)}[how]
    refused = boxlib.box(*[str(o).replace(str(good), str(link)) for o in opts], "--", "true", json=False)
    assert refused.rc in (2, 125), f"no control: the link's goal is not refused: {refused!r}"
    seen = {"ok": 0, "refused": 0}
    with Swapper(probe, good, link):
        for _ in range(40):
            if how == "rootfs":
                r = boxlib.box(*opts, "--", "/bin/probe", "read", "/passwd", "/shells", json=False)
            else:
                r = boxlib.box(*probe.mount, *opts, "--", attack.PROBE, "read", f"{path}/passwd", f"{path}/shells", json=False)
            got = attack.answers(r.out)
            assert "ok" not in got.values(), r
            seen["ok" if r.rc == 0 else "refused"] += 1
            assert r.rc in (0, 2, 125, 127), r
    assert seen["refused"] > 0 or seen["ok"] > 0
    assert not os.path.islink(good) or os.path.islink(link) is False


def test_parent_of_the_source_swapped(probe, public):
    """The same with an ancestor: A/dir and B/dir, where B/dir is a link to what may not be mounted."""
    a, b = public / "a", public / "b"
    (a / "dir").mkdir(parents=True)
    b.mkdir()
    (b / "dir").symlink_to("/etc")
    with Swapper(probe, a, b):
        for _ in range(40):
            r = boxlib.box(*probe.mount, "-v", f"{a}/dir:/m:ro", "--", attack.PROBE, "read", "/m/passwd", json=False)
            assert "ok" not in attack.answers(r.out).values(), r
            assert r.rc in (0, 2, 125), r


def test_target_swapped_in_a_shared_tree(probe, public, bait):
    """A mount point inside a shared read-write directory is exchanged with a link to the bait while boxes start."""
    shared = public / "shared"
    (shared / "sub").mkdir(parents=True)
    (shared / "other").symlink_to(bait)
    src = public / "src"
    src.mkdir()
    before = attack.snapshot(bait)
    with Swapper(probe, shared / "sub", shared / "other"):
        for _ in range(40):
            r = boxlib.box(*probe.mount, "-v", f"{shared}:/s", "-v", f"{src}:/s/sub", "--", attack.PROBE, "write", "/s/sub/file",
                           "/s/other/file", json=False)
            assert r.rc in (0, 2, 125), r
            assert "ok" not in attack.answers(r.out).values(), r
    assert attack.snapshot(bait) == before


def test_the_hosts_own_files_are_untouched(root, ws):
    """A run over a tree without /etc, as the strongest user a box has: the host's /etc and /dev are as before."""
    shutil.rmtree(root / "etc")
    watched = [p for p in map(pathlib.Path, ("/etc", "/dev", "/run", "/", "/usr", "/var", "/root", "/home")) if p.exists()]
    before = {p: (p.stat().st_mtime_ns, sorted(os.listdir(p)) if os.access(p, os.R_OK) else None) for p in watched}
    mounts = boxlib.mounts_now()
    for opts in ((), ("--user", "0"), ("--workspace", ws), ("--network", "host")):
        r = run(root, "fds", opts=opts)
        assert r.rc == 0, r
    assert {p: (p.stat().st_mtime_ns, sorted(os.listdir(p)) if os.access(p, os.R_OK) else None) for p in watched} == before
    assert boxlib.mounts_now() == mounts


def test_masks_are_ours_and_not_the_trees(root):
    """The masks over /proc come from our own null device; their device number says so."""
    r = run(root, "read", "/proc/self/mountinfo")
    assert r.rc == 0
    r = boxlib.box("--", "stat", "-c", "%F %t:%T", "/proc/keys", "/proc/cmdline", "/proc/partitions")
    assert set(r.o.out.splitlines()) <= {"character special file 1:3"}, r
    assert not re.search("No such", r.o.err) or r.rc != 0
