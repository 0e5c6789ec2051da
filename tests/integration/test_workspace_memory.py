"""A sandbox without a `workspace` of the caller's has one in memory (box/holder.h): of the size that was asked for, by the kernel; worked with from outside
as a directory is; and gone with the sandbox. Where it can't be had it is a directory, and results say so."""
import os
import pathlib
import signal

import boxlib
import pytest
import sdk
import spawner
from outer_filter import EPERM, filter_calls

MIB = 1 << 20
PIDFD_OPEN = 434
FILL = "head -c {n} /dev/zero >big && echo whole; stat -c %s big"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def cloche(home, leftovers):
    with sdk.in_home(home) as module:
        yield module


def on_disk(home):
    """Files of the session's own directories."""
    return [p for p in (home / "runtime").rglob("*") if p.is_file()]


def place(sbx):
    """(device, type, attributes, options) of /workspace, as the box's own mountinfo has it."""
    for line in sbx.run(["cat", "/proc/self/mountinfo"]).stdout.splitlines():
        left, right = (half.split() for half in line.split(" - "))
        if left[4] == "/workspace":
            return left[2], right[0], left[5], right[2]
    return None


def processes(name):
    """Those of this process's cloche serve with this name."""
    return [p for p in boxlib.children_of(os.getpid()) if spawner.comm(p) == name]


