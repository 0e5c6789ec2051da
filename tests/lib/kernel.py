"""What the kernel holds: for the processes of one group, exactly; or for the whole machine, where no group can be had."""
import contextlib
import os
import pathlib

import boxlib


class Charged:
    """A group of cgroup v1. What the kernel holds for those who stood in it is counted there and for nobody else, the caches that it would drop
    if memory were short included: so what others do beside it changes nothing. It is exact once the kernel has taken apart what ended."""

    def __init__(self, path):
        self.path = path

    def stand(self):
        """For preexec_fn."""
        (self.path / "cgroup.procs").write_text("0")

    def held(self):
        return int((self.path / "memory.kmem.usage_in_bytes").read_text())

    def falls_below(self, limit, timeout=boxlib.HANG):
        """Orphans come to this process, and one that nobody has reaped is held as well."""
        return boxlib.wait_for(lambda: boxlib.reap() or self.held() < limit, timeout=timeout, every=0.1)


@contextlib.contextmanager
def charged():
    """None where this caller can't have one."""
    tops = [d for d in sorted(boxlib.own_groups()) if os.path.exists(f"{d}/memory.kmem.usage_in_bytes") and os.access(d, os.W_OK)]
    if not tops:
        yield None
        return
    path = pathlib.Path(tops[0], f"ct-{os.getpid()}")
    path.mkdir()
    try:
        yield Charged(path)
    finally:
        def gone():
            with contextlib.suppress(OSError):
                path.rmdir()
            return not path.exists()
        assert boxlib.wait_for(gone), (path / "cgroup.procs").read_text()


def unreclaimable_kb():
    """The machine's, and so what others do is in it. Caches that the kernel drops when memory is short are not."""
    rows = dict(row.split(":", 1) for row in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return sum(int(rows[k].split()[0]) for k in ("SUnreclaim", "KernelStack", "PageTables", "Percpu"))
