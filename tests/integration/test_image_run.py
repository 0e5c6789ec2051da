"""`cloche run --image`: what an image's config says is honoured, and layers look as overlayfs shows them. The images are put into a store by
hand (lib/stored.py); pulling is a stand-in for cloche-image beside a copy of cloche, since what counts here is who is started, when and with
which words.
"""
import fcntl
import json
import os
import re
import shutil
import subprocess
import textwrap

import pytest

import boxlib
import stored
from stored import busybox, files, opaque, whiteout

MANIFEST = "sha256:" + "ab" * 32


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("images")
    yield stored.Store(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def base(store):
    return store.layer(busybox)


@pytest.fixture
def run(store):
    def go(*args, json=False, **kw):
        return boxlib.box(*args, json=json, env=store.env, **kw)
    return go


def tree(top):
    """All of a store, its times included: a box leaves no trace in it."""
    rows = {}
    for d, dirs, names in os.walk(top):
        for n in dirs + names:
            st = os.lstat(os.path.join(d, n))
            rows[os.path.join(d, n)] = (st.st_mode, st.st_uid, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
    return rows


def test_the_config_is_honoured(store, base, run):
    app = store.layer(files(app__data="of the image", opt__run="#!/bin/sh\necho run \"$@\"; id -u; id -g; pwd; env\n"))
    (store.layers / app[0] / "opt" / "run").chmod(0o755)
    ident = store.image("app", [base, app], user="node:staff", env=["A=1", "PATH=/opt:/bin", "TMPDIR=/nowhere"], workdir="/app/sub",
                        entrypoint=["run"], cmd=["x", "y z"], volume=["/var/lib/db"], manifest=MANIFEST)
    before = tree(store.top)
    r = run("--image", "app")
    assert r.rc == 0 and not r.err, r
    first, uid, gid, cwd, *env = r.out.decode().splitlines()
    assert (first, uid, gid, cwd) == ("run x y z", "1000", "50", "/app/sub")
    env = dict(v.split("=", 1) for v in env)
    assert (env["A"], env["PATH"], env["TMPDIR"], env["HOME"], env["USER"]) == ("1", "/opt:/bin", "/tmp", "/home/node", "node")
    # The caller's words count for more.
    r = run("--image", "app", "-u", "0", "-w", "/", "-e", "A=2", "-e", "HOME=/h", "--", "said")
    assert r.out.startswith(b"run said\n0\n0\n/\n") and b"A=2\n" in r.out and b"HOME=/h\n" in r.out, r
    r = run("--image", "app", "--entrypoint", "/bin/sh", "--", "-c", "cat /app/data; ls -d /var/lib/db; echo x >/var/lib/db/x && ls /var/lib/db")
    assert r.out == b"of the image/var/lib/db\nx\n", r
    r = run("--image", "app", "--entrypoint", "", "--", "echo", "plain")
    assert r.out == b"plain\n", r
    r = run("--image", "app", "--entrypoint", "")
    assert r.rc == 125 and b"has no command of its own" in r.err, r
    o = run("--image", "docker.io/library/app", json=True).o
    assert o["image"] == {"name": "docker.io/library/app:latest", "id": ident, "manifest": MANIFEST}
    assert boxlib.box("--", "true").o["image"] is None
    assert tree(store.top) == before


def test_names_are_cloches(store, base, run):
    """/etc/hosts, hostname and resolv.conf, whatever the image has there; the rest of its /etc is its own."""
    other = store.layer(files(etc__hosts="6.6.6.6 localhost\n", etc__mine="mine"))
    odd = store.layer(lambda d: [(d / "etc").mkdir(mode=0o711), (d / "etc/hostname").mkdir(), (d / "etc/resolv.conf").symlink_to("/tmp/x")])
    for layers in ([base, other], [base, other, odd]):
        store.image("names", layers, cmd=["sh", "-c", "cat /etc/hosts /etc/hostname /etc/resolv.conf /etc/mine; hostname; stat -c %a /etc"])
        r = run("--image", "names")
        assert r.rc == 0 and re.match(rb"127\.0\.0\.1 localhost.*\ncloche\n# no resolver.*\nminecloche\n7[15][15]\n$", r.out, re.S), r
        assert b"6.6.6.6" not in r.out
    # /etc itself as a link: the image's own arrangement.
    link = store.layer(lambda d: (d / "etc").symlink_to("conf"))
    store.image("names", [base, store.layer(files(conf__hosts="its own")), link], cmd=["cat", "/etc/hosts"])
    assert run("--image", "names").out == b"its own"


def test_layers_as_one_tree(store, base, run, ws):
    """Whiteouts, opaque directories, files in place of directories; and where a mount goes is where the box sees it."""
    low = store.layer(files(a__low="low", a__both="low", a__gone="low", o__low="low", f__x="low", w__x="low", real__sub__x="1"))

    def fill(d):
        files(a__both="mid", o__mid="mid")(d)
        whiteout(d / "a/gone")
        os.setxattr(d / "o", "user.overlay.opaque", b"y")
        (d / "f").write_text("a file")
        whiteout(d / "w")
        for name, goal in (("abs", "/real"), ("rel", "real/sub"), ("out", "../../../real"), ("loop", "loop"), ("dead", "/none/x"), ("chain", "abs")):
            (d / name).symlink_to(goal)
    mid = store.layer(fill)
    top = store.layer(lambda d: [opaque(d / "real/sub"), (d / "w").mkdir(), whiteout(d / "rel"), (d / "rel2").symlink_to("o/../real/./sub")])
    store.image("tree", [base, low, mid, top])
    r = run("--image", "tree", "--", "sh", "-c", "cd /; cat a/low a/both; ls a o w real/sub; cat f; ls -d rel")
    assert r.out.split() == b"lowmida: both low o: mid real/sub: w: a file".split(), r
    goals = {"/abs/new": "/real/new", "/chain": "/real", "/out/x": "/real/x", "/dead": "/none/x", "/rel/y": "/rel/y", "/rel2/z": "/real/sub/z",
             "/a/gone": "/a/gone", "/w/x": "/w/x", "/o/low": "/o/low"}
    (ws / "mark").write_text("here")
    for dst, goal in goals.items():
        plan = run("--image", "tree", "-v", f"{ws}:{dst}", "--plan", "--", "true").out.decode()
        assert f"bind       {goal} <- {ws} rw\n" in plan, plan
        r = run("--image", "tree", "-v", f"{ws}:{dst}", "--", "sh", "-c", f"readlink -f {dst}; cat {goal}/mark")
        assert r.out.decode() == goal + "\nhere", r
    for dst, says in (("/loop", "too many links"), ("/f/x", "/f/x")):
        r = run("--image", "tree", "-v", f"{ws}:{dst}", "--", "true")
        assert r.rc == 125 and says in r.err.decode(), r
    assert [line.split()[1] for line in plan.splitlines() if line.startswith("layer ")] == [n for n, _ in (top, mid, low, base)]


def test_read_only(store, base, run):
    """The root is read-only; the image's places for data, HOME, /tmp and /run are not, and have what the image put there."""
    def fill(d):
        files(home__node__app__main="main", run__pg__x="run", data__seed="seed", opt__x="x")(d)
        (d / "vol").symlink_to("/data")
    store.image("ro", [base, store.layer(fill)], user="node", workdir="/home/node/app", volume=["/vol", "/new/place", "/", "/proc"])
    script = "cat main /run/pg/x /data/seed; for d in . /run/pg /data /new/place /tmp $HOME / /opt /etc /new; do touch $d/w 2>/dev/null && echo $d; done"
    for opts in (["--read-only"], ["--security-profile", "untrusted"]):
        r = run(*opts, "--image", "ro", "--", "sh", "-c", script)
        assert r.out == b"mainrunseed.\n/run/pg\n/data\n/new/place\n/tmp\n/home/node\n", r
    r = run("--image", "ro", "--", "sh", "-c", script)
    assert r.out.endswith(b"/home/node\n/\n/opt\n/etc\n/new\n"), r


def test_a_home_among_mounts(store, base, run):
    """A home that the image calls /proc or /dev: nothing that covers /proc is taken off to make it writable."""
    look = "cat /proc/keys; echo x >/proc/sys/kernel/domainname || echo refused"
    for home in ("/proc", "/proc/sys", "/dev", "/"):
        store.image("homes", [base], env=["HOME=" + home])
        r = run("--read-only", "--image", "homes", "--", "sh", "-c", look)
        assert r.out == b"refused\n", (home, r)


def test_stop_signal(store, base, run):
    store.image("stop", [base], stop_signal="10")
    script = "trap 'echo usr1; exit 3' USR1; trap 'echo term; exit 4' TERM; echo up; while :; do sleep 0.1; done"
    for image, word in (("stop", b"usr1"), ("plain", b"term")):
        store.image("plain", [base])
        r = run("--image", image, "--timeout", "1500ms", "--kill-after", "30", "--", "sh", "-c", script)
        assert r.rc == 124 and r.out == b"up\n" + word + b"\n", r


def test_the_layers_are_held(store, base, run):
    """As long as the box lives, by a lock that a removal asks for; and the box has none of the descriptors."""
    store.image("held", [base])
    fd = os.open(store.layers / base[0], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(fd, fcntl.LOCK_UN)
    with boxlib.running("--image", "held", "-i", "--", "sh", "-c", "ls /proc/self/fd | wc -l; read x", env=store.env, stdin=-1) as p:
        assert p.stdout.readline() == b"4\n"  # three, and the one of ls itself
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        p.stdin.write(b"\n")
        p.stdin.close()
        p.wait(boxlib.HANG)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


def test_as_many_layers_as_a_mount_takes(store, base, run):
    layers = [base] + [store.layer(files(**{f"l__n{i}": str(i)})) for i in range(127)]
    store.image("deep", layers)
    r = run("--image", "deep", "--", "sh", "-c", "ls /l | wc -l; cat /l/n126")
    assert r.out == b"127\n126", r
    one = store.layer(lambda d: None)
    store.image("deeper", [*layers, one])
    r = run("--image", "deeper", "--pull", "never", "--", "true")
    assert r.rc == 125 and b"128 layers" in r.err, r


def test_a_layer_twice(store, base, run):
    """As images have that say COPY or ENV twice: what the upper one gives and hides is what counts."""
    one = store.layer(lambda d: [files(f="one", d__x="one")(d), whiteout(d / "gone")])
    two = store.layer(lambda d: [files(f="two", d__y="two", gone="two")(d), whiteout(d / "d" / "x")])
    store.image("twice", [base, one, two, one, base])
    r = run("--image", "twice", "--", "sh", "-c", "cat /f; ls /d /gone 2>/dev/null; echo")
    assert r.out == b"one/d:\nx\ny\n\n", r


def test_not_there(store, base, run):
    store.image("here", [base], arch="s390x")
    for args, rc, says in ((["--image", "gone", "--pull", "never", "--", "true"], 125, b"docker.io/library/gone:latest is not in the store"),
                           (["--image", "local/gone", "--", "true"], 125, b"local/gone"),
                           (["--image", "here", "--platform", "linux/arm64", "--pull", "never", "--", "true"], 125, b"is here for linux/s390x only"),
                           (["--image", "Bad", "--", "true"], 2, b"lower case"), (["--image", "here", "--platform", "x x", "--", "true"], 2, b"--platform"),
                           (["--image", "here"], 125, b"has no command of its own"), (["--entrypoint", "x", "--", "true"], 2, b"needs an image"),
                           (["--image", "here", "--rootfs", "/", "--", "true"], 2, b"contradict"), ([], 2, b"no command")):
        r = run(*args)
        assert r.rc == rc and says in r.err and r.err.count(b"\n") == 1, r
    o = run("--image", "gone", "--pull", "never", "--", "true", json=True).o
    assert (o.fault_type, o.fault["stage"], o["image"]) == ("startup_failed", "image", None)
    low = store.layer(lambda d: [(d / "foreign").write_bytes(b"\x7fELF" + bytes(60)), (d / "foreign").chmod(0o755)])
    store.image("here", [base, low], arch="s390x")
    r = run("--image", "here", "--", "/foreign")
    assert r.rc == 126 and re.search(rb"note: the image is for linux/s390x, this machine is linux/(amd64|arm64)\n", r.err), r
    # Where there is no store, none is made.
    nowhere = store.home / "nowhere"
    r = boxlib.box("--image", "gone", "--pull", "never", "--", "true", env={"CLOCHE_HOME": str(nowhere)}, json=False)
    assert r.rc == 125 and not nowhere.exists(), r
    r = run("--image", "here", "-u", "nosuch", "--", "true")
    assert r.rc == 2 and b"no such user in docker.io/library/here:latest" in r.err, r


STAND_IN = """\
    #!/usr/bin/env python3
    import json, os, sys, time
    here = os.path.dirname(os.path.abspath(__file__))
    with open(here + "/calls", "a") as f:
        f.write(json.dumps(sys.argv[1:]) + "\\n")
    print("sha256:the-id")
    print("progress one", "progress two", sep="\\n", file=sys.stderr, flush=True)
    if os.path.exists(here + "/fail"):
        print("cloche pull: no route to the registry: try later", file=sys.stderr)
        sys.exit(1)
    time.sleep(float(os.environ["TAKES"]))
    assert sys.stdin.read() == ""
    os.rename(here + "/ready", os.environ["PULLED"])
    """


@pytest.fixture
def puller(store, base, ws):
    """A copy of cloche with a stand-in beside it, which "pulls" by giving an image that is ready its name."""
    shutil.copy(boxlib.CLOCHE, ws / "cloche")
    (ws / "cloche-image").write_text(textwrap.dedent(STAND_IN))
    (ws / "cloche-image").chmod(0o755)
    store.image("pulled", [base], cmd=["echo", "ran"])
    name = store.top / "names" / "docker.io+library+pulled=latest"
    shutil.copy(name, ws / "kept")

    def go(*args, takes=0.1):
        shutil.copy(ws / "kept", ws / "ready")
        return boxlib.communicate([ws / "cloche", "run", *args], env={**store.env, "PULLED": str(name), "TAKES": str(takes)})
    go.calls = lambda: [json.loads(x) for x in (ws / "calls").read_text().splitlines()] if (ws / "calls").exists() else []
    go.name, go.dir = name, ws
    return go


def test_pull_when_missing(puller):
    puller.name.unlink()
    # Its budget is its own: the pull takes longer than the command may.
    r = puller("--json", "--timing", "--timeout", "3", "--image", "pulled", takes=3.2)
    o = json.loads(r.out)
    assert (o["exit_code"], o["stdout"], r.err) == (0, "ran\n", b""), r
    assert o["timing_us"]["pull"] >= 3_000_000 > o["duration_ms"] * 1000, o["timing_us"]
    assert puller.calls() == [["pull", "docker.io/library/pulled:latest"]]
    r = puller("--timing", "--image", "pulled")
    assert r.out == b"ran\n" and b"pull " not in r.err and len(puller.calls()) == 1, r
    r = puller("--pull", "never", "--image", "pulled")
    assert r.out == b"ran\n" and len(puller.calls()) == 1, r


def test_pull_always(puller):
    r = puller("--pull", "always", "--platform", "linux/" + {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "--image", "pulled")
    assert r.out == b"ran\n" and b"progress two\n" in r.err and b"the-id" not in r.out, r
    assert puller.calls()[0][:2] == ["pull", "--platform"] and len(puller.calls()) == 1
    assert boxlib.communicate([puller.dir / "cloche", "run", "--pull", "always", "--", "true"]).rc == 0  # nothing to pull


def test_a_pull_that_fails(puller):
    (puller.dir / "fail").write_text("")
    puller.name.unlink()
    r = puller("--image", "pulled")
    assert r.rc == 125 and r.err.endswith(b"cloche: startup_failed: docker.io/library/pulled:latest could not be pulled\n"), r
    o = json.loads(puller("--json", "--image", "pulled").out)
    assert o["fault"] == {"type": "startup_failed", "message": "cloche pull: no route to the registry: try later", "stage": "image"}
    (puller.dir / "cloche-image").unlink()
    r = puller("--image", "pulled")
    assert r.rc == 125 and b"cloche-image" in r.err and b"fix" in r.err and r.err.count(b"\n") == 1, r


def test_a_pull_ends_with_cloche(puller):
    """Killed in the middle: what it had started is gone as well."""
    puller.name.unlink()
    mark = boxlib.seconds()
    (puller.dir / "cloche-image").write_text(f"#!/bin/sh\necho up >&2\nexec /bin/sh -c 'read x </dev/zero; :' {mark}\n")
    env = {**boxlib.base_env(), "CLOCHE_HOME": str(puller.name.parents[3])}
    p = subprocess.Popen([puller.dir / "cloche", "run", "--image", "pulled"], env=env, stderr=subprocess.PIPE)
    assert p.stderr.readline() == b"up\n"
    assert boxlib.wait_for(lambda: boxlib.find_marked(mark)), "no control"
    p.kill()
    p.wait()
    p.stderr.close()
    assert boxlib.wait_for(lambda: not boxlib.find_marked(mark))
