"""Hosts as cloche meets them, each made from namespaces of its own, so that the machine stays as it is.

A `Host` is a chain of programs that each start the next one: what root sets up in a mount namespace of its own, the step down to the caller, what
the caller sets up in a shell, and at last cloche. `$T` in the scripts is a directory of the caller's own. Containers are started by crun from a
bundle like Docker's, or by podman, over a root directory that shows this machine's /usr.
"""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import boxlib

USER = 12345
ENV = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", **boxlib.no_leak_check()}
STEP_DOWN = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]

# Docker's defaults, from its documentation: capabilities, and what it hides or makes read-only.
DOCKER_CAPS = ("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL "
               "AUDIT_WRITE").split()
MORE_CAPS = "SYS_ADMIN NET_ADMIN SYS_PTRACE SYS_NICE SYS_CHROOT IPC_LOCK SYSLOG DAC_READ_SEARCH".split()
MASKED = "/proc/acpi /proc/asound /proc/kcore /proc/keys /proc/timer_list /proc/scsi /sys/firmware".split()
READ_ONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()
# What Docker's filter says to those who lack CAP_SYS_ADMIN: clone3 does not exist, the rest is refused.
DOCKER_FILTER = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    {"names": "unshare setns mount umount2 pivot_root open_tree move_mount mount_setattr fsopen fsmount bpf keyctl".split(),
     "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}
ROOT_LINKS = ("bin", "sbin", "lib", "lib64")


@dataclasses.dataclass
class Host:
    root: str = ""  # script of root's, in a mount namespace of its own
    wrap: tuple = ()  # programs between root and the caller's script
    shell: str = ""  # script of the caller's
    env: dict = dataclasses.field(default_factory=lambda: {"HOME": "$T/home"})
    preexec: object = None
    callers: tuple = ("root", "user")
    runtime: object = None  # runtime(place, caller) -> argv that ends where the program's own begins
    program: str = ""  # where the program is seen, when not at its own path


class Place:
    """A directory for one test, with the program and a home in it; all the caller's."""

    def __init__(self, caller):
        self.dir = tempfile.mkdtemp(prefix="ct-host-", dir="/tmp")
        self.caller = caller
        os.chmod(self.dir, 0o755)
        os.mkdir(os.path.join(self.dir, "home"))
        os.mkdir(os.path.join(self.dir, "bin"))
        self.program = os.path.join(self.dir, "bin", "cloche")
        shutil.copy(boxlib.CLOCHE, self.program)
        os.chmod(self.program, 0o755)
        self.give(self.dir, os.path.join(self.dir, "home"))

    def give(self, *paths):
        for p in paths:
            if self.caller == "user":
                os.chown(p, USER, USER)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def close(self):
        subprocess.run(["chmod", "-R", "u+rwX", self.dir], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def chain(host, place):
    """The argv in front of cloche's own arguments."""
    argv = []
    if host.root:
        argv += ["unshare", "-m", "--propagation", "private", "sh", "-ec", host.root + '\nexec "$@"', "sh"]
    if host.runtime:
        return argv + host.runtime(place)
    argv += STEP_DOWN if place.caller == "user" else []
    argv += [a.replace("$T", place.dir) for a in host.wrap]
    if host.shell:
        argv += ["sh", "-c", host.shell + '\nexec "$@"', "sh"]
    return [*argv, host.program or place.program]


def call(host, place, *args, **kw):
    """cloche ARGS on that host."""
    env = {**ENV, "T": place.dir, **{k: v.replace("$T", place.dir) for k, v in host.env.items()}}
    return boxlib.communicate([*chain(host, place), *args], env=env, base=False, preexec_fn=host.preexec, cwd=kw.pop("cwd", "/"), **kw)


def container_root(place):
    """A root directory whose /usr is this machine's, shown by the script that starts the runtime."""
    root = pathlib.Path(place.path("rootfs"))
    if root.exists():
        return str(root)
    for d in ("proc", "sys", "dev", "tmp", "root", "etc", "usr", "home", "run", "var/tmp", "cloche"):
        (root / d).mkdir(parents=True)
    for link in ROOT_LINKS:
        (root / link).symlink_to("usr/" + link)
    for name in ("passwd", "group", "ld.so.cache"):
        shutil.copy("/etc/" + name, root / "etc" / name)
    if place.caller == "user":
        subprocess.run(["chown", "-hR", f"{USER}:{USER}", str(root)], check=True)
    return str(root)


# The runtimes take part in this machine's cgroups only as far as they must: they see a v2 tree, as on today's distributions, and make no group.
SHOW_ROOT = """
mount --bind $T/rootfs $T/rootfs
mount --bind /usr $T/rootfs/usr
mount --rbind /sys/fs/cgroup /mnt
mount -t cgroup2 cgroup2 /sys/fs/cgroup
"""
# As Docker has it: the container's root is an overlay over an image; here over this machine's root. Twice: a container in a container.
OVER_ROOT = """
mkdir -p $T/o; mount -t tmpfs o $T/o; mkdir -p $T/o/u $T/o/w $T/o/u2 $T/o/w2
mount -t overlay -o lowerdir=/,upperdir=$T/o/u,workdir=$T/o/w o $T/rootfs
"""
OVER_TWICE = OVER_ROOT + "mount -t overlay -o lowerdir=$T/rootfs,upperdir=$T/o/u2,workdir=$T/o/w2 o $T/rootfs\n"
CGROUPS = "mkdir -p $T/rootfs/cloche\nmount --rbind /sys/fs/cgroup /mnt\nmount -t cgroup2 cgroup2 /sys/fs/cgroup\n"


def bundle(place, args, *, seccomp=True, masked=True, caps=DOCKER_CAPS, writable=False, ids=None, uid=0):
    """config.json as Docker writes it, by default; the options are docker run's --security-opt, --cap-add, --privileged, --user."""
    mounts = [("/proc", "proc", "proc", []), ("/dev", "tmpfs", "tmpfs", ["nosuid", "mode=755", "size=65536k"]),
              ("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
              ("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
              ("/tmp", "tmpfs", "tmpfs", ["nosuid", "nodev", "mode=1777"]),
              ("/cloche", "bind", os.path.dirname(place.program), ["bind", "ro"])]
    mode = "rw" if writable else "ro"
    if ids:
        mounts.append(("/sys", "bind", "/sys", ["rbind", "nosuid", "noexec", "nodev", "ro"]))
    else:
        mounts += [("/sys", "sysfs", "sysfs", ["nosuid", "noexec", "nodev", mode]), ("/sys/fs/cgroup", "bind", "/mnt", ["rbind", "r" + mode])]
    names = ["CAP_" + c for c in caps]
    linux = {"namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount", *(["user"] if ids else []))],
             "maskedPaths": MASKED if masked else [], "readonlyPaths": READ_ONLY if masked else []}
    if ids:
        linux["uidMappings"] = linux["gidMappings"] = [dict(zip(("containerID", "hostID", "size"), ids))]
    if seccomp:
        linux["seccomp"] = DOCKER_FILTER
    return {"ociVersion": "1.0.2", "hostname": "container", "root": {"path": container_root(place), "readonly": False}, "linux": linux,
            "mounts": [dict(zip(("destination", "type", "source", "options"), m)) for m in mounts],
            "process": {"terminal": False, "args": args, "cwd": "/", "user": {"uid": uid, "gid": uid}, "env": ["PATH=" + ENV["PATH"]],
                        "capabilities": {k: names if uid == 0 or k == "bounding" else [] for k in ("bounding", "effective", "permitted")}}}


def crun(root=SHOW_ROOT, callers=("root", "user"), **options):
    def argv(place):
        ids = options.get("ids") or ((0, USER, 1) if place.caller == "user" else None)
        config = bundle(place, ["PROGRAM"], **{**options, "ids": ids})
        place.give(place.dir)
        # cloche's own arguments are not known yet: the shell puts them into the bundle.
        fill = "import json, sys; c = json.load(open('template')); c['process']['args'] = ['/cloche/cloche', *sys.argv[1:]]; " \
               "json.dump(c, open('config.json', 'w'))"
        pathlib.Path(place.path("template")).write_text(json.dumps(config), encoding="utf-8")
        step = [] if place.caller == "root" else STEP_DOWN
        return [*step, "sh", "-ec", f'cd $T; /usr/bin/python3 -c "{fill}" "$@"; XDG_RUNTIME_DIR=$T exec crun --root $T/state '
                f'--cgroup-manager=disabled run {os.path.basename(place.dir)}', "sh"]
    return Host(root=root, runtime=argv, callers=callers)


def podman(*options):
    def argv(place):
        container_root(place)
        step = [] if place.caller == "root" else STEP_DOWN
        # In a pid namespace, since podman leaves a process behind that keeps its own namespaces.
        return ["unshare", "-pf", "--kill-child", "--mount-proc", *step, "env", "XDG_RUNTIME_DIR=" + place.dir, "TMPDIR=" + place.dir, "podman",
                "--root", place.path("store"), "--runroot", place.path("run"), "--tmpdir", place.path("run/tmp"), "--storage-driver", "vfs",
                "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--log-level", "fatal", "run", "--rm", "--network", "none",
                "--cgroups", "disabled", "--log-driver", "none", "--runtime", "crun", "--ulimit", "nofile=1024:1024", "--ulimit",
                "nproc=1000:1000", "-v", os.path.dirname(place.program) + ":/cloche:ro", *options, "--rootfs", place.path("rootfs"),
                "/cloche/cloche"]
    return Host(root=SHOW_ROOT, runtime=argv)


def in_a_box():
    """cloche in a box of cloche."""
    def argv(place):
        step = [] if place.caller == "root" else STEP_DOWN
        more = [f"--env={k}={v}" for k, v in boxlib.no_leak_check().items()]
        return [*step, place.program, "run", "-q", *more, "-v", os.path.dirname(place.program) + ":/cloche:ro", "--", "/cloche/cloche"]
    return Host(runtime=argv)
