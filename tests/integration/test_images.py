"""The store of images by its verbs: what they show is what is there, what they remove is what nobody needs, and a store that somebody has
taken parts out of is said to be incomplete and left alone.

The stores are made by hand (lib/stored.py): pulling and loading have tests of their own.
"""
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time

import boxlib
import pytest
import stored


@pytest.fixture
def store(tmp_path):
    s = stored.Store(tmp_path)
    s.base, s.app = (s.layer(lambda d, n=n: (d / n).write_text("x" * 100)) for n in ("base", "app"))
    s.one = s.image("python:3.12", [s.base, s.app], env=["PATH=/bin", "A=\xe4\n%"], cmd=["python3"], workdir="/srv", user="1:2", stop_signal=37,
                    manifest="sha256:" + "5" * 64)
    s.two = s.image("ghcr.io/x/y:1", [s.base], entrypoint=[])
    yield s
    subprocess.run(["chmod", "-R", "u+rwX", tmp_path], check=False)


def names(store, part):
    return sorted(os.listdir(store.top / part))


def images(cloche, store):
    r = cloche("images", "--json", env=store.env)
    assert r.rc == 0 and not r.err, r
    return json.loads(r.out)


def test_images(cloche, store):
    rows = {i["name"]: i for i in images(cloche, store)}
    assert sorted(rows) == ["docker.io/library/python:3.12", "ghcr.io/x/y:1"]
    one = rows["docker.io/library/python:3.12"]
    assert one["id"] == store.one and one["manifest"] == "sha256:" + "5" * 64 and one["layers"] == 2 and one["bytes"] == 2
    assert one["complete"] is True and one["missing"] is None and one["created"] is None and one["added"] == "1970-01-01T00:00:01Z"
    r = cloche("images", env=store.env)
    lines = r.out.decode().splitlines()
    assert lines[0].split() == ["IMAGE", "ID", "CREATED", "LAYERS", "SIZE"] and len(lines) == 3
    assert lines[1].split() == ["docker.io/library/python:3.12", store.one[7:19], "-", "2", "2", "B"]


def test_no_store_is_made_by_looking(cloche, tmp_path):
    env = {"CLOCHE_HOME": str(tmp_path / "x")}
    assert json.loads(cloche("images", "--json", env=env).out) == []
    assert b"cloche pull" in cloche("images", env=env).out
    assert cloche("prune", env=env).rc == 0
    for verb in ("inspect", "rm"):
        r = cloche(verb, "debian:12", env=env)
        assert r.rc == 1 and r.err.count(b"\n") == 1 and b"docker.io/library/debian:12" in r.err or b"debian:12 is not" in r.err, r
    assert not (tmp_path / "x").exists()


def test_inspect(cloche, store):
    for by in ("python:3.12", store.one, store.one[7:], store.one[7:19], "docker.io/library/python:3.12"):
        r = cloche("inspect", by, env=store.env)
        assert r.rc == 0, r
        got = json.loads(r.out)
        assert got["id"] == store.one and got["names"] == ["docker.io/library/python:3.12"] and got["os"] == "linux"
        assert [(la["name"], la["diff_id"]) for la in got["layers"]] == [store.base, store.app]
        assert got["config"] == {"env": ["PATH=/bin", "A=\xe4\n%"], "entrypoint": None, "cmd": ["python3"], "working_dir": "/srv",
                                 "user": "1:2", "stop_signal": 37, "volumes": None}
    assert json.loads(cloche("inspect", "ghcr.io/x/y:1", env=store.env).out)["config"]["entrypoint"] == []
    for bad in ("python:3.13", "sha256:" + "0" * 64, "abcdefabcdef", store.one[7:18] + ("0" if store.one[18] != "0" else "1")):
        r = cloche("inspect", bad, env=store.env)
        assert r.rc == 1 and r.err.count(b"\n") == 1, r
    for usage in ([], ["a", "b"], ["host"], ["../x"], ["--json", "a"]):
        assert cloche("inspect", *usage, env=store.env).rc == 2, usage


