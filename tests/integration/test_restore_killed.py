"""A restore that is killed: whoever works with the workspace next finds what was there, or all that was to be, and nothing of the draft."""
import contextlib
import os
import pathlib
import random
import signal
import tarfile
import time

import boxlib
import pytest
import serving
from test_snapshot import finish, run_with, start

DRAFT = ".cloche-restore-0123456789abcdef"
OLD, NEW = {f"old{i}" for i in range(300)}, {f"new{i}" for i in range(300)}


@pytest.fixture(scope="module")
def serve(leftovers):
    with serving.Serve() as s:
        yield s


@pytest.fixture
def place(ws):
    """A workspace with the old files, and an archive of the new ones beside it."""
    (ws / "w").mkdir()
    (ws / "new").mkdir()
    for name in OLD:
        (ws / "w" / name).write_text(name)
    for name in NEW:
        (ws / "new" / name).write_text(name)
    with tarfile.open(ws / "a.tar", "w") as t:
        for name in NEW:
            t.add(ws / "new" / name, name)
    return ws


def listed(serve, sb):
    n = serve.request("list_files", sandbox=sb)
    assert "error" not in serve.answer(n)
    return {f["path"] for head, _ in serve.events[n] if head["event"] == "files" for f in head["files"]}


def left(place):
    return {p.name for p in (place / "w").iterdir()}


def draft(place, name=DRAFT, old=(), new=(), put=False):
    """As one leaves it that was killed while it exchanged these: they are not at the top."""
    top = place / "w" / name
    for part, names in (("old", old), ("put" if put else "new", new)):
        (top / part).mkdir(parents=True)
        for n in names:
            (top / part / n).write_text(n)
    return top


def by_open(serve, place):
    sb = serve.open(workspace=str(place / "w"))
    serve.ask("close", sandbox=sb)


def by_list(serve, place):
    sb = serve.open(workspace=str(place / "w"))
    found = listed(serve, sb)
    serve.ask("close", sandbox=sb)
    assert found == left(place)


def by_restore(serve, place):
    with tarfile.open(place / "bad.tar", "w"):
        pass
    (place / "bad.tar").write_bytes(b"no archive")
    finish(start("restore", place / "w", place / "bad.tar"), rc=1)


@pytest.mark.parametrize("by", [by_open, by_list, by_restore])
def test_what_was_left_half_way(serve, place, by):
    some = set(sorted(OLD)[:100])
    for name in some:
        (place / "w" / name).unlink()
    draft(place, old=some, new=NEW)  # not all was out of the way
    by(serve, place)
    assert left(place) == OLD and all((place / "w" / n).read_text() == n for n in OLD)
    for name in OLD:
        (place / "w" / name).unlink()
    for name in NEW - (some := set(sorted(NEW)[:100])):
        (place / "w" / name).write_text(name)
    draft(place, old=OLD, new=some, put=True)  # some was in place
    draft(place, DRAFT[:-1] + "0")  # had just begun
    (place / "w" / (DRAFT[:-1] + "1")).mkdir()
    by(serve, place)
    assert left(place) == NEW and all((place / "w" / n).read_text() == n for n in NEW)


def test_what_is_newer_stays_and_others_names(serve, place):
    top = draft(place, old={"old1", "old2"}, new=NEW)
    (place / "w" / "old2").unlink()
    (place / "w" / "old1").write_text("newer")
    (place / "w" / ".cloche-restore-mine").mkdir()
    (place / "outside").mkdir()
    (place / "outside" / "f").write_text("f")
    (place / "w" / (DRAFT[:-1] + "a")).symlink_to(place / "outside")
    (top / "new" / "link").symlink_to(place / "outside")
    by_open(serve, place)
    assert (place / "w" / "old1").read_text() == "newer" and (place / "w" / "old2").read_text() == "old2"
    assert left(place) == OLD | {".cloche-restore-mine", DRAFT[:-1] + "a"} and (place / "outside" / "f").read_text() == "f"


def test_one_that_is_at_work(serve, place):
    """It is nobody's file, and nobody takes it away. A name alone hides nothing: a box could use that."""
    os.mkfifo(place / "slow")
    fd, d = os.open(place / "slow", os.O_RDWR), os.open(place / "w", os.O_RDONLY | os.O_DIRECTORY)
    with open(place / "a.tar", "rb") as f:
        os.write(fd, f.read(20 * 512))
    p = run_with((d, fd), "restore")
    try:
        assert boxlib.wait_for(lambda: list((place / "w").glob(".cloche-restore-*/new/new*")))
        at, = (q.name for q in (place / "w").glob(".cloche-restore-*"))
        sb = serve.open(workspace=str(place / "w"))
        assert listed(serve, sb) == OLD
        r = serve.run(sb, "sh", "-c", f"echo x >{DRAFT}.not; mkdir {DRAFT}; echo x >{DRAFT}/f")
        assert [f["path"] for f in r["files"]] == [DRAFT + ".not", DRAFT + "/f"]
        assert listed(serve, sb) == OLD | {DRAFT + ".not", DRAFT, DRAFT + "/f"}
        assert serve.ask("snapshot", sandbox=sb, file=str(place / "s.tar.gz"))["files"] == len(OLD) + 1, "that of a dead one went"
        with tarfile.open(place / "s.tar.gz") as t:
            assert set(t.getnames()) == OLD | {DRAFT + ".not"}
        serve.ask("close", sandbox=sb)
        assert (place / "w" / at / "new").is_dir() and p.poll() is None
    finally:
        p.kill()
        p.communicate()
        os.close(fd)
        os.close(d)
    by_open(serve, place)
    assert left(place) == OLD | {DRAFT + ".not"}


