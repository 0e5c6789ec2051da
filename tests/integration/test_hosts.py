"""Where cloche runs: every row of docs/HOSTS.md on a host made for it, as root and as an ordinary user. A box there is what the kernel says it is,
or there is one line with the cause and what to change, and nothing ran; `cloche doctor` says the same."""
import json
import pathlib
import platform
import re
import signal

import boxlib
import hosts
import pytest
from hosts import Host, crun, podman
from outer_filter import ENOSYS, EPERM, filter_calls

pytestmark = pytest.mark.root  # root makes the hosts; an ordinary user on them is uid 12345
CLONE3 = 435
UNSHARE = {"x86_64": 272, "aarch64": 97}.get(platform.machine())
TMPFS = "mount -t tmpfs -o {} tmpfs $T/{}\n"
FULL = "head -c 4m /dev/zero >$T/{}/fill 2>/dev/null || :\n"
OWN_TMP = "mount -t tmpfs -o mode=1777{} tmpfs /mnt; cp $T/bin/cloche /mnt/cloche; mkdir -m 777 /mnt/t\n"
IGNORE = "trap '' PIPE CHLD INT TERM HUP USR1\n"
TRY = ("sh", "-c", 'unshare -U true 2>/dev/null || echo locked; test ! -e /proc/self/status || '
       'sed -n "/^CapEff:/p;/^NoNewPrivs:/p;/^Seccomp:/p" /proc/self/status')
