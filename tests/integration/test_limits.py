"""Limits: that they hold, that what they are is told truly, and that nothing is silently uncapped."""
import os

import boxlib
import pytest

MIB = 1 << 20
KERNEL_RUNGS = {"cgroup2", "scope", "cgroup1"}


def rung(box, name="memory"):
    return box("true").o["limits"][name]["rung"]


def test_every_limit_is_reported(box):
    limits = box("--memory", "100m", "--pids", 50, "--cpus", 1, "--timeout", "20s", "--max-output", "2m", "--file-size", "3m",
                 "--open-files", 99, "true").o["limits"]
    want = {"memory": 100 * MIB, "pids": 50, "cpus": 1, "timeout": 20000000, "output": 2 * MIB, "file_size": 3 * MIB, "open_files": 99}
    for name, value in want.items():
        assert limits[name]["requested"] == value, (name, limits[name])
        assert limits[name]["effective"] is not None and limits[name]["effective"] <= value
        assert limits[name]["rung"] not in ("", None)
    for name in ("timeout", "output", "file_size", "open_files"):
        assert limits[name]["enforced"] is True


def test_defaults(box):
    limits = box("true").o["limits"]
    assert limits["memory"]["effective"] == 512 * MIB and limits["pids"]["effective"] == 256
    assert limits["output"]["effective"] == 64 * MIB
    for name in ("cpus", "timeout", "file_size", "workspace_max"):
        assert limits[name]["effective"] is None and limits[name]["enforced"] is False, limits[name]


@pytest.mark.root
def test_root_gets_kernel_enforcement(box):
    limits = box("true").o["limits"]
    for name in ("memory", "pids"):
        assert limits[name]["rung"] in KERNEL_RUNGS and limits[name]["enforced"] is True


def test_enforced_means_kernel(box):
    row = box("true").o["limits"]["memory"]
    assert row["enforced"] is (row["rung"] in KERNEL_RUNGS)
    assert row["rung"] in KERNEL_RUNGS | {"supervised"}


def test_supervised_by_choice_says_so(box):
    limits = box("--supervised", "true").o["limits"]
    assert limits["memory"]["rung"] == "supervised" and limits["memory"]["enforced"] is False


def test_a_weak_rung_is_said_once_and_can_be_silenced(box):
    """Streaming: one note on stderr where the kernel does not hold the limits, none where it does or with -q."""
    weak = rung(box) not in KERNEL_RUNGS
    assert box("true", json=False).raw_err.count(b"supervised") == weak
    assert box("-q", "true", json=False).raw_err == b""
    assert any("supervised" in n for n in box("true").o["notes"]) == weak


def test_require_limits(box):
    r = box("--require-limits", "echo", "ran")
    if rung(box) in KERNEL_RUNGS:
        assert (r.rc, r.o.out) == (0, "ran\n")
    else:
        assert r.rc == 125 and r.o.fault_type == "startup_failed" and r.o.fault["stage"] == "limits", r
        assert r.o.out == "" and r.o["exit_code"] is None
        assert len(r.o.fault["message"]) > 40, "the fix is missing"
    r = box("--require-limits", "--supervised", "echo", "ran", json=False)
    assert r.rc in (2, 125) and b"ran\n" not in r.out


@pytest.mark.parametrize("supervised", [False, True])
def test_pids_cap_is_an_event_and_no_fault(box, probe, supervised):
    extra = ("--supervised",) if supervised else ()
    path = probe.path("forker")
    o = box("--pids", 20, *extra, *probe.mount, path, 100).o
    assert o["exit_code"] == 0 and o.fault is None
    assert 5 <= int(o.out) <= 19, o
    if o["limits"]["pids"]["rung"] in KERNEL_RUNGS:
        assert o["events"]["pids_max"] > 0 and 5 <= o["usage"]["pids_peak"] <= 20
    o = box("--pids", 200, *extra, *probe.mount, path, 100).o
    assert int(o.out) == 100 and not o["events"]["pids_max"]


def test_pids_cap_counts_threads(box):
    code = ("import threading, time\nn = 0\ntry:\n  for i in range(100): threading.Thread(target=time.sleep, args=(300,), daemon=True)"
            ".start(); n += 1\nexcept RuntimeError: pass\nprint(n)")
    assert int(box("--pids", 30, "python3", "-c", code).o.out) < 30
    assert int(box("--pids", 150, "python3", "-c", code).o.out) == 100


def test_two_boxes_do_not_share_a_cap(box, probe):
    path = probe.path("forker")
    with boxlib.running("--pids", 40, *probe.mount, "sh", "-c", f"{path} 30; sleep 60") as p:
        assert p.stdout.readline().strip() == b"30"
        assert int(box("--pids", 40, *probe.mount, path, 30).o.out) == 30


