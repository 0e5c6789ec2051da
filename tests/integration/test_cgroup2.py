"""The rung on cgroup v2: where groups are made, that each limit is what the kernel holds, and what is told when a controller is missing.

Most of it needs a place where this caller may make v2 groups with controllers (a delegated slice, or root where v2 holds memory and pids).
The rest needs root and a v2 tree with or without controllers.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import time

import boxlib
import pytest

MIB = 1 << 20
USER = 12345


def v2_mount():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        if right.split()[0] == "cgroup2" and left.split()[3] == "/":
            return pathlib.Path(left.split()[4])
    return None


def words(path):
    return set(path.read_text().split())


def parent_with(controllers):
    """The nearest group from our own upwards that we may write to and that hands these down; None when there is none."""
    mount = v2_mount()
    own = [x[3:] for x in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if x.startswith("0::")]
    if not mount or not own or own[0].startswith("/.."):
        return None
    at = mount / own[0].lstrip("/")
    while os.access(at / "cgroup.procs", os.W_OK):
        if controllers <= words(at / "cgroup.subtree_control"):
            return at
        if at == mount:
            break
        at = at.parent
    return None


def remove(path):
    for d in sorted(path.iterdir()):
        if d.is_dir():
            remove(d)
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")
    for _ in range(100):
        try:
            return path.rmdir()
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{path} can't be removed: {(path / 'cgroup.procs').read_text()!r}")


@contextlib.contextmanager
def group(parent, *enable, owner=None):
    """A group below parent that hands these controllers down."""
    path = parent / f"ct-{os.getpid()}-{time.monotonic_ns()}"
    path.mkdir()
    try:
        if enable:
            (path / "cgroup.subtree_control").write_text(" ".join("+" + c for c in enable))
        if owner is not None:
            for f in (path, path / "cgroup.procs", path / "cgroup.subtree_control", path / "cgroup.threads"):
                os.chown(f, owner, owner)
        yield path
    finally:
        remove(path)


@pytest.fixture
def place():
    """A group with memory and pids to hand down, which nobody else uses."""
    parent = parent_with({"memory", "pids"})
    if not parent:
        pytest.skip("no cgroup v2 place with memory and pids here")
    with group(parent) as path:
        yield path


def group_of(pid):
    """The v2 group's directory of any process that we can see."""
    line = [x for x in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if x.startswith("0::")][0]
    return v2_mount() / line[3:].lstrip("/")


def named(path):
    return {"CLOCHE_CGROUP": str(path)}


def left_in(path):
    return [d.name for d in path.iterdir() if d.is_dir() and d.name.startswith("cloche-")]


def standing_in(path, uid=None):
    """preexec: stands in the group, and becomes uid."""
    def go():
        (path / "cgroup.procs").write_text("0")
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
    return go


@contextlib.contextmanager
def caller(path, uid):
    """Keyword arguments for a cloche of another user who stands in `path`."""
    home = pathlib.Path(f"/tmp/ct-home-{os.getpid()}")
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    try:
        yield {"preexec_fn": standing_in(path, uid), "env": {"HOME": str(home), "XDG_RUNTIME_DIR": "", "DBUS_SESSION_BUS_ADDRESS": ""}}
    finally:
        subprocess.run(["rm", "-rf", home], check=True)


def started(*args, **kw):
    """A box that says hello and waits."""
    p = boxlib.start(*args, "sh", "-c", "echo up; exec sleep 600", **kw)
    assert p.stdout.readline() == b"up\n", p.communicate()
    return p


def ended(p):
    p.kill()
    p.communicate()


