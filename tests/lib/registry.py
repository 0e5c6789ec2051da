"""Registries on loopback: Debian's docker-registry, and one that misbehaves as a test says.

    with Registry(tls=True, auth=("user", "word")) as r:
        ref = r.push(images.layout("busybox"), "team/busybox:1")    # skopeo, as an OCI image; form="v2s2" as docker's
        cloche("pull", *r.trust, ref, env=r.login(home / "docker"))  # what `docker login` would have written

    with Faulty() as f:                                             # plain HTTP; tls=True, auth= as above, token=True for bearer tokens
        ref = f.serve(layout, "team/busybox:1")
        f.rule = lambda q: q.reply(429, {"Retry-After": "1"}) if q.is_blob else None
        f.seen                                                      # what was asked: [Asked(method, path, headers)]

Each takes a free port, keeps its files in a directory of its own, and is gone with the block: ended by its pid.
"""
import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import images
from images import run
from layout import digest

USER, WORD = "tester", "open sesame"
# htpasswd -B of USER and WORD.
HTPASSWD = "tester:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n"
WAIT = 60  # a hang guard


class Authority:
    """A private CA below `path`, and a certificate of it for 127.0.0.1, ::1 and localhost. Only the CA's certificate is in `.public`, which
    is what skopeo and podman take as a directory of certificates."""

    def __init__(self, path):
        self.public, private = pathlib.Path(path, "public"), pathlib.Path(path, "private")
        self.public.mkdir()
        private.mkdir(mode=0o700)
        self.ca, self.cert, self.key = self.public / "ca.crt", private / "server.crt", private / "server.key"
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
        run(*new, "-subj", "/CN=a private authority", "-keyout", private / "ca.key", "-out", self.ca,
            "-addext", "keyUsage=critical,keyCertSign", "-addext", "basicConstraints=critical,CA:TRUE")
        run(*new, "-subj", "/CN=localhost", "-keyout", self.key, "-out", self.cert, "-CA", self.ca, "-CAkey", private / "ca.key",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1", "-addext", "basicConstraints=critical,CA:FALSE")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """What both kinds share: a directory, a port, TLS, and how a client is told of them."""

    def __init__(self, tls=False, auth=False):
        self.tls, self.auth = tls, auth
        self.dir = None
        self.port = None
        self.closing = contextlib.ExitStack()

    def __enter__(self):
        self.dir = pathlib.Path(self.closing.enter_context(tempfile.TemporaryDirectory(prefix="ct-registry-")))
        self.dir.chmod(0o755)
        self.authority = Authority(self.dir) if self.tls else None
        try:
            self.start()
        except BaseException:
            self.closing.close()
            raise
        return self

    def __exit__(self, *exc):
        self.closing.close()

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://{self.host}"

    @property
    def trust(self):
        """The options of `cloche pull` for this registry."""
        return ["--ca-file", str(self.authority.ca)] if self.tls else ["--insecure"]

    def login(self, home, user=USER, word=WORD):
        """Writes `home`/config.json as `docker login` does; its environment."""
        home = pathlib.Path(home)
        home.mkdir(exist_ok=True, parents=True)
        auth = base64.b64encode(f"{user}:{word}".encode()).decode()
        (home / "config.json").write_text(json.dumps({"auths": {self.host: {"auth": auth}}}))
        (home / "config.json").chmod(0o600)
        return {"DOCKER_CONFIG": str(home)}


class Registry(Server):
    """docker-registry. Its storage is a file system tree at .storage, which a test may damage."""

    def start(self):
        # As a package it would start a service.
        program = shutil.which("docker-registry") or images.program("docker-registry", "usr/bin/docker-registry")
        self.storage = self.dir / "storage"
        for _ in range(5):
            self.port = free_port()
            conf = {"version": "0.1", "log": {"level": "error", "accesslog": {"disabled": True}},
                    "storage": {"filesystem": {"rootdirectory": str(self.storage)}, "delete": {"enabled": True}},
                    "http": {"addr": self.host, "secret": secrets.token_hex(16)}}
            if self.tls:
                conf["http"]["tls"] = {"certificate": str(self.authority.cert), "key": str(self.authority.key)}
            if self.auth:
                (self.dir / "htpasswd").write_text(HTPASSWD)
                conf["auth"] = {"htpasswd": {"realm": "a registry of tests", "path": str(self.dir / "htpasswd")}}
            (self.dir / "config.json").write_text(json.dumps(conf))
            log = self.closing.enter_context(open(self.dir / "log", "ab"))
            self.p = subprocess.Popen([program, "serve", self.dir / "config.json"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.dir)
            self.closing.callback(self.stop, self.p)
            end = time.monotonic() + WAIT
            while self.p.poll() is None and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", self.port), 5).close()
                    return
                time.sleep(0.02)
        raise AssertionError("docker-registry did not start: " + (self.dir / "log").read_text(errors="replace")[-1000:])

    @staticmethod
    def stop(p):
        """At once: on SIGTERM it waits for its clients' idle connections, and nobody needs its storage any more."""
        if p.poll() is None:
            p.kill()
        p.wait(WAIT)

    def push(self, layout, name, form="oci", tag="latest", every=False):
        """Pushes a layout's image with skopeo as `name` (NAME[:TAG]); the full reference. form="v2s2" makes it docker's schema 2; `every`
        takes all platforms of an index."""
        ref = f"{self.host}/{name}"
        certs = ["--dest-cert-dir", self.authority.public] if self.tls else ["--dest-tls-verify=false"]
        creds = ["--dest-creds", f"{USER}:{WORD}"] if self.auth else []
        how = ["--all"] if every else ["--format", form]
        run("skopeo", "copy", "-q", "--insecure-policy", *how, *certs, *creds, f"oci:{layout.path}:{tag}", f"docker://{ref}",
            env={**os.environ, "HOME": str(self.dir)})
        return ref

    def blob_path(self, what):
        """Where docker-registry keeps a blob."""
        hexa = what.split(":")[1]
        return self.storage / "docker/registry/v2/blobs/sha256" / hexa[:2] / hexa / "data"


class Asked:
    """A request that came in, for rules and for the record."""

    def __init__(self, handler):
        self.handler, self.method, self.path = handler, handler.command, handler.path
        self.headers = handler.headers
        self.is_blob, self.is_manifest = "/blobs/" in self.path, "/manifests/" in self.path

    def __repr__(self):
        return f"{self.method} {self.path}"

    def reply(self, status, headers=None, body=b"", length=None):
        """Answers, and says so to whoever asked the rule. `length`: what Content-Length says, if another than the body's."""
        self.handler.answer(status, headers or {}, body, length)
        return True

    def hang_up(self):
        self.handler.close_connection = True
        with contextlib.suppress(OSError):
            self.handler.connection.shutdown(socket.SHUT_RDWR)
        return True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = WAIT

    def log_message(self, *args):
        pass

    def do_GET(self):
        mine, q = self.server.mine, Asked(self)
        with mine.lock:
            mine.seen.append(q)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            if not (mine.rule and mine.rule(q)) and self.allowed(mine):
                self.usual(mine)

    do_HEAD = do_POST = do_GET

    def allowed(self, mine):
        path = urllib.parse.urlsplit(self.path)
        given = self.headers.get("Authorization", "")
        basic = "Basic " + base64.b64encode(f"{USER}:{WORD}".encode()).decode()
        if path.path == "/token":
            if mine.auth and given != basic:
                self.answer(401, {}, b'{"details":"incorrect username or password"}')
            else:
                mine.scopes.append(urllib.parse.parse_qs(path.query))
                self.answer(200, {"Content-Type": "application/json"}, json.dumps({"token": mine.issued, "expires_in": 300}).encode())
            return False
        if mine.token and given != "Bearer " + mine.issued:
            scope = "repository:" + (re.match(r"/v2/(.+)/(?:blobs|manifests)/", path.path) or [0, "x"])[1] + ":pull"
            self.answer(401, {"WWW-Authenticate": f'Bearer realm="{mine.url}/token",service="tests",scope="{scope}"'},
                        b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}')
            return False
        if mine.auth and not mine.token and given != basic:
            self.answer(401, {"WWW-Authenticate": 'Basic realm="tests"'}, b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}')
            return False
        return True

    def usual(self, mine):
        path = urllib.parse.urlsplit(self.path).path
        if path in ("/v2", "/v2/"):
            return self.answer(200, {}, b"{}")
        media, data = mine.find(path)
        if data is None:
            code = "MANIFEST_UNKNOWN" if "/manifests/" in path else "BLOB_UNKNOWN"
            return self.answer(404, {"Content-Type": "application/json"}, b'{"errors":[{"code":"%s","message":"unknown"}]}' % code.encode())
        headers = {"Content-Type": media, "Docker-Content-Digest": digest(data), "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if part and mine.ranges and int(part[1]) < len(data):
            at = int(part[1])
            return self.answer(206, {**headers, "Content-Range": f"bytes {at}-{len(data) - 1}/{len(data)}"}, data[at:])
        return self.answer(200, headers, data)

    def answer(self, status, headers, body, length=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.slowly(body)
        if length is not None and length != len(body):
            self.close_connection = True

    def slowly(self, body):
        """In pieces, with the pause that the test asked for between them."""
        mine = self.server.mine
        step = 1 << 16 if not mine.pause else mine.piece
        for at in range(0, len(body), step):
            self.wfile.write(body[at:at + step])
            if mine.pause:
                time.sleep(mine.pause)


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that went away is what tests are about."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError, ssl.SSLError)):
            super().handle_error(request, client_address)


class Faulty(Server):
    """A registry of python. rule(Asked) answers instead (and returns true), or returns nothing; `pause` seconds pass between pieces."""

    def __init__(self, tls=False, auth=False, token=False):
        super().__init__(tls, auth)
        self.token, self.issued = token, secrets.token_urlsafe(24)
        self.rule, self.pause, self.piece, self.ranges = None, 0, 1 << 16, True
        self.seen, self.scopes, self.lock = [], [], threading.Lock()
        self.manifests, self.blobs = {}, {}

    def start(self):
        server = Quiet(("127.0.0.1", 0), Handler)
        server.mine = self
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.authority.cert, self.authority.key)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self.closing.callback(thread.join)
        self.closing.callback(server.server_close)
        self.closing.callback(server.shutdown)

    def serve(self, layout, name, tag="latest"):
        """Offers a layout's image as `name` (NAME[:TAG]); the full reference. It reads the layout's blobs when asked."""
        repo, _, mine = name.partition(":")
        row = layout.tags()[tag]
        self.manifests[(repo, mine or "latest")] = row["mediaType"], row["digest"]
        self.blobs[repo] = layout
        return f"{self.host}/{name}"

    def find(self, path):
        m = re.fullmatch(r"/v2/(.+)/(blobs|manifests)/([^/]+)", path)
        layout = m and self.blobs.get(m[1])
        if not layout:
            return None, None
        media, what = "application/octet-stream", m[3]
        if m[2] == "manifests" and not what.startswith("sha256:"):
            media, what = self.manifests.get((m[1], what), (None, None))
        file = what and re.fullmatch(r"sha256:[0-9a-f]{64}", what) and layout.blob_path(what)
        if not file or not file.exists():
            return None, None
        data = file.read_bytes()
        if m[2] == "manifests" and media == "application/octet-stream":
            media = json.loads(data).get("mediaType", "application/vnd.oci.image.manifest.v1+json")
        return media, data
