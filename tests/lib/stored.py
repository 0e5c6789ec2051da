"""Images put into a store by hand, as src/image/store.h says a store is: for tests of running them that need layers no archive would give.

`Store(home)` is the store of CLOCHE_HOME=home. A layer is a function that fills a directory; an image is layers, lowest first, and what its
config says. Whoever calls owns all of it, as after a pull.
"""
import hashlib
import os
import pathlib
import re
import shutil


def sha(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def line(key, value=None):
    if value is None:
        return key + "\n"
    raw = "".join(c if " " <= c <= "~" and c != "%" else f"%{ord(c):02X}" for c in value.encode().decode("latin-1"))
    return f"{key} {raw}\n"


def normalised(name):
    if name.startswith("local/"):
        return name
    if "/" not in name:
        name = "library/" + name
    if not re.match(r"[^/]*[.:][^/]*/|localhost/", name):
        name = "docker.io/" + name
    return name if ":" in name.rsplit("/", 1)[1] else name + ":latest"


class Store:
    def __init__(self, home, top=None):
        self.home = pathlib.Path(home)
        self.env = {"CLOCHE_HOME": str(self.home)}
        self.top = top or self.home / "store" / "images"
        self.made = 0
        for d in ("", "layers", "configs", "names", "draft", "blobs"):
            (self.top / d).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.layers = self.top / "layers"

    def layer(self, fill, kind="d"):
        """(name, id) of a new layer; fill gets its directory."""
        self.made += 1
        hexa = sha(self.home, self.made)
        name = kind + hexa[:20]
        (self.layers / (name + ".info")).write_text(line("format", "1") + line("id", "sha256:" + hexa) + line("mode", str(0o755)))
        d = self.layers / name
        d.mkdir(mode=0o755, exist_ok=True)
        fill(d)
        return name, "sha256:" + hexa

    def image(self, name, layers, arch=None, **says):
        """says: env, entrypoint, cmd, volume (lists), workdir, user, stop_signal, manifest. The image's id."""
        hexa = sha(self.home, name, layers, sorted(says.items()))
        text = line("format", "1") + line("id", "sha256:" + hexa) + line("os", "linux")
        text += line("arch", arch or {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine])
        for key in ("manifest", "workdir", "user", "stop_signal"):
            if key in says:
                text += line(key, str(says[key]))
        text += "".join(f"layer {n} {i} 1\n" for n, i in layers)
        for key in ("env", "entrypoint", "cmd", "volume"):
            if key in says:
                text += line(key) + "".join(line(key, v) for v in says[key])
        (self.top / "configs" / hexa).write_text(text)
        ref = normalised(name)
        (self.top / "names" / ref.replace("/", "+").replace(":", "=")).write_text(
            line("format", "1") + line("ref", ref) + line("id", "sha256:" + hexa) + line("manifest", says.get("manifest", "")) + line("when", "1"))
        return "sha256:" + hexa


APPLETS = "sh ls cat id env pwd true false mount touch rm sleep mkdir echo readlink find grep stat hostname rmdir mv wc sort test kill".split()


def busybox(d, passwd="root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n", group="root:x:0:\nstaff:x:50:\n"):
    """A layer to run on: busybox, accounts, /tmp and /root."""
    for name, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)):
        (d / name).mkdir()
        (d / name).chmod(mode)
    shutil.copy("/bin/busybox", d / "bin" / "busybox")
    for name in APPLETS:
        (d / "bin" / name).symlink_to("busybox")
    (d / "etc" / "passwd").write_text(passwd)
    (d / "etc" / "group").write_text(group)


def files(**content):
    """A fill that writes these: files(a="x", b__c="y") makes a and b/c."""
    def fill(d):
        for name, text in content.items():
            path = d / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return fill


def whiteout(path):
    os.mknod(path, 0o600 | 0o020000, 0)


def opaque(path):
    path.mkdir(parents=True, exist_ok=True)
    os.setxattr(path, "user.overlay.opaque", b"y")