def test_rm_frees_what_no_other_image_has(cloche, store):
    r = cloche("rm", "python:3.12", env=store.env)
    assert r.rc == 0 and b"removed docker.io/library/python:3.12" in r.out and b"freed 1 layer" in r.out, r
    assert [i["name"] for i in images(cloche, store)] == ["ghcr.io/x/y:1"]
    assert names(store, "layers") == sorted([store.base[0], store.base[0] + ".info"])
    assert names(store, "configs") == [store.two[7:]] and not names(store, "draft")
    again = cloche("rm", "python:3.12", "ghcr.io/x/y:1", env=store.env)
    assert again.rc == 1 and again.err.count(b"\n") == 1, again  # the one that is not there is said, the other goes
    assert not any(names(store, p) for p in ("layers", "configs", "names", "draft"))


def test_rm_by_id_takes_every_name(cloche, store):
    of = (store.top / "names" / "ghcr.io+x+y=1").read_text()
    (store.top / "names" / "local+mine=latest").write_text(of.replace("ghcr.io/x/y:1", "local/mine:latest"))
    (store.top / "names" / "ghcr.io+x+z=1").write_text(of.replace("ghcr.io/x/y:1", "ghcr.io/x/z:1"))
    assert [i["name"] for i in images(cloche, store)] == ["docker.io/library/python:3.12", "ghcr.io/x/y:1", "ghcr.io/x/z:1", "local/mine:latest"]
    assert cloche("rm", "local/mine", env=store.env).rc == 0
    assert [i["id"] for i in images(cloche, store)] == [store.one, store.two, store.two]
    assert cloche("rm", store.two[7:19], env=store.env).rc == 0
    assert [i["id"] for i in images(cloche, store)] == [store.one]