def test_the_kernel_holds_what_was_asked(box, place):
    p = started("--memory", "100m", "--pids", 33, env=named(place))
    try:
        inside = boxlib.children_of(p.pid)
        groups = {group_of(i) for i in inside}
        assert len(groups) == 1 and len(inside) >= 2, (groups, inside)
        mine = groups.pop()
        assert mine.parent == place and mine.name.startswith(f"cloche-{p.pid}-")
        assert group_of(p.pid) != mine
        values = {f: (mine / f).read_text().strip() for f in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max")}
        assert values == {"memory.max": str(100 * MIB), "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "34"}
    finally:
        ended(p)
    limits = box("--memory", "100m", "--pids", 33, "true", env=named(place)).o["limits"]
    for name, value in (("memory", 100 * MIB), ("pids", 33)):
        assert limits[name] == {"requested": value, "effective": value, "rung": "cgroup2", "enforced": True}


def test_cpu_quota_is_in_the_group(box):
    parent = parent_with({"memory", "pids", "cpu"})
    if not parent:
        pytest.skip("no cgroup v2 place with cpu here")
    with group(parent) as place:
        p = started("--cpus", "0.25", env=named(place))
        try:
            inside = next(iter(boxlib.children_of(p.pid)))
            assert (group_of(inside) / "cpu.max").read_text().split() == ["25000", "100000"]
        finally:
            ended(p)
        assert box("--cpus", "0.25", "true", env=named(place)).o["limits"]["cpus"]["rung"] == "cgroup2"


def test_the_box_sees_its_own_group_and_no_more(box, place):
    script = ("cat /proc/self/cgroup /sys/fs/cgroup/memory.max; ls /sys /sys/fs; find /sys/fs/cgroup -mindepth 1 -type d; "
              "grep -c cgroup /proc/self/mountinfo; for f in memory.max pids.max cgroup.procs cgroup.kill cgroup.subtree_control; do "
              "(echo 1 >/sys/fs/cgroup/$f) 2>/dev/null && echo wrote $f; done; mkdir /sys/fs/cgroup/x 2>/dev/null && echo made; echo end")
    want = ["0::/", str(77 * MIB), "/sys:", "fs", "", "/sys/fs:", "cgroup", "1", "end"]
    for extra in ((), ("--user", "0", "--cap-add", "SYS_ADMIN", "--cap-add", "DAC_OVERRIDE"), ("--read-only",)):
        assert box("--memory", "77m", *extra, "sh", "-c", script, env=named(place)).o.out.splitlines() == want, extra
    # The owner may, outside: it is the mount that forbids it.
    p = started("--memory", "77m", env=named(place))
    try:
        mine = group_of(next(iter(boxlib.children_of(p.pid))))
        (mine / "memory.max").write_text(str(78 * MIB))
        assert (mine / "memory.max").read_text() == f"{78 * MIB}\n"
    finally:
        ended(p)
    # What covers it is the caller's word.
    assert box("--tmpfs", "/sys:1m", "ls", "-A", "/sys", env=named(place)).o.out == ""
    assert box("--supervised", "sh", "-c", "ls /sys", env=named(place)).o["exit_code"] != 0


def test_every_process_is_born_inside(box, place, probe):
    """No process of a box is ever outside: what it uses while it is built counts, and init is there from the start."""
    o = box("--memory", "64m", *probe.mount, probe.path("memory"), "gradual", 160, 3000, env=named(place)).o
    assert (o.fault_type, o["exit_code"]) == ("oom", 137), o
    assert o.fault["filled_by"] in ("anonymous", None), o  # None: the group was gone in one go, before a look into it
    assert o["events"]["oom_kills"] > 0 and o["limits"]["memory"]["rung"] == "cgroup2"
    assert o["usage"]["cpu_sys_us"] > 0 and 60 * MIB < o["usage"]["memory_peak_bytes"] <= 64 * MIB
    assert not left_in(place)


def test_the_kernel_caches_nothing_of_a_box(place):
    """Here as on v1 (test_many.py, with the control): a file that is open while its group goes would leave its name and the group's."""
    def slab():
        boxlib.reap()
        return int(next(line for line in (place / "memory.stat").read_text().splitlines() if line.startswith("slab ")).split()[1])
    (place / "cgroup.subtree_control").write_text("+memory +pids")
    with group(place) as leaf:  # what a start makes the kernel remember counts where cloche stands
        for _ in range(20):
            assert boxlib.communicate([boxlib.CLOCHE, "run", "-q", "--", "true"], preexec_fn=standing_in(leaf)).rc == 0
        assert boxlib.wait_for(lambda: slab() < 40 << 10, every=0.2), slab()


def test_memory_without_pids(box, place, probe):
    (place / "cgroup.subtree_control").write_text("+memory")
    with group(place) as half:
        o = box("--pids", 20, *probe.mount, probe.path("forker"), 100, env=named(half)).o
        assert o["limits"]["memory"]["rung"] == "cgroup2" and o["limits"]["memory"]["enforced"] is True
        assert o["limits"]["pids"]["rung"] == "supervised" and o["limits"]["pids"]["enforced"] is False
        assert 5 <= int(o.out) <= 19 and any("pids limit is supervised" in n for n in o["notes"]), o
        o = box("--memory", "64m", *probe.mount, probe.path("memory"), "gradual", 160, 3000, env=named(half)).o
        assert o.fault_type == "oom" and o["events"]["oom_kills"] > 0
        r = box("--require-limits", "echo", "ran", env=named(half))
        assert r.rc == 125 and r.o.fault["stage"] == "limits" and "enforces pids" in r.o.fault["message"], r
    (place / "cgroup.subtree_control").write_text("+pids")
    with group(place) as whole:
        assert box("--require-limits", "echo", "ran", env=named(whole)).o.out == "ran\n"


def test_pids_without_memory(box, place, probe):
    (place / "cgroup.subtree_control").write_text("+pids")
    memfd = "import os\ntry: os.memfd_create('x'); print('made')\nexcept OSError as e: print(e.errno)"
    with group(place) as half:
        o = box("--pids", 20, *probe.mount, probe.path("forker"), 100, env=named(half)).o
        assert o["limits"]["pids"]["rung"] == "cgroup2" and o["limits"]["pids"]["enforced"] is True
        assert o["limits"]["memory"]["rung"] == "supervised" and o["limits"]["memory"]["enforced"] is False
        assert 5 <= int(o.out) <= 19 and o["events"]["pids_max"] > 0, o
        o = box("--memory", "64m", *probe.mount, probe.path("memory"), "gradual", 160, 5000, env=named(half)).o
        assert o.fault_type == "oom" and "survived" not in o.out
        assert box("python3", "-c", memfd, env=named(half)).o.out == "38\n"
        r = box("--require-limits", "echo", "ran", env=named(half))
        assert r.rc == 125 and "enforces memory" in r.o.fault["message"], r
    (place / "cgroup.subtree_control").write_text("+memory")
    with group(place) as whole:
        assert box("python3", "-c", memfd, env=named(whole)).o.out == "made\n"


def test_a_controller_that_is_taken_away_is_told(box, place):
    """As a service manager does that reconsiders a slice: the limit held for a while, and that is not called enforced."""
    def told(take):
        with boxlib.running("--pids", 20, "sleep", "600", env=named(place), json=True) as p:
            sleeper = boxlib.wait_for(lambda: [i for i, name in boxlib.children_of(p.pid).items() if name == "sleep"])
            if take:
                (place / "cgroup.subtree_control").write_text("-pids")
            os.kill(sleeper[0], 9)
            out, err = p.communicate(timeout=boxlib.HANG)
        o = boxlib.Result(["cloche"], p.returncode, out, err, 0).parse().o
        return o["limits"]["pids"]["enforced"], any("pids controller was taken away" in n for n in o["notes"])

    assert told(False) == (True, False)
    assert told(True) == (False, True)
    assert not left_in(place)


def test_a_named_group_is_used_or_nothing(box, place, tmp_path):
    """CLOCHE_CGROUP fails closed: no box runs with less than what was named."""
    def said(path):
        r = box("echo", "ran", env=named(path))
        assert r.rc == 125 and r.o.fault["stage"] == "limits" and r.o.out == "", r
        assert "CLOCHE_CGROUP" in r.o.fault["message"]
        return r.o.fault["message"]

    assert box("echo", "ran", env=named(place)).o.out == "ran\n"
    assert "No such file" in said("/nosuch")
    assert "no group of cgroup v2" in said(tmp_path)
    with group(place) as bare_parent:
        (place / "cgroup.subtree_control").write_text("-memory -pids")
        assert "neither memory nor pids" in said(bare_parent)
    with group(place.parent) as busy:
        with subprocess.Popen(["sleep", "600"], preexec_fn=standing_in(busy)) as sleeper:
            assert "holds other processes" in said(busy)
            sleeper.kill()


def test_the_nearest_group_above_is_used(place):
    (place / "cgroup.subtree_control").write_text("+memory +pids")
    with group(place) as leaf:
        p = started(preexec_fn=standing_in(leaf))
        try:
            inside = next(iter(boxlib.children_of(p.pid)))
            assert group_of(p.pid) == leaf and group_of(inside).parent == place
        finally:
            ended(p)


def test_a_killed_cloche_leaves_an_empty_group_to_the_next(box, cloche, place):
    for clean in (lambda: box("true", env=named(place)), lambda: cloche("gc", env=named(place))):
        p = started(env=named(place))
        mine = group_of(next(iter(boxlib.children_of(p.pid))))
        ended(p)
        assert boxlib.wait_for(lambda: "populated 0" in (mine / "cgroup.events").read_text())
        assert left_in(place) == [mine.name]
        clean()
        assert not left_in(place)


def test_a_living_cloche_keeps_its_group(box, cloche, place):
    p = started(env=named(place))
    try:
        box("true", env=named(place))
        cloche("gc", env=named(place))
        assert len(left_in(place)) == 1
    finally:
        ended(p)
    cloche("gc", env=named(place))


def test_killed_at_any_moment(box, place):
    """Whatever moment it is, one more start finds and removes what stayed."""
    pids = []
    for i in range(25):
        p = boxlib.start("true", env=named(place))
        time.sleep(i * 0.0015)
        p.kill()
        p.communicate()
        pids.append(p.pid)
    assert boxlib.wait_for(lambda: box("true", env=named(place)).rc == 0 and not left_in(place)), left_in(place)


# What needs root: groups for others, namespaces like a container's.


IN_A_CONTAINER = """
set -e
mount -t cgroup2 {opts} none /mnt
mount --move /mnt /sys/fs/cgroup 2>/dev/null || mount --bind /mnt /sys/fs/cgroup
umount /mnt 2>/dev/null || :
{more}
exec "$@"
"""


def in_a_container(path, *args, opts="", more=""):
    """A cloche whose cgroup namespace begins at `path`, with nothing else of the hierarchy in sight."""
    script = IN_A_CONTAINER.format(opts=opts, more=more)
    argv = ["unshare", "-m", "-C", "sh", "-c", script, "sh", *boxlib.argv_of(args)]
    return boxlib.communicate(argv, preexec_fn=standing_in(path)).parse()


@pytest.mark.root
def test_alone_in_a_container(place):
    """The root group of a container holds cloche alone: it steps aside, and afterwards all is as it was."""
    r = in_a_container(place, "--memory", "64m", "cat", "/proc/self/cgroup", "/sys/fs/cgroup/memory.max")
    assert r.o.out.splitlines() == ["0::/", str(64 * MIB)] and r.o["limits"]["pids"]["rung"] == "cgroup2", r
    assert not left_in(place) and (place / "cgroup.subtree_control").read_text().strip() == ""


@pytest.mark.root
def test_a_busy_container_is_left_alone(place):
    """T3: the root group holds others' processes. They are not moved; what is missing is said."""
    more = "sleep 600 </dev/null >/dev/null 2>&1 & echo $! >/dev/null"
    r = in_a_container(place, "echo", "ran", more=more)
    assert r.o.out == "ran\n" and r.o["limits"]["memory"] == {
        "requested": 512 * MIB, "effective": 512 * MIB, "rung": "supervised", "enforced": False}, r
    (place / "cgroup.kill").write_text("1")
    r = in_a_container(place, "--require-limits", "echo", "ran", more=more)
    assert r.rc == 125 and "holds other processes" in r.o.fault["message"], r
    assert words(place / "cgroup.procs") and not left_in(place)


@pytest.mark.root
def test_a_read_only_mount_is_said(place):
    r = in_a_container(place, "--require-limits", "true", more="mount -o remount,bind,ro /sys/fs/cgroup")
    assert r.rc == 125 and "read-only" in r.o.fault["message"], r


@pytest.mark.root
def test_a_group_that_cannot_be_entered(box, place):
    """Delegated to a user who stands elsewhere: the kernel would not move him there, and the message says why."""
    (place / "cgroup.subtree_control").write_text("+memory +pids")
    with group(place, owner=USER) as theirs, group(place, owner=USER) as other:
        with caller(other, USER) as how:
            how["env"].update(named(theirs))
            r = box("echo", "ran", **how)
            assert r.rc == 125 and "leads over" in r.o.fault["message"], r
        with group(theirs, owner=USER) as leaf, caller(leaf, USER) as how:
            how["env"].update(named(theirs))
            r = box("echo", "ran", **how)
            assert r.o.out == "ran\n" and r.o["limits"]["memory"]["rung"] == "cgroup2", r


@pytest.mark.root
def test_a_tree_without_controllers_still_kills(box):
    """A user whose v2 groups hold nothing has limits by supervision, and a group to be killed by."""
    mount = v2_mount()
    if not mount:
        pytest.skip("no cgroup v2 tree here")
    with group(mount) as outer, group(outer, owner=USER) as theirs, caller(theirs, USER) as how:
        p = started(**how)
        try:
            inside = boxlib.children_of(p.pid)
            groups = {group_of(i) for i in inside}
            assert len(groups) == 1 and groups.pop().parent == theirs
        finally:
            p.terminate()
            p.communicate()
        assert not left_in(theirs)
        o = box("--timeout", "200ms", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 600 & done; wait", **how).o
        assert o.fault_type == "timeout" and o["limits"]["memory"]["rung"] == "supervised", o
        assert not left_in(theirs)
        p = started(**how)
        ended(p)
        assert boxlib.wait_for(lambda: box("true", **how).rc == 0 and not left_in(theirs))
        assert box("--supervised", "ls", "/sys", **how).rc != 0


@pytest.mark.root
def test_a_tree_without_controllers_still_freezes():
    """A stop of cloche stops all of the box, also those who have left the command's process group; and they go on with it."""
    mount = v2_mount()
    if not mount:
        pytest.skip("no cgroup v2 tree here")
    mark = f"71.{time.monotonic_ns()}"
    with group(mount) as outer, group(outer, owner=USER) as theirs, caller(theirs, USER) as how:
        stand = how.pop("preexec_fn")

        def job():
            """A process group of its own in this session: one that a stop key may stop."""
            os.setpgid(0, 0)
            stand()
        p = boxlib.start("sh", "-c", f"setsid sleep {mark} & echo up; wait", start_new_session=False, preexec_fn=job, **how)
        try:
            assert p.stdout.readline() == b"up\n"
            away = boxlib.wait_for(lambda: boxlib.find_marked(mark))[0]
            events = group_of(away) / "cgroup.events"
            assert events.parent.parent == theirs and "frozen 0" in events.read_text()
            os.kill(p.pid, signal.SIGTSTP)
            assert boxlib.wait_for(lambda: "frozen 1" in events.read_text())
            os.kill(p.pid, signal.SIGCONT)
            assert boxlib.wait_for(lambda: "frozen 0" in events.read_text())
            os.kill(p.pid, signal.SIGTSTP)
            assert boxlib.wait_for(lambda: "frozen 1" in events.read_text())
            p.kill()  # who is frozen dies with its owner all the same
            assert boxlib.wait_for(lambda: not boxlib.find_marked(mark))
        finally:
            p.kill()
            p.communicate()


@pytest.mark.root
def test_a_group_that_takes_no_process(box):
    """Below a threaded group the kernel lets none be born: the box comes without, and nothing stays."""
    mount = v2_mount()
    if not mount:
        pytest.skip("no cgroup v2 tree here")
    with group(mount) as outer, group(outer, owner=USER) as theirs:
        (theirs / "cgroup.type").write_text("threaded")
        with caller(theirs, USER) as how:
            o = box("echo", "ran", **how).o
            assert (o.out, o.fault) == ("ran\n", None) and o["limits"]["memory"]["rung"] == "supervised", o
            assert not left_in(theirs)


def test_io_weight_is_told(box):
    for bad in ("0", "10001", "x"):
        assert box("--io-weight", bad, "true", json=False).rc == 2, bad
    row = box("--io-weight", 77, "true").o["limits"]["io_weight"]
    assert row["requested"] == 77
    if row["enforced"]:
        assert (row["effective"], row["rung"]) == (77, "cgroup2")
    else:
        assert (row["effective"], row["rung"]) == (None, "none")
        r = box("--io-weight", 77, "--require-limits", "echo", "ran")
        assert r.rc == 125 and r.o.out == "", r
    assert box("true").o["limits"]["io_weight"] == {"requested": None, "effective": None, "rung": "none", "enforced": False}


@pytest.mark.root
def test_io_weight_is_in_the_group(box):
    mount = v2_mount()
    if not mount or "io" not in words(mount / "cgroup.controllers"):
        pytest.skip("no io controller on cgroup v2 here")
    was = words(mount / "cgroup.subtree_control")
    (mount / "cgroup.subtree_control").write_text("+io")
    try:
        with group(mount) as place:
            if not (place / "io.weight").exists():
                pytest.skip("this kernel has no io.weight")
            p = started("--io-weight", 77, env=named(place))
            try:
                inside = next(iter(boxlib.children_of(p.pid)))
                assert (group_of(inside) / "io.weight").read_text() == "default 77\n"
            finally:
                ended(p)
            o = box("--io-weight", 77, "--require-limits", "echo", "ran", env=named(place)).o
            assert o.out == "ran\n" and o["limits"]["io_weight"]["rung"] == "cgroup2"
    finally:
        if "io" not in was:
            (mount / "cgroup.subtree_control").write_text("-io")
