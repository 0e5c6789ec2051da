"""`cloche pull` and registries that answer oddly: redirects, realms, credentials, mirrors, proxies, resuming; and what the processes of a pull may
still do, asked of the kernel while it runs."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import threading
import time

import boxlib
import pytest
from layout import Layout, entry, folder, tar
from registry import USER, WORD, Authority, Faulty

BIG = 300_000


class User:
    def __init__(self, home):
        self.home, self.store = home, home / "store/images"
        self.env = {"CLOCHE_HOME": str(home), "HOME": str(home)}

    def pull(self, *args, env=None, **kw):
        return boxlib.cloche("pull", "-q", *args, env={**self.env, **(env or {})}, **kw)

    def pulled(self, *args, **kw):
        r = self.pull(*args, **kw)
        assert r.rc == 0 and re.fullmatch(rb"sha256:[0-9a-f]{64}\n", r.out), r
        return r

    def refused(self, *args, says=".", rc=1, **kw):
        """One line, safe for a terminal; nothing has a name."""
        r = self.pull(*args, **kw)
        lines = [x for x in r.err.decode().splitlines() if ": note: " not in x]
        assert r.rc == rc and r.out == b"" and len(lines) == 1 and lines[0].startswith("cloche pull: "), r
        assert re.search(says, lines[0]) and not re.search(r"[\x00-\x1f\x7f-\x9f]", lines[0]), (says, lines[0])
        assert not self.names(), self.names()
        return r

    def names(self):
        return sorted(p.name for p in self.store.glob("names/*"))

    def parts(self):
        return {p.name.split(".")[0]: p.stat().st_size for p in self.store.glob("blobs/*.part")}


@pytest.fixture
def user(home):
    return User(home)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small image: a big layer that does not compress, and a small one."""
    img = Layout(tmp_path_factory.mktemp("layout") / "l")
    img.image([img.layer(tar(folder("bin"), entry("bin/big", os.urandom(BIG))), "gzip"), img.layer(tar(entry("etc/x", "x")), "zstd")], {"Cmd": ["sh"]})
    return img


@pytest.fixture
def faulty():
    with Faulty() as f:
        yield f


@pytest.fixture
def other():
    with Faulty() as f:
        yield f


def big_blob(made):
    return made.opened()[0]["layers"][0]


def auths(seen):
    return [q.headers.get("Authorization") for q in seen]


# Redirects

def test_a_redirect_elsewhere_goes_without_the_password(user, made, faulty, other):
    faulty.auth = True
    ref = faulty.serve(made, "team/x:1")
    other.serve(made, "team/x:1")
    faulty.rule = lambda q: q.reply(307, {"Location": other.url + q.path}) if q.is_blob and q.headers.get("Authorization") else None
    user.pulled(*faulty.trust, ref, env=faulty.login(user.home / "docker"))
    assert len(other.seen) == 3 and auths(other.seen) == [None] * 3
    # The control: on the same host it goes along.
    assert any(auths(faulty.seen))


def test_a_redirect_on_the_same_host_keeps_it(user, made, faulty):
    faulty.auth = True
    ref = faulty.serve(made, "team/x:1")
    faulty.serve(made, "moved/x:1")
    faulty.rule = lambda q: q.reply(302, {"Location": q.path.replace("/team/", "/moved/")}) if q.is_blob and "/team/" in q.path else None
    user.pulled(*faulty.trust, ref, env=faulty.login(user.home / "docker"))
    moved = [q for q in faulty.seen if "/moved/" in q.path]
    assert len(moved) == 3 and all(auths(moved))


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:1/x", "http://example.com/x", "//user:word@127.0.0.1/x", "",
                                   "http://[::1", "javascript:alert(1)", "http://127.0.0.1.example.com/x"])
def test_redirects_that_are_refused(user, made, faulty, where):
    ref = faulty.serve(made, "team/x:1")
    faulty.rule = lambda q: q.reply(307, {"Location": where}) if q.is_manifest else None
    user.refused(*faulty.trust, ref, says="redirect|address|HTTPS")


