"""`cloche load`, `cloche save` and `cloche import` against the tools that other people use: what skopeo and podman save loads here, what is
saved here loads there, and the tree comes through both ways as it was.

Hostile archives are in test_image_hostile.py.
"""
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import time

import boxlib
import pytest
import stored
from layout import ARCH, Layout, entry, folder, hardlink, symlink, tar

NAME = "x.invalid/team/app:1"


def tool(*argv, **kw):
    r = subprocess.run([os.fspath(a) for a in argv], capture_output=True, timeout=300, check=False, **kw)
    assert r.returncode == 0, (argv, r.stderr.decode(errors="replace")[-1500:])
    return r.stdout


def skopeo(*argv):
    return tool("skopeo", "--insecure-policy", *argv)


@pytest.fixture
def store(home):
    """cloche with a store of its own."""
    class Store:
        env = {"CLOCHE_HOME": str(home)}
        top = home / "store" / "images"

        @staticmethod
        def cloche(*args, rc=0, **kw):
            r = boxlib.cloche(*args, env=Store.env, timeout=300, **kw)
            assert r.rc == rc, r
            return r

        @staticmethod
        def inspect(name):
            return json.loads(Store.cloche("inspect", name).out)

        @staticmethod
        def names():
            return [i["name"] for i in json.loads(Store.cloche("images", "--json").out)]

        @staticmethod
        def is_clean():
            return not (Store.top / "draft").exists() or not os.listdir(Store.top / "draft")
    return Store


def listing(archive):
    """What a layer's tar says, in order, without what stands in blocks only."""
    rows = []
    with tarfile.open(archive) as t:
        for m in t:
            data = t.extractfile(m).read() if m.isfile() else b""
            rows.append((m.name, m.type, oct(m.mode), m.uid, m.gid, m.mtime, m.linkname, data,
                         {k: v for k, v in m.pax_headers.items() if k.startswith("SCHILY")}))
    return rows


