"""Images from a registry to a box: what is fetched, what is kept, what is said when it goes wrong.

The registry is Debian's own, with TLS of a private authority and a password; where it has to misbehave, one of python (lib/registry.py). What
was fetched is counted there; what is in the store is read from its files; what a box has is asked in the box.
"""
import base64
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import tarfile

import boxlib
import pytest
from images import run
from layout import ARCH, LAYER, MANIFEST
from registry import USER, WORD, Faulty, Registry
from stores import Store

LONG = 300  # a hang guard of a pull


class User:
    """Somebody with a store of his own."""

    def __init__(self, home):
        self.home, self.store = home, Store(home / "cloche")
        self.env = {"CLOCHE_HOME": str(home / "cloche")}

    def cloche(self, *args, env=None, **kw):
        return boxlib.cloche(*args, env={**self.env, **(env or {})}, timeout=LONG, **kw)

    def pull(self, *args, **kw):
        return self.cloche("pull", "-q", *args, **kw)

    def pulled(self, *args, **kw):
        r = self.pull(*args, **kw)
        assert r.rc == 0 and re.fullmatch(rb"sha256:[0-9a-f]{64}\n", r.out), r
        return r.out.decode().strip()

    def run(self, ref, *command, opts=("--pull", "never"), env=None, **kw):
        return boxlib.box("--image", ref, *opts, *(["--", *command] if command else []), json=False, env={**self.env, **(env or {})}, timeout=LONG, **kw)

    def says(self, ref, *command, **kw):
        """What a command in a box of the image prints."""
        r = self.run(ref, *command, **kw)
        assert r.rc == 0, r
        return r.out.decode()


@pytest.fixture
def user(home):
    return User(home)


@pytest.fixture(scope="module")
def registry(leftovers):
    with Registry(tls=True, auth=True) as r:
        yield r


@pytest.fixture
def faulty():
    with Faulty() as f:
        yield f


def one_line(r, *patterns, verb="pull", rc=1):
    """A failure's one line: safe for a terminal, and it says all of this."""
    lines = r.raw_err.decode().splitlines()
    assert r.rc == rc and len(lines) == 1 and lines[0].startswith(f"cloche {verb}: "), r
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", lines[0]), r
    for p in patterns:
        assert re.search(p, lines[0]), (p, lines[0])
    return lines[0]


# From the real registry

@pytest.mark.parametrize("form", ["oci", "v2s2"])
def test_pull_over_tls_with_a_password_then_offline(user, registry, image, form):
    ref = registry.push(image("python"), f"team/python:{form}", form)
    login = registry.login(user.home / "docker")
    user.pulled(*registry.trust, ref, env=login)
    assert user.says(ref, "python3", "-c", "import json, zlib; print(json.dumps([1]))") == "[1]\n"
    # In a network namespace of nothing but a loopback that is down, and without credentials.
    lonely = ["unshare", "-n"] if boxlib.IS_ROOT else ["unshare", "-Urn"]
    r = boxlib.communicate([*lonely, boxlib.CLOCHE, "run", "--image", ref, "--", "python3", "-c", "print(6 * 7)"], env=user.env)
    assert (r.rc, r.out) == (0, b"42\n"), r
    assert user.store.faults() == []


def test_run_pulls_once(user, registry, image):
    ref = registry.push(image("busybox"), "team/once:1")
    env = {"SSL_CERT_FILE": str(registry.authority.ca), **registry.login(user.home / "docker")}
    r = user.run(ref, "echo", "in", opts=("--pull", "never"), env=env)
    assert r.rc == 125 and r.out == b"", r
    for env in (env, {}):  # the second time it needs nothing
        r = user.run(ref, "echo", "in", opts=(), env=env)
        assert (r.rc, r.out) == (0, b"in\n"), r


def test_certificate_of_nobody_known(user, registry, image):
    ref = registry.push(image("busybox"), "team/busybox:1")
    login = registry.login(user.home / "docker")
    one_line(user.pull(ref, env=login), re.escape(ref), "certificate", "--ca-file")
    assert user.store.kept() == {"names": [], "configs": []} and not user.store.unfinished()
    user.pulled(*registry.trust, ref, env=login)