@pytest.mark.parametrize("who", ["the program", "the session"])
def test_killed_at_any_moment(place, who):
    seen, chance = set(), random.Random(1)
    for _ in range(6):
        for q in (place / "w").iterdir():
            q.unlink()
        for name in OLD:
            (place / "w" / name).write_text(name)
        wait = chance.random() * 0.03
        if who == "the program":
            p = start("restore", place / "w", place / "a.tar")
            boxlib.wait_for(lambda: list((place / "w").glob(".cloche-*")) or p.poll() is not None)
            time.sleep(wait)
            p.kill()
            p.communicate()
        else:
            s = serving.Serve()
            s.request("restore", sandbox=s.open(workspace=str(place / "w")), file=str(place / "a.tar"))
            boxlib.wait_for(lambda: list((place / "w").glob(".cloche-*")) or left(place) == NEW)
            time.sleep(wait)
            s.kill(signal.SIGKILL)
            s.reader.join(boxlib.HANG)
            s.p.stdin.close()
            s.p.stdout.close()
        # What unpacks, or puts all back, ends a moment later.
        assert boxlib.wait_for(lambda: not workers(place))
        with serving.Serve() as s:
            found = listed(s, s.open(workspace=str(place / "w")))
        assert found in (OLD, NEW), (found - OLD - NEW, len(found & OLD), len(found & NEW))
        assert left(place) == found
        seen.add(found == NEW)
    print("whole, as it was:", seen)


def test_nobody_works_on_for_a_session_that_was_killed(place):
    """Whatever they are waiting for: here for a program that stands still."""
    (place / "w" / "large").write_bytes(os.urandom(64 << 20))
    with serving.Serve() as s:
        s.request("snapshot", sandbox=s.open(workspace=str(place / "w")), file=str(place / "s.tar.gz"))
        packer = int(boxlib.wait_for(lambda: [p for p in workers(place) if b"snapshot" in cmdline(p)])[0])
        os.kill(packer, signal.SIGSTOP)
        try:
            assert len(workers(place)) >= 2, "no control"
            s.kill()
            assert boxlib.wait_for(lambda: not workers(place))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(packer, signal.SIGCONT)
    assert boxlib.cloche("gc").rc == 0


def restoring(place):
    """The program, and after it who unpacks for it."""
    return [p for p in sorted(map(int, workers(place))) if b"restore" in cmdline(p)]


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_killed_under_a_session_that_goes_on(serve, place):
    with tarfile.open(place / "old.tar", "w") as t:
        for name in OLD:
            t.add(place / "w" / name, name)
    with tarfile.open(place / "large.tar", "w") as t:
        for i in range(20):
            for name in NEW:
                t.add(place / "new" / name, f"{i}/{name}")
    large = {f"{i}" for i in range(20)} | {f"{i}/{name}" for i in range(20) for name in NEW}
    sb, ends, killed = serve.open(workspace=str(place / "w")), random.Random(2), 0
    assert listed(serve, sb) == OLD, "who works with the files has begun"
    for _ in range(6):
        n = serve.request("restore", sandbox=sb, file=str(place / "large.tar"))
        boxlib.wait_for(lambda: restoring(place) and list((place / "w").glob(".cloche-*")) or serve.events.get(n))
        time.sleep(ends.random() * 0.05)
        with contextlib.suppress(IndexError, ProcessLookupError):  # it was quicker
            os.kill(restoring(place)[0], signal.SIGKILL)
        killed += "ended with code 137" in serve.answer(n).get("error", {}).get("message", "")
        found = listed(serve, sb)
        assert found in (OLD, large) and left(place) == {f for f in found if "/" not in f}
        if found == large:
            assert "error" not in serve.ask("restore", sandbox=sb, file=str(place / "old.tar"))
    assert killed
    assert "error" not in serve.ask("restore", sandbox=sb, file=str(place / "a.tar")) and listed(serve, sb) == left(place) == NEW, "no control"
    serve.ask("close", sandbox=sb)


def workers(place):
    """Processes that have the workspace open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            found += [pid for fd in os.listdir(f"/proc/{pid}/fd") if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(str(place / "w"))]
        except OSError:
            pass
    return found
