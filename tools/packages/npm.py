"""npm packages: `cloche` of bindings/node, and one for each architecture with its programs, of which npm installs the one that fits.

No install script: the programs are files of a package, as they are. They are laid out as `make install` does, below package/.
"""
import json

from archives import Entry, tar_gz

CPUS = {"amd64": "x64", "arm64": "arm64"}


def platform(arch):
    return f"@cloche/linux-{CPUS[arch]}"


def file_name(name, version):
    return f"{name.lstrip('@').replace('/', '-')}-{version}.tgz"


def pack(name, version, tree, epoch):
    return file_name(name, version), tar_gz({f"package/{path}": entry for path, entry in tree.items()}, epoch)


def platform_package(version, programs, arch, texts, epoch):
    name = platform(arch)
    about = {
        "name": name, "version": version, "description": f"The programs of cloche for Linux on {CPUS[arch]}: install the package cloche.",
        "license": "Apache-2.0", "os": ["linux"], "cpu": [CPUS[arch]], "files": ["bin", "lib", "THIRD_PARTY"], "preferUnplugged": True,
    }
    tree = {path: Entry(data, 0o755) for path, data in programs.items()}
    tree |= {path: Entry(data, 0o644) for path, data in texts.items()}
    tree["package.json"] = Entry((json.dumps(about, indent=2) + "\n").encode(), 0o644)
    return pack(name, version, tree, epoch)


def main_package(source, version, texts, epoch):
    """`source` is bindings/node; what its package.json lists as its files is what the package has."""
    about = json.loads((source / "package.json").read_text(encoding="utf-8"))
    wanted = {platform(arch): version for arch in CPUS}
    if about["version"] != version or about.get("optionalDependencies") != wanted:
        raise ValueError(f"bindings/node/package.json: version has to be {version}, as meson.build says, and optionalDependencies {wanted}")
    if {"preinstall", "install", "postinstall"} & set(about.get("scripts", {})):
        raise ValueError("bindings/node/package.json: no install scripts")
    bins = set(about["bin"].values())
    tree = {"package.json": Entry((source / "package.json").read_bytes(), 0o644)}
    for listed in [*about["files"], "README.md"]:
        path = source / listed
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                name = file.relative_to(source).as_posix()
                tree[name] = Entry(file.read_bytes(), 0o755 if name in bins else 0o644)
    tree |= {path: Entry(data, 0o644) for path, data in texts.items()}
    return pack("cloche", version, tree, epoch)
