"""The store of images as a test sees it from outside: files, not what cloche says of them."""
import hashlib
import os
import pathlib
import stat


class Store:
    """The store below a CLOCHE_HOME."""

    def __init__(self, home):
        self.path = pathlib.Path(home) / "store" / "images"

    def ls(self, what):
        try:
            return sorted(os.listdir(self.path / what))
        except FileNotFoundError:
            return []

    def names(self):
        """The references that lead somewhere."""
        return [v for n in self.ls("names") for k, v in self.lines("names", n) if k == "ref"]

    def lines(self, *path):
        """[(key, value)] of one of its text files."""
        return [tuple((line.split(" ", 1) + [""])[:2]) for line in self.path.joinpath(*path).read_text(encoding="utf-8").splitlines()]

    def record(self, hexa):
        return self.lines("configs", hexa)

    def images(self):
        """{id: [layer, ...]}, lowest first."""
        return {h: [v.split(" ")[0] for k, v in self.record(h) if k == "layer"] for h in self.ls("configs") if not h.endswith(".json")}

    def layers(self):
        return [n for n in self.ls("layers") if not n.endswith(".info")]

    def state(self):
        """What a failed command may not change: names, images, and every layer's place."""
        return {what: [(n, os.lstat(self.path / what / n).st_ino) for n in self.ls(what)] for what in ("names", "configs", "layers")}

    def kept(self):
        """The same without layers: those that were good before the command failed may stay, to be used by the next one."""
        return {k: v for k, v in self.state().items() if k != "layers"}

    def unfinished(self):
        """Drafts and downloads."""
        return [f"{what}/{n}" for what in ("draft", "blobs") for n in self.ls(what)]

    def faults(self):
        """What is wrong with it: parts missing or left over, drafts, downloads. [] is a store as it should be."""
        bad = self.unfinished()
        images, layers, infos = self.images(), set(self.layers()), {n[:-5] for n in self.ls("layers") if n.endswith(".info")}
        used = {name for stack in images.values() for name in stack}
        # The bytecode of an image is found by its id, see src/image/record.c.
        extra = {"s" + hashlib.sha256(f"cloche bytecode 1\0sha256:{h}\0".encode()).hexdigest()[:20] for h in images}
        bad += [f"layer {n} of an image is missing" for n in used - layers]
        bad += [f"layer {n} belongs to no image" for n in layers - used - extra]
        bad += [f"layer {n} has no info" for n in layers - infos] + [f"info {n} has no layer" for n in infos - layers]
        return sorted(bad)

    def unpacked(self):
        """Bytes of the distinct layers' content, and bytes of disk that the whole store takes."""
        content, disk = 0, 0
        for base, dirs, files in os.walk(self.path):
            seen = set()
            for name in dirs + files:
                st = os.lstat(os.path.join(base, name))
                if st.st_ino not in seen:
                    seen.add(st.st_ino)
                    disk += st.st_blocks * 512
                    content += st.st_size if stat.S_ISREG(st.st_mode) and "/layers/" in base + "/" else 0
        return content, disk


def tree(path, content=True):
    """All below `path` as the kernel tells it: {name: (mode, inode, links, size, mtime, content)}. Of directories the size and links are left
    out: they are the file system's."""
    found = {}
    for base, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(base, name)
            st = os.lstat(full)
            data = None
            if content and stat.S_ISREG(st.st_mode):
                with open(full, "rb") as f:
                    data = f.read()
            elif stat.S_ISLNK(st.st_mode):
                data = os.readlink(full)
            size = (st.st_nlink, st.st_size) if not stat.S_ISDIR(st.st_mode) else None
            found[os.path.relpath(full, path)] = (st.st_mode, st.st_ino, size, st.st_mtime_ns, data)
    return found