def test_https_does_not_lead_to_plain_http(user, made, other):
    with Faulty(tls=True) as f:
        ref = f.serve(made, "team/x:1")
        other.serve(made, "team/x:1")
        f.rule = lambda q: q.reply(307, {"Location": other.url + q.path}) if q.is_blob else None
        for trust in (f.trust, ["--insecure"]):
            user.refused(*trust, ref, says="HTTPS")
        assert other.seen == []
        f.rule = None
        user.pulled(*f.trust, ref)


# Who is shown a password

def realm(faulty, url):
    return lambda q: q.reply(401, {"WWW-Authenticate": f'Bearer realm="{url}",service="s"'}) if "/token" not in q.path and \
        q.headers.get("Authorization") != "Bearer " + faulty.issued else None


@pytest.mark.parametrize("host, shown", [("127.0.0.1", True), ("localhost", False)])
def test_a_realm_elsewhere_gets_no_password(user, made, faulty, other, host, shown):
    """The same machine by another name is another host: the token is asked for without the password, and that is said."""
    ref = faulty.serve(made, "team/x:1")
    other.issued = faulty.issued
    faulty.rule = realm(faulty, f"http://{host}:{other.port}/token")
    r = user.pulled(*faulty.trust, ref, env=faulty.login(user.home / "docker"))
    assert (auths(other.seen) != [None]) == shown and len(other.seen) == 1
    assert (b"not its own host" in r.err) == (not shown), r
    assert WORD.encode() not in r.err
    assert other.scopes == [{"service": ["s"], "scope": ["repository:team/x:pull"]}]


@pytest.mark.parametrize("url", ["http://example.com/token", "file:///etc/passwd", "https://u:p@127.0.0.1/token", "", "/token", "gopher://localhost/"])
def test_realms_that_are_no_address_to_ask(user, made, faulty, url):
    ref = faulty.serve(made, "team/x:1")
    faulty.rule = realm(faulty, url)
    user.refused(*faulty.trust, ref, says="token|login", env=faulty.login(user.home / "docker"))
    assert not any(auths(faulty.seen))


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"token":""}', b'{"token":"a\\r\\nX: y"}', b'{"token":"' + b"a" * 40000 + b'"}', b" " * (2 << 20)],
                         ids=lambda b: str(len(b)))
def test_tokens_that_are_none(user, made, faulty, body):
    ref = faulty.serve(made, "team/x:1")
    faulty.token = True
    faulty.rule = lambda q: q.reply(200, {"Content-Type": "application/json"}, body) if "/token" in q.path else None
    user.refused(*faulty.trust, ref, says="token")


def test_a_token_that_expires_is_renewed(user, made, faulty):
    ref = faulty.serve(made, "team/x:1")
    faulty.token = True

    def rule(q):
        if q.is_blob and faulty.issued != "second":
            faulty.issued = "second"
    faulty.rule = rule
    user.pulled(*faulty.trust, ref)
    assert len([q for q in faulty.seen if "/token" in q.path]) == 2


def helper(home, name, script):
    path = home / "bin" / f"docker-credential-{name}"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    (home / "docker").mkdir(exist_ok=True)
    (home / "docker/config.json").write_text(json.dumps({"credsStore": name}))
    return {"DOCKER_CONFIG": str(home / "docker"), "PATH": f"{path.parent}:{os.environ['PATH']}"}


def test_a_credential_helper_is_asked(user, made, faulty):
    faulty.auth = True
    ref = faulty.serve(made, "team/x:1")
    answer = json.dumps({"Username": USER, "Secret": WORD})
    env = helper(user.home, "ours", f"cat >{user.home}/asked; echo $* >>{user.home}/asked; echo '{answer}'")
    user.pulled(*faulty.trust, ref, env=env)
    assert (user.home / "asked").read_text() == f"{faulty.host}get\n"