NO_PROC = "`--proc none` only"
LOCKS = {"CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}

HOSTS = {
    "an ordinary login": Host(),
    # namespaces that are forbidden
    "`user.max_user_namespaces=0`": Host(wrap=("unshare", "-Ur"), shell="echo 0 >/proc/sys/user/max_user_namespaces"),
    **{f"`user.max_{n}_namespaces=0`": Host(wrap=("unshare", "-Ur"), shell=f"echo 0 >/proc/sys/user/max_{n}_namespaces")
       for n in ("mnt", "pid", "net", "ipc", "uts", "cgroup")},
    "a filter that refuses namespaces (EPERM)": Host(preexec=filter_calls([UNSHARE, CLONE3], EPERM)),
    "a filter that hides `clone3` (ENOSYS)": Host(preexec=filter_calls([CLONE3], ENOSYS)),
    "a chroot into a directory": Host(root='mkdir -p $T/proc; mount -t proc proc $T/proc; set -- chroot $T "$@"', program="/bin/cloche",
                                      callers=("root",)),
    "a chroot into a mount": Host(root='mkdir -p $T/r; mount --rbind / $T/r; set -- chroot $T/r "$@"'),
    "ids that are mapped to nobody": Host(wrap=("unshare", "-U")),
    # parts that are missing
    "no `/proc`": Host(root="umount -l /proc"),
    "a `/proc` with hidepid=2": Host(root="mount -t proc -o hidepid=2 proc /proc", callers=("user",)),
    "an empty `/dev`": Host(root="mount -t tmpfs tmpfs /dev"),
    "no `/sys`": Host(root="umount -lR /sys"),
    "no `/dev/pts`": Host(root="while umount /dev/pts 2>/dev/null; do :; done"),
    "something over a part of `/proc`": Host(root="mount -t tmpfs tmpfs /proc/driver"),
    "something mounted below `/usr`": Host(root="mount -t tmpfs tmpfs /usr/games"),
    "a GPU's driver mounted over a part of `/proc` and below `/usr`":
        Host(root="mount -t tmpfs tmpfs /proc/driver; mount -t tmpfs tmpfs /usr/games"),
    # logins
    "nothing in the environment": Host(env={}),
    "an ssh login without a user manager": Host(env={"HOME": "$T/home", "SSH_CONNECTION": "::1 1 ::1 22", "USER": "x"}),
    "a HOME that is not there": Host(env={"HOME": "/nowhere/at/all"}),
    "a HOME that is a file": Host(env={"HOME": "/etc/passwd"}),
    "a HOME that can't be written": Host(root=TMPFS.format("mode=1777", "home") + "mount -o remount,ro $T/home"),
    "a HOME on a full disk": Host(root=TMPFS.format("size=16k,mode=1777", "home") + FULL.format("home")),
    "a HOME without free inodes": Host(root=TMPFS.format("nr_inodes=2,mode=1777", "home")),
    "a HOME that belongs to somebody else": Host(root="mkdir -p $T/home/.local/share/cloche; chown -R 4321 $T/home"),
    "`/tmp` with noexec": Host(root=OWN_TMP.format("") + "mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp", program="/mnt/cloche"),
    "a full `/tmp`": Host(root=OWN_TMP.format("") + "mount -t tmpfs -o size=8k,mode=1777 tmpfs /tmp; head -c 1m /dev/zero >/tmp/fill || :",
                          program="/mnt/cloche"),
    "a `/tmp` that can't be written": Host(root=OWN_TMP.format("") + "mount -t tmpfs -o ro tmpfs /tmp", program="/mnt/cloche"),
    "umask 077": Host(shell="umask 077"),
    "umask 000": Host(shell="umask 0"),
    "umask 777": Host(shell="umask 777"),
    # what a caller leaves behind in a process
    "signals ignored": Host(shell=IGNORE),
    "signals blocked": Host(preexec=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())),
    "nice 19": Host(wrap=("nice", "-n", "19")),
    "the working directory was removed": Host(shell="mkdir -p $T/gone; cd $T/gone; rmdir $T/gone"),
    "the working directory can't be read": Host(root="mkdir -p -m 0 $T/closed; cd $T/closed"),
    "descriptors left open": Host(shell="exec 7</etc/passwd 8<>/dev/null 9</"),
    "100 KiB in each of ten variables": Host(env={f"V{i}": "x" * 102400 for i in range(10)}),
    # resource limits of the caller
    "16 open files, more if asked for": Host(wrap=("prlimit", "--nofile=16:4096")),
    "16 open files at most": Host(wrap=("prlimit", "--nofile=16:16")),
    "no process more": Host(wrap=("prlimit", "--nproc=0:0")),
    "files of 0 bytes at most": Host(wrap=("prlimit", "--fsize=0:0")),
    "files of 1 MiB at most": Host(wrap=("prlimit", "--fsize=1048576")),
    "256 MiB of address space": Host(wrap=("prlimit", "--as=268435456")),
    # containers
    "`docker run`": crun(),
    "`docker run`, over an overlay as Docker has it": crun(root=hosts.OVER_ROOT + hosts.CGROUPS, callers=("root",)),
    "`docker run --security-opt seccomp=unconfined`": crun(seccomp=False),
    "`docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined`": crun(seccomp=False, masked=False),
    "the same with `--user 1000`": crun(seccomp=False, masked=False, uid=1000, callers=("root",)),
    "the same in a daemon with `userns-remap`": crun(seccomp=False, masked=False, ids=(0, 100000, 65536), callers=("root",)),
    "`docker run --privileged`": crun(seccomp=False, masked=False, writable=True, caps=hosts.DOCKER_CAPS + hosts.MORE_CAPS,
                                      root=hosts.OVER_ROOT + hosts.CGROUPS, callers=("root",)),
    "a container in such a container": crun(seccomp=False, masked=False, writable=True, caps=hosts.DOCKER_CAPS + hosts.MORE_CAPS,
                                            root=hosts.OVER_TWICE + hosts.CGROUPS, callers=("root",)),
    "`podman run`": podman(),
    "`podman run --security-opt seccomp=unconfined`": podman("--security-opt", "seccomp=unconfined"),
    "`podman run --security-opt unmask=ALL --security-opt seccomp=unconfined`":
        podman("--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined"),
    "`podman run --privileged`": podman("--privileged"),
    "a box of cloche": hosts.in_a_box(),
}


# Where the program that is delivered can start, but not one with sanitizers.
NOT_SANITIZED = {"a chroot into a directory": "the sanitized program stands on shared libraries", "256 MiB of address space": "a sanitizer takes more",
                 "no `/proc`": "sanitizers read there that they shall look for no leaks"}


def rows():
    """Of docs/HOSTS.md: host -> (what a box is there, what is said, what to change)."""
    text = (boxlib.ROOT / "docs" / "HOSTS.md").read_text(encoding="utf-8")
    found = {}
    for line in text[text.index("## Machines and logins"):text.index("## Workspaces")].splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "host":
            assert cells[0] not in found, cells[0]
            found[cells[0]] = cells[1:]
    return found


