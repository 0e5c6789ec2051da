"""--uid-range: a box with more ids than its user's. Root maps them itself; for an ordinary caller newuidmap does, by rows of /etc/subuid that
the test shows to that caller alone, in a mount namespace of its own."""
import os
import pathlib
import shutil
import subprocess

import pytest

import boxlib
import stored

OTHERS = ("cat /proc/self/uid_map; touch /a && chown 33:44 /a && stat -c '%u:%g' /a; busybox su node -s /bin/sh -c 'id -u; id -g; touch /tmp/n && "
          "stat -c %u /tmp/n; touch /root/x 2>/dev/null || echo kept out'; grep CapEff /proc/self/status")


@pytest.fixture
def store():
    path = pathlib.Path("/tmp") / f"ct-range-{os.getpid()}"
    path.mkdir(mode=0o755)
    s = stored.Store(path / "home")
    s.image("img", [s.layer(stored.busybox)])
    yield s
    shutil.rmtree(path, ignore_errors=True)


def run(store, *args):
    return boxlib.box(*args, json=False, env=store.env)


def check(r, outer):
    lines = r.out.decode().split("\n")
    assert r.rc == 0 and [x.split() for x in lines[:2]] == [["0", str(outer), "1"], ["1", lines[1].split()[1], "65535"]], r
    assert lines[2:7] == ["33:44", "1000", "1001", "1000", "kept out"], r
    assert lines[7].split()[1].lstrip("0") == "eb", r  # chown, dac_override, fowner, kill, setgid, setuid
    return int(lines[1].split()[1]) - 1


@pytest.mark.root
def test_of_root(store, ws):
    """None of the ids is the host's root or an account's; a shared directory stays the owner's, and nobody else can write there."""
    r = run(store, "--uid-range", "--image", "img", "--", "sh", "-c", OTHERS)
    assert check(r, 2113929216) == 2130706432
    r = run(store, "--image", "img", "--", "sh", "-c", "touch /a; chown 33 /a; grep CapEff /proc/self/status")  # the control
    assert b"CapEff:\t0000000000000000" in r.out and b"33" not in r.out, r
    ws.chmod(0o777)
    r = run(store, "--uid-range", "--workspace", ws, "--image", "img", "--", "sh", "-c",
            "touch a; busybox su node -s /bin/sh -c 'touch b'; chown 33 a; true")
    assert {p.name: p.stat().st_uid for p in ws.iterdir()} == {"a": 0} and r.rc == 0, r
    r = run(store, "--uid-range", "--cap-drop", "ALL", "--image", "img", "--", "grep", "CapEff", "/proc/self/status")
    assert r.out == b"CapEff:\t0000000000000000\n", r
    assert b"ids        0 to 65535 inside, from 2130706432:2130706432 on outside\n" in run(store, "--uid-range", "--plan", "--", "true").out


@pytest.mark.root
def test_of_an_ordinary_caller(store, ws):
    """As uid 12345 with an account, rows, and groups of its own: the box's user is the caller, the others are the rows'."""
    groups = boxlib.own_groups()
    if not shutil.which("newuidmap") or not any("/memory" in d for d in groups):
        pytest.skip("needs newuidmap, and cgroup v1 to hand a group over")
    for name, text in (("subuid", "12345:300000:65536\n"), ("subgid", "12345:400000:65536\n"),
                       ("passwd", pathlib.Path("/etc/passwd").read_text() + "tester:x:12345:12345::/:/bin/sh\n")):
        (ws / name).write_text(text)
    program = ws / "cloche"
    shutil.copy(boxlib.CLOCHE, program)
    shutil.copytree(store.home, ws / "home", symlinks=True)
    subprocess.run(["chown", "-R", "12345:12345", ws / "home"], check=True)
    mine = [os.path.join(d, f"ct-range-{os.getpid()}") for d in groups if "/memory" in d or "/pids" in d]
    script = "".join(f"mount --bind {ws}/{n} /etc/{n} && " for n in ("subuid", "subgid", "passwd"))
    script += "".join(f"mkdir -p {d} && chown -R 12345:12345 {d} && echo $$ >{d}/cgroup.procs && " for d in mine)
    script += f"exec setpriv --reuid=12345 --regid=12345 --clear-groups env HOME=/nowhere CLOCHE_HOME={ws}/home {program} run -q \"$@\""

    def go(*args):
        return boxlib.communicate(["unshare", "-m", "sh", "-c", script, "sh", *map(str, args)])
    try:
        assert check(go("--uid-range", "--image", "img", "--", "sh", "-c", OTHERS), 12345) == 300000
        r = go("--uid-range", "--image", "img", "--", "sh", "-c", "grep ^Groups /proc/self/status; cat /proc/self/gid_map")
        assert r.out.split() == b"Groups: 0 12345 1 1 400001 65535".split(), r
        (ws / "subuid").write_text("other:300000:65536\n")
        r = go("--uid-range", "--image", "img", "--", "true")
        assert r.rc == 125 and b"/etc/subuid" in r.err and b"usermod --add-subuids" in r.err and r.err.count(b"\n") == 1, r
    finally:
        for d in mine:
            boxlib.wait_for(lambda d=d: not os.path.isdir(d) or not pathlib.Path(d, "cgroup.procs").read_text())
            if os.path.isdir(d):
                os.rmdir(d)


def test_what_does_not_go_together(store):
    for opts in (["--supervised"], ["--security-profile", "untrusted"]):
        r = run(store, *opts, "--uid-range", "--", "true")
        assert r.rc == 2 and b"contradict" in r.err, r


@pytest.mark.user
def test_without_rows(store):
    """A caller for whom nobody has put ids aside: what is missing is said, and nothing ran."""
    r = run(store, "--uid-range", "--", "echo", "ran")
    assert r.rc == 125 and b"--uid-range" in r.err and b"fix" in r.err and not r.out, r
