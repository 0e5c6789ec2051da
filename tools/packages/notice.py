"""The copyright texts of what is linked into the static programs, from the distribution's own files, as one text."""
import re

HEAD = """\
The programs of this package are static: they contain the libraries named here, as Debian or Ubuntu has them, under these terms.
cloche links against musl; cloche-image and cloche-serve against glibc and the others. All of them contain parts of libgcc, which
the GCC Runtime Library Exception allows. glibc is under the LGPL: the complete source of cloche, and `make packages` in it, makes the
programs anew with another glibc.
"""
LINKED = {  # package: what it is
    "musl-dev": "musl", "libc6-dev": "glibc", "libssl-dev": "OpenSSL", "curl": "libcurl", "libc-ares-dev": "c-ares", "zlib1g-dev": "zlib",
    "libzstd-dev": "zstd", "libjansson-dev": "jansson", "libyaml-dev": "libyaml",
}
RULE = "=" * 100 + "\n"


def notice(sysroot):
    """The text for the programs made from DIR, which tools/packages/sysroot laid out."""
    versions = dict(line.split(" ")[:2] for line in (sysroot / "versions").read_text(encoding="utf-8").splitlines())
    parts, all_text = [HEAD], ""
    for package, name in LINKED.items():
        where = sysroot / "curl/debian/copyright" if package == "curl" else sysroot / "root/usr/share/doc" / package / "copyright"
        text = where.read_text(encoding="utf-8")
        all_text += text
        parts.append(f"{RULE}{name} {versions[package]}\n{RULE}\n{text}")
    # The texts that those files only name.
    for name in sorted(set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9])", all_text))):
        text = (sysroot / "root/usr/share/common-licenses" / name).read_text(encoding="utf-8")
        parts.append(f"{RULE}{name}\n{RULE}\n{text}")
    return "\n".join(parts).encode()