@pytest.mark.parametrize("script", ["exit 3", "echo no JSON", "exec yes", "echo 'credentials not found in native keychain'; exit 1"])
def test_a_helper_that_fails_is_no_login(user, made, faulty, script):
    """An image that is open can be pulled all the same."""
    ref = faulty.serve(made, "team/x:1")
    r = user.pulled(*faulty.trust, ref, env=helper(user.home, "broken", script))
    assert (b"docker-credential-broken" in r.err) == ("not found" not in script), r
    faulty.auth = True
    r = user.pull("--platform", "linux/arm64", *faulty.trust, ref, env=helper(user.home, "broken", script))
    assert r.rc == 1 and b"login" in r.err, r


@pytest.mark.parametrize("name", ["../../bin/sh", "a b", "x;y", "-x"])
def test_a_helper_of_another_name_is_not_executed(user, made, faulty, name):
    ref = faulty.serve(made, "team/x:1")
    (user.home / "docker").mkdir()
    (user.home / "docker/config.json").write_text(json.dumps({"credsStore": name}))
    user.refused(*faulty.trust, ref, says="credential helper", env={"DOCKER_CONFIG": str(user.home / "docker")})
    assert faulty.seen == []


def test_a_refresh_token_goes_into_a_form(user, made, faulty):
    faulty.token = True
    ref, forms = faulty.serve(made, "team/x:1"), []

    def rule(q):
        if q.method != "POST":
            return None
        forms.append(q.handler.rfile.read(int(q.headers["Content-Length"])).decode())
        return q.reply(200, {}, json.dumps({"access_token": faulty.issued}).encode())
    faulty.rule = rule
    (user.home / "auth.json").write_text(json.dumps({"auths": {faulty.host: {"identitytoken": "re/fresh"}}}))
    user.pulled(*faulty.trust, ref, env={"REGISTRY_AUTH_FILE": str(user.home / "auth.json")})
    assert len(forms) == 1 and "refresh_token=re%2Ffresh" in forms[0] and "scope=repository%3Ateam%2Fx%3Apull" in forms[0], forms


# Plain HTTP, certificates

@pytest.mark.parametrize("ref", ["example.com/x", "127.0.0.1.example.com/x", "10.0.0.1:5000/x", "localhost.example.com:5000/x", "x", "127.1:5000/x"])
def test_insecure_is_for_this_machine_only(user, ref):
    user.refused("--insecure", ref, says="loopback", rc=2)


def test_plain_http_needs_insecure(user, made, faulty):
    ref = faulty.serve(made, "team/x:1")
    user.refused(ref, says="TLS.*--insecure")
    assert faulty.seen == []
    user.pulled("--insecure", ref)


@pytest.mark.parametrize("way", ["--ca-file", "SSL_CERT_FILE", "certs.d"])
def test_a_private_authority(user, made, tmp_path, way):
    with Faulty(tls=True) as f:
        ref = f.serve(made, "team/x:1")
        user.refused(ref, says="--ca-file")
        assert f.seen == []
        if way == "--ca-file":
            user.pulled("--ca-file", f.authority.ca, ref)
        elif way == "SSL_CERT_FILE":
            user.pulled(ref, env={"SSL_CERT_FILE": str(f.authority.ca)})
        else:
            for host, works in (("127.0.0.1:1", False), (f.host, True)):
                at = user.home / "config/certs.d" / host
                at.mkdir(parents=True)
                (at / "ca.crt").write_bytes(f.authority.ca.read_bytes())
                (user.pulled if works else user.refused)(ref)
                (at / "ca.crt").rename(at / "ca.pem")
        (tmp_path / "ca").mkdir()
        wrong = Authority(tmp_path / "ca").ca
        r = user.pull("--ca-file", wrong, ref)
        assert r.rc == 1 and b"not trusted" in r.err, r


