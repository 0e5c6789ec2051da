"""Files: set-id bits, device nodes, masked and read-only parts of /proc and /sys, what of the host shows."""
import os
import pathlib
import stat
import subprocess

import pytest

from . import attack
from .attack import boxlib

CALLS = ("chmod", "fchmod", "fchmodat", "fchmodat2", "open", "openat", "tmpfile", "openat2", "creat", "mknod", "mknodat", "chmod-dir", "high")
BITS = ("suid", "sgid", "both")


@pytest.fixture(scope="module")
def setid_outside(probe):
    where = attack.public_dir()
    got = probe.outside("setid", where)
    yield got, where
    attack.shutil.rmtree(where)


@pytest.fixture(scope="module")
def setid_inside(probe):
    where = attack.public_dir()
    got = probe.inside("setid", "/workspace", opts=("--workspace", where))
    yield got, where
    attack.shutil.rmtree(where)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("call", CALLS)
def test_setid_bits(call, bits, setid_outside, setid_inside):
    assert setid_outside[0][f"{call}:{bits}"] == "ok", "no control"
    assert setid_inside[0][f"{call}:{bits}"] in ("EPERM", "ENOSYS")


def test_setid_bits_seen_from_the_host(setid_outside, setid_inside):
    """The host is asked, not the box: no file of the workspace has a set-id bit."""
    def bits(where):
        return [p.name for p in where.rglob("*") if p.lstat().st_mode & 0o6000]
    assert len(bits(setid_outside[1])) >= len(CALLS) * len(BITS), "no control"
    assert bits(setid_inside[1]) == []
    assert setid_inside[0]["plain"] == setid_inside[0]["sticky"] == "ok"
    assert stat.S_IMODE((setid_inside[1] / "plain").stat().st_mode) == 0o750


def test_file_capabilities(setid_outside, setid_inside):
    """A file capability is as good as a set-id bit."""
    if boxlib.IS_ROOT:
        assert setid_outside[0]["filecap"] == "ok", "no control"
    assert setid_inside[0]["filecap"] != "ok"
    assert "security.capability" not in os.listxattr(setid_inside[1] / "filecap")


@pytest.mark.parametrize("opts", [("--user", "0"), ("--cap-add", "FSETID", "--cap-add", "SETFCAP", "--cap-add", "MKNOD"),
                                  ("--security-profile", "untrusted"), ("--user", "0", "--cap-add", "ALL")], ids="_".join)
def test_setid_and_devices_with_more_rights(probe, ws, opts):
    r = probe.run("setid", "/workspace", opts=("--workspace", ws, *opts), json=False)
    if r.rc == 2 and "ALL" in opts:  # there is no such option: nothing ran
        assert list(ws.iterdir()) == []
        return
    assert r.rc == 0, r
    probe.inside("devices", "/workspace", opts=("--workspace", ws, *opts))
    made = [p for p in ws.rglob("*")]
    assert made, "no control: nothing was written"
    assert [p.name for p in made if p.lstat().st_mode & 0o6000] == []
    assert [p.name for p in made if stat.S_ISCHR(p.lstat().st_mode) or stat.S_ISBLK(p.lstat().st_mode)] == []
    for p in made:
        assert "security.capability" not in os.listxattr(p, follow_symlinks=False)


def test_device_nodes(probe, ws):
    if boxlib.IS_ROOT:
        outside = probe.outside("devices", ws)
        assert outside["char"] == outside["mem"] == outside["block"] == "ok", "no control"
        for p in ws.iterdir():
            p.unlink()
    for where in ("/workspace", "/tmp", "/dev/shm", "/dev"):
        got = probe.inside("devices", where, opts=("--workspace", ws))
        assert {got[n] for n in ("char", "mem", "block", "loop")} <= {"EPERM", "EACCES", "EROFS", "EEXIST"}, where
    for p in ws.iterdir():
        assert not stat.S_ISCHR(p.lstat().st_mode) and not stat.S_ISBLK(p.lstat().st_mode)


