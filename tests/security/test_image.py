"""Hostile images: what their layers hold must show nothing of what lies beside them, lead no mount outside, take nothing off that covers /proc,
and stay as it is whatever a box does.

The layers are put into the store by hand (lib/stored.py), with what no archive would be unpacked to. Each test has its control: the same layer
without the trick, or the same look from outside.
"""
import os
import pathlib
import shutil
import stat

import pytest

from . import attack
from .attack import boxlib

import stored  # noqa: E402  attack puts lib on the path
from stored import busybox, files, opaque, whiteout


@pytest.fixture
def store(public):
    return stored.Store(public / "home")


@pytest.fixture
def base(store, probe):
    def fill(d):
        busybox(d)
        shutil.copy2(probe.path, d / "bin" / "probe")
    return store.layer(fill)


@pytest.fixture
def bait(public):
    """A directory of the host, open to everybody: only the locks keep a box out."""
    d = public / "bait"
    d.mkdir()
    d.chmod(0o777)
    (d / "file").write_text("bait")
    (d / "file").chmod(0o666)
    return d


def run(store, image, *args, opts=(), **kw):
    return boxlib.box(*opts, "--image", image, "--pull", "never", "--", *args, json=False, env=store.env, **kw)


def sh(store, image, script, **kw):
    return run(store, image, "sh", "-c", script, **kw)


def test_control(store, base):
    store.image("img", [base, store.layer(files(mark="own"))])
    r = sh(store, "img", "cat /mark; /bin/probe read /mark /dev/null")
    assert r.rc == 0 and r.out.startswith(b"own") and attack.answers(r.out[3:]) == {"/mark": "ok", "/dev/null": "ok"}, r


def redirect(path, to):
    """Overlayfs's own word for "this directory is called that below"; it is honoured where redirect_dir is on."""
    path.mkdir(parents=True, exist_ok=True)
    os.setxattr(path, "user.overlay.redirect", to.encode())


def test_what_lies_beside_the_layers(store, base, public):
    """Redirects, metacopies, whiteouts of "..", links: nothing shows another image's layer, the store, or the host."""
    other = store.layer(files(secret="another image's", dir__secret="another image's"))
    store.image("other", [base, other])
    (store.top / "secret").write_text("the store's")
    (public / "secret").write_text("the host's")
    up = "../" * 12

    def fill(d):
        redirect(d / "r1", "/../" + other[0])
        redirect(d / "r2", "../" + other[0] + "/dir")
        redirect(d / "r3", "/" + up + str(public))
        redirect(d / "r4", "/own")
        (d / "meta").write_text("")
        os.setxattr(d / "meta", "user.overlay.metacopy", b"")
        os.setxattr(d / "meta", "user.overlay.redirect", ("/../" + other[0] + "/secret").encode())
        os.setxattr(d, "user.overlay.origin", b"\0\xfb\x1d\0\0" + b"\1" * 20)
        opaque(d / "op")
        (d / "l1").symlink_to("../" + other[0] + "/secret")
        (d / "l2").symlink_to(store.layers / other[0] / "secret")
        (d / "l3").symlink_to(up + str(public / "secret")[1:])
        (d / "l4").symlink_to("/proc/1/root" + str(public / "secret"))
        (d / "l5").symlink_to("/proc/self/cwd/../secret")
    low = store.layer(files(own__mine="own", r1__x="x", r2__x="x", r3__x="x", op__gone="gone"))
    store.image("img", [base, low, store.layer(fill)])
    assert sh(store, "other", "cat /secret").out == b"another image's", "no control"
    assert sh(store, "img", "cat /own/mine").out == b"own", "no control"
    r = sh(store, "img", "cd /; for f in r1/secret r2/secret r3/secret meta l1 l2 l3 l4 l5 r4/mine; do cat $f; done 2>/dev/null; ls op; "
                         f"ls -d /{other[0]} /../{other[0]} {store.layers} {store.top} {public} 2>/dev/null; "
                         "find / -xdev -name secret; find / -xdev -type f -exec grep -l \"another image\" {} + ; true")
    assert b"another" not in r.out and b"the store" not in r.out and b"the host" not in r.out and other[0].encode() not in r.out, r
    assert b"secret" not in r.out and b"gone" not in r.out, r
    # What mountinfo tells are the names of its own layers, and no path of the host.
    r = sh(store, "img", "cat /proc/self/mountinfo")
    assert other[0].encode() not in r.out and str(public).encode() not in r.out and base[0].encode() in r.out, r


