"""Images that are wrong, sly or odd, through the built program: the right tree, or one line that refuses; and nothing lies outside.

Layers are the table of lib/hostile.py; documents, blobs and archives are the tables below. Every image stands on `busybox`, so that a box of it
can tell what the kernel shows. The control of all refusals is the same image without the fault, at the top.
"""
import base64
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import boxlib
import hostile
import pytest
from layout import ARCH, LAYER, digest, dump, entry, folder, tar
from registry import Faulty
from stores import Store, tree

# For each path: what it is, and the first bytes of a file.
LOOK = r"""
for p; do
	if [ -L "$p" ]; then echo "link:$(readlink "$p")"
	elif [ ! -e "$p" ]; then echo gone
	else stat -c '%F|%a|%s|%b|%d:%i' "$p"; fi
	if [ -f "$p" ] && [ ! -L "$p" ]; then head -c 100 "$p" | base64 | tr -d '\n'; fi
	echo
done
"""


class Place:
    """A store with busybox in it, a registry that serves what it is told, and a directory that nothing may touch."""

    def __init__(self, busybox, registry, home, outside):
        self.busybox, self.registry, self.home, self.outside = busybox, registry, home, outside
        self.env = {"CLOCHE_HOME": str(home / "cloche")}
        self.store = Store(home / "cloche")
        self.n = 0
        self.before = None
        self.good(self.take(busybox))

    def layers(self):
        """The layers of busybox, for images on top of it."""
        return self.busybox.opened()[2]

    def layout(self):
        """A layout of busybox and a layer that no other image has, to be changed."""
        self.n += 1
        made = self.busybox.copy(self.home / f"layout-{self.n}")
        own = made.layer(tar(entry("own", "".join(f"{self.n} {i}\n" for i in range(9999)))))
        made.image([*self.layers(), own], {"Env": ["PATH=/bin"], "Cmd": ["sh"]})
        return made

    def cloche(self, *args, **kw):
        return boxlib.cloche(*args, env=self.env, cwd=self.home / "empty", timeout=300, **kw)

    def take(self, layout, how="pull", **kw):
        """(reference, Result) of a layout that is pulled or loaded."""
        self.n += 1
        if how == "pull":
            ref = self.registry.serve(layout, f"hostile/x:{self.n}", **kw)
            return ref, self.cloche("pull", "-q", "--insecure", ref)
        name = f"registry.invalid/hostile/x:{self.n}"
        rows = json.loads((layout.path / "index.json").read_bytes())
        for row in rows["manifests"]:
            row["annotations"] = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
        (layout.path / "index.json").write_bytes(dump(rows))
        return name, self.cloche("load", "-q", layout.archive(self.home / "archive.tar"))

    @staticmethod
    def good(taken):
        ref, r = taken
        assert r.rc == 0, r
        return ref

    def look(self, ref, paths):
        """What a box of the image sees: [(what, content)]."""
        r = boxlib.box("--image", ref, "--pull", "never", "--", "/bin/busybox", "sh", "-c", LOOK, "sh", *paths, json=False, env=self.env, timeout=120)
        assert r.rc == 0, r
        lines = r.out.decode("utf-8", "surrogateescape").split("\n")
        return [(lines[2 * i], base64.b64decode(lines[2 * i + 1])) for i in range(len(paths))]

    def refused(self, r, why):
        """One line, safe for a terminal, that says why; and no image more or less."""
        assert r.rc == 1, r
        assert self.store.kept() == self.before, r
        lines = r.raw_err.decode("utf-8").splitlines()
        assert len(lines) == 1 and re.match(r"cloche (pull|load|import): ", lines[0]), r
        assert re.search(why, lines[0]), (why, lines[0])
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", lines[0]), r


@pytest.fixture(scope="module")
def place(image, leftovers):
    with tempfile.TemporaryDirectory(prefix="ct-hostile-", dir="/var/tmp") as tmp, Faulty() as registry:
        home = pathlib.Path(tmp)
        home.chmod(0o755)
        (home / "empty").mkdir()
        (home / "outside").mkdir()
        (home / "outside/canary").write_text("untouched\n")
        yield Place(image("busybox"), registry, home, home / "outside")
        assert not os.listdir(home / "empty")
        # Directories that their owner can't enter.
        for base, dirs, _ in os.walk(home):
            for d in dirs:
                if not os.path.islink(os.path.join(base, d)):
                    os.chmod(os.path.join(base, d), 0o700)