@pytest.mark.parametrize("content", [None, "", "no certificate\n"])
def test_a_file_of_authorities_that_is_none(user, tmp_path, content):
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    user.refused("--ca-file", tmp_path / "ca.pem", "127.0.0.1:1/x", says="--ca-file", rc=2)


# Mirrors, proxies

def test_a_mirror_is_asked_first_and_the_registry_after_it(user, made, tmp_path):
    with Faulty(tls=True) as f, Faulty(tls=True) as m:
        both = tmp_path / "both.pem"
        both.write_bytes(f.authority.ca.read_bytes() + m.authority.ca.read_bytes())
        ref = f.serve(made, "team/x:1")
        m.serve(made, "copy/team/x:1")
        how = ["--ca-file", both, "--mirror", f"{f.host}={m.host}/copy"]
        user.pulled(*how, ref)
        assert f.seen == [] and len(m.seen) == 4
        # One that sends something else is left.
        (user.home / "store").rename(user.home / "gone")
        m.rule = lambda q: q.reply(200, {}, b"x" * big_blob(made)["size"]) if q.is_blob else None
        r = user.pulled(*how, ref)
        assert b"going on with the next" in r.err and any(q.is_blob for q in f.seen)
        # So is one that is not there.
        (user.home / "store").rename(user.home / "gone2")
        r = user.pulled("--ca-file", both, "--mirror", f"{f.host}=127.0.0.1:1", ref)
        assert b"127.0.0.1" in r.err and b"going on" in r.err
        # By the configuration, and of another registry.
        (user.home / "config").mkdir(exist_ok=True)
        (user.home / "config/mirrors").write_text(f"# ours\n{f.host}={m.host}/copy\nother.example.com={m.host}\n")
        (user.home / "store").rename(user.home / "gone3")
        m.rule, m.seen[:], f.seen[:] = None, [], []
        user.pulled("--ca-file", both, ref)
        assert f.seen == [] and m.seen


@pytest.mark.parametrize("text", ["", "nodot", "a.b=", "=a.b", "a b", "https://a.b", "a.b:x", "docker.io"])
def test_mirrors_that_are_none(user, text):
    user.refused(f"--mirror={text}", "docker.io/x", says="mirror", rc=2)


class Proxy(threading.Thread):
    """A CONNECT proxy of one rule: `status`. What was asked is in `asked`."""

    def __init__(self, status=200):
        super().__init__(daemon=True)
        self.status, self.asked = status, []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096) or b"\r\n\r\n"
        self.asked.append(head.decode())
        client.sendall(b"HTTP/1.1 %d x\r\n\r\n" % self.status)
        if self.status != 200:
            return client.close()
        host, port = head.split()[1].decode().rsplit(":", 1)
        with client, socket.create_connection((host, int(port))) as server:
            while True:
                for s in select.select([client, server], [], [], boxlib.HANG)[0]:
                    data = s.recv(65536)
                    if not data:
                        return None
                    (server if s is client else client).sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def test_the_proxy_of_the_host_is_taken(user, made):
    with Faulty(tls=True, auth=True) as f, Proxy() as p:
        ref = f.serve(made, "team/x:1")
        env = {**f.login(user.home / "docker"), "https_proxy": p.url}
        user.pulled(*f.trust, ref, env=env)
        assert p.asked and all(a.startswith(f"CONNECT {f.host} ") and "Authorization" not in a for a in p.asked), p.asked
        n = len(p.asked)
        user.pulled(*f.trust, ref, env={**env, "no_proxy": "127.0.0.1"})
        assert len(p.asked) == n
        p.status = 403
        (user.home / "store").rename(user.home / "gone")
        user.refused(*f.trust, ref, says="proxy", env=env)
        user.refused(*f.trust, ref, says="proxy|connection|reached", env={**env, "https_proxy": "http://127.0.0.1:1"})


# Answers that are wrong

def on_big(made, answer):
    return lambda q: answer(q) if q.is_blob and q.path.endswith(big_blob(made)["digest"]) else None