PLACES = ("dev", "proc", "sys", "tmp", "run", "home", "root", "workspace", "etc", "data", "app")


@pytest.mark.parametrize("way", ["absolute", "up", "magic"])
def test_links_at_mount_targets(store, base, bait, ws, way):
    """Every place that cloche mounts on, writes to or makes, as a link to the bait: it leads inside the box, or the start is refused."""
    goal = {"absolute": str(bait), "up": "../" * 8 + str(bait)[1:], "magic": "/proc/1/root" + str(bait)}[way]
    (ws / "mark").write_text("shared")
    before = attack.snapshot(bait)
    for place in PLACES:
        def fill(d, place=place):
            if place in ("tmp", "root", "etc"):  # base has them
                whiteout(d / place)
            top.append(store.layer(lambda d: (d / place).symlink_to(goal)))
        top = []
        low = store.layer(fill)
        store.image("img", [base, low, *top], workdir="/app", volume=["/data"])
        for opts in ((), ("--read-only",), ("--workspace", ws), ("-v", f"{ws}:/data"), ("--security-profile", "untrusted", "-v", f"{ws}:/{place}/x:ro")):
            r = sh(store, "img", f"echo x >/{place}/file; cat /{place}/file; touch /{place}/new {bait}/new; /bin/probe read /dev/null", opts=opts)
            assert r.rc in (0, 1, 2, 125) and b"bait" not in r.out, (place, opts, r)
            assert attack.snapshot(bait) == before, (place, opts, r)
    assert (ws / "mark").read_text() == "shared"


def test_dev_and_proc_are_cloches(store, base, bait):
    """As links, files, directories full of things: what the box sees there is what every box sees."""
    def link(d):
        (d / "dev").symlink_to(bait)
        (d / "proc").symlink_to(bait)

    def plain(d):
        (d / "dev").write_text("x")
        (d / "proc").write_text("x")

    def full(d):
        files(dev__null="mine", dev__shm__x="x", dev__pts__ptmx="x", proc__keys="mine", proc__self__status="mine")(d)
        (d / "dev/fd").symlink_to(bait)
        (d / "proc/sys").symlink_to(bait)
    look = "stat -c '%F %t:%T' /dev/null /dev/urandom; ls /dev /dev/shm; cat /proc/keys; readlink /dev/fd; grep -c . /proc/self/status >/dev/null && echo ok"
    want = boxlib.box("--rootfs", store.layers / base[0], "--", "sh", "-c", look, json=False)
    assert want.rc == 0 and b"character special file 1:3" in want.out and b"ok" in want.out, want
    for fill in (link, plain, full):
        store.image("img", [base, store.layer(fill)])
        r = sh(store, "img", look)
        assert (r.rc, r.out) == (want.rc, want.out), (fill.__name__, r)


def test_a_box_cannot_write_a_layer(store, base, probe):
    """By the files themselves, by what lies above them, by links: the kernel's answer may be yes, in the box's own throwaway side."""
    layer = store.layer(files(data__a="a", data__b="b", data__c__d="d", bin__tool="#!/bin/sh\n"))
    store.image("img", [base, layer])
    before = attack.snapshot(store.layers)
    script = ("cd /data; echo changed >a && cat a; rm b; mv c e; mkdir b; chmod 0 /bin/tool; touch -d '2001-01-01 00:00' a; echo '#!' >/bin/busybox; "
              "rm -rf /data /etc /root; mkdir /data; ls -a /data")
    r = sh(store, "img", script)
    assert b"changed" in r.out, r  # the control: in the box it was so
    assert attack.snapshot(store.layers) == before
    r = run(store, "img", "/bin/probe", "write", "/data/a", "/proc/1/root/data/a", "/proc/self/root/data/b", f"{store.layers}/{layer[0]}/data/a")
    assert attack.answers(r.out)["/data/a"] == "ok", r
    assert attack.snapshot(store.layers) == before
    # Two at once, and the next one, start from what was unpacked.
    assert sh(store, "img", "cat /data/a /data/b").out == b"ab"