def test_refused_password(user, registry, image):
    ref = registry.push(image("busybox"), "team/busybox:1")
    line = one_line(user.pull(*registry.trust, ref), re.escape(ref), "log ?in|password|credentials|denied|auth")
    login = registry.login(user.home / "wrong", word="sesame closed")
    wrong = one_line(user.pull(*registry.trust, ref, env=login), re.escape(ref), "password|credentials|denied|auth")
    for text in (line, wrong):
        assert "sesame" not in text and "Basic" not in text
    assert not user.store.unfinished()
    user.pulled(*registry.trust, ref, env=registry.login(user.home / "docker"))


@pytest.mark.parametrize("name", ["nowhere/nothing:1", "team/busybox:nothing", "team/busybox@sha256:" + "0" * 64])
def test_unknown_image(user, registry, image, name):
    registry.push(image("busybox"), "team/busybox:1")
    ref = f"{registry.host}/{name}"
    login = registry.login(user.home / "docker")
    one_line(user.pull(*registry.trust, ref, env=login), re.escape(ref), "no such|not found|unknown|does not")
    assert user.store.kept() == {"names": [], "configs": []} and not user.store.unfinished()


def test_by_digest(user, registry, image):
    ref = registry.push(image("busybox"), "team/digest:1")
    what = json.loads(run("skopeo", "inspect", "--cert-dir", registry.authority.public, "--creds", f"{USER}:{WORD}", "docker://" + ref))["Digest"]
    login = registry.login(user.home / "docker")
    user.pulled(*registry.trust, f"{registry.host}/team/digest@{what}", env=login)
    assert user.says(f"{registry.host}/team/digest@{what}", "echo", "x") == "x\n"


def test_platforms(user, registry, image):
    ref = registry.push(image("multi"), "team/multi:1", every=True)
    login = registry.login(user.home / "docker")
    user.pulled(*registry.trust, ref, env=login)
    assert user.says(ref, "cat", "/etc/platform") == ARCH + "\n"
    other = {"amd64": "arm64", "arm64": "amd64"}[ARCH]
    user.pulled(*registry.trust, "--platform", "linux/" + other, ref, env=login)
    assert any(("arch", other) in user.store.record(h) for h in user.store.images())
    one_line(user.pull(*registry.trust, "--platform", "linux/s390x", ref, env=login), "s390x", "arm64", re.escape(ref))


def test_many_layers(user, registry, image):
    """20 layers with whiteouts and an opaque directory: what is there is what the image says."""
    ref = registry.push(image("many"), "team/many:1")
    user.pulled(*registry.trust, ref, env=registry.login(user.home / "docker"))
    seen = user.says(ref, "sh", "-c", "cat /expected; echo --; cd /; find layers swept last -type f | sort; echo --; cat last")
    expected, found, last = seen.split("--\n")
    assert sorted(found.split()) == sorted(expected.split()) and len(found.split()) > 5
    assert last == "17\n"
    assert len(user.store.layers()) == 20


# From the one that misbehaves

@pytest.mark.parametrize("name", ["zstd", "plain"])
def test_codecs(user, faulty, image, name):
    ref = faulty.serve(image(name), f"team/{name}:1")
    user.pulled(*faulty.trust, ref)
    assert user.says(ref, "busybox", "echo", "x") == "x\n"


def test_more_layers_than_a_mount_takes(user, faulty, image):
    ref = faulty.serve(image("deep"), "team/deep:1")
    user.pulled(*faulty.trust, ref)
    seen = user.says(ref, "sh", "-c", "ls /deep | wc -l; cat /last /deep/0 /deep/139; test ! -e /gone && echo gone")
    assert seen.split() == ["140", "139", "0", "139", "gone"]
    # The layers that were merged are kept for other images until prune.
    assert user.cloche("prune").rc == 0 and user.store.faults() == []
    assert user.says(ref, "cat", "/last") == "139\n"


def large_layer(made, size):
    """A layer of one file of about that many bytes, without holding it: ((descriptor, diff id), the file's digest, its size)."""
    block = os.urandom(1 << 16)
    n = size // len(block)
    header = tarfile.TarInfo("large")
    header.size = n * len(block)
    plain, content, path = hashlib.sha256(), hashlib.sha256(), made.path / "large"
    with open(path, "wb") as out, subprocess.Popen(["zstd", "-q", "-1"], stdin=subprocess.PIPE, stdout=out) as p:
        for at, data in enumerate([header.tobuf(), *[block] * n, bytes(1024)]):
            p.stdin.write(data)
            plain.update(data)
            if 0 < at <= n:
                content.update(data)
    blob = hashlib.sha256()
    with open(path, "rb") as f:
        while data := f.read(1 << 20):
            blob.update(data)
    descriptor = {"mediaType": LAYER["zstd"], "digest": "sha256:" + blob.hexdigest(), "size": path.stat().st_size}
    path.rename(made.blob_path(descriptor["digest"]))
    return (descriptor, "sha256:" + plain.hexdigest()), content.hexdigest(), header.size


