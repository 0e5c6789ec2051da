"""Images for tests, made of Debian packages with other people's tools; and each only once a machine.

`layout("python")` is the layout (lib/layout.py) of that image, built when it is not there: below build/images (or CLOCHE_IMAGES), under its name
and a digest of its recipe. Packages come through apt, resolved against an empty system, and are unpacked, not configured; umoci writes the
layers. No root is needed but for `debian`. `tools/images` builds from a shell.

| image | what it is for |
|---|---|
| busybox | small: one layer; Cmd `sh` |
| base | the C library, busybox and the users of Debian: the lowest layer of the next three, shared by them |
| python, node | the distribution's interpreters, on `base`; python's standard library comes without .pyc files |
| server | nginx on `base`: starts as root, its workers are www-data; StopSignal SIGQUIT; answers on port 8080 |
| nonroot | User `app` (1234:1234), Env, WorkingDir, Entrypoint, Cmd, StopSignal, Volumes |
| many | 20 layers, with whiteouts, an opaque directory, files that are replaced: /expected lists what must be there |
| deep | 140 layers: more than one mount takes |
| zstd, plain | busybox with layers of that codec |
| multi | an index for three platforms; /etc/platform says which one was taken |
| debian | a Debian with apt and dpkg, as `FROM debian` is (root makes it) |
| big | over 150 MB in four layers: for bench/image only |
"""
import contextlib
import fcntl
import functools
import gzip
import hashlib
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from layout import ARCH, Layout, entry, folder, tar

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("CLOCHE_IMAGES") or ROOT / "build" / "images")
FORMAT = "1"  # another number builds everything anew
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECIPES = {}


class Unavailable(Exception):
    """An image that can't be made here: which, and why."""


def run(*argv, **kw):
    r = subprocess.run([os.fspath(a) for a in argv], capture_output=True, **{"timeout": 600, "check": False, **kw})
    if r.returncode:
        raise Unavailable(f"{' '.join(map(os.fspath, argv))}: {r.stderr.decode(errors='replace').strip()[-600:]}")
    return r.stdout


def recipe(name, base=None):
    """Registers f(layout): `layout` is empty, or a copy of the base's."""
    def register(f):
        RECIPES[name] = (f, base)
        return f
    return register


@functools.cache
def release():
    return next((line for line in open("/etc/os-release", encoding="utf-8") if line.startswith("VERSION_ID=")), "") + ARCH


def key(name):
    f, base = RECIPES[name]
    return hashlib.sha256("\n".join((FORMAT, release(), inspect.getsource(f), key(base) if base else "")).encode()).hexdigest()[:12]


@contextlib.contextmanager
def locked(name):
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / f"{name}.lock", "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def layout(name):
    """The image `name`. Not to be changed: copy() it. Raises Unavailable."""
    f, base = RECIPES[name]
    path = HOME / f"{name}-{key(name)}"
    if path.is_dir():
        return Layout(path)
    below = layout(base) if base else None
    with locked(name):
        if not path.is_dir():
            print(f"images: making {name}", file=sys.stderr)
            for old in HOME.glob(f"{name}-" + "?" * 12):
                shutil.rmtree(old)
            with tempfile.TemporaryDirectory(dir=HOME, prefix="making-") as tmp:
                made = below.copy(pathlib.Path(tmp, "x")) if below else Layout(pathlib.Path(tmp, "x"))
                f(made)
                run("umoci", "gc", "--layout", made.path)
                run("chmod", "-R", "u=rwX,go=rX", made.path)
                made.path.rename(path)
    return Layout(path)


