"""What the scripts here share: bubblewrap as it is compared with, and a percentile."""

BOX_PATH = "/usr/local/bin:/usr/bin:/bin"

# The namespaces of a cloche box, /usr read-only, /proc, /dev, a tmpfs; no filter, no overlay, no limit.
BWRAP = [
    "bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
    "--symlink", "usr/sbin", "/sbin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--clearenv", "--setenv", "PATH", BOX_PATH,
]


def percentile(values, p):
    """Nearest rank: a value that was really seen."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * p // 100) - 1)]
