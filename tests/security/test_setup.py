"""A set-up box lets a command play root: what it says is done is not done, what it leaves is no danger, and its other locks stand."""
import hashlib
import os
import pathlib
import stat
import subprocess

import pytest
import setups

from . import attack
from .attack import boxlib

LIES = ("chown", "setuid", "setgid", "setgroups", "setfsuid")
CAPS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SETUP_CAPS = 1 << 1 | 1 << 31  # DAC_OVERRIDE, SETFCAP


@pytest.fixture(scope="module")
def home(probe, image):
    with setups.directory() as path:
        h = setups.Home(path)
        h.small(probe.path, name="probe")
        h.fill(image("busybox"))
        yield h


def shown(home, *command, image="probe", rc=0):
    """What a command printed that is run by setup."""
    r = home.setup(image, "shown", *command, json=False, opts=("--verbose",))
    assert r.rc == rc, r
    return r.err


def files(home, layer):
    return {path: row for path, row in home.tree(layer).items() if not stat.S_ISDIR(row.st_mode)}


@pytest.mark.root
def test_what_is_said_elsewhere_is_done(probe, public):
    """The control: as root on the host."""
    target = public / "file"
    target.write_text("")
    got = probe.outside("lies", str(target))
    assert {got[name] for name in LIES} == {"ok"}, got


def test_nothing_of_it_is_done(home):
    """Each call answers 0, and the kernel knows of nothing: neither inside nor, of the file, outside."""
    got = attack.answers(shown(home, "/bin/probe", "lies", "/etc/kept"))
    assert {got[name] for name in (*LIES, "capset")} == {"ENODATA"}, got
    assert {got[f"{name}:call"] for name in ("chown", "setuid", "setgid", "setgroups", "capset")} == {"ok"}, got
    mine = home.run("probe", "/bin/probe", "lies", "/etc/kept")
    lied = {name for name, said in attack.answers(mine.o.out).items() if said == "ENODATA"}
    assert lied == {"setfsuid"}, mine  # an ordinary box is not lied to; setfsuid has no way to say no


def test_owners_seen_from_the_host(home):
    """Set-up by root too writes as nobody while it runs, and as the caller once it is kept: never as root, set-id."""
    r = home.setup("small", "owners", "sh", "-c", "echo x >/file; chown 0:0 /file; chmod 6755 /file; mkdir -m 0 /shut; mkfifo /fifo; ln -s x /l")
    tree = home.tree(r.o["layer"])
    assert {row.st_uid for row in tree.values()} == {os.geteuid()} and len(tree) == 4, r
    assert stat.S_IMODE(tree["file"].st_mode) == 0o755


def test_set_id_bits_are_let_through_and_not_kept(home):
    got = attack.answers(shown(home, "/bin/probe", "setid", "/root"))
    assert got["chmod:both"] == got["creat:suid"] == got["openat:sgid"] == got["mknod:suid"] == got["filecap"] == "ok", "no control"
    r = home.setup("probe", "bits", "/bin/probe", "setid", "/root")
    left = files(home, r.o["layer"])
    assert len(left) > 30 and r.o["set_ids_cleared"] > 20, r
    assert [path for path, row in left.items() if row.st_mode & 0o6000] == []
    assert [p for p, row in home.tree(r.o["layer"]).items() if row.st_mode & 0o4000] == []
    top = home.layers / r.o["layer"]
    assert [path for path in left if os.listxattr(top / path, follow_symlinks=False)] == []  # no file capability
    assert "root/filecap" in left


def test_no_device_is_made_or_kept(home):
    r = home.setup("probe", "devices", "/bin/probe", "devices", "/root")
    got = attack.answers(shown(home, "/bin/probe", "devices", "/tmp"))
    assert set(got.values()) == {"ok"} and len(got) == 6, got
    assert set(files(home, r.o["layer"])) == {"root/fifo"}