def test_what_is_held_stays(cloche, store):
    fd = os.open(store.layers / store.app[0], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    r = cloche("rm", "python:3.12", env=store.env)
    assert r.rc == 0 and b"in use" not in r.out, r  # its record stays with its layers: nothing is unused
    assert (store.layers / store.app[0] / "app").exists() and store.one[7:] in names(store, "configs")
    rows = [i for i in images(cloche, store) if not i["name"]]
    assert [i["id"] for i in rows] == [store.one]
    got = json.loads(cloche("prune", "--json", env=store.env).out)
    assert got["layers"] == got["images"] == 0
    os.close(fd)
    got = json.loads(cloche("prune", "--json", env=store.env).out)
    assert (got["images"], got["layers"], got["layers_in_use"]) == (1, 1, 0)
    assert not (store.layers / store.app[0]).exists()


def test_prune(cloche, store):
    lone, _ = store.layer(lambda d: (d / "closed").mkdir(mode=0o500))
    (store.layers / lone / "closed").chmod(0)
    (store.layers / lone).chmod(0o500)
    (store.top / "draft" / "draft-1-2" / "tree").mkdir(parents=True)
    (store.top / "draft" / "file-1-2").write_text("x")
    (store.top / "blobs" / ("0" * 64 + ".part")).write_text("x")
    (store.top / "layers" / "other").mkdir()
    assert cloche("run", "--", "true", env=store.env).rc == 0  # starts do not care
    got = json.loads(cloche("prune", "--json", env=store.env).out)
    assert {k: got[k] for k in ("images", "layers", "drafts", "downloads", "layers_in_use")} == {
        "images": 0, "layers": 1, "drafts": 1, "downloads": 1, "layers_in_use": 0}
    assert not names(store, "draft") and not names(store, "blobs")
    assert "other" in names(store, "layers")  # what is not ours is let alone
    assert len(images(cloche, store)) == 2
    assert b"nothing to remove" in cloche("prune", env=store.env).out


def test_gc_sweeps_what_the_dead_were_making(cloche, store):
    (store.top / "draft" / "draft-1-2" / "tree").mkdir(parents=True)
    part = store.top / "blobs" / ("0" * 64 + ".part")
    part.write_text("x")
    lone, _ = store.layer(lambda d: None)
    got = json.loads(cloche("gc", "--json", env=store.env).out)
    assert (got["drafts"], got["downloads"]) == (1, 0) and (store.layers / lone).exists()
    week = time.time() - 8 * 24 * 3600
    os.utime(part, (week, week))
    r = cloche("gc", env=store.env)
    assert b"unfinished download" in r.out and not part.exists()


@pytest.mark.parametrize("part", ["configs/ID", "layers/NAME", "layers/NAME.info", "names"])
def test_incomplete_is_said(cloche, store, part):
    path = store.top / part.replace("ID", store.one[7:]).replace("NAME", store.app[0])
    if part == "names":
        path = path / "docker.io+library+python=3.12"
        path.write_text("garbage")
    else:
        os.rename(path, store.home / "elsewhere")
    rows = [i for i in images(cloche, store) if not i["complete"]]
    assert len(rows) == (2 if part == "names" else 1) - (part == "names") and rows[0]["missing"].startswith("incomplete"), rows
    assert b"incomplete" in cloche("images", env=store.env).out
    r = cloche("inspect", "python:3.12", env=store.env)
    assert r.rc == 1 and b"incomplete" in r.err and r.err.count(b"\n") == 1, r
    assert cloche("rm", "python:3.12", env=store.env).rc == 0
    assert [i["name"] for i in images(cloche, store)] == ["ghcr.io/x/y:1"]


def test_a_store_of_a_later_version_is_let_alone(cloche, store):
    name = store.top / "names" / "local+new"
    name.write_text("format 2\n")
    lone, _ = store.layer(lambda d: None)
    r = cloche("prune", env=store.env)
    assert r.rc == 1 and b"later version" in r.err and r.err.count(b"\n") == 1, r
    assert (store.layers / lone).exists() and name.exists()
    assert any(i["missing"] == "of a later version of cloche" for i in images(cloche, store))
    name.unlink()
    assert cloche("prune", env=store.env).rc == 0 and not (store.layers / lone).exists()


@pytest.mark.parametrize("how", ["open", "link", "part-link"])
def test_a_store_that_is_not_ours_alone(cloche, store, how):
    if how == "open":
        store.top.chmod(0o777)
    elif how == "link":
        os.rename(store.top, store.home / "moved")
        store.top.symlink_to(store.home / "moved")
    else:
        os.rename(store.top / "names", store.home / "moved")
        (store.top / "names").symlink_to(store.home / "moved")
    for verb in (["images"], ["prune"], ["inspect", "python:3.12"], ["rm", "python:3.12"], ["gc"]):
        r = cloche(*verb, env=store.env)
        assert r.rc == 1 and r.err.count(b"\n") == 1 and b"store of images" in r.err, r
    assert (store.home / "store" / "images" / "configs" / store.one[7:]).exists()


HOSTILE = ["", "format 1\n", "format 1\nref ../../x\nid sha256:%s\n", "format 1\nref python:3.12\nid x\n", "\0" * 10, "format 1\nref host\nid sha256:%s\n"]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_that_are_none(cloche, store, text):
    name = store.top / "names" / "docker.io+library+python=3.12"
    name.write_text(text.replace("%s", store.one[7:]))
    rows = images(cloche, store)
    assert sum(not i["complete"] for i in rows) == 1 and cloche("images", env=store.env).rc == 0
    assert cloche("inspect", "python:3.12", env=store.env).rc == 1


def test_pipes_and_links_in_the_store_are_not_waited_for(cloche, store):
    name = store.top / "names" / "docker.io+library+python=3.12"
    config = store.top / "configs" / store.two[7:]
    name.unlink()
    config.unlink()
    os.mkfifo(name)
    config.symlink_to("/etc/passwd")
    assert [i["complete"] for i in images(cloche, store)].count(True) == 1  # one is without a name now
    for image in ("python:3.12", "ghcr.io/x/y:1"):
        assert cloche("inspect", image, env=store.env).rc == 1


def test_many_at_once(store):
    """Listing, removing and pruning beside each other: no error, and what has a name stays whole."""
    code = ("import subprocess, sys\nfor i in range(20):\n    p = subprocess.run([sys.argv[1], *sys.argv[2:]], capture_output=True)\n"
            "    assert p.returncode == 0, p\n")
    runs = [subprocess.Popen([sys.executable, "-c", code, boxlib.CLOCHE, *verb], env={**os.environ, **store.env})
            for verb in (["images", "--json"], ["prune"], ["prune", "--json"], ["inspect", "python:3.12"])]
    for _ in range(20):
        store.layer(lambda d: None)
    assert [p.wait(timeout=boxlib.HANG) for p in runs] == [0] * len(runs)
    assert pathlib.Path(store.layers / store.app[0] / "app").exists()