WRONG = {
    "other bytes": lambda q, n: q.reply(200, {}, b"x" * n),
    "more bytes": lambda q, n: q.reply(200, {}, b"x" * (n + 1)),
    "less bytes": lambda q, n: q.reply(200, {}, b"x" * (n - 1)),
    "a part that was not asked for": lambda q, n: q.reply(206, {"Content-Range": f"bytes 5-{n - 1}/{n}"}, b"x" * (n - 5)),
    "a part of nothing": lambda q, n: q.reply(206, {}, b"x" * n),
    "headers without end": lambda q, n: q.reply(200, {f"X-{i}": "y" * 1000 for i in range(90)}, b"x" * n),
    "a status of another protocol": lambda q, n: q.reply(204, {}),
    "a refusal without end": lambda q, n: q.reply(403, {}, b"n" * (1 << 20)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers(user, made, faulty, name):
    ref = faulty.serve(made, "team/x:1")
    faulty.rule = on_big(made, lambda q: WRONG[name](q, big_blob(made)["size"]))
    user.refused(*faulty.trust, ref, says="layer")
    faulty.rule = None
    user.pulled(*faulty.trust, ref)


@pytest.mark.parametrize("value", ["Bearer", "Bearer realm=\"x", "Bearer realm=\"a\",realm=\"b\"", "Basic realm=\"x\" Bearer", "Negotiate", "\x01", "B" * 9000])
def test_challenges_that_can_not_be_read(user, made, faulty, value):
    ref = faulty.serve(made, "team/x:1")
    faulty.rule = lambda q: q.reply(401, {"WWW-Authenticate": value})
    user.refused(*faulty.trust, ref, says="login", env=faulty.login(user.home / "docker"))
    assert not any(auths(faulty.seen))


def test_a_layer_that_is_not_what_the_config_says(user, faulty, tmp_path):
    img = Layout(tmp_path / "l")
    img.image([img.layer(tar(entry("x", "x")), "gzip")], {}, edit_config=lambda c: c["rootfs"].update(diff_ids=["sha256:" + "0" * 64]))
    user.refused(*faulty.trust, faulty.serve(img, "team/x:1"), says="config says")
    assert user.parts() == {} and list(user.store.glob("layers/*")) == []


@pytest.mark.parametrize("status", [200, 405])
def test_a_tag_answered_without_its_digest(user, made, faulty, status):
    """HEAD without Docker-Content-Digest, or not at all: then the manifest itself is fetched and compared."""
    ref = faulty.serve(made, "team/x:1")
    user.pulled(*faulty.trust, ref)
    faulty.rule = lambda q: q.reply(status, {}) if q.method == "HEAD" else None
    faulty.seen.clear()
    user.pulled(*faulty.trust, ref)
    assert not any(big_blob(made)["digest"] in q.path for q in faulty.seen)


# Going on

def slow(user, faulty, ref, *opts):
    """A pull that is in the middle of the big layer."""
    faulty.pause, faulty.piece = 0.05, 20000
    p = boxlib_start(user, "pull", *opts, *faulty.trust, ref)
    end = time.monotonic() + boxlib.HANG
    while not any(n > 0 for n in user.parts().values()):
        assert p.poll() is None and time.monotonic() < end, p.communicate()
        time.sleep(0.02)
    return p


def boxlib_start(user, *args, **popen):
    return subprocess.Popen([boxlib.CLOCHE, *map(str, args)], env={**boxlib.base_env(), **user.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, **popen)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_goes_on_after_a_signal(user, made, faulty, sig):
    ref = faulty.serve(made, "team/x:1")
    p = slow(user, faulty, ref)
    p.send_signal(sig)
    _, err = p.communicate(timeout=boxlib.HANG)
    assert p.returncode == (-9 if sig == signal.SIGKILL else 128 + sig), (p.returncode, err)
    assert sig == signal.SIGKILL or b"interrupted" in err.splitlines()[-1], err
    left = user.parts()[big_blob(made)["digest"][7:]]
    assert 0 < left < big_blob(made)["size"] and user.names() == []
    faulty.pause = 0
    faulty.seen.clear()
    user.pulled(*faulty.trust, ref)
    assert [q.headers.get("Range") for q in faulty.seen if q.path.endswith(big_blob(made)["digest"])] == [f"bytes={left}-"]
    assert user.parts() == {} and list(user.store.glob("draft/*")) == []


@pytest.mark.parametrize("damage", ["other bytes", "all of it, wrong", "too much"])
def test_what_was_left_is_damaged(user, made, faulty, damage):
    ref, blob = faulty.serve(made, "team/x:1"), big_blob(made)
    boxlib.cloche("pull", "-q", "--timeout", "1ms", *faulty.trust, ref, env=user.env)
    n = {"other bytes": 1000, "all of it, wrong": blob["size"], "too much": blob["size"] + 1}[damage]
    (user.store / "blobs" / (blob["digest"][7:] + ".part")).write_bytes(b"x" * n)
    user.pulled(*faulty.trust, ref)
    assert user.parts() == {}


def test_the_time_is_up(user, made, faulty):
    ref = faulty.serve(made, "team/x:1")
    faulty.rule = on_big(made, lambda q: time.sleep(boxlib.HANG / 10) or q.hang_up())
    began = time.monotonic()
    user.refused("--timeout", "500ms", *faulty.trust, ref, says="time is up")
    assert time.monotonic() - began < boxlib.HANG / 2


# What its processes may still do

def status(pid):
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_its_processes_are_locked_in(user, made, faulty):
    """Seen from outside, while it downloads: filters, no way to more rights, and nobody holds what is not his."""
    ref = faulty.serve(made, "team/x:1")
    p = slow(user, faulty, ref)
    server, = children(p.pid)
    for pid in (p.pid, server):
        s = status(pid)
        assert s["Seccomp"] == "2" and s["NoNewPrivs"] == "1", s
        caps = int(s["CapEff"], 16)
        assert caps & ~(1 << 1 | (1 << 0 | 1 << 3 | 1 << 4 if boxlib.IS_ROOT else 0)) == 0, s
        assert int(s["CapInh"], 16) == int(s["CapAmb"], 16) == 0
    held = [os.readlink(f"/proc/{server}/fd/{n}") for n in os.listdir(f"/proc/{server}/fd")]
    assert len([h for h in held if h.startswith("socket:")]) == 1, held  # the one that it takes orders by
    p.kill()
    p.communicate()
    end = time.monotonic() + boxlib.HANG
    while pathlib.Path(f"/proc/{server}").exists() and not status(server)["State"].startswith("Z"):  # our orphans are reaped later
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_bar_on_a_terminal(user, made, faulty):
    ref = faulty.serve(made, "team/x:1")
    faulty.pause, faulty.piece = 0.05, 20000
    ours, theirs = pty.openpty()
    p = subprocess.Popen([boxlib.CLOCHE, "pull", *faulty.trust, ref], env={**boxlib.base_env(), **user.env}, stdin=theirs, stdout=subprocess.PIPE,
                         stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    assert p.wait(boxlib.HANG) == 0 and re.search(rb"\r\[[=> ]+\] [0-9.]+ k?B of 300 kB, \d of 2 layers", seen), seen
    assert seen.endswith(b"\n") or seen.endswith(b"\033[K"), seen
    p.stdout.close()
    os.close(ours)


def test_lines_elsewhere(user, made, faulty):
    r = boxlib.cloche("pull", *faulty.trust, faulty.serve(made, "team/x:1"), env=user.env)
    assert r.rc == 0 and b"\r" not in r.err and 2 <= len(r.err.splitlines()) <= 5, r
    assert re.fullmatch(rf"{re.escape(faulty.host)}/team/x:1@sha256:[0-9a-f]{{64}}\n".encode(), r.out), r