@pytest.mark.parametrize("size", [1_000_000, 8 * MIB])
def test_the_size_is_the_kernels(cloche, home, size):
    with cloche.Sandbox(workspace_max_bytes=size) as sbx:
        whole = -(-size // 4096) * 4096
        fs = sbx.run(["stat", "-f", "-c", "%T %S %b", "/workspace"]).stdout.split()
        assert fs[0] == "tmpfs" and int(fs[1]) * int(fs[2]) == whole
        assert place(sbx)[1:3] == ("tmpfs", "rw,nosuid,nodev,relatime")
        r = sbx.run(["sh", "-c", FILL.format(n=size // 2)])
        assert (r.stdout, r.fault) == (f"whole\n{size // 2}\n", None), "no control"
        r = sbx.run(["sh", "-c", FILL.format(n=size * 2)])
        assert "No space left on device" in r.stderr and 0 < int(r.stdout) <= whole and r.fault is None, r
        limit = r.limits["workspace_max"]
        assert (limit.requested, limit.effective, limit.rung, limit.enforced) == (size, whole, "tmpfs", True)
        with pytest.raises(cloche.SystemFault, match="No space left"):
            sbx.write_file("more", b"x" * 100_000)
        sbx.remove("big")
        sbx.write_file("more", b"x" * 100_000)
        assert on_disk(home) == []


def test_files_without_content_have_a_bound_too(cloche):
    with cloche.Sandbox(workspace_max_bytes=MIB) as sbx:
        r = sbx.run(["sh", "-c", "i=0; while true >f$i; do i=$((i+1)); done; ls | wc -l"])
        assert "No space left on device" in r.stderr and 100 < int(r.stdout) < 400, r


def test_without_a_size_it_is_half_of_memory(cloche):
    with cloche.Sandbox(memory_mb=128) as sbx:
        limit = sbx.run(["true"]).limits["workspace_max"]
        assert (limit.requested, limit.effective, limit.rung, limit.enforced) == (None, 64 * MIB, "tmpfs", True)
        assert "size=65536k" in place(sbx)[3]


def test_one_a_sandbox(cloche):
    with cloche.Sandbox() as one, cloche.Sandbox() as other:
        one.run(["sh", "-c", "echo secret >f"])
        assert place(one) == place(one) and place(one)[0] != place(other)[0]
        assert other.run(["ls", "-A"]).stdout == ""


@pytest.mark.parametrize("options", [{}, {"user": "0"}, {"security_profile": "untrusted"}, {"read_only": True}], ids=str)
def test_from_outside_and_from_inside(cloche, home, tmp_path, options):
    """All that is done with a directory; what is made outside belongs to the box's user."""
    with cloche.Sandbox(**options) as sbx:
        assert place(sbx)[1] == "tmpfs"
        sbx.write_file("deep/from-outside", "out")
        r = sbx.run(["sh", "-c", "cat deep/from-outside; echo in >>deep/from-outside; echo new >new; mkfifo fifo; test -O deep && echo mine"])
        assert (r.stdout, r.stderr) == ("outmine\n", "")
        assert {(f.path, f.change) for f in r.files} == {("deep/from-outside", "modified"), ("new", "created")}
        assert sbx.read_file("deep/from-outside") == b"outin\n"
        with pytest.raises(cloche.PathRefused):
            sbx.read_file("fifo")
        sbx.remove("fifo")
        archive = tmp_path / "all.tar.gz"
        sbx.snapshot(archive)
        with sbx.fork() as copy:
            assert place(copy)[0] != place(sbx)[0] and place(copy)[1] == "tmpfs"
            assert copy.run(["sh", "-c", "cat new deep/from-outside; echo changed >new; test -O new && echo mine"]).stdout == "new\noutin\nmine\n"
        assert sbx.read_file("new") == b"new\n"
        sbx.run(["sh", "-c", "rm -r *"])
        assert sbx.list_files() == []
        sbx.restore(archive)
        assert sbx.run(["sh", "-c", "cat new deep/from-outside; test -O new && echo mine"]).stdout == "new\noutin\nmine\n"
        assert on_disk(home) == []


def test_many_forks_while_calls_run(cloche):
    with cloche.Sandbox() as sbx:
        sbx.run(["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i >f$i; done"])
        with sbx.start(["sh", "-c", "while :; do echo x >moving; rm moving; done"]):
            for _ in range(5):
                with sbx.fork() as copy:
                    assert copy.run(["sh", "-c", "cat f*"]).stdout.split() == list("12345678")


def test_a_directory_of_the_callers_is_as_ever(cloche, ws):
    with cloche.Sandbox(workspace=ws, workspace_max_bytes=MIB) as sbx:
        limit = sbx.run(["true"]).limits["workspace_max"]
        assert (limit.effective, limit.rung, limit.enforced) == (MIB, "sampler", False)


def test_whoever_holds_it_is_killed(cloche):
    """Boxes that were built ahead have their mount; others fail by name; the files are there."""
    with cloche.Sandbox() as sbx:
        sbx.run(["sh", "-c", "echo kept >f"])
        (pid,) = processes(spawner.HOLDER)
        os.kill(pid, signal.SIGKILL)
        for _ in range(4):
            r = sbx.run(["cat", "f"])
            if r.fault:
                break
            assert r.stdout == "kept\n"
        assert (r.fault.type, r.fault.stage) == ("startup_failed", "workspace") and "holds it has ended" in r.fault.message
        assert sbx.read_file("f") == b"kept\n"
        with sbx.fork() as copy:  # has one of its own
            assert copy.run(["cat", "f"]).stdout == "kept\n"


def test_nothing_of_it_is_left(cloche, home):
    before = boxlib.mounts_now()
    with cloche.Sandbox() as sbx:
        sbx.run(["sh", "-c", "echo x >f"])
        assert processes(spawner.HOLDER) and boxlib.mounts_now() == before
    assert boxlib.wait_for(lambda: not processes(spawner.HOLDER))
    assert not [p for p in (home / "runtime").rglob("workspace-*")]


def test_its_session_is_killed(cloche):
    sbx = cloche.Sandbox().__enter__()
    sbx.run(["sh", "-c", "echo x >f"])
    held = processes(spawner.HOLDER)
    (serve,) = processes("cloche-serve")
    os.kill(serve, signal.SIGKILL)
    gone = ("Z", "X", None)
    assert held and boxlib.wait_for(lambda: all(state(pid) in gone for pid in held))


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def test_where_none_can_be_had_it_is_the_directory(ws):
    ahead = ("--workspace", ws, "--workspace-max", "1m", "--own-workspace")
    with spawner.Spawner(*ahead) as s:
        assert len(s.brought) == 2
        assert s.run("sh", "-c", "echo x >f").outcome["limits"]["workspace_max"]["rung"] == "tmpfs"
        assert os.listdir(ws) == [] and os.stat("f", dir_fd=s.brought[0]).st_size == 2
        for fd in s.brought:
            os.close(fd)
    with spawner.Spawner(*ahead, before=filter_calls([PIDFD_OPEN], EPERM)) as s:
        assert s.brought == []
        assert s.run("sh", "-c", "echo x >f").outcome["limits"]["workspace_max"]["rung"] == "sampler"
        assert os.listdir(ws) == ["f"]


def test_without_an_overlay_there_is_still_a_workspace(ws):
    where = ["unshare", "-m" if boxlib.IS_ROOT else "-Urm", "sh", "-ec", 'mount -t tmpfs x /usr/local/src; exec "$@"', "sh"]
    with spawner.Spawner("--workspace", ws, "--own-workspace", wrap=where) as s:
        o = s.run("true").outcome
        assert o["fault"] is None and any(n.startswith("degraded") for n in o["notes"]), "no control"
        assert o["limits"]["workspace_max"]["rung"] == "tmpfs"
        for fd in s.brought:
            os.close(fd)