def test_a_large_layer(user, faulty, image):
    """CLOCHE_LAYER_MB=3300 has it over 2 and 3 GiB."""
    made = image("busybox").copy(user.home / "layout")
    layer, content, size = large_layer(made, int(os.environ.get("CLOCHE_LAYER_MB", "48")) << 20)
    made.image([*made.opened()[2], layer], {"Cmd": ["sh"]})
    ref = faulty.serve(made, "team/large:1")
    user.pulled(*faulty.trust, ref)
    assert user.says(ref, "/bin/busybox", "sh", "-c", "/bin/busybox stat -c %s /large; /bin/busybox sha256sum /large").split()[:2] == [str(size), content]


@pytest.mark.parametrize("kind", [{"auth": True}, {"token": True}, {"token": True, "auth": True}, {"tls": True}], ids=str)
def test_ways_in(user, image, kind):
    with Faulty(**kind) as f:
        ref = f.serve(image("busybox"), "team/busybox:1")
        login = f.login(user.home / "docker") if kind.get("auth") else {}
        user.pulled(*f.trust, ref, env=login)
        assert user.says(ref, "echo", "x") == "x\n"
        # A token asks for this repository, to pull, and no more.
        assert [s["scope"] for s in f.scopes] == ([["repository:team/busybox:pull"]] if kind.get("token") else [])


def test_layers_are_shared(user, faulty, image):
    """Three images on one base: it is fetched once, unpacked once, and goes with the last of them."""
    refs = [faulty.serve(image(name), f"team/{name}:1") for name in ("base", "python", "server")]
    lowest = image("base").opened()[0]["layers"][0]["digest"]
    for ref in refs:
        user.pulled(*faulty.trust, ref)
    assert sum(q.method == "GET" and q.path.endswith(lowest) for q in faulty.seen) == 1
    assert len(user.store.layers()) == 3 and user.store.faults() == []
    for ref in refs[:2]:
        assert user.cloche("rm", ref).rc == 0
    user.cloche("prune")
    assert len(user.store.layers()) == 2 and user.store.faults() == []
    assert user.says(refs[2], "nginx", "-v", opts=("--pull", "never", "--entrypoint", "")) == ""


def test_pulled_again_nothing_is_fetched(user, faulty, image):
    ref = faulty.serve(image("busybox"), "team/busybox:1")
    first = user.pulled(*faulty.trust, ref)
    del faulty.seen[:]
    assert user.pulled(*faulty.trust, ref) == first
    assert not [q for q in faulty.seen if q.is_blob]


def test_a_tag_that_moves(user, faulty, image):
    ref = faulty.serve(image("busybox"), "team/moves:1")
    first = user.pulled(*faulty.trust, ref)
    faulty.serve(image("nonroot"), "team/moves:1")
    assert user.says(ref, "sh", "-c", "test -e /srv/app || echo old") == "old\n"
    assert user.pulled(*faulty.trust, ref) != first
    assert user.says(ref) == "entry two words $HOME\n"
    user.cloche("prune")
    assert len(user.store.images()) == 1 and user.store.faults() == []


@pytest.mark.parametrize("how", ["pull", "run"])
def test_four_at_once(user, image, how):
    with Faulty(tls=True) as faulty:
        ref = faulty.serve(image("many"), "team/many:1")
        faulty.pause, faulty.piece = 0.002, 1 << 15
        env = {"SSL_CERT_FILE": str(faulty.authority.ca)}

        def go(_):
            return user.pull(*faulty.trust, ref) if how == "pull" else user.run(ref, "echo", "x", opts=("--pull", "missing"), env=env)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            done = list(pool.map(go, range(4)))
    assert [r.rc for r in done] == [0] * 4, done
    layers = {d["digest"] for d in image("many").opened()[0]["layers"]}
    assert len({r.out for r in done}) == 1
    assert user.store.faults() == [] and len(user.store.layers()) == 20
    # One of them fetched; the others found it there.
    fetched = [q.path.rsplit("/", 1)[1] for q in faulty.seen if q.is_blob and q.method == "GET"]
    assert sorted(d for d in fetched if d in layers) == sorted(layers)