WHITEOUT = "import os; os.mknod('{}/w', 0o20600, os.makedev(0, 0))"


@pytest.mark.parametrize("opts", [(), ("--security-profile", "untrusted"), ("--user", "0")], ids=lambda o: "_".join(o) or "-")
def test_no_whiteouts(box, ws, opts):
    """A character device 0:0 needs no right to make, and hides a file of the layer below it in whoever stacks the directory later."""
    control = subprocess.run(["python3", "-c", WHITEOUT.format(ws)], capture_output=True, check=False)
    assert control.returncode == 0 and (ws / "w").is_char_device(), "no control"
    (ws / "w").unlink()
    for where in ("/workspace", "/tmp"):
        r = box("-v", f"{ws}:/workspace:rw", *opts, "--", "python3", "-c", WHITEOUT.format(where))
        assert r.rc == 1 and "PermissionError" in r.o.err, r
    assert not list(ws.iterdir())


def test_dev_is_exact(box):
    """Nothing but the harmless nodes, and they are what they are called."""
    r = box("--", "sh", "-c", "cd /dev && find . -mindepth 1 | sort && stat -Lc '%n %t:%T' null zero full random urandom tty ptmx")
    assert r.rc == 0, r
    names = [n[2:] for n in r.o.out.splitlines() if n.startswith("./")]
    assert names == sorted(["fd", "full", "null", "ptmx", "pts", "pts/ptmx", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom",
                            "zero"])
    kinds = dict(line.split() for line in r.o.out.splitlines() if not line.startswith("./"))
    assert kinds == {"null": "1:3", "zero": "1:5", "full": "1:7", "random": "1:8", "urandom": "1:9", "tty": "5:0", "ptmx": "5:2"}


def test_dev_works(box):
    r = box("--", "sh", "-c", "echo x >/dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c && ! echo x >/dev/full")
    assert r.rc == 0 and r.o.out.split() == ["4", "4"], r


MASKED = ("/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/cmdline", "/proc/partitions",
          "/proc/diskstats", "/proc/config.gz", "/proc/kallsyms", "/proc/modules", "/proc/timer_list", "/proc/latency_stats",
          "/proc/sched_debug", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/bus", "/proc/asound", "/proc/driver")


ROOTS_OWN = {"/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/timer_list"}  # closed to every box's ids


@pytest.mark.parametrize("path", MASKED)
def test_proc_masked(box, path):
    """No byte and no name comes out. (Outside, those that this kernel has do say something; test_masks_have_a_control.)"""
    r = box("--", "sh", "-c", f"if [ -d {path} ]; then ls -A {path}; else head -c 4096 {path} 2>/dev/null; fi; true")
    assert r.rc == 0 and r.o.out == "", r
    if path not in ROOTS_OWN and pathlib.Path(path).is_file():  # one that has nothing to say today is covered as well
        assert box("--", "stat", "-c", "%t,%T", path).o.out == "1,3\n"
    elif path not in ROOTS_OWN and pathlib.Path(path).is_dir():
        assert f" {path} ro," in box("--", "cat", "/proc/self/mountinfo").o.out


def test_nothing_lies_over_the_root(box):
    """pivot_root leaves the host's tree mounted over the new root: out of sight from above, and one step away from below."""
    r = box("--", "sh", "-c", "ls -a /; echo; ls -a /usr/..; echo; cat /proc/self/mountinfo")
    top, below, mounts = r.o.out.split("\n\n")
    assert top == below and "bin" in top
    assert [line.split()[4] for line in mounts.splitlines()].count("/") == 1, mounts


def test_key_users_are_masked(box):
    """How many keys each user of the host holds; the control is the box's own row outside the mask (root sees more)."""
    control = pathlib.Path("/proc/key-users").read_text()
    if boxlib.IS_ROOT:
        assert control.strip(), "no control"
    assert box("--", "stat", "-L", "-c", "%t,%T", "/proc/key-users").o.out == "1,3\n"
    assert box("--", "cat", "/proc/key-users").o.out == ""


def test_masks_have_a_control():
    telling = []
    for path in MASKED:
        try:
            if os.path.isdir(path):
                telling += [path] if os.listdir(path) else []
            elif path not in ("/proc/kmsg", "/proc/kcore", "/proc/sysrq-trigger"):
                telling += [path] if pathlib.Path(path).open("rb").read(1) else []
        except OSError:
            pass
    assert {"/proc/cmdline", "/proc/partitions", "/proc/diskstats", "/proc/fs"} <= set(telling)


@pytest.mark.parametrize("opts", [(), ("--user", "0")], ids=["user", "uid0"])
def test_masks_hold_against_their_owner(box, opts):
    """A mask can't be moved, removed or written through."""
    r = box(*opts, "--", "sh", "-c", "cd /proc; for f in kcore keys cmdline sysrq-trigger; do rm -f $f; mv $f x; ln -sf /etc/passwd $f; "
            "echo 1 >$f; chmod 666 $f; head -c 10 $f; done; rmdir fs acpi; mkdir fs/x; ls -A fs; true")
    assert r.rc == 0 and r.o.out == "", r


def test_boot_id_is_not_the_hosts(box):
    path = "/proc/sys/kernel/random/boot_id"
    r = box("--", "cat", path)
    assert len(r.o.out.strip()) == 36, r
    assert r.o.out != pathlib.Path(path).read_text()


WRITES = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/sysrq",
          "/proc/sys/vm/max_map_count", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward",
          "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/ns_last_pid",
          "/proc/sys/kernel/shmmax", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/sysvipc/shm",
          "/proc/self/attr/current", "/proc/self/loginuid", "/proc/kcore", "/proc/kmsg", "/proc/mem", "/dev/mem", "/dev/kmsg",
          "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state")