def test_nobody_else_gets_into_a_draft(home):
    """While it runs, a set-id file is there: behind directories that only the caller may enter."""
    argv = [boxlib.CLOCHE, "setup", "-q", "--no-network", "--image", "small", "--name", "draft", "--", "sh", "-c",
            "cp /bin/busybox /suid; chmod 4755 /suid; touch /ready; sleep 3; rm /suid"]
    with subprocess.Popen(argv, env={**boxlib.base_env(), **home.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
        boxlib.STARTED.add(p.pid)
        assert boxlib.wait_for(lambda: list((home.top / "draft").glob("*/tree/ready"))), "it did not begin"
        suid = next(iter((home.top / "draft").glob("*/tree/suid")))
        st = suid.stat()
        assert st.st_mode & stat.S_ISUID and st.st_uid != 0, "no control"
        assert any(stat.S_IMODE(d.stat().st_mode) & 0o077 == 0 and d.stat().st_uid == os.geteuid() for d in suid.parents)
        if boxlib.IS_ROOT:
            r = subprocess.run(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", str(suid), "true"], capture_output=True, check=False)
            assert r.returncode != 0, "another user ran it"
        assert p.wait(boxlib.HANG) == 0
    assert not home.drafts()


@pytest.mark.parametrize("call", ["mount", "setns", "bpf", "pivot_root", "reboot", "init_module"])
def test_the_ending_set_ends_it(home, call):
    before = home.kept(), home.names()
    r = home.setup("probe", "ended", "/bin/probe", "end", call)
    assert r.rc == 159 and (r.o.fault_type, r.o.fault["syscall"]) == ("escape_blocked", call), r
    assert (home.kept(), home.names()) == before and not home.drafts()


def test_what_is_refused_in_every_box_is_refused_here(home):
    got = attack.answers(shown(home, "/bin/probe", "sys"))
    usual = attack.answers(home.run("probe", "/bin/probe", "sys", opts=("--user", "0")).o.out)
    differs = {name: (got[name], usual[name]) for name in usual if got.get(name) != usual[name]}
    assert len(usual) > 30 and {n for n, (a, b) in differs.items() if a == "ok"} == {"capset", "setgroups"}, differs  # the lies


def test_locks_read_back(home):
    rows = dict(line.split(":", 1) for line in shown(home, "cat", "/proc/self/status", image="small").decode().splitlines() if ":" in line)
    assert {int(rows[c], 16) for c in CAPS} == {SETUP_CAPS}
    assert (rows["NoNewPrivs"].strip(), rows["Seccomp"].strip()) == ("1", "2")


def test_the_image_below_stays_as_it_is(home):
    """DAC_OVERRIDE reaches what lies in the box's root, which is a layer of its own."""
    base = [d for d in home.layers.iterdir() if d.is_dir() and d.name.startswith("d")]
    before = {str(d): attack.snapshot(d) for d in base}
    r = home.setup("small", "wild", "sh", "-c", "for f in /etc/*; do echo evil >$f; done; chmod -R 777 /; rm -rf /bin/wget /etc; mkdir /etc")
    assert r.rc == 0, r
    # The times of access and of the locks apart.
    assert {str(d): attack.snapshot(d) for d in base} == before


def test_no_file_of_the_host_is_there(home):
    """No workspace, no mount of the host's: what is mounted is of the box's own."""
    lines = shown(home, "cat", "/proc/self/mountinfo", image="small").decode().splitlines()
    kinds = {line.split(" - ")[1].split()[0] for line in lines if " - " in line}
    assert kinds <= {"overlay", "tmpfs", "proc", "devpts", "devtmpfs", "cgroup2", "cgroup"}, lines
    shared = [line for line in lines if " - " in line and str(home.home) in line]
    # The store's own path: overlayfs shows descriptors, no names.
    assert not shared, shared


def test_a_hostile_tree_stays_where_it_is(home, public):
    """Links, names and depths that would lead a careless walk elsewhere."""
    trap = public / "trap"
    trap.write_text("kept")
    trap.chmod(0o4755)
    script = (f"ln -s {trap} /link; ln -s {public} /dir; mkdir -p /a/b; ln -s / /a/root; cd /a/b; ln -s ../../../../../../../.. up; "
              "touch '-rf' 'a b' \"$(printf 'new\\nline')\"; ln /etc/passwd /hard 2>/dev/null || true")
    r = home.setup("small", "links", "sh", "-c", script)
    assert r.rc == 0, r
    assert stat.S_IMODE(trap.stat().st_mode) == 0o4755 and trap.read_text() == "kept" and trap.stat().st_uid == os.geteuid()
    assert os.readlink(home.layers / r.o["layer"] / "link") == str(trap)
    deep = "cd /tmp; i=0; while [ $i -lt 300 ]; do mkdir d && cd d || exit 9; i=$((i+1)); done"
    r = home.setup("small", "deep", "sh", "-c", deep)
    # Whichever looks first: the settling of the tree, or the sampler, to which such a depth is a place to hide.
    assert (r.rc, r.o.fault_type) in ((125, "startup_failed"), (137, "workspace_full")), r
    assert not home.drafts()


def test_a_poisoned_layer_is_not_found(home):
    """The name of a layer is of its key: another base, or another command, never finds it."""
    script = "echo evil >/bin/evil"
    a = home.setup("small", "poison", "sh", "-c", script)
    b = home.setup("local/poison", "poison2", "sh", "-c", script)
    assert a.o["key"] != b.o["key"] and not b.o["found"]
    assert a.o["layer"][1:] == a.o["key"].split(":")[1][:20]
    assert len({hashlib.sha256(pathlib.Path(home.layers, n + ".info").read_bytes()).hexdigest() for n in home.kept()}) == len(home.kept())