ROWS = rows()
CASES = [(name, who) for name, h in HOSTS.items() for who in h.callers]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_has_every_host_and_no_other():
    assert set(ROWS) == set(HOSTS)
    assert {r[0] for r in ROWS.values()} == {"runs", "supervised", "degraded", NO_PROC, NO_PROC + ", degraded", "refused"}


@pytest.fixture
def place(request):
    p = hosts.Place(request.param)
    yield p
    p.close()


def locked(out, proc):
    """What the kernel says in the box."""
    lines = out.splitlines()
    assert lines[0] == "locked", out
    assert dict(line.split(":\t") for line in lines[1:]) == (LOCKS if proc else {}), out


def box_runs(host, place, kind):
    """Returns the outcome of a box there."""
    if kind.startswith(NO_PROC):
        told(host, place, ["--proc none"])
    more = ["--proc", "none"] if kind.startswith(NO_PROC) else []
    r = hosts.call(host, place, "run", "--json", *more, "--", *TRY).parse()
    assert (r.rc, r.o.fault, r.o.err) == (0, None, ""), r
    locked(r.o.out, not more)
    return r.o


def told(host, place, words):
    """One line, the cause and what to change, and nothing ran."""
    r = hosts.call(host, place, "run", "--", *TRY)
    assert (r.rc, r.out) == (125, b""), r
    # Where there are helpers for maps, the runtime tries them, and they complain of a user without a name.
    text = "".join(line for line in r.raw_err.decode().splitlines(True) if not line.startswith(("newuidmap: ", "newgidmap: ")))
    assert text.count("\n") == 1 and text.startswith("cloche: startup_failed: "), r
    for w in words:
        assert w.strip("`") in text, (w, r)
    return text


@pytest.mark.parametrize("name,place", CASES, indirect=["place"])
def test_host(name, place):
    if name in NOT_SANITIZED and boxlib.sanitized():
        pytest.skip(NOT_SANITIZED[name])
    host, (kind, said, change) = HOSTS[name], ROWS[name]
    words = quoted(said) + quoted(change)
    d = hosts.call(host, place, "doctor", "--json")
    report = json.loads(d.out)
    row = {r["id"]: r for r in report["rows"]}
    failing = [r for r in report["rows"] if r["status"] in ("missing", "degraded")]
    if kind == "refused":
        assert words and report["verdict"] == "unusable" and d.rc == 2, d
        assert row["box"]["status"] == "missing", d
        told(host, place, words)
        for w in words:
            assert any(w in r["detail"] + (r["fix"] or "") for r in failing), (w, d)
        return
    o = box_runs(host, place, kind)
    assert row["box"]["status"] == ("degraded" if kind.startswith(NO_PROC) else "ok"), row["box"]
    memory = o["limits"]["memory"]
    assert (row["limits"]["status"] == "ok") == memory["enforced"] and memory["rung"] in row["limits"]["detail"], (d, o)
    if kind in ("supervised", "runs"):
        assert memory["enforced"] == (kind == "runs" and place.caller == "root"), o
    assert any(n.startswith("degraded: ") for n in o["notes"]) == ("degraded" in kind), o
    if "degraded" in kind:
        strict = hosts.call(host, place, "run", "--proc", "none", "--security-profile", "untrusted", "--", "true")
        assert strict.rc == 125 and strict.raw_err.count(b"\n") == 1 and b"untrusted" in strict.raw_err, strict
    for w in words:
        assert any(w in r["detail"] + (r["fix"] or "") for r in report["rows"]) or any(w in n for n in o["notes"]), (w, d, o)


# How WSL shows itself. What it is made of (9p, the interpreter of Windows programs) is tried below; a kernel of Microsoft's is not needed for it.
WSL = {"5.15.153.1-microsoft-standard-WSL2": ("info", "WSL 2"), "4.4.0-19041-Microsoft": ("missing", "WSL 1 is no Linux kernel"),
       "6.1.0-21-amd64": ("ok", "not WSL")}