OWN_ENTRY = {"/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/attr/current", "/proc/self/loginuid"}


@pytest.mark.parametrize("opts", [(), ("--user", "0"), ("--network", "host"), ("--user", "0", "--network", "host")], ids=lambda o: "_".join(o) or "-")
def test_kernel_settings_are_not_writable(box, probe, opts):
    if boxlib.IS_ROOT:
        control = probe.outside("write", *WRITES)
        assert control["/proc/sys/kernel/core_pattern"] == control["/proc/sys/vm/max_map_count"] == "ok", "no control"
    got = probe.inside("write", *WRITES, opts=opts)
    assert {p: v for p, v in got.items() if v == "ok" and p not in OWN_ENTRY} == {}
    # An entry of one's own may be opened; it can't be written.
    r = box(*opts, "--", "sh", "-c", "echo '0 0 1' >/proc/self/uid_map || echo '0 0 1' >/proc/self/gid_map || echo allow >/proc/self/setgroups")
    assert r.rc != 0, r


def test_core_pattern_and_sysrq_take_nothing(box):
    """What is written would do no harm if it got through: the value that is there already, and sysrq's help."""
    before = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    r = box("-e", f"V={before}", "--", "sh", "-c", "echo \"$V\" >/proc/sys/kernel/core_pattern && echo WROTE; "
            "echo h >/proc/sysrq-trigger && echo WROTE; true")
    assert r.rc == 0 and r.o.out == "", r


def test_sysfs_is_absent(box):
    """No /sys but, perhaps, the box's own cgroup, read-only."""
    r = box("--", "sh", "-c", "ls -A /sys 2>/dev/null; ls -A /sys/fs 2>/dev/null; mkdir /sys/fs/cgroup/x 2>/dev/null && echo MADE; true")
    assert set(r.o.out.split()) <= {"fs", "cgroup"}, r


def test_cgroup_shows_no_path_of_the_host(box):
    r = box("--", "cat", "/proc/self/cgroup")
    assert r.rc == 0
    for line in r.o.out.splitlines():
        assert line.split(":", 2)[2] == "/", r