def test_nodes_and_set_ids(store, base):
    """nosuid and nodev hold for the root, and where it stays writable beneath a read-only one."""
    def fill(d):
        shutil.copy2(d.parent / base[0] / "bin" / "probe", d / "setid")
        if os.geteuid() == 0:
            os.chown(d / "setid", 0, 0)
            (d / "vol").mkdir()
            for name in ("zero", "vol/zero"):
                os.mknod(d / name, stat.S_IFCHR | 0o666, os.makedev(1, 5))
                os.chmod(d / name, 0o666)
        (d / "setid").chmod(0o6755)
    layer = store.layer(fill)
    store.image("img", [base, layer], user="1000:1000", volume=["/vol"])
    if os.geteuid() == 0:
        assert pathlib.Path(store.layers, layer[0], "zero").open("rb").read(1) == b"\0", "no control"
    for opts in ((), ("--read-only",)):
        r = sh(store, "img", "for f in /zero /vol/zero; do test -e $f && cat $f | wc -c; done; /setid read /proc/self/status; id -u; "
                             "grep -v ' /dev/\\| /proc' /proc/self/mountinfo | grep -v nosuid,nodev; true", opts=opts)
        lines = r.out.split(b"\n")
        assert b"1000" in lines and not [x for x in lines if x.isdigit() and int(x) > 1000] and b" - " not in r.out, r
        assert all(x in (b"0", b"1000", b"") or b"/proc/self/status ok" in x for x in lines), r
        r = sh(store, "img", "/setid sleep 9 >/tmp/up & while ! test -s /tmp/up; do sleep 0.02; done; grep -h '^[UG]id' /proc/$!/status; kill $!",
               opts=opts)
        assert r.out == b"Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n", r


def test_homes_that_cover(store, base):
    """A home, volume or working directory in /proc, /dev or /sys takes no mask off and makes nothing writable there."""
    look = ("cat /proc/keys /proc/cmdline; ls /proc/fs; echo x 2>/dev/null >/proc/sys/kernel/domainname && echo written; "
            "cat /proc/sys/kernel/random/boot_id; grep -c ' /proc' /proc/self/mountinfo")
    store.image("img", [base])
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes()
    want = sh(store, "img", look, opts=("--read-only",))
    assert want.rc == 0 and boot not in want.out and b"written" not in want.out, want
    rows = [dict(env=["HOME=" + p]) for p in ("/proc", "/proc/sys", "/proc/fs", "/link")] + [dict(volume=["/proc", "/proc/sys", "/link", "/dev", "/"])]
    link = store.layer(lambda d: (d / "link").symlink_to("proc/sys/kernel"))
    for says in rows:
        store.image("img", [base, link], **says)
        r = sh(store, "img", look, opts=("--read-only",))
        assert r.rc in (0, 125) and boot not in r.out and b"written" not in r.out, (says, r)
        assert r.rc == 125 or len(r.out.split()) == len(want.out.split()), (says, r, want)


def test_a_stack_made_to_be_walked_long(store, base, ws):
    """Links to links to links, in every layer: the look for a mount's target ends."""
    def fill(d):
        p = d
        for _ in range(30):
            p = p / "d"
            p.mkdir()
        (d / "l0").symlink_to("/".join(["d"] * 30 + [".."] * 30) + "/" + "/".join(["d", ".."] * 500) + "/d")
        for i in range(1, 39):
            (d / f"l{i}").symlink_to(f"l{i - 1}/../l{i - 1}/..//l{i - 1}/../l{i - 1}")
    store.image("img", [base] + [store.layer(fill) for _ in range(40)])
    r = sh(store, "img", "true", opts=("-v", f"{ws}:/l38/x"))
    assert r.rc == 125 and b"too many links of the image" in r.err, r
    assert sh(store, "img", "readlink -f /x", opts=("-v", f"{ws}:/x")).out == b"/x\n", "no control"
