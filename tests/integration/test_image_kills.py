"""A pull that is killed at any moment: the store mends itself, the next pull succeeds, and nothing is left of the first.

One kill comes right behind the first event of each kind, so that none is left to chance. The others are spread over the events that a pull
reports, with a random time behind each; CLOCHE_PULL_KILLS says how many there are in all.
"""
import json
import os
import random
import signal
import subprocess
import time

import boxlib
import pytest
from registry import Faulty
from stores import Store

KILLS = int(os.environ.get("CLOCHE_PULL_KILLS", "20"))
SEED = int(os.environ.get("CLOCHE_SEED", "1"))
FIRST = [None, ("phase", "resolve"), ("phase", "download"), ("layer", "downloaded"), ("layer", "unpack"), ("layer", "done"), ("phase", "publish"),
         ("image", "done")]  # None: before any


def start(ref, env):
    return subprocess.Popen([boxlib.CLOCHE, "pull", "--json", "--insecure", ref], env={**boxlib.base_env(), **env}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def ended(p):
    for f in (p.stdout, p.stderr):
        f.close()
    return p.wait(boxlib.HANG)


def kill_after(p, seconds, over):
    """Kills p that long after over(what it said until then), or at its end."""
    said = []
    while not over(said):
        line = p.stdout.readline()
        if not line:
            break
        said.append(json.loads(line))
    time.sleep(seconds)
    if p.poll() is None:
        os.kill(p.pid, signal.SIGKILL)
    ended(p)
    return said


def kind(said):
    """Of the last one."""
    return (said[-1].get("event"), said[-1].get("phase")) if said else None


def test_killed_at_any_moment(image, home):
    env, store, chance = {"CLOCHE_HOME": str(home / "cloche")}, Store(home / "cloche"), random.Random(SEED)
    pull = ["pull", "-q", "--insecure"]

    def cloche(*args):
        r = boxlib.cloche(*args, env=env, timeout=300)
        assert r.rc == 0, r
        return r
    with Faulty() as f:
        other, ref = f.serve(image("busybox"), "team/other:1"), f.serve(image("many"), "team/many:1")
        f.pause, f.piece = 0.004, 1 << 17
        cloche(*pull, other)
        # An undisturbed one: how many events there are, and what the store then holds.
        began = time.monotonic()
        p = start(ref, env)
        events = [json.loads(line) for line in p.stdout]
        took = time.monotonic() - began
        assert ended(p) == 0 and len(events) > 20
        whole, stack = store.kept(), sorted(store.layers())
        cloche("rm", ref)
        cloche("prune")
        alone = store.state()
        assert store.faults() == [] and len(store.images()) == 1

        kinds = {}
        for n in range(max(KILLS, len(FIRST))):
            if n < len(FIRST):
                said = kill_after(start(ref, env), 0, lambda said, want=FIRST[n]: kind(said) == want)
                assert kind(said) == FIRST[n], said
            else:
                at = chance.uniform(0, len(events))
                said = kill_after(start(ref, env), chance.uniform(0, took / len(events) * 4), lambda said, at=at: len(said) >= at)
            kinds[kind(said)] = kinds.get(kind(said), 0) + 1
            # Its helpers end with it.
            assert boxlib.wait_for(lambda: not boxlib.children_of(os.getpid())), boxlib.children_of(os.getpid())
            # Either the image is there, and whole, or it is not there.
            names = store.names()
            r = boxlib.box("--image", ref, "--pull", "never", "--", "cat", "/last", json=False, env=env)
            assert (r.rc, r.out) == (0, b"17\n") if len(names) == 2 else r.rc != 0 and not r.out, (n, names, r)
            # The other one never suffers.
            assert all(row in store.state()[what] for what, rows in alone.items() for row in rows)
            cloche(*pull, ref)
            assert [len(store.kept()[k]) for k in whole] == [len(whole[k]) for k in whole] and sorted(store.layers()) == stack, n
            assert boxlib.box("--image", ref, "--pull", "never", "--", "cat", "/last", json=False, env=env).out == b"17\n"
            cloche("gc")
            assert store.faults() == [], (n, said[-1:], store.faults())
            cloche("rm", ref)
            cloche("prune")
            assert store.state() == alone and store.faults() == [], n
        boxlib.note(f"kills by the last event: {kinds}")


@pytest.mark.parametrize("verb", ["load", "import"])
def test_killed_while_it_reads_a_file(image, home, verb):
    """The same for archives, which report nothing: a few moments of the time that it takes."""
    env, store = {"CLOCHE_HOME": str(home / "cloche")}, Store(home / "cloche")
    made = image("base").copy(home / "layout")
    file = home / "archive.tar"
    if verb == "load":
        rows = json.loads((made.path / "index.json").read_bytes())
        rows["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "x.invalid/base:1"}
        (made.path / "index.json").write_text(json.dumps(rows))
        made.archive(file)
        words = ["load", "-q", file]
    else:
        file.write_bytes(made.blob_path(made.opened()[0]["layers"][-1]["digest"]).read_bytes())
        words = ["import", "-q", file, "base"]
    began = time.monotonic()
    assert boxlib.cloche(*words, env=env, timeout=300).rc == 0
    took = time.monotonic() - began
    ref = store.names()[0]
    good = store.kept()
    assert boxlib.cloche("rm", ref, env=env).rc == 0 and boxlib.cloche("prune", env=env).rc == 0
    empty = store.state()
    assert store.faults() == []
    for n in range(max(4, KILLS // 5)):
        p = subprocess.Popen([boxlib.CLOCHE, *map(str, words)], env={**boxlib.base_env(), **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        time.sleep(took * (n + 0.5) / max(4, KILLS // 5))
        if p.poll() is None:
            p.kill()
        ended(p)
        assert boxlib.wait_for(lambda: not boxlib.children_of(os.getpid())), boxlib.children_of(os.getpid())
        assert boxlib.cloche(*words, env=env, timeout=300).rc == 0
        assert len(store.kept()["names"]) == len(good["names"]) and store.faults() == [], store.faults()
        assert boxlib.cloche("rm", ref, env=env).rc == 0 and boxlib.cloche("prune", env=env).rc == 0
        assert store.state() == empty and store.faults() == []