def test_rate_limit_is_waited_out(user, faulty, image):
    ref, told = faulty.serve(image("busybox"), "team/busybox:1"), []

    def rule(q):
        if q.is_blob and len(told) < 2:
            told.append(q)
            return q.reply(429, {"Retry-After": "1"}, b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow"}]}')
        return None
    faulty.rule = rule
    user.pulled(*faulty.trust, ref)
    assert len(told) == 2


def test_rate_limit_that_stays(user, faulty, image):
    ref = faulty.serve(image("busybox"), "team/busybox:1")
    later = {"Retry-After": "3600"}, b'{"errors":[{"code":"TOOMANYREQUESTS","message":"later"}]}'
    faulty.rule = lambda q: q.reply(429, *later) if q.is_manifest else None
    one_line(user.pull(*faulty.trust, ref), re.escape(ref), "429|rate limit|too many requests")
    assert user.store.kept() == {"names": [], "configs": []}


def cut(n):
    """A rule: blobs end after n bytes, whatever their length was said to be."""
    def rule(q):
        if not q.is_blob or q.method != "GET":
            return None
        _, data = q.handler.server.mine.find(q.path)
        at = int((re.fullmatch(r"bytes=(\d+)-", q.headers.get("Range", "")) or [0, 0])[1])
        if len(data) < 4096:
            return None
        status, headers = (206, {"Content-Range": f"bytes {at}-{len(data) - 1}/{len(data)}"}) if at else (200, {})
        return q.reply(status, {**headers, "Content-Type": "application/octet-stream"}, data[at:at + n], length=len(data) - at)
    return rule


def test_a_download_that_is_cut_goes_on(user, faulty, image):
    """Every connection ends early; each one goes on where the last one ended."""
    made = image("busybox")
    size = made.opened()[0]["layers"][0]["size"]
    ref = faulty.serve(made, "team/cut:1")
    faulty.rule = cut(size // 2 + 1)
    user.pulled(*faulty.trust, ref)
    asked = [q.headers.get("Range") for q in faulty.seen if q.is_blob and q.method == "GET"]
    assert any(a and a.startswith("bytes=") and a != "bytes=0-" for a in asked), asked
    assert user.says(ref, "echo", "x") == "x\n" and user.store.faults() == []


def test_an_interrupted_pull_is_not_an_image_and_goes_on(user, faulty, image):
    made = image("busybox")
    size = made.opened()[0]["layers"][0]["size"]
    ref = faulty.serve(made, "team/cut:1")
    faulty.rule = lambda q: (cut(size // 2)(q) if not q.headers.get("Range") else q.hang_up()) if q.is_blob else None
    one_line(user.pull("--timeout", "20s", *faulty.trust, ref), re.escape(ref))
    assert user.store.names() == []
    r = user.run(ref, "echo", "x")
    assert r.rc != 0 and r.out == b"" and ref.encode() in r.err, r
    # What was fetched is kept, and the next pull goes on from there.
    faulty.rule = None
    del faulty.seen[:]
    user.pulled(*faulty.trust, ref)
    assert [q.headers.get("Range") for q in faulty.seen if q.path.endswith(made.opened()[0]["layers"][0]["digest"])] == [f"bytes={size // 2}-"]
    assert user.store.faults() == []


def test_a_registry_without_ranges(user, faulty, image):
    made = image("busybox")
    ref, cuts = faulty.serve(made, "team/whole:1"), []
    faulty.ranges = False

    def rule(q):
        if q.is_blob and q.method == "GET" and not cuts:
            cuts.append(q)
            _, data = q.handler.server.mine.find(q.path)
            return q.reply(200, {}, data[:len(data) // 2], length=len(data))
        return None
    faulty.rule = rule
    user.pulled(*faulty.trust, ref)
    assert cuts and user.says(ref, "echo", "x") == "x\n"


def manifests(status, body, media=MANIFEST):
    return lambda q: q.reply(status, {"Content-Type": media}, body) if q.is_manifest else None


BROKEN = {
    "wrong bytes": (lambda q: q.reply(200, {}, b"x" * 1000) if q.is_blob else None, "sha256|size|bytes"),
    "a manifest of nothing": (manifests(200, b"{}"), "layers|schemaVersion|JSON|digest"),
    "a web page": (manifests(200, b"<html>welcome</html>", "text/html"), "content type|JSON|html"),
    "errors": (lambda q: q.reply(500, {}, b"\x1b[31mno"), "500"),
    "forbidden": (manifests(403, b'{"errors":[{"code":"DENIED","message":"\\u001b]0;evil\\u0007 no"}]}'), "refuses|denied"),
    "hanging up": (lambda q: q.hang_up(), "."),
    "redirects in a ring": (lambda q: q.reply(307, {"Location": q.path}) if q.is_blob else None, "redirect"),
    "a redirect to a file": (lambda q: q.reply(307, {"Location": "file:///etc/passwd"}) if q.is_blob else None, "redirect|protocol|http"),
    "a manifest without end": (manifests(200, b"{" + b" " * (9 << 20)), "bytes|large|more than"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_registry(user, faulty, image, name):
    ref = faulty.serve(image("busybox"), "team/broken:1")
    faulty.rule, why = BROKEN[name]
    one_line(user.pull("--timeout", "60s", *faulty.trust, ref), re.escape(ref), why)
    assert user.store.kept() == {"names": [], "configs": []}
    faulty.rule = None
    user.pulled(*faulty.trust, ref)
    assert user.store.faults() == []


def test_nobody_listens(user, faulty):
    r = user.pull("--timeout", "20s", "--insecure", "127.0.0.1:1/team/x:1")
    one_line(r, "127.0.0.1:1", "no connection|be reached")


def test_full_disk(user, faulty, image):
    """A store of 8 MB, which python does not fit into: it is said, nothing of it stays, and a small image fits."""
    big, small = faulty.serve(image("python"), "team/python:1"), faulty.serve(image("busybox"), "team/busybox:1")
    (user.home / "cloche").mkdir(exist_ok=True)
    script = f"""mount -t tmpfs -o size=8m,mode=700 none "$CLOCHE_HOME" || exit 99
"$0" pull -q --insecure {big} 2>&1; echo "rc $?"
ls "$CLOCHE_HOME"/store/images/names "$CLOCHE_HOME"/store/images/draft
"$0" gc >/dev/null 2>&1
"$0" prune --all >/dev/null 2>&1 || "$0" prune >/dev/null 2>&1
"$0" pull -q --insecure {small} >/dev/null; echo "rc $?"
"$0" run --image {small} --pull never -- echo in"""
    r = boxlib.communicate(["unshare", *(["-m"] if boxlib.IS_ROOT else ["-Urm"]), "sh", "-c", script, boxlib.CLOCHE], env=user.env, timeout=LONG)
    lines = r.out.decode().splitlines()
    assert re.match(r"cloche pull: .*(no room|No space|disk|full)", lines[0]) and big in lines[0], r
    assert lines[1] == "rc 1" and [x for x in lines[2:5] if x and not x.endswith(":")] == [], r
    assert lines[-2:] == ["rc 0", "in"], r


# The store, with parts taken away

def parts(store):
    """The parts of the one image that is there: {what: paths}."""
    p = store.path
    hexa = next(iter(store.images()))
    layers = [p / "layers" / n for n in store.layers()]
    return {"name": [p / "names" / store.ls("names")[0]], "record": [p / "configs" / hexa], "document": [p / "configs" / f"{hexa}.json"],
            "layer": layers[:1], "info": [layers[0].with_name(layers[0].name + ".info")], "all layers": layers}


@pytest.mark.parametrize("part", ["name", "record", "layer", "info", "all layers", "document"])
def test_a_part_is_removed(user, faulty, image, part):
    ref = faulty.serve(image("busybox"), "team/busybox:1")
    user.pulled(*faulty.trust, ref)
    for path in parts(user.store)[part]:
        run("chmod", "-R", "u+w", path)
        run("rm", "-r", path)
    r = user.run(ref, "echo", "x")
    if part == "document":  # it is for `inspect` and `save`: a box does without
        assert r.rc == 0, r
    else:
        assert r.rc != 0 and r.out == b"" and ref.encode() in r.err and b"pull" in r.err, r
    user.pulled(*faulty.trust, ref)
    assert user.says(ref, "echo", "x") == "x\n"
    assert user.store.faults() == []


def files_below(path):
    return sorted(os.path.join(b, f) for b, d, fs in os.walk(path) for f in d + fs)


def test_never_pull_touches_no_network_and_makes_no_file(user, faulty, image, tmp_path):
    """As the kernel saw it: no socket but the kernel's own and unix ones; and of the files, a listing."""
    ref = faulty.serve(image("busybox"), "team/busybox:1")
    before = files_below(user.home)
    log = tmp_path / "strace"

    def traced(*opts):
        strace = ["strace", "-f", "-qq", "-o", log, "-e", "trace=socket,connect,execve"]
        r = boxlib.communicate([*strace, boxlib.CLOCHE, "run", "--image", ref, *opts, "--", "echo", "x"],
                               env=user.env | boxlib.no_leak_check())
        return r, log.read_text()
    r, trace = traced("--pull", "never")
    assert r.rc == 125 and ref.encode() in r.err and b"never" in r.err + b"never", r
    assert files_below(user.home) == before
    assert "AF_INET" not in trace and trace.count("execve(") == 1, trace
    assert faulty.seen == []
    # The control: with the same words and `missing` it asks the registry.
    r, trace = traced("--pull", "missing")
    assert "AF_INET" in trace and trace.count("execve(") > 1, trace


@pytest.mark.parametrize("text", ["", "UPPER/case", "a//b", "../x", "x:y:z", "x@sha256:1", "x@sha512:" + "0" * 128, "http://x/y", "x y", "-", "x/../y",
                                  "x:" + "t" * 129, "\x1b[2J", "host:1", "x\n"])
def test_malformed_references_make_nothing(user, text):
    for args in (["pull", "--", text], ["run", "--image", text, "--", "true"]):
        r = user.cloche(*args)
        assert r.rc != 0 and len(r.raw_err.decode().splitlines()) <= 2, r
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", r.raw_err), r
    assert not os.path.exists(user.store.path)


def test_credentials_are_nowhere(user, image):
    """Not on a command line, nor in what is printed, when the registry refuses them."""
    with Faulty(auth=True) as f:
        ref = f.serve(image("busybox"), "team/busybox:1")
        f.pause, f.piece = 0.05, 1 << 16
        env = {**boxlib.base_env(), **user.env, **f.login(user.home / "docker")}
        p = subprocess.Popen([boxlib.CLOCHE, "pull", "--insecure", ref], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        seen = set()
        while p.poll() is None:
            for pid in [p.pid, *boxlib.children_of(p.pid)]:
                try:
                    seen.add(open(f"/proc/{pid}/cmdline", "rb").read())
                except OSError:
                    pass
            boxlib.wait_for(lambda: p.poll() is not None, timeout=0.02, every=0.005)
        out = p.stdout.read()
        p.stdout.close()
        assert p.returncode == 0, out
        for secret in (WORD.encode(), base64.b64encode(f"{USER}:{WORD}".encode())):
            assert secret not in out and not any(secret in s for s in seen)


# Its config

def test_config_is_honoured(user, faulty, image):
    ref = faulty.serve(image("nonroot"), "team/nonroot:1")
    user.pulled(*faulty.trust, ref)
    assert user.says(ref) == "entry two words $HOME\n"
    assert user.says(ref, "other") == "entry other\n"


SERVE = """nginx -g "daemon off;" & n=$!
for i in $(seq 600); do wget -qO- http://127.0.0.1:8080/ 2>/dev/null && break; kill -0 $n 2>/dev/null || break; sleep 0.1; done
stat -c %u /var/lib/nginx/body
kill -QUIT $n && wait $n; echo "rc $?"
"""


@pytest.mark.root
def test_a_server_that_gives_up_its_privileges(user, faulty, image):
    """nginx starts as root and serves as www-data: with a range of ids it does; with the one id of an ordinary box it says what it can't."""
    ref = faulty.serve(image("server"), "team/server:1")
    user.pulled(*faulty.trust, ref)
    r = user.run(ref, "sh", "-c", SERVE, opts=("--pull", "never", "--entrypoint", "", "--uid-range"))
    assert r.out == b"served\n33\nrc 0\n", r
    r = user.run(ref, "sh", "-c", SERVE, opts=("--pull", "never", "--entrypoint", ""))
    assert b"served" not in r.out and b"chown" in r.err, r


def test_progress_as_json(user, faulty, image):
    ref = faulty.serve(image("many"), "team/many:1")
    r = user.cloche("pull", "--json", *faulty.trust, ref)
    assert r.rc == 0 and r.err == b"", r
    events = [json.loads(line) for line in r.out.splitlines()]
    done = {e["digest"] for e in events if e.get("event") == "layer" and e.get("phase") == "done"}
    assert done == {d["digest"] for d in image("many").opened()[0]["layers"]}
    for e in events:
        if e.get("event") == "layer" and "bytes" in e and "total" in e:
            assert 0 <= e["bytes"] <= e["total"]