def test_memory_counts_the_whole_box(box, probe):
    path = probe.path("memory")
    o = box("--memory", "128m", *probe.mount, "sh", "-c", f"for i in 1 2 3; do {path} gradual 60 30000 & done; wait; echo on").o
    assert o.fault_type == "oom" and "on" not in o.out.split()
    o = box("--memory", "300m", *probe.mount, "sh", "-c", f"for i in 1 2 3; do {path} gradual 60 100 & done; wait; echo on").o
    assert o.fault is None and "on" in o.out.split()


def test_oom_kills_the_whole_box(box, probe):
    path = probe.path("memory")
    o = box("--memory", "64m", *probe.mount, "sh", "-c", f"{path} gradual 100 30000; echo shell went on; sleep 1").o
    assert o.fault_type == "oom" and "went on" not in o.out


@pytest.mark.parametrize("how", ["gradual", "second"])
def test_supervised_memory(box, probe, how):
    """Also of a process whose first thread has ended, which then tells nothing of its memory under its own number."""
    path = probe.path("memory")
    o = box("--supervised", "--memory", "64m", *probe.mount, path, how, 160, 30000).o
    assert o.fault_type == "oom" and "survived" not in o.out
    o = box("--supervised", "--memory", "256m", *probe.mount, path, how, 100, 100).o
    assert o.fault is None and "survived" in o.out


def test_no_memory_out_of_sight(box):
    """Where memory is only sampled, memory that no sampler sees can't be had: a memfd outlives its mapping. Under groups it counts."""
    code = "import os; print(os.memfd_create('x') >= 0)"
    if boxlib.IS_ROOT:
        assert box("--", "python3", "-c", code).o.out == "True\n", "no control"
    r = box("--supervised", "--", "python3", "-c", code)
    assert r.rc == 1 and "Function not implemented" in r.o.err, r


def test_usage_says_what_was_used(box, probe):
    o = box("--memory", "256m", *probe.mount, probe.path("memory"), "gradual", 100, 2000).o
    peak = o["usage"]["memory_peak_bytes"]
    assert peak is None or 90 * MIB < peak < 160 * MIB, peak
    if o["limits"]["memory"]["rung"] in KERNEL_RUNGS:
        assert peak is not None


def test_a_box_cannot_raise_its_limits(box):
    script = ("ulimit -Hn 100000 && echo files; ulimit -u 100000 && echo procs; "
              "find /sys/fs/cgroup -name memory.max -o -name memory.limit_in_bytes -o -name pids.max 2>/dev/null | "
              "while read f; do echo 9999999999 >$f && echo raised $f; done; exit 0")
    assert box("sh", "-c", script).o.out == ""


def test_file_size(box):
    script = "head -c 3000000 /dev/zero >/tmp/f; echo $(stat -c %s /tmp/f)"
    assert int(box("--file-size", "1m", "sh", "-c", script).o.out) == MIB
    assert int(box("sh", "-c", script).o.out) == 3000000


def test_open_files(box):
    code = "import os\nn = 3\ntry:\n  while n < 300: os.dup(0); n += 1\nexcept OSError: pass\nprint(n)"
    assert box("--open-files", 64, "python3", "-c", code).o.out.strip() == "64"
    assert box("python3", "-c", code).o.out.strip() == "300"
    assert box("sh", "-c", "ulimit -Hn").o.out.strip() == ("4096" if rung(box) in KERNEL_RUNGS else "1024")


def test_ulimit(box):
    o = box("--ulimit", "nofile=50:60", "--ulimit", "stack=1048576", "sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -s").o
    assert o.out.split() == ["50", "60", "1024"]
    assert box("sh", "-c", "ulimit -c").o.out.strip() in ("0", "1")
    for bad in ("nofile=60:50", "nofile", "nofile=", "nosuch=1", "nofile=1:2:3"):
        assert box("--ulimit", bad, "true", json=False).rc == 2, bad


def test_shm_size(box):
    script = "head -c 8000000 /dev/zero >/dev/shm/f 2>/dev/null; echo $?; df -k /dev/shm | tail -1 | awk '{print $2}'"
    assert box("--shm-size", "4m", "sh", "-c", script).o.out.split() == ["1", "4096"]
    assert box("sh", "-c", script).o.out.split() == ["0", "65536"]


@pytest.mark.parametrize("options, want", [
    ((), []),  # it is in the root
    (("--tmp-size", "4m"), ["/tmp 4096k"]),
    (("--tmp-size", "4m", "--read-only"), ["/tmp 4096k"]),
    (("--tmp-size", "4m", "--tmpfs", "/tmp:2m"), ["/tmp 2048k"]),
    (("--tmp-size", "4m", "--tmpfs", "/tmp/x:2m"), ["/tmp 4096k", "/tmp/x 2048k"]),
    (("--tmp-size", "4m", "-v", "HERE:/tmp"), ["/tmp"]),
    (("--tmp-size", "4m", "-v", "HERE:/tmp/x"), ["/tmp/x"]),
    (("--tmp-size", "4m", "-v", "HERE:/tmpx"), ["/tmp 4096k", "/tmpx"]),
])
def test_tmp_size(box, ws, options, want):
    script = """while read -r _ path _ how _; do
        case $path in /tmp*) s=${how#*,size=}; [ "$s" = "$how" ] && s=; echo $path ${s%%,*};; esac
    done </proc/mounts"""
    r = box(*[o.replace("HERE", str(ws)) for o in options], "sh", "-c", script)
    assert sorted(r.o.out.splitlines()) == want, r.o