def test_mountinfo_tells_no_host_path(box, ws, public):
    """But for the workspace's path in its own file system, which can't be hidden and is stated."""
    r = box("--workspace", ws, "-v", f"{public}:/ro:ro", "--", "cat", "/proc/self/mountinfo")
    assert r.rc == 0
    rows = [line.split() for line in r.o.out.splitlines()]
    assert rows
    for row in rows:
        if row[4] == "/workspace":
            continue
        assert public.name not in " ".join(row), row
        assert boxlib.CLOCHE not in " ".join(row), row
        if not row[4].startswith(("/proc/", "/dev/", "/etc/")):
            assert row[3] == "/", row
    text = r.o.out
    for secret in (os.path.expanduser("~"), str(boxlib.ROOT)):
        if secret not in ("/", "/root"):
            assert secret not in text


def test_mounts_are_nosuid_nodev(box, ws):
    """A set-id file that was in the image or the workspace gives nothing; a device node neither."""
    r = box("--workspace", ws, "--", "cat", "/proc/self/mountinfo")
    for row in map(str.split, r.o.out.splitlines()):
        if row[3] != "/" and row[4].startswith(("/dev/", "/proc/")):
            continue  # a single node: /dev/null and its like, and masks made from it
        assert "nosuid" in row[5].split(","), row
        assert "nodev" in row[5].split(",") or row[4] == "/dev/pts", row


def test_usr_is_read_only(box, probe):
    r = box("--", "sh", "-c", "for d in /usr /usr/bin /usr/lib /usr/share; do touch $d/cloche-probe 2>/dev/null && echo WROTE $d; done; true")
    assert r.rc == 0 and r.o.out == "", r
    assert not os.path.exists("/usr/cloche-probe") and not os.path.exists("/usr/bin/cloche-probe")


def test_ro_mount_rejects_writes(probe, box, public):
    (public / "f").write_text("old")
    (public / "f").chmod(0o666)
    before = attack.snapshot(public)
    r = box("-v", f"{public}:/ro:ro", "--", "sh", "-c", "cat /ro/f; (echo new >/ro/f) 2>/dev/null; touch /ro/g 2>/dev/null; rm -f /ro/f 2>/dev/null;"
            "mv /ro/f /ro/h 2>/dev/null; chmod 777 /ro/f 2>/dev/null; ln /ro/f /ro/i 2>/dev/null; true")
    assert r.rc == 0 and r.o.out == "old", r
    assert attack.snapshot(public) == before


def test_home_and_the_callers_files_are_absent(box, public):
    secret = public / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o644)
    home = pathlib.Path(os.path.expanduser("~"))
    r = box("--", "sh", "-c", f"cat {secret} 2>/dev/null; ls -A /root /home /srv /mnt /media {home} 2>/dev/null | grep -v ':$'; true")
    assert r.rc == 0
    assert "s3cret" not in r.o.out
    shown = set(r.o.out.split())
    mine = set(os.listdir(home)) if home.is_dir() and str(home) != "/" else set()
    assert not (shown & mine - {".cache", ".config", ".local", ".npm"})


def test_passwd_names_nobody_of_the_host(box):
    r = box("--", "sh", "-c", "cat /etc/passwd; echo ==; cat /etc/group; echo ==; ls /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh /etc/fstab "
            "/etc/machine-id 2>/dev/null; true")
    passwd, group, rest = r.o.out.split("==\n")
    assert {line.split(":")[0] for line in passwd.splitlines()} <= {"root", "user", "nobody"}
    assert len(group.splitlines()) <= 5
    assert rest.strip() == ""


def test_hostname(box):
    r = box("--", "sh", "-c", "uname -n; cat /proc/sys/kernel/hostname /etc/hostname 2>/dev/null")
    assert set(r.o.out.split()) == {"cloche"}
    assert os.uname().nodename == "cloche" or os.uname().nodename not in r.o.out