def unpacked(archive, where):
    """The tree of an image archive as umoci unpacks it."""
    skopeo("copy", "-q", f"oci-archive:{archive}", f"oci:{where}/layout:x")
    tool("umoci", "unpack", "--rootless", "--image", f"{where}/layout:x", where / "bundle")
    root = where / "bundle" / "rootfs"
    rows = {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files:
            path = pathlib.Path(base, name)
            st = path.lstat()
            link = os.readlink(path) if path.is_symlink() else ""
            rows[os.fspath(path.relative_to(root))] = (oct(st.st_mode), st.st_size if not path.is_dir() else 0, int(st.st_mtime),
                                                       st.st_nlink if path.is_file() else 0, link)
    return rows


def named(layout, name=NAME):
    """The layout with its image called that, as skopeo and podman call it."""
    index = json.loads((layout.path / "index.json").read_bytes())
    for row in index["manifests"]:
        row["annotations"] = {"org.opencontainers.image.ref.name": name}
    (layout.path / "index.json").write_text(json.dumps(index))
    return layout


FORMS = {"oci-archive": "oci-archive:{}:" + NAME, "docker-archive": "docker-archive:{}:" + NAME}


@pytest.mark.parametrize("which,form", [("python", "oci-archive"), ("python", "docker-archive"), ("many", "docker-archive"), ("zstd", "oci-archive")])
def test_what_skopeo_saves(store, image, home, form, which):
    file = home / "a.tar"
    skopeo("copy", "-q", f"oci:{image(which).path}:latest", FORMS[form].format(file))
    r = store.cloche("load", file)
    assert r.out.decode() == NAME + "\n" and store.is_clean()
    got = store.inspect(NAME)
    theirs = json.loads(skopeo("inspect", "--config", f"oci:{image(which).path}:latest"))
    assert len(got["layers"]) == len(theirs["rootfs"]["diff_ids"]) and got["architecture"] == theirs["architecture"]
    assert (got["config"]["env"] or []) == theirs["config"].get("Env", []) and got["config"]["cmd"] == theirs["config"].get("Cmd")
    if form == "oci-archive":  # docker's has another manifest, and none that it names
        assert got["manifest"] == "sha256:" + json.loads((image(which).path / "index.json").read_bytes())["manifests"][0]["digest"].split(":")[1]
    again = store.cloche("load", "--json", file)
    last = json.loads(again.out.splitlines()[-1])
    assert last["event"] == "image" and last["id"] == got["id"] and last["shared"] == last["layers"] and last["names"] == [NAME]
    want = "from an image" if which == "python" else ""
    if which == "python":
        r = boxlib.box("--image", NAME, "--pull", "never", "--", "python3", "-c", f"print({want!r})", json=False, env=store.env, timeout=120)
        assert r.rc == 0 and r.out.decode().strip() == want, r


@pytest.mark.parametrize("codec", ["gzip", "zstd", "stdin"])
def test_a_compressed_archive_and_a_pipe(store, image, home, codec):
    plain = named(image("busybox").copy(home / "l")).archive(home / "a.tar").read_bytes()
    if codec == "stdin":
        assert store.cloche("load", "-", stdin=plain).out.decode() == NAME + "\n"
    else:
        data = gzip.compress(plain, 1) if codec == "gzip" else subprocess.run(["zstd", "-qc"], input=plain, stdout=subprocess.PIPE, check=True).stdout
        (home / "b").write_bytes(data)
        store.cloche("load", home / "b")
    assert store.names() == [NAME] and store.is_clean()


@pytest.mark.root
@pytest.mark.parametrize("form", ["oci-archive", "docker-archive"])
def test_podman_both_ways(store, image, home, form):
    podman = ["podman", "--root", home / "p", "--runroot", home / "pr", "--storage-driver", "vfs", "--tmpdir", home / "pt"]
    skopeo("copy", "-q", f"oci:{image('busybox').path}:latest", f"oci-archive:{home}/a.tar:{NAME}")
    try:
        tool(*podman, "load", "-i", home / "a.tar")
        tool(*podman, "save", "--format", form, "-o", home / "b.tar", NAME)
        assert store.cloche("load", home / "b.tar").out.decode() == NAME + "\n"
        store.cloche("save", "-o", home / "c.tar", NAME)
        tool(*podman, "rmi", "-f", NAME)
        assert NAME.encode() in tool(*podman, "load", "-i", home / "c.tar")
        theirs = json.loads(tool(*podman, "image", "inspect", NAME))[0]
        with tarfile.open(home / "c.tar") as t:
            mine = json.load(t.extractfile("manifest.json"))[0]
        assert theirs["Id"] == mine["Config"].rsplit("/", 1)[1]
        assert theirs["RootFS"]["Layers"] == ["sha256:" + layer.rsplit("/", 1)[1] for layer in mine["Layers"]]
    finally:
        shutil.rmtree(home / "p", ignore_errors=True)


@pytest.mark.parametrize("which", ["many", "nonroot"])
def test_the_tree_comes_through(store, image, home, which):
    """Load, save, and unpack with umoci: as umoci unpacks the image itself."""
    before, after = home / "before.tar", home / "after.tar"
    skopeo("copy", "-q", f"oci:{image(which).path}:latest", f"oci-archive:{before}:{NAME}")
    store.cloche("load", before)
    store.cloche("save", "-o", after, NAME)
    (home / "1").mkdir()
    (home / "2").mkdir()
    want, got = unpacked(before, home / "1"), unpacked(after, home / "2")
    # What no archive names has no time of its own.
    assert set(got) == set(want)
    odd = {p: (want[p], got[p]) for p in want if want[p][:2] + want[p][3:] != got[p][:2] + got[p][3:]}
    assert not odd, list(odd.items())[:10]
    named_files = {p for p in want if not want[p][0].startswith("0o4")}
    assert not {p for p in named_files if want[p][2] != got[p][2]}
    config = json.loads(skopeo("inspect", "--config", f"oci-archive:{after}"))
    theirs = json.loads(skopeo("inspect", "--config", f"oci-archive:{before}"))
    assert config["config"] == theirs["config"]


def layer_of_everything():
    long = "d" * 120
    return tar(folder("a", mode=0o700), folder("bin"), entry("bin/one", "1" * 1000, mode=0o755), hardlink("bin/two", "bin/one"), symlink("bin/up", "../a"),
               entry("a/" + "n" * 200, "long"), symlink("a/l", "t" * 300), folder(long), entry(long + "/" + "é\xff".encode().decode("latin-1"), "x"),
               entry("bin/.wh.gone"), folder("opaque"), entry("opaque/.wh..wh..opq"), entry("opaque/in", "in"), folder("sticky", mode=0o1777),
               entry("closed", "c", mode=0), entry("old", "o", mtime=1.25), entry("attr", "x", pax_headers={"SCHILY.xattr.user.note": "value"}),
               entry("pipe", type=tarfile.FIFOTYPE))


def test_what_a_layer_is_made_of(store, home):
    """Every kind of entry once, in an archive of one layer: what is saved says the same of each."""
    layout = Layout(home / "l")
    layout.image([layout.layer(tar(folder("bin"), entry("bin/gone", "x"), folder("opaque"), entry("opaque/hidden", "x"))), layout.layer(layer_of_everything())])
    store.cloche("load", named(layout).archive(home / "a.tar"))
    store.cloche("save", "-o", home / "b.tar", NAME)
    with tarfile.open(home / "b.tar") as t:
        path = json.load(t.extractfile("manifest.json"))[0]["Layers"][1]
        (home / "layer.tar").write_bytes(t.extractfile(path).read())
    (home / "first.tar").write_bytes(layer_of_everything())
    want = {r[0]: r[1:] for r in listing(home / "first.tar")}
    got = {r[0]: r[1:] for r in listing(home / "layer.tar")}
    assert set(got) == set(want)
    for name, row in want.items():
        if "/.wh." in name:  # marks have no mode or time
            assert got[name][0] == tarfile.REGTYPE and got[name][6] == b""
        elif row[0] == tarfile.LNKTYPE:
            assert got[name][0] == row[0] and got[name][5] == row[5], name
        else:
            assert got[name] == row, (name, got[name], row)
    assert list(got) == sorted(got, key=lambda n: ["" if p == ".wh..wh..opq" else p for p in n.split("/")])


def test_saving_is_the_same_each_time_and_loads_again(store, image, home):
    skopeo("copy", "-q", f"oci:{image('many').path}:latest", f"docker-archive:{home}/a.tar:{NAME}")
    store.cloche("load", home / "a.tar")
    one = store.cloche("save", NAME).out
    other = {"CLOCHE_HOME": str(home / "other")}
    assert boxlib.cloche("load", "-", stdin=one, env=other, timeout=120).rc == 0
    two = boxlib.cloche("save", NAME, env=other, timeout=120)
    assert two.rc == 0 and two.out == one
    assert json.loads(boxlib.cloche("inspect", NAME, env=other).out)["config"] == store.inspect(NAME)["config"]
    # A saved image that is loaded beside it shares what did not change, and its id when nothing did.
    store.cloche("load", "--name", "again", "-", stdin=one)
    assert store.names() == ["local/again:latest", NAME]


def test_an_image_of_more_layers_than_a_mount_takes(store, image, home):
    skopeo("copy", "-q", f"oci:{image('deep').path}:latest", f"oci-archive:{home}/a.tar:{NAME}")
    store.cloche("load", home / "a.tar")
    got = store.inspect(NAME)["layers"]
    assert len(got) < 128 and "merged" in got[0] and all("merged" not in la for la in got[1:])
    r = boxlib.box("--image", NAME, "--pull", "never", "--", "/bin/busybox", "sh", "-c", "ls /deep | wc -l; ls /gone", json=False, env=store.env, timeout=120)
    assert r.out.split()[0] == b"140" and b"/gone" in r.err, r
    # Layers that are only in the merged one go, and it is found again.
    assert json.loads(store.cloche("prune", "--json").out)["layers"] > 100
    last = json.loads(store.cloche("load", "--json", home / "a.tar").out.splitlines()[-1])
    assert last["shared"] == last["layers"] and store.inspect(NAME)["layers"] == got


def test_names(store, image, home):
    layout = image("busybox").copy(home / "l")
    r = store.cloche("load", layout.archive(home / "a.tar"), rc=1)
    assert b"--name" in r.err and r.err.count(b"\n") == 2, r  # its index says "latest" alone; a line of progress before
    assert store.cloche("load", "--name", "app", home / "a.tar").out == b"local/app:latest\n"
    assert store.cloche("load", "-q", "--name", "ghcr.io/x/y:2", home / "a.tar").out.decode().strip() == store.inspect("local/app")["id"]
    # Several names, as docker saves them; and several images.
    _, config, layers = layout.opened()
    data = gzip.decompress(layout.blob_path(layers[0][0]["digest"]).read_bytes())
    rows = [{"Config": "c.json", "RepoTags": tags, "Layers": [layer]}  # its layers are links where it has them already
            for tags, layer in ((["one:1", "two.example/x:2"], "old/layer.tar"), (["three"], "l.tar"))]
    (home / "d.tar").write_bytes(tar(entry("c.json", json.dumps(config, indent=1)), entry("l.tar", data), folder("old"), symlink("old/layer.tar", "../l.tar"),
                                     entry("manifest.json", json.dumps(rows))))
    r = store.cloche("load", home / "d.tar")
    assert r.out.split() == [b"docker.io/library/one:1", b"two.example/x:2", b"docker.io/library/three:latest"]
    assert len(store.names()) == 5
    r = store.cloche("load", "--name", "app", home / "d.tar", rc=1)
    assert b"has 2 images" in r.err
    store.cloche("save", "-o", home / "s.tar", store.inspect("local/app")["id"])
    with tarfile.open(home / "s.tar") as t:
        assert sorted(json.load(t.extractfile("manifest.json"))[0]["RepoTags"]) == ["ghcr.io/x/y:2", "local/app:latest"]
    store.cloche("save", "-o", home / "s.tar", "ghcr.io/x/y:2")
    with tarfile.open(home / "s.tar") as t:
        assert json.load(t.extractfile("manifest.json"))[0]["RepoTags"] == ["ghcr.io/x/y:2"]


def test_platforms(store, image, home):
    file = named(image("multi").copy(home / "l")).archive(home / "a.tar")
    store.cloche("load", file)
    assert store.inspect(NAME)["architecture"] == ARCH
    other = "arm64" if ARCH == "amd64" else "amd64"
    store.cloche("load", "--platform", other, "--name", "other", file)
    assert store.inspect("local/other")["architecture"] == other
    r = store.cloche("load", "--platform", "linux/riscv64", file, rc=1)
    assert b"riscv64" in r.err and b"amd64" in r.err


@pytest.mark.parametrize("codec", ["plain", "gzip", "zstd"])
def test_import(store, home, codec):
    shell = pathlib.Path(shutil.which("busybox")).read_bytes()
    data = tar(folder("bin"), entry("bin/busybox", shell, mode=0o755), folder("etc"), entry("etc/motd", "hello\n"))
    packed = {"plain": lambda d: d, "gzip": lambda d: gzip.compress(d, 1),
              "zstd": lambda d: subprocess.run(["zstd", "-qc"], input=d, stdout=subprocess.PIPE, check=True).stdout}[codec](data)
    (home / "root.tar").write_bytes(packed)
    assert store.cloche("import", home / "root.tar", "rootfs").out == b"local/rootfs:latest\n"
    first = store.inspect("local/rootfs")
    assert len(first["layers"]) == 1 and first["config"]["cmd"] is None and first["architecture"] == ARCH
    assert store.cloche("import", "-q", "-", "x.invalid/r:1", stdin=packed).out.decode().strip() == first["id"]  # the same bytes, the same image
    r = boxlib.box("--image", "local/rootfs", "--pull", "never", "--", "/bin/busybox", "cat", "/etc/motd", json=False, env=store.env, timeout=120)
    assert r.out == b"hello\n", r
    store.cloche("save", "-o", home / "s.tar", "local/rootfs")
    assert json.loads(skopeo("inspect", "--config", f"oci-archive:{home}/s.tar"))["architecture"] == ARCH
    # Cut where an entry ends, or in the middle of the compressed stream.
    (home / "root.tar").write_bytes(data[:(len(data.rstrip(b"\0")) + 511) // 512 * 512] if codec == "plain" else packed[:-20])
    r = store.cloche("import", home / "root.tar", "cut", rc=1)
    assert "local/cut:latest" not in store.names() and store.is_clean(), r


USAGE = [["load"], ["load", "a", "b"], ["load", "--name", "host", "a"], ["load", "--name", "../x", "a"], ["load", "--platform", "x/y/z/w", "a"],
         ["import", "a"], ["import", "a", "host"], ["import", "a", "x@sha256:" + "0" * 64], ["save"], ["save", "a", "b"], ["save", "--nope", "a"]]


@pytest.mark.parametrize("argv", USAGE, ids=" ".join)
def test_usage(store, argv):
    r = store.cloche(*argv, rc=2)
    assert r.err.count(b"\n") == 1 and not store.top.exists(), r


def test_an_image_that_was_made_here_has_a_config_too(store, home):
    """Of images without a config document, all that their record says is saved."""
    s = stored.Store(home)
    s.image("x.invalid/made:1", [s.layer(lambda d: (d / "file").write_text("x"))], env=["A=\xe4"], entrypoint=["/init"], cmd=[], workdir="/srv", user="1:2",
            stop_signal=10, volume=["/data"])
    store.cloche("save", "-o", home / "s.tar", "x.invalid/made:1")
    got = json.loads(skopeo("inspect", "--config", f"oci-archive:{home}/s.tar"))
    assert got["config"] == {"Env": ["A=\xe4"], "Entrypoint": ["/init"], "WorkingDir": "/srv", "User": "1:2", "StopSignal": "10", "Volumes": {"/data": {}}}
    store.cloche("load", "--name", "again", home / "s.tar")
    config = store.inspect("local/again")["config"]
    assert config == {**store.inspect("x.invalid/made:1")["config"], "env": ["A=\xe4"]}


def test_what_can_not_be_saved_or_written(store, image, home):
    store.cloche("load", named(image("busybox").copy(home / "l")).archive(home / "a.tar"))
    target = home / "out.tar"
    target.write_text("as it was")
    for argv, why in ((["save", "-o", target, "nobody"], "not in the store"), (["save", "-o", home / "none" / "x", NAME], "No such file"),
                      (["save", "-o", "/dev/full", NAME], "No space left")):
        r = store.cloche(*argv, rc=1)
        assert why in r.err.decode() and r.err.count(b"\n") == 1, r
    with open("/dev/full", "wb") as full:
        p = subprocess.run([boxlib.CLOCHE, "save", NAME], env={**boxlib.base_env(), **store.env}, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert p.returncode == 1 and b"No space left" in p.stderr
    layer = store.inspect(NAME)["layers"][0]["name"]
    os.rename(store.top / "layers" / layer, home / "moved")
    r = store.cloche("save", "-o", target, NAME, rc=1)
    assert b"incomplete" in r.err and target.read_text() == "as it was"
    os.rename(home / "moved", store.top / "layers" / layer)
    assert not [n for n in os.listdir(home) if n.startswith("out.tar.")]
    store.cloche("save", "-o", target, NAME)
    assert tarfile.is_tarfile(target) and (target.stat().st_mode & 0o777) == 0o666 & ~umask()


def umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_part_that_is_gone_is_mended_by_loading_again(store, image, home):
    file = named(image("multi").copy(home / "l")).archive(home / "a.tar")
    store.cloche("load", file)
    top = store.inspect(NAME)["layers"][1]["name"]
    for part in (f"layers/{top}", f"layers/{top}.info", "configs/" + store.inspect(NAME)["id"][7:], "names/" + NAME.replace("/", "+").replace(":", "=")):
        subprocess.run(["chmod", "-R", "u+rwX", store.top / part], check=True)
        subprocess.run(["rm", "-r", store.top / part], check=True)
        store.cloche("inspect", NAME, rc=1)
        store.cloche("load", file)
        assert len(store.inspect(NAME)["layers"]) == 2 and store.is_clean()


def test_saving_ended_in_the_middle(store, image, home):
    """The file is there whole, or not at all, and nothing lies beside it."""
    store.cloche("load", named(image("python").copy(home / "l")).archive(home / "a.tar"))
    (home / "out").mkdir()
    for wait in (0.0, 0.02, 0.05, 0.1, 0.2):
        p = subprocess.Popen([boxlib.CLOCHE, "save", "-o", home / "out" / "s.tar", NAME], env={**boxlib.base_env(), **store.env}, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        p.send_signal(signal.SIGINT)
        p.wait(timeout=boxlib.HANG)
        assert set(os.listdir(home / "out")) <= {"s.tar"} and (p.returncode in (0, -signal.SIGINT)), p.returncode
    store.cloche("save", "-o", home / "out" / "s.tar", NAME)
    assert tarfile.is_tarfile(home / "out" / "s.tar")


@pytest.mark.root
def test_a_full_disk(store, image, home):
    """One line that names the image and the way out; what was there stays, and nothing else."""
    small, large = (named(image(n).copy(home / n), f"x.invalid/{n}:1").archive(home / f"{n}.tar") for n in ("busybox", "python"))
    place = home / "tmpfs"
    place.mkdir()
    script = ('mount -t tmpfs -o size=24m,mode=700 tmpfs "$1" || exit 77; export CLOCHE_HOME="$1"; "$2" load -q "$3" >/dev/null || exit 78; '
              '"$2" load -q "$4"; echo "$?"; "$2" import -q "$5" x; echo "$?"; "$2" images --json; ls "$1/store/images/draft"')
    layer = home / "layer.tar"
    layer.write_bytes(tar(entry("big", b"x" * (24 << 20))))
    p = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", place, boxlib.CLOCHE, small, large, layer], capture_output=True, text=True,
                       timeout=300, check=False, env=boxlib.base_env())
    one, two, images, *rest = p.stdout.splitlines()
    assert (one, two) == ("1", "1") and [i["name"] for i in json.loads(images)] == ["x.invalid/busybox:1"] and not rest, p
    lines = p.stderr.splitlines()
    assert len(lines) == 2 and all("No space left" in line and "cloche prune" in line for line in lines), p
    assert "x.invalid/python:1" in lines[0] or "python.tar" in lines[0]


def children(pid):
    out = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            out += [int(child), *children(int(child))]
    return out


def test_what_reads_an_archive_is_locked_in(store, home):
    """Every process of a load that waits for its archive: no new privileges, a filter of calls, no capability beyond those over files."""
    read, write = os.pipe()
    p = subprocess.Popen([boxlib.CLOCHE, "load", "-"], stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         env={**boxlib.base_env(), **store.env})
    os.close(read)
    try:
        os.write(write, b"\0" * 512)
        until = time.monotonic() + boxlib.HANG
        while len(family := [p.pid, *children(p.pid)]) < 3 or not all(state(pid)["Seccomp"] == "2" for pid in family):
            assert time.monotonic() < until and p.poll() is None, [(pid, state(pid)) for pid in family]
            time.sleep(0.02)
        for pid in family:
            s = state(pid)
            assert s["NoNewPrivs"] == "1" and s["Threads"] == "1"
            assert int(s["CapEff"], 16) & ~(1 << 0 | 1 << 1 | 1 << 3 | 1 << 4) == 0, s
    finally:
        os.close(write)
        p.wait(timeout=boxlib.HANG)
    assert p.returncode == 1 and store.is_clean()


def state(pid):
    try:
        return dict(re.findall(r"^(\w+):\t(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M))
    except OSError:
        return {"Seccomp": "?"}


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_ended_in_the_middle(store, image, home, sig):
    """A load that is ended leaves no process and no image, and the next one sweeps what it left."""
    data = named(image("python").copy(home / "l")).archive(home / "a.tar").read_bytes()
    for part in (1000, len(data) // 2, len(data) - 2000):
        p = subprocess.Popen([boxlib.CLOCHE, "load", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={**boxlib.base_env(), **store.env})
        p.stdin.write(data[:part])
        p.stdin.flush()
        family = children(p.pid)
        p.send_signal(sig)
        p.wait(timeout=boxlib.HANG)
        p.stdin.close()
        until = time.monotonic() + boxlib.HANG
        while any(state(pid).get("State", "Z")[0] not in "ZX" for pid in family):
            assert time.monotonic() < until, family
            time.sleep(0.02)
        assert store.names() == []
    store.cloche("load", home / "a.tar")
    assert store.names() == [NAME] and store.is_clean()
