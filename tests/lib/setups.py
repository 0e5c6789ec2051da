"""Stores for tests of `cloche setup`: an image of Debian, a small one with nothing but a probe, and packages of our own.

No network is needed: a package is made here by dpkg-deb and lies in the image it is installed from.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import boxlib
import stored

DEBIAN = "debian:12"


@contextlib.contextmanager
def directory():
    """A CLOCHE_HOME. Layers may hold directories that their owner can't enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ct-home-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", path], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(path)


def blobs(layout):
    """The layers of a layout's image, lowest first."""
    def blob(digest):
        return pathlib.Path(layout.path, "blobs", *digest.split(":"))

    manifest = json.loads(blob(json.loads(pathlib.Path(layout.path, "index.json").read_text())["manifests"][0]["digest"]).read_text())
    return [blob(row["digest"]) for row in manifest["layers"]]


def unpack(layout, where):
    for blob in blobs(layout):
        subprocess.run(["tar", "-xzf", blob, "-C", where, "--no-same-owner", "--exclude=./dev/*", "--exclude=dev/*"], check=True)


class Home(stored.Store):
    """A store, and the verb on it."""

    def fill(self, layout, packages=(), name="small", then=None, **says):
        """An image of that layout, with packages in /packages, and what `then` makes of its tree."""
        def make(where):
            unpack(layout, where)
            if packages:
                (where / "packages").mkdir()
            for p in packages:
                shutil.copy(p, where / "packages")
            if then:
                then(where)
        return self.image(name, [self.layer(make)], **says)

    def debian(self, layout, packages=(), then=None):
        return self.fill(layout, packages, DEBIAN, then, env=["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "MARK=base"],
                         cmd=["cat", "/etc/debian_version"])

    def small(self, *programs, name="small"):
        """An image of static programs in /bin and an empty /tmp, /etc."""
        def fill(where):
            for d in ("bin", "etc", "tmp", "root"):
                (where / d).mkdir()
            for p in programs:
                shutil.copy(p, where / "bin")
            (where / "etc" / "kept").write_text("as it was")
        return self.image(name, [self.layer(fill)])

    def python(self, name, base, script):
        """An image of a layer that `base` fills, whose python is that script for sh, and whose library is not compiled."""
        def fill(where):
            (where / "usr/bin").mkdir(parents=True)
            (where / "usr/lib/python3.99").mkdir(parents=True)
            (where / "usr/lib/python3.99/this.py").write_text("")
            (where / "usr/bin/python3.99").write_text(f"#!/bin/sh\n{script}\n")
            (where / "usr/bin/python3.99").chmod(0o755)
            (where / "usr/bin/python3").symlink_to("python3.99")
        return self.image(name, [self.layer(base), self.layer(fill)])

    def setup(self, image, name, *command, opts=(), env=None, json=True, timeout=300, net=False):
        args = ["setup", *(["--json"] if json else []), *([] if net else ["--no-network"]), "--image", image, "--name", name, *opts, "--",
                *map(str, command)]
        r = boxlib.cloche(*args, env={**self.env, **(env or {})}, timeout=timeout)
        return r.parse() if json and r.out else r

    def run(self, image, *command, opts=()):
        return boxlib.box("--image", image, *opts, "--", *command, env=self.env)

    def kept(self):
        """Names of layers that setup made."""
        return sorted(p.name for p in self.layers.iterdir() if p.name.startswith("s") and p.is_dir())

    def names(self):
        return sorted(p.name for p in (self.top / "names").iterdir())

    def drafts(self):
        return sorted(p.name for p in (self.top / "draft").iterdir())

    def tree(self, layer):
        """{path: lstat} of a layer, as root or its owner sees it."""
        top = self.layers / layer
        found = {}
        for base, dirs, files in os.walk(top):
            for n in dirs + files:
                path = pathlib.Path(base, n)
                found[str(path.relative_to(top))] = path.lstat()
        return found


def package(where, name, files=(), scripts=(), depends=""):
    """Builds NAME_1.0_all.deb. files: (path, mode, text or None for a directory); scripts: (name, text)."""
    root = pathlib.Path(where, name)
    control = root / "DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\n"
                                     f"{'Depends: ' + depends if depends else 'Priority: optional'}\nDescription: a package of a test\n")
    for path, mode, text in files:
        p = root / path
        p.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            p.mkdir(exist_ok=True)
        else:
            p.write_text(text)
    for script, text in scripts:
        (control / script).write_text("#!/bin/sh\nset -e\n" + text)
        (control / script).chmod(0o755)
    out = pathlib.Path(where, f"{name}_1.0_all.deb")
    for p in [root, *root.rglob("*")]:  # whatever the caller's umask is
        if p.is_dir() and not any(str(p.relative_to(root)) == f for f, _, _ in files):
            p.chmod(0o755)
    for path, mode, _ in reversed(files):  # what is in a directory before it is closed
        (root / path).chmod(mode)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, out], check=True, stdout=subprocess.DEVNULL)
    return out