@pytest.fixture(autouse=True)
def untouched(place):
    """Whatever an image tries: what lies beside the store is as before, no draft and no download stays, and other images are whole."""
    before, place.before = tree(place.outside), place.store.kept()
    yield
    assert tree(place.outside) == before
    assert not os.listdir(place.home / "empty")
    assert not place.store.unfinished()
    now = place.store.kept()
    assert all(row in now[what] for what, rows in place.before.items() for row in rows)
    for d in place.home.glob("layout-*"):
        shutil.rmtree(d)


def matches(want, seen, others):
    what, content = seen
    kind, mode, size, blocks, inode = what.split("|") if "|" in what else (what, "", "0", "0", "")
    if isinstance(want, bytes):
        return kind.startswith("regular") and content == want
    word, _, value = want.partition(":")
    return {"dir": lambda: kind == "directory", "fifo": lambda: kind == "fifo", "gone": lambda: what == "gone", "link": lambda: what == want,
            "mode": lambda: mode == value, "size": lambda: size == value, "kib-below": lambda: int(blocks) // 2 < int(value),
            "same": lambda: inode and inode == others[value][0].split("|")[-1]}[word]()


def layered(place, row):
    """The layout of a row of the table."""
    made, outside = place.layout(), str(place.outside)
    made.image([*place.layers(), *(made.layer(hostile.archive(entries, outside)) for entries in row.layers)], {"Cmd": ["sh"]})
    return made


def sees(place, ref, row):
    outside = str(place.outside)
    want = {hostile.filled(p, outside): hostile.filled(w, outside) for p, w in row.tree.items()}
    also = [w.partition(":")[2] for w in want.values() if isinstance(w, str) and w.startswith("same:")]
    paths = [*want, *also]
    seen = dict(zip(paths, place.look(ref, [os.fsencode("/") + (p if isinstance(p, bytes) else p.lstrip("/").encode()) for p in paths])))
    wrong = {p: (w, seen[p]) for p, w in want.items() if not matches(w, seen[p], seen)}
    assert not wrong, wrong


@pytest.mark.parametrize("name", hostile.ROWS)
def test_layer(place, name):
    row = hostile.ROWS[name]
    ref, r = place.take(layered(place, row))
    if row.refuse:
        place.refused(r, re.escape(row.refuse))
    else:
        place.good((ref, r))
        sees(place, ref, row)


# The same through an archive, for some of each kind: what unpacks them is the same program.
@pytest.mark.parametrize("name", ["hard-link whiteout", "opaque after siblings", "/etc is a link, in the layer above it is written through", "dot-dot",
                                  "absolute", "hard link through a link below", "behind the end", "0500 directories"])
def test_layer_of_an_archive(place, name):
    row = hostile.ROWS[name]
    ref, r = place.take(layered(place, row), "load")
    if row.refuse:
        place.refused(r, re.escape(row.refuse))
    else:
        place.good((ref, r))
        sees(place, ref, row)


# Documents. Each gets a layout (a copy of busybox's) and spoils its image; the pattern is what the refusal has to say.

def remade(made, **edits):
    _, config, layers = made.opened()
    return made.image(layers, config["config"], **edits)


def edit(key, value, what="manifest"):
    """Sets a field, by its path, of the manifest or the config."""
    def change(doc):
        at = doc
        for part in key[:-1]:
            at = at[part]
        at[key[-1]] = value
    return lambda made: remade(made, **{f"edit_{what}": change})


def raw(what, f):
    """Replaces the text of a document."""
    return lambda made: remade(made, **{f"edit_{what}": lambda doc: f(dump(doc))})


def blob(f, which="layer"):
    """Changes a blob behind its digest's back."""
    def change(made):
        manifest, _, _ = made.opened()
        path = made.blob_path({"layer": manifest["layers"][-1], "config": manifest["config"], "manifest": made.tags()["latest"]}[which]["digest"])
        path.write_bytes(f(path.read_bytes()))
    return change


def recoded(data, media=LAYER["gzip"], plain=None):
    """One layer of these compressed bytes, whose digest is right; the diff id is that of `plain`."""
    def change(made):
        _, _, layers = made.opened()
        content = data() if callable(data) else data
        made.image([*layers, (made.blob(content, media), digest(plain or content))], {"Cmd": ["sh"]})
    return change


def other_platform(made):
    rows = [(remade(made, tag=None, arch="riscv64"), {"architecture": "riscv64"}), (remade(made, tag=None, arch="s390x"), {"architecture": "s390x"})]
    made.index(rows)


def index_lies(made):
    """The index says it is for this machine, the image says it is not."""
    made.index([(remade(made, tag=None, arch="s390x"), {"architecture": "amd64"}), (remade(made, tag=None, arch="s390x"), {"architecture": "arm64"})])