def debs(*names, without=()):
    """Files of these packages and of all they depend on, through apt, as for a system where nothing is installed."""
    cache = HOME / "debs"
    with locked("debs"):
        (cache / "partial").mkdir(parents=True, exist_ok=True)
        apt = ["apt-get", "-qq", "-y", "--no-install-recommends", "-o", "Dir::State::status=/dev/null", "-o", f"Dir::Cache::archives={cache}/",
               "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]
        try:
            rows = run(*apt, "-s", "install", *names)
        except Unavailable:
            if os.geteuid():
                raise
            run("apt-get", "-qq", "update")
            rows = run(*apt, "-s", "install", *names)
        run(*apt, "-d", "install", *names)
        # Inst NAME (VERSION ORIGIN [ARCHITECTURE])
        found = re.findall(r"^Inst (\S+) .*?\((\S+) .*?\[(\w+)\]\)", rows.decode(), re.M)
        return [cache / f"{n}_{v.replace(':', '%3a')}_{a}.deb" for n, v, a in found if n not in without]


def program(package, path):
    """A program out of a Debian package that is not to be installed, since it would run as a service of the machine."""
    where = HOME / f"{package}-{hashlib.sha256((FORMAT + release()).encode()).hexdigest()[:12]}"
    if not where.is_dir():
        file = next(f for f in debs(package) if f.name.startswith(package + "_"))
        with locked(package):
            if not where.is_dir():
                with tempfile.TemporaryDirectory(dir=HOME, prefix="making-") as tmp:
                    made = pathlib.Path(tmp, "x")
                    made.mkdir(mode=0o755)
                    unpack(made, [file])
                    made.rename(where)
    return where / path


def unpack(root, files):
    """What is in packages, without their documents, into a root whose /usr is merged."""
    for f in files:
        plain = run("dpkg-deb", "--fsys-tarfile", f)
        run("tar", "-x", "-C", root, "--keep-directory-symlink", "--exclude=./usr/share/doc", "--exclude=./usr/share/man",
            "--exclude=./usr/share/locale", "--exclude=./usr/share/lintian", "--exclude=./usr/lib/systemd", "--exclude=./lib/systemd", input=plain)


@contextlib.contextmanager
def bundle(img):
    """The image unpacked by umoci: (its root, commit); commit() makes a layer of what was changed since."""
    if not img.tags():
        run("umoci", "new", "--image", f"{img.path}:latest")
    with tempfile.TemporaryDirectory(dir=HOME, prefix="bundle-") as tmp:
        work = pathlib.Path(tmp, "b")
        run("umoci", "unpack", *(["--rootless"] if os.geteuid() else []), "--image", f"{img.path}:latest", work)
        yield work / "rootfs", lambda: run("umoci", "repack", "--refresh-bundle", "--image", f"{img.path}:latest", work)


def configure(img, **config):
    """umoci config: `env=[...]`, `cmd=[...]`, ..."""
    args = [a for name, values in config.items() for v in ([values] if isinstance(values, str) else values) for a in (f"--config.{name}", v)]
    run("umoci", "config", "--image", f"{img.path}:latest", *args)


def skeleton(root):
    """Directories of Debian's own images, with /usr merged."""
    for d in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / d).mkdir(parents=True)
        (root / d).symlink_to("usr/" + d)
    for d, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("etc", 0o755), ("home", 0o755), ("run", 0o755), ("dev", 0o755),
                    ("proc", 0o755), ("sys", 0o755), ("srv", 0o755)):
        (root / d).mkdir(parents=True, exist_ok=True)
        (root / d).chmod(mode)


def applets(root):
    """Links for busybox's programs."""
    unpack(root, debs("busybox-static"))
    (root / "usr/share/initramfs-tools").exists() and shutil.rmtree(root / "usr/share/initramfs-tools")
    for name in run(root / "bin/busybox", "--list").decode().split():
        link = root / "bin" / name
        link.exists() or link.symlink_to("busybox")


@recipe("busybox")
def busybox(img):
    with bundle(img) as (root, commit):
        skeleton(root)
        applets(root)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
        commit()
    configure(img, env=PATH, cmd="sh")


@recipe("base")
def base(img):
    with bundle(img) as (root, commit):
        skeleton(root)
        unpack(root, debs("libc6", "base-passwd", "base-files", "libgcc-s1",
                          without=("libcrypt1", "debconf", "libdebconfclient0", "libselinux1", "libpcre2-8-0", "mawk")))
        shutil.rmtree(root / "usr/lib" / run("gcc", "-print-multiarch").decode().strip() / "gconv", ignore_errors=True)
        applets(root)
        for name in ("passwd", "group"):
            shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / "etc" / name)
        commit()
    configure(img, env=PATH, cmd="sh")


# What the packages of interpreters and servers name as needed, and what nothing in a test needs.
BASE = ("libc6", "libgcc-s1", "gcc-12-base", "gcc-14-base")
SPARE = (*BASE, "debconf", "iproute2", "libdb5.3", "libdb5.3t64", "libtirpc3", "libtirpc-common", "libkrb5-3", "libgssapi-krb5-2", "libelf1", "libbpf1",
         "libk5crypto3", "libkrb5support0", "libkeyutils1", "libcom-err2", "dpkg", "tar", "libsqlite3-0", "libnsl2", "readline-common",
         "libreadline8", "libncursesw6", "libtinfo6", "libcap2-bin", "libxtables12", "libmnl0")


@recipe("python", base="base")
def python(img):
    with bundle(img) as (root, commit):
        unpack(root, debs("python3-minimal", "libpython3-stdlib", without=SPARE))
        commit()
    configure(img, env=[PATH, "LANG=C.UTF-8"], cmd="python3")


@recipe("node", base="base")
def node(img):
    with bundle(img) as (root, commit):
        unpack(root, debs("nodejs", without=SPARE))
        commit()
    configure(img, env=[PATH, "NODE_ENV=production"], cmd="node")


@recipe("server", base="base")
def server(img):
    with bundle(img) as (root, commit):
        unpack(root, debs("nginx", without=SPARE))
        for d in ("var/log/nginx", "var/lib/nginx", "var/www/html", "run"):
            (root / d).mkdir(parents=True, exist_ok=True)
        (root / "var/www/html/index.html").write_text("served\n")
        (root / "etc/nginx/nginx.conf").write_text("""user www-data;
worker_processes 2;
pid /run/nginx.pid;
error_log stderr notice;
events { worker_connections 64; }
http {
	access_log off;
	server { listen 8080; root /var/www/html; }
}
""")
        commit()
    configure(img, env=PATH, entrypoint=["nginx", "-g", "daemon off;"], stopsignal="SIGQUIT", exposedports="8080/tcp", workingdir="/var/www")