def test_full_tmpfs_is_enospc_and_no_oom(box):
    """T6: the disk of a box is full before its memory is."""
    script = "dd if=/dev/zero of=/data/f bs=1M count=200 2>&1 | grep -o 'No space left on device'; echo still here"
    o = box("--memory", "256m", "--tmpfs", "/data:64m", "sh", "-c", script).o
    assert (o.out.splitlines(), o.fault) == (["No space left on device", "still here"], None), o
    o = box("--memory", "256m", "sh", "-c", script.replace("/data", "/tmp")).o
    assert (o.out.splitlines(), o.fault) == (["No space left on device", "still here"], None), o


def test_a_million_empty_files_are_enospc_and_no_oom(box):
    code = ("import os\nn = 0\ntry:\n  for n in range(1000000): os.close(os.open(f'/data/{n}', os.O_CREAT | os.O_WRONLY))\n"
            "except OSError as e: print(e.errno)\nprint('still here', n)")
    o = box("--memory", "256m", "--tmpfs", "/data:8m", "python3", "-c", code).o
    assert o.fault is None and o.out.splitlines()[0] == "28" and "still here" in o.out, o


def test_root_of_the_box_has_a_size(box):
    o = box("--memory", "200m", "sh", "-c", "df -k / | tail -1 | awk '{print $2}'").o
    assert 0 < int(o.out) <= 200 * 1024


def test_workspace_max(box, ws):
    args = ("--workspace", ws, "--workspace-max", "16m")
    o = box(*args, "sh", "-c", "i=0; while [ $i -lt 400 ]; do head -c 1000000 /dev/zero >f$i; sleep 0.02; i=$((i+1)); done; echo on").o
    assert o.fault_type == "workspace_full" and o["exit_code"] == 137 and "on" not in o.out
    assert o["limits"]["workspace_max"]["effective"] == 16 * MIB
    written = sum(f.stat().st_size for f in ws.iterdir())
    assert 15 * MIB < written < 300 * MIB
    for f in ws.iterdir():
        f.unlink()
    assert box(*args, "sh", "-c", "head -c 1000000 /dev/zero >f; echo on").o.out == "on\n"


def test_workspace_already_full_is_said(box, ws):
    (ws / "big").write_bytes(b"x" * (2 * MIB))
    o = box("--workspace", ws, "--workspace-max", "1m", "sh", "-c", "sleep 20; echo on").o
    assert o.fault_type in ("workspace_full", "startup_failed") and "on" not in o.out


def test_cpu_quota(box):
    """Half a cpu: a busy loop gets about half of what it gets without; compared, not timed."""
    if box("--cpus", "0.5", "true").o["limits"]["cpus"]["rung"] not in KERNEL_RUNGS:
        pytest.skip("no kernel rung for cpus here")
    loop = ("--timeout", "2s", "sh", "-c", "while :; do :; done")
    def cpu(*args):
        u = box(*args, *loop).o["usage"]
        return (u["cpu_user_us"] + u["cpu_sys_us"]) / u["wall_us"]
    assert cpu("--cpus", "0.25") < 0.45
    assert cpu("--cpus", "1") < 1.3


@pytest.mark.root
def test_cpu_quota_is_set_in_the_kernel():
    """Whatever a busy machine lets a loop have: the group that the host sees the box in has the quota."""
    if boxlib.box("--cpus", "0.25", "true").o["limits"]["cpus"]["rung"] != "cgroup1":
        pytest.skip("no cgroup v1 rung for cpus here")
    mark = boxlib.seconds()
    with boxlib.running("--cpus", "0.25", "sh", "-c", "sleep 60 & wait # " + mark):
        pids = boxlib.wait_for(lambda: boxlib.find_marked(mark))
        assert pids
        path = next(row.split(":", 2)[2] for row in open(f"/proc/{pids[0]}/cgroup", encoding="ascii") if "cpu" in row.split(":")[1].split(","))
        files = [f"{d}/{os.path.basename(path.strip())}/cpu.cfs_quota_us" for d in boxlib.own_groups()]
        assert [open(f, encoding="ascii").read() for f in files if os.path.exists(f)] == ["25000\n"]


def test_no_limit_group_is_left(box):
    for i in range(5):
        box("sh", "-c", f"exit {i}")
    box("--memory", "64m", "--timeout", "100ms", "sleep", "60")
    assert not boxlib.groups_left()
    assert os.path.exists("/proc/self")