@pytest.mark.parametrize("place", ["root"], indirect=True)
@pytest.mark.parametrize("release", WSL)
def test_wsl_is_told_by_its_release(release, place):
    host = Host(root=f"echo {release} >$T/release; mount --bind $T/release /proc/sys/kernel/osrelease")
    row = {r["id"]: r for r in json.loads(hosts.call(host, place, "doctor", "--json").out)["rows"]}["wsl"]
    status, words = WSL[release]
    assert row["status"] == status and words in row["detail"], row
    if status == "missing":
        assert "--set-version" in row["fix"]


WINDOWS = {"WSL_INTEROP": "/run/WSL/8_interop", "WSL_DISTRO_NAME": "Debian", "WSLENV": "X/p"}


@pytest.mark.parametrize("place", ["user", "root"], indirect=True)
def test_windows_is_out_of_reach(place):
    """WSL's door to Windows is a socket below /run/WSL and a variable that names it. Neither is in a box, and /run/WSL can't be shared."""
    root = ("mount -t tmpfs tmpfs /run; mkdir -m 777 /run/WSL; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/WSL/8_interop\")'; "
            "chmod 777 /run/WSL/8_interop")
    look = ("sh", "-c", "env | grep -c WSL; test -e /run/WSL && echo there")
    host = Host(root=root, env={"HOME": "$T/home", **WINDOWS})
    control = boxlib.communicate([*hosts.chain(host, place)[:-1], *look], env={**hosts.ENV, "T": place.dir, **WINDOWS}, base=False, cwd="/")
    assert control.out == b"3\nthere\n", control
    r = hosts.call(host, place, "run", "--json", "--", *look).parse()
    assert (r.o.fault, r.o.out) == (None, "0\n"), r
    told = hosts.call(host, place, "run", "-v", "/run/WSL:/wsl:ro", "--", "true")
    assert told.rc == 125 and b"refused by the rule" in told.raw_err, told


@pytest.mark.parametrize("place", ["root"], indirect=True)
def test_interpreters_of_the_host_run_locked(place, probe):
    """binfmt_misc with the flag F, as WSL and qemu-user register theirs: the kernel opened the interpreter outside and runs it in the box too, as
    a program of the box like any other. (Nobody can write to its file meanwhile: the kernel keeps it busy.)"""
    work = pathlib.Path(place.path("ws"))
    work.mkdir()
    program = probe("interpreter")
    (work / "a.exe").write_bytes(b"MZ\x90")
    (work / "a.exe").chmod(0o755)
    # A user namespace has interpreters of its own (Linux 6.7).
    root = (f"cp {program} $T/interpreter; mount -t binfmt_misc b $T/home\necho ':WSLInterop:M::MZ::'$T'/interpreter:F' >$T/home/register\n"
            "$T/ws/a.exe | sed 's/^/outside /'")
    argv = ["unshare", "-Urm", "sh", "-ec", root + '\nexec "$@"', "sh", place.program, "run", "-q", "--workspace", str(work), "--", "./a.exe"]
    r = boxlib.communicate(argv, env={**hosts.ENV, "T": place.dir}, base=False, cwd="/")
    if b"unknown filesystem" in r.raw_err:
        return  # no binfmt_misc in this kernel: nothing to run
    assert r.rc == 0, r
    assert r.out.decode().splitlines() == ["outside seccomp 0, on the host", "seccomp 2, in the box"], r


@pytest.mark.parametrize("place", ["root"], indirect=True)
@pytest.mark.parametrize("more", [[], ["SYS_ADMIN"]], ids=["without", "with"])
def test_root_of_a_container_shares_with_a_capability(place, more):
    """Root's directories are id-mapped, for which a container's root needs CAP_SYS_ADMIN: told by run and doctor."""
    host = crun(seccomp=False, masked=False, caps=hosts.DOCKER_CAPS + more)
    args = ("run", "-q", "-v", "/cloche:/in:ro", "--", "ls", "/in")
    idmap = {r["id"]: r for r in json.loads(hosts.call(host, place, "doctor", "--json").out)["rows"]}["idmap"]
    r = hosts.call(host, place, *args)
    if more:
        assert (r.rc, r.out) == (0, b"cloche\n") and idmap["status"] == "ok", (r, idmap)
    else:
        assert r.rc == 125 and r.raw_err.count(b"\n") == 1 and b"--cap-add SYS_ADMIN" in r.raw_err, r
        assert idmap["status"] == "missing" and "--cap-add SYS_ADMIN" in idmap["fix"], idmap