@recipe("nonroot", base="busybox")
def nonroot(img):
    _, _, layers = img.opened()
    mine = {"uid": 1234, "gid": 1234}
    layers.append(img.layer(tar(
        entry("etc/passwd", "root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234:an app:/home/app:/bin/sh\n"),
        entry("etc/group", "root:x:0:\napp:x:1234:\nextra:x:1300:app\n"), folder("srv", mode=0o755), folder("srv/app", mode=0o750, **mine),
        entry("srv/app/own", "mine\n", mode=0o600, **mine), folder("home/app", mode=0o700, **mine), folder("data", mode=0o755, **mine))))
    img.image(layers, {"User": "app", "Env": [PATH, "GREETING=hello world", "EMPTY="], "WorkingDir": "/srv/app", "Entrypoint": ["/bin/echo", "entry"],
                       "Cmd": ["two words", "$HOME"], "StopSignal": "SIGUSR1", "Volumes": {"/data": {}}})


@recipe("many", base="busybox")
def many(img):
    """Layer n has /layers/n and writes /last anew; each third takes away the one before; the 15th replaces all of /swept."""
    expected, tag = set(), f"{img.path}:latest"
    how = ["umoci", "insert", *(["--rootless"] if os.geteuid() else []), "--image", tag]
    with tempfile.TemporaryDirectory(dir=HOME, prefix="many-") as tmp:
        work = pathlib.Path(tmp)
        for n in range(1, 20):
            text = work / "text"
            text.write_text(f"{n}\n")
            if n == 19:
                text.write_text("".join(f"{line}\n" for line in sorted(expected)))
                run(*how, text, "/expected")
            elif n == 15:
                (work / "new").mkdir()
                (work / "new/only").write_text("only\n")
                run(*how, "--opaque", work / "new", "/swept")
                expected = {e for e in expected if not e.startswith("swept/")} | {"swept/only"}
            elif n % 3 == 0:
                run(*how, "--whiteout", f"/layers/{n - 1}")
                expected.discard(f"layers/{n - 1}")
            else:
                tree = work / f"tree{n}"
                for name in (f"layers/{n}", f"swept/{n}", "last"):
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    (tree / name).write_text(f"{n}\n")
                    expected.add(name)
                run(*how, tree, "/")


@recipe("deep", base="busybox")
def deep(img):
    """140 layers above busybox: /deep/N each, /last of the topmost, and /gone taken away by the 100th."""
    _, _, layers = img.opened()
    layers.append(img.layer(tar(folder("deep"), entry("gone", "no\n"))))
    for n in range(140):
        gone = [entry(".wh.gone", "")] if n == 100 else []
        layers.append(img.layer(tar(entry(f"deep/{n}", f"{n}\n"), entry("last", f"{n}\n"), *gone)))
    img.image(layers, {"Env": [PATH], "Cmd": ["sh"]})


@recipe("zstd", base="busybox")
def zstd(img):
    recode(img, "zstd")


@recipe("plain", base="busybox")
def plain(img):
    recode(img, "plain")


def recode(img, codec):
    _, config, layers = img.opened()
    blobs = [gzip.decompress(img.blob_path(d["digest"]).read_bytes()) for d, _ in layers]
    img.image([img.layer(b, codec) for b in blobs], config["config"])


@recipe("multi", base="busybox")
def multi(img):
    _, config, layers = img.opened()
    rows = []
    for arch, variant in (("amd64", None), ("arm64", "v8"), ("arm", "v7")):
        own = img.layer(tar(entry("etc/platform", f"{arch}\n")))
        more = {"variant": variant} if variant else {}
        rows.append((img.image([*layers, own], config["config"], tag=None, arch=arch, **more), {"architecture": arch, **more}))
    img.index(rows)


@recipe("debian")
def debian(img):
    if os.geteuid():
        raise Unavailable("debian: mmdebstrap makes it as root")
    suite = run("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").decode().strip()
    with bundle(img) as (root, commit):
        run("mmdebstrap", "--quiet", "--variant=apt", "--mode=root", "--skip=cleanup/apt/lists", suite, root / "made")
        for path in (root / "made").iterdir():
            path.rename(root / path.name)
        (root / "made").rmdir()
        commit()
    configure(img, env=PATH, cmd="bash")


@recipe("big", base="node")
def big(img):
    with bundle(img) as (root, commit):
        unpack(root, debs("python3-minimal", "libpython3-stdlib", without=SPARE))
        commit()
        unpack(root, debs("gcc", "libc6-dev", without=SPARE))
        commit()
        unpack(root, debs("perl", "git", without=SPARE))
        commit()
    configure(img, env=PATH, cmd="sh")


def main():
    """tools/images [NAME...]: makes what is missing, and prints where each is."""
    for name in sys.argv[1:] or sorted(RECIPES.keys() - {"big", "debian"}):
        if name not in RECIPES:
            sys.exit(f"images: {name} is none of {' '.join(sorted(RECIPES))}")
        try:
            print(layout(name).path)
        except Unavailable as why:
            sys.exit(f"images: {why}")


if __name__ == "__main__":
    main()
