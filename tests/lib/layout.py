"""Image layouts written by hand: what other people's tools would not write, or only slowly.

An OCI layout is a directory: blobs by digest, and an index that names manifests. Here every document may be edited on its way, so that
a test says in one line what is wrong with its image. Archives (`docker save`, `skopeo ... oci-archive:`) are tars of such trees.
"""
import copy
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tarfile

OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."
MANIFEST, INDEX, CONFIG = OCI + "manifest.v1+json", OCI + "index.v1+json", OCI + "config.v1+json"
LAYER = {"gzip": OCI + "layer.v1.tar+gzip", "zstd": OCI + "layer.v1.tar+zstd", "plain": OCI + "layer.v1.tar"}
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def dump(doc):
    return doc if isinstance(doc, bytes) else json.dumps(doc, separators=(",", ":")).encode()


def pack(data, codec):
    """`data` as a layer's blob. Level 1: sizes are not what tests are about."""
    if codec == "gzip":
        return gzip.compress(data, 1, mtime=0)
    if codec == "zstd":
        return subprocess.run(["zstd", "-q", "-1", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    assert codec == "plain", codec
    return data


def entry(name, data=None, **fields):
    """One entry of an archive: a file with `data`, or what `type` says. Fields are tarfile's: mode, uid, gid, linkname, devmajor,
    pax_headers, ..."""
    info = tarfile.TarInfo(name)
    info.mtime = 1700000000
    info.type = fields.pop("type", tarfile.REGTYPE)
    info.mode = 0o755 if info.type == tarfile.DIRTYPE else 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    if data is not None:
        data = data if isinstance(data, bytes) else data.encode()
        info.size = len(data)
    return info, data


def folder(name, **fields):
    return entry(name, type=tarfile.DIRTYPE, **fields)


def symlink(name, to):
    return entry(name, type=tarfile.SYMTYPE, linkname=to, mode=0o777)


def hardlink(name, to):
    return entry(name, type=tarfile.LNKTYPE, linkname=to)


def tar(*entries, fmt=tarfile.PAX_FORMAT):
    """A tar of entries, each of entry() or raw bytes of whole blocks."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=fmt) as t:
        for e in entries:
            if isinstance(e, bytes):
                t.fileobj.write(e)
                t.offset += len(e)
            else:
                t.addfile(e[0], io.BytesIO(e[1]) if e[1] is not None else None)
    return raw.getvalue()


class Layout:
    """A layout in `path`, made when it is not there. Tags are names in its index."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.blobs = self.path / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)
        if not (self.path / "index.json").exists():
            (self.path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
            self._write_index([])

    def _write_index(self, rows):
        (self.path / "index.json").write_bytes(dump({"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}))

    def read(self, what):
        """A blob by its digest, as JSON."""
        return json.loads(self.blob_path(what).read_bytes())

    def blob_path(self, what):
        return self.blobs / what.split(":")[1]

    def blob(self, data, media):
        """Stores bytes, or a document; its descriptor."""
        data = dump(data)
        what = digest(data)
        self.blob_path(what).write_bytes(data)
        return {"mediaType": media, "digest": what, "size": len(data)}

    def layer(self, data, codec="gzip"):
        """A layer of a tar's bytes: (descriptor, diff id)."""
        return self.blob(pack(data, codec), LAYER[codec]), digest(data)

    def tags(self):
        rows = json.loads((self.path / "index.json").read_bytes())["manifests"]
        return {r.get("annotations", {}).get("org.opencontainers.image.ref.name"): r for r in rows}

    def tag(self, descriptor, name="latest"):
        rows = self.tags()
        rows[name] = {**descriptor, "annotations": {"org.opencontainers.image.ref.name": name}}
        self._write_index(list(rows.values()))
        return descriptor

    def config(self, diff_ids, config=None, arch=ARCH, **more):
        return {"created": "2023-11-14T22:13:20Z", "architecture": arch, "os": "linux", "config": config or {},
                "rootfs": {"type": "layers", "diff_ids": diff_ids}, **more}

    def image(self, layers, config=None, tag="latest", edit_config=None, edit_manifest=None, **more):
        """An image of layers (of layer(), lowest first), tagged unless `tag` is None. The edits get the document and change it, or return
        what is to be written instead. The manifest's descriptor."""
        doc = self.config([d for _, d in layers], config, **more)
        made = edit_config(doc) if edit_config else None
        conf = self.blob(made or doc, CONFIG)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": conf, "layers": [copy.deepcopy(d) for d, _ in layers]}
        made = edit_manifest(manifest) if edit_manifest else None
        descriptor = self.blob(made or manifest, MANIFEST)
        if tag:
            self.tag(descriptor, tag)
        return descriptor

    def index(self, rows, tag="latest"):
        """An index of (manifest descriptor, {architecture, variant, ...})."""
        doc = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**d, "platform": {"os": "linux", **p}} for d, p in rows]}
        return self.tag(self.blob(doc, INDEX), tag)

    def opened(self, tag="latest"):
        """What an image is made of: its manifest and config, and its layers as image() takes them."""
        manifest = self.read(self.tags()[tag]["digest"])
        config = self.read(manifest["config"]["digest"])
        return manifest, config, list(zip(manifest["layers"], config["rootfs"]["diff_ids"]))

    def archive(self, path):
        """The layout as one tar, as `skopeo copy ... oci-archive:` writes."""
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as t:
            for base, dirs, files in os.walk(self.path):
                dirs.sort()
                for name in sorted(files):
                    full = pathlib.Path(base, name)
                    t.add(full, full.relative_to(self.path).as_posix())
        return pathlib.Path(path)

    def copy(self, path):
        """A copy that may be damaged."""
        shutil.copytree(self.path, path)
        return Layout(path)
