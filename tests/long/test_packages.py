"""What `make packages` left: static programs, in root file systems that have no library for them, and those of the other architecture.

Needs root, and Debian's compilers and qemu-user (tools/deps packages): `make test-long`, or `make packages` and `tests/run tests/long/test_packages.py`.
"""
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tarfile
import threading

import boxlib
import packs
import pytest
import registry
import setups

NAME = "registry.example.com"
# Becomes the root of a file system in namespaces of its own: a chroot may not make user namespaces.
ENTER = """
mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && cd "$1" && pivot_root . old && cd / &&
exec /release/busybox sh -c '/release/busybox umount -l /old && exec "$@"' sh "${@:2}"
"""


@pytest.fixture(scope="module")
def made():
    if not packs.DIST.exists():
        pytest.skip("nothing was packed: make packages")
    return packs.Packages(packs.DIST)


class Root:
    """A root file system with the release in /release and cloche installed from there by its script."""

    def __init__(self, path, made):
        self.path = path
        for d in ("old", "proc", "dev", "tmp", "root", "etc", "release"):
            (path / d).mkdir(exist_ok=True)
        path.chmod(0o755)
        shutil.copy2(shutil.which("busybox"), path / "release/busybox")
        for f in made.path.iterdir():
            if f.name.endswith(".tar.gz") or f.name in ("SHA256SUMS", "install.sh"):
                shutil.copy2(f, path / "release" / f.name)
        self.installed = self.run("sh", "/release/install.sh")

    def start(self, *argv, **kw):
        return subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "bash", self.path, *argv],
                                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8"}, text=True,
                                **({"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kw))

    def run(self, *argv, check=True):
        with self.start(*argv) as p:
            out, err = p.communicate(timeout=packs.HANG)
        assert not check or p.returncode == 0, (argv, p.returncode, out, err)
        return subprocess.CompletedProcess(argv, p.returncode, out, err)


def musl(path, _image):
    """busybox and musl's loader; nothing of glibc."""
    for d in ("usr/bin", "usr/lib", "etc"):
        (path / d).mkdir(parents=True)
    for d in ("bin", "lib", "sbin"):
        (path / d).symlink_to("usr/bin" if d == "sbin" else f"usr/{d}")
    shutil.copy2(shutil.which("busybox"), path / "bin/busybox")
    for name in subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (path / "bin" / name).symlink_to("busybox")
    (path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    loader = f"/lib/ld-musl-{packs.MACHINE}.so.1"
    shutil.copy2(os.path.realpath(loader), path / loader[1:])
    subprocess.run(["musl-gcc", "-x", "c", "-o", path / "bin/dynamic", "-"], check=True, timeout=packs.HANG,
                   input=b'#include <stdio.h>\nint main(void) { puts("musl ran"); }\n')


def debian(path, image):
    setups.unpack(image("debian"), path)


@pytest.fixture(scope="module", params=[musl, debian], ids=["musl", "debian"])
def root(request, made, image, tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    request.param(path, image)
    yield Root(path, made)
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.root
def test_boxes_in_another_root(root):
    assert "installed cloche" in root.installed.stdout
    assert root.run("cloche", "doctor", check=False).returncode in (0, 1)
    assert root.run("cloche", "run", "echo", "from a box").stdout == "from a box\n"
    assert root.run("cloche", "run", "sh", "-c", "exit 7", check=False).returncode == 7
    if (root.path / "usr/bin/dynamic").exists():
        assert root.run("cloche", "run", "dynamic").stdout == "musl ran\n"
        assert not list(root.path.rglob("libc.so.6"))


@pytest.mark.root
def test_a_session_in_another_root(root):
    """By the protocol itself, as there is neither python nor node."""
    with root.start("cloche", "serve", stdin=subprocess.PIPE) as p:
        hang = threading.Timer(packs.HANG, p.kill)
        hang.start()

        def ask(payload="", **frame):
            p.stdin.write(json.dumps(frame) + "\n" + payload)
            p.stdin.flush()
            while True:
                said = json.loads(p.stdout.readline())
                if said.get("bytes"):
                    said["payload"] = p.stdout.read(said["bytes"])
                heard.append(said)
                if said["event"] == "done":
                    return said

        heard = []
        ask(id=1, op="hello", protocol=1, client="test/0.1.0")
        box = ask(id=2, op="open", options={})
        assert box["fault"] is None, box
        done = ask(id=3, op="run_code", sandbox=box["sandbox"], language="sh", bytes=13, payload="echo $((6*7))")
        assert done["outcome"]["exit_code"] == 0, done
        assert [f["payload"] for f in heard if f["event"] == "output"] == ["42\n"]
        p.stdin.close()
        assert p.wait(timeout=packs.HANG) == 0
        hang.cancel()


class Names(threading.Thread):
    """Answers every question for an address with 127.0.0.1, and keeps the names that were asked for."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.asked = []

    def run(self):
        while True:
            ask, who = self.socket.recvfrom(4096)
            if not ask:
                return
            labels, at = [], 12
            while ask[at]:
                labels.append(ask[at + 1:at + 1 + ask[at]].decode())
                at += 1 + ask[at]
            (kind,) = struct.unpack(">H", ask[at + 1:at + 3])
            self.asked.append(".".join(labels))
            answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([127, 0, 0, 1]) if kind == 1 else b""
            self.socket.sendto(ask[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if answer else 0, 0, 0) + ask[12:at + 5] + answer, who)

    def end(self):
        """An empty datagram ends the thread first: while it waits in recvfrom the kernel keeps the port, whatever is closed."""
        self.socket.sendto(b"", self.socket.getsockname())
        self.join(boxlib.HANG)
        self.socket.close()


@pytest.mark.root
def test_a_pull_in_another_root(root, image):
    """By HTTPS with the authorities that a file names; by a name, which the static program asks a server for itself."""
    with registry.Registry(tls=True) as r:
        ref = r.push(image("busybox"), "team/busybox:1")
        shutil.copy2(r.trust[1], root.path / "etc/ours.crt")
        root.run("cloche", "pull", "--ca-file", "/etc/ours.crt", ref)
        assert root.run("cloche", "run", "--image", ref, "echo", "of an image").stdout == "of an image\n"
        names = Names()
        names.start()
        (root.path / "etc/resolv.conf").unlink(missing_ok=True)
        (root.path / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
        try:
            r = root.run("cloche", "pull", "--ca-file", "/etc/ours.crt", f"{NAME}:{ref.split('/')[0].split(':')[1]}/team/busybox:1", check=False)
        finally:
            names.end()
        # It was reached; its certificate is for another name, and that is noticed.
        assert NAME in names.asked and r.returncode != 0 and "not trusted" in r.stderr, (names.asked, r.stderr)


def test_python_and_node_with_static_programs(made, tmp_path):
    bin_ = packs.wheel(made, tmp_path / "env")
    code = "import cloche; print(cloche.run_code('print(6 * 7)').stdout)"
    assert packs.run(bin_ / "python", "-c", code, env={"PATH": "/nowhere"}).stdout.strip() == "42"
    if packs.node_cli("npm"):
        folder = packs.npm(made, tmp_path / "node")
        code = "require('cloche').runCode('print(6 * 7)').then((r) => console.log(r.stdout.trim()))"
        assert packs.run("node", "-e", code, cwd=folder).stdout.strip() == "42"


@pytest.mark.parametrize("machine, number", [("x86_64", 62), ("aarch64", 183)])
def test_the_programs_are_static(made, tmp_path, machine, number):
    """For their own machine, without an interpreter or a library; they run, under qemu-user where that machine is another."""
    found = list(made.path.glob(f"*-linux-{machine}.tar.gz"))
    if not found:
        pytest.skip(f"not packed for {machine}")
    with tarfile.open(found[0]) as tar:
        tar.extractall(tmp_path)  # our own
    (top,) = tmp_path.iterdir()
    emulator = [] if machine == packs.MACHINE else [f"qemu-{machine}-static"]
    if emulator and not shutil.which(emulator[0]):
        pytest.skip("no qemu-user here: tools/deps packages")
    for name, words, rc in (("bin/cloche", ["--version"], 0), ("lib/cloche/cloche-image", [], 2), ("lib/cloche/cloche-serve", ["--options", "json"], 0)):
        data = (top / name).read_bytes()
        assert data[:5] == b"\x7fELF\x02" and struct.unpack("<H", data[18:20]) == (number,)
        (table,) = struct.unpack("<Q", data[32:40])
        size, count = struct.unpack("<HH", data[54:58])
        kinds = {struct.unpack("<I", data[table + i * size:table + i * size + 4])[0] for i in range(count)}
        assert 3 not in kinds  # PT_INTERP
        r = packs.run(*emulator, top / name, *words, check=False)
        assert r.returncode == rc and (r.stdout + r.stderr).strip(), r
    notice = (top / "share/doc/cloche/THIRD_PARTY").read_text()
    for library in ("musl", "glibc", "OpenSSL", "libcurl", "c-ares", "zlib", "zstd", "jansson", "libyaml"):
        assert f"\n{library} " in notice
    assert boxlib.ROOT.as_posix() not in data.decode("latin-1") and pathlib.Path("/root").as_posix() + "/" not in data.decode("latin-1")


GUEST = r"""
uname -m
cloche --version
cloche run echo from a box
cloche run sh -c 'exit 7'; echo "exit $?"
cloche run sh -c 'id -u; grep ^Seccomp: /proc/self/status; unshare -m true || echo refused'
cloche run --timeout 2 sleep 1000; echo "timeout $?"
cloche doctor; echo "doctor $?"
{
	printf '{"id":1,"op":"hello","protocol":1,"client":"test/0.1.0"}\n{"id":2,"op":"open","options":{}}\n'; sleep 15
	printf '{"id":3,"op":"run_code","sandbox":1,"language":"sh","bytes":13}\necho $((6*7))'; sleep 20
} | cloche serve; echo "serve $?"
"""


def test_boxes_on_a_machine_of_arm64(made, tmp_path):
    """Debian's kernel 6.1 under QEMU's software emulation."""
    found = list(made.path.glob("*-linux-aarch64.tar.gz"))
    if not found or not shutil.which("qemu-system-aarch64"):
        pytest.skip("not packed for aarch64, or no qemu-system-aarch64 here: make packages")
    with tarfile.open(found[0]) as tar:
        tar.extractall(tmp_path)  # our own
    (top,) = tmp_path.iterdir()
    r = subprocess.run([boxlib.ROOT / "tools/packages/guest", "arm64", boxlib.ROOT / "build/packages/arm64/guest", top, GUEST],
                       capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900, check=False)
    lines = r.stdout.splitlines()
    assert r.returncode == 0 and lines[0] == "aarch64", (r.stdout, r.stderr)
    for line in ("from a box", "exit 7", "1000", "Seccomp:\t2", "refused", "timeout 124", "doctor 1", "42", "serve 0"):
        assert line in lines or line == "42" and any(said.startswith("42") for said in lines), (line, r.stdout)