def many_layers(n):
    def change(made):
        _, _, layers = made.opened()
        made.image(layers * n, {"Cmd": ["sh"]})
    return change


PLAIN = tar(entry("odd", "content"))
ZSTD_WINDOW = bytes.fromhex("28b52ffd" "00" "f8" "010000")  # a frame that asks for a window of over 2 TiB, and one empty block
FLIP = bytes(range(255, -1, -1))
DOCUMENTS = {
    "a layer's content is another": (blob(lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:]), "digest|damaged|corrupt|checksum"),
    "a layer is cut": (blob(lambda b: b[:len(b) // 2]), "cut|short|size|digest|ended|bytes"),
    "a layer is longer than said": (blob(lambda b: b + b"more"), "size|longer|more|digest"),
    "the config is another": (blob(lambda b: b.replace(b"linux", b"Linux"), "config"), "digest"),
    "the manifest is another": (blob(lambda b: b.replace(b"schemaVersion", b"SchemaVersion"), "manifest"), "digest|schemaVersion"),
    "a diff id of something else": (edit(("rootfs", "diff_ids", 1), digest(b""), "config"), "digest"),
    "sha512": (edit(("layers", 0, "digest"), "sha512:" + "0" * 128), "sha512|sha256"),
    "a digest that is a path": (edit(("layers", 0, "digest"), "sha256:../../../../../../etc/passwd"), "digest"),
    "a digest in capitals": (edit(("layers", 0, "digest"), "sha256:" + "A" * 64), "digest"),
    "a size below zero": (edit(("layers", 0, "size"), -1), "size"),
    "a size of a petabyte": (edit(("layers", 0, "size"), 1 << 50), "size"),
    "a size that is text": (edit(("layers", 0, "size"), "12"), "size"),
    "a key twice": (raw("manifest", lambda b: b.replace(b'"layers":', b'"layers":[],"layers":')), "JSON"),
    "a key twice in the config": (raw("config", lambda b: b.replace(b'"rootfs":', b'"rootfs":{},"rootfs":')), "JSON"),
    "deep": (raw("manifest", lambda b: b[:-1] + b',"x":' + b"[" * 100000 + b"]" * 100000 + b"}"), "JSON"),
    "deep config": (raw("config", lambda b: b[:-1] + b',"x":' + b'{"a":' * 50000 + b"1" + b"}" * 50001), "JSON"),
    "no JSON": (raw("manifest", lambda b: b"<html>" + b), "JSON"),
    "behind the JSON": (raw("manifest", lambda b: b + b"{}"), "JSON"),
    "bytes that are no UTF-8": (raw("config", lambda b: b.replace(b"PATH=", b"\xff\xfe=")), "JSON"),
    "a config of 5 MiB": (raw("config", lambda b: b[:-1] + b" " * (5 << 20) + b"}"), "bytes|size|large"),
    "thousands of layers": (many_layers(5000), "elements|layers"),
    "more diff ids than layers": (edit(("rootfs", "diff_ids"), [digest(b"")] * 3, "config"), "diff id"),
    "no diff ids": (edit(("rootfs",), {}, "config"), "rootfs"),
    "manifest and index at once": (edit(("manifests",), []), "two ways"),
    "schema 1": (edit(("schemaVersion",), 1), "schema"),
    "a foreign layer": (edit(("layers", 0), {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "size": 9, "digest": digest(b""),
                                            "urls": ["http://127.0.0.1:1/x"]}), "foreign"),
    "another platform": (lambda made: remade(made, arch="s390x"), "s390x"),
    "other platforms": (other_platform, "s390x"),
    "an index that lies": (index_lies, "s390x"),
    "an environment without a name": (edit(("config", "Env"), ["=x"], "config"), "Env"),
    "a directory that draws": (edit(("config", "WorkingDir"), "/\x1b]0;x\x07", "config"), "WorkingDir"),
    "a directory above all": (edit(("config", "WorkingDir"), "/../../etc", "config"), "WorkingDir"),
    "a stop signal that is none": (edit(("config", "StopSignal"), "SIGWHAT", "config"), "StopSignal"),
    "a platform that draws": (edit(("architecture",), "amd\x1b[31m64", "config"), "architecture"),
    "gzip, cut": (recoded(lambda: gzip.compress(PLAIN)[:-12], plain=PLAIN), "cut|short|end"),
    "gzip, and more behind it": (recoded(lambda: gzip.compress(PLAIN) + b"junk" * 9, plain=PLAIN), "behind|trailing|gzip|header"),
    "gzip, wrong checksum": (recoded(lambda: gzip.compress(PLAIN)[:-8] + b"\0" * 8, plain=PLAIN), "gzip|checksum|corrupt|damaged"),
    "not what it says it is": (recoded(b"\x1f\x8b" + FLIP, plain=PLAIN), "gzip|corrupt|damaged"),
    "zstd with a window of terabytes": (recoded(ZSTD_WINDOW, LAYER["zstd"]), "window|memory|zstd"),
    "xz": (recoded(b"\xfd7zXZ\0" + FLIP, LAYER["plain"]), "xz|tar archive"),
    "a bomb: a gigabyte of zeros behind the end": (recoded(lambda: bomb("gzip"), plain=b"another"), "zeros"),
    "the same with zstd": (recoded(lambda: bomb("zstd"), LAYER["zstd"], b"another"), "zeros"),
}


def bomb(codec):
    """About a megabyte (gzip), or less (zstd), of a tar with a GiB of zeros behind its end, made without holding them."""
    how = ["gzip", "-1"] if codec == "gzip" else ["zstd", "-q", "-1"]
    with tempfile.TemporaryFile() as f:
        f.write(PLAIN)
        f.truncate(len(PLAIN) + (1 << 30))
        f.seek(0)
        return subprocess.run(how, stdin=f, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("how", ["pull", "load"])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_document(place, name, how):
    spoil, why = DOCUMENTS[name]
    made = place.layout()
    spoil(made)
    _, r = place.take(made, how)
    place.refused(r, why)


# The same images with nothing wrong, or with what is rare and right: controls of the table above.
FINE = {
    "untouched": remade,
    # What a variable holds is its own affair.
    "an environment that draws": edit(("config", "Env"), ["A=\x1b[2J"], "config"),
    "more fields": edit(("x-more",), {"a": [1, 2, {"b": None}]}),
    "a manifest in another order": raw("manifest", lambda b: dump(dict(reversed(json.loads(b).items())))),
    "gzip in two members": recoded(lambda: hostile.gzip_of_members(PLAIN), plain=PLAIN),
    "gzip said to be plain": recoded(lambda: gzip.compress(PLAIN), LAYER["plain"], PLAIN),
    "plain said to be gzip": recoded(PLAIN, LAYER["gzip"], PLAIN),
    "an index with this machine": lambda made: made.index([(remade(made, tag=None, arch="s390x"), {"architecture": "s390x"}),
                                                             (remade(made, tag=None), {"architecture": ARCH})]),
    "a layer twice": many_layers(2),
}


@pytest.mark.parametrize("how", ["pull", "load"])
@pytest.mark.parametrize("name", FINE)
def test_control(place, name, how):
    made = place.layout()
    FINE[name](made)
    ref = place.good(place.take(made, how))
    (busybox, _), (odd, content) = place.look(ref, [b"/bin/busybox", b"/odd"])
    assert busybox.startswith("regular")
    assert content == b"content" if "gzip" in name else odd == "gone"


# Archives: what stands in them is names, links and sizes of their own.

def plain_archive(made, *more, drop=(), first=()):
    """The layout's archive, with entries before and behind, and without some."""
    files = {p.relative_to(made.path).as_posix(): p.read_bytes() for p in sorted(made.path.rglob("*")) if p.is_file()}
    return tar(*first, *(entry(n, d) for n, d in files.items() if n not in drop), *more)


def docker_archive(made, layers=None, config=None, names=("x.invalid/y:1",), **files):
    """As `docker save` wrote it for years: manifest.json names a config and plain layers."""
    _, conf, stack = made.opened()
    plain = [gzip.decompress(made.blob_path(d["digest"]).read_bytes()) for d, _ in stack]
    rows = [entry(f"layer{i}/layer.tar", data) for i, data in enumerate(plain)]
    manifest = [{"Config": config or "config.json", "RepoTags": list(names), "Layers": layers or [f"layer{i}/layer.tar" for i in range(len(plain))]}]
    return tar(entry("config.json", dump(conf)), *rows, *files.get("more", ()), entry("manifest.json", json.dumps(manifest)))


def layer_blob(made):
    return "blobs/sha256/" + made.opened()[0]["layers"][0]["digest"].split(":")[1]


ARCHIVES = {
    "nothing": (lambda p, m: b"", "archive|empty|short"),
    "no archive": (lambda p, m: b"hello\n" * 1000, "archive"),
    "no index": (lambda p, m: plain_archive(m, drop=("index.json",)), "index.json|manifest.json|image"),
    "an index without images": (lambda p, m: plain_archive(m, drop=("index.json",), first=[entry("index.json", dump({"schemaVersion": 2, "manifests": []}))]),
                                "image|manifest"),
    "a blob is missing": (lambda p, m: plain_archive(m, drop=(layer_blob(m),)), "sha256:"),
    "cut": (lambda p, m: plain_archive(m)[:200000], "middle|short|cut|end"),
    "a blob is a link to a file of the host": (lambda p, m: plain_archive(m, hostile.symlink(layer_blob(m), str(p.outside / "canary")), drop=(layer_blob(m),)),
                                               "sha256:|link"),
    "a blob is a hard link to a file of the host": (lambda p, m: plain_archive(m, hostile.hardlink(layer_blob(m), str(p.outside / "canary")),
                                                                              drop=(layer_blob(m),)), "sha256:|link"),
    "the index is a link to a file of the host": (lambda p, m: plain_archive(m, hostile.symlink("index.json", str(p.outside / "canary")), drop=("index.json",)),
                                                  "index.json|manifest.json|image|link"),
    "docker's: a layer is a file of the host": (lambda p, m: docker_archive(m, layers=[str(p.outside / "canary")]), "canary|layer|Layers"),
    "docker's: a layer is upwards": (lambda p, m: docker_archive(m, layers=["../../../../../../../.." + str(p.outside / "canary")]), "canary|layer|Layers"),
    "docker's: the config is a file of the host": (lambda p, m: docker_archive(m, config=str(p.outside / "canary")), "canary|onfig"),
    "docker's: a name that is none": (lambda p, m: docker_archive(m, names=["../../x"]), "\\.\\./\\.\\./x"),
    "docker's: a name that is reserved": (lambda p, m: docker_archive(m, names=["host"]), "host"),
    "docker's: layers that are not the config's": (lambda p, m: docker_archive(m, layers=["config.json"]), "diff id|layer|archive"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive(place, name):
    make, why = ARCHIVES[name]
    file = place.home / "archive.tar"
    file.write_bytes(make(place, place.layout()))
    place.refused(place.cloche("load", "-q", file), why)


@pytest.mark.parametrize("make", [lambda m: plain_archive(m), lambda m: docker_archive(m), lambda m: gzip.compress(docker_archive(m)),
                                  # Names that lead outside are of nobody's file: they are passed over, and nothing is written by them.
                                  lambda m: docker_archive(m, more=[entry("../../canary", "x"), entry("/etc/canary", "x"), folder("config.json/..")])],
                         ids=["oci", "docker", "docker, gzip", "names outside"])
def test_archive_control(place, make):
    file = place.home / "archive.tar"
    made = place.layout()
    rows = json.loads((made.path / "index.json").read_bytes())
    rows["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = "x.invalid/y:1"
    (made.path / "index.json").write_bytes(dump(rows))
    file.write_bytes(make(made))
    r = place.cloche("load", "-q", file)
    assert r.rc == 0, r
    assert place.look("x.invalid/y:1", [b"/bin/busybox"])[0][0].startswith("regular")


# import: a root file system without any document.

IMPORTED = ["absolute", "dot-dot", "/etc is a link", "hard link upwards", "devices", "set-user-id", "behind the end", "over 3 GiB, sparse", "no tar"]


@pytest.mark.parametrize("name", IMPORTED)
def test_import(place, name):
    row = hostile.ROWS[name]
    place.n += 1
    file, ref = place.home / "root.tar", f"local/hostile-{place.n}"
    plain = [gzip.decompress(place.busybox.blob_path(d["digest"]).read_bytes()) for d, _ in place.layers()]
    end = plain[0].rstrip(b"\0")
    own = hostile.archive(row.layers[0], str(place.outside))
    # One archive of busybox and the row behind it, but for rows that are no tar from the start.
    file.write_bytes(own if name == "no tar" else end + b"\0" * (-len(end) % 512) + own)
    r = place.cloche("import", "-q", file, ref.split("/")[1])
    if row.refuse:
        place.refused(r, re.escape(row.refuse))
    else:
        place.good((ref, r))
        sees(place, ref, row)


def test_store_is_whole_after_all_of_it(place):
    """What was good of bad images may be kept until gc; then nothing is left but the images."""
    r = place.cloche("prune")
    assert r.rc == 0, r
    assert place.store.faults() == []
    ref = place.good(place.take(place.busybox))
    assert place.look(ref, [b"/bin/busybox"])[0][0].startswith("regular")
