"""The options of a sandbox beside the scenarios (tests/scenarios), which have the effect and a wrong value of each: the table told to people
and to programs, cloche.yaml, and what is decided before anything is fetched or started."""
import json
import os
import re
import shutil
import stat
import subprocess

import boxlib
import pytest
from serving import Serve

DOCS = boxlib.ROOT / "docs"
SERVE = os.path.join(os.path.dirname(boxlib.CLOCHE), "cloche-serve")


def told(fmt):
    return subprocess.run([SERVE, "--options", fmt], capture_output=True, text=True, check=True, timeout=boxlib.HANG).stdout


@pytest.fixture(scope="module")
def table():
    return json.loads(told("json"))


def test_the_page_is_the_table(table):
    assert (DOCS / "OPTIONS.md").read_text(encoding="utf-8") == told("markdown")
    names = [o["name"] for o in table["options"]]
    assert len(names) == len(set(names)) > 40
    assert {c["name"] for c in table["callbacks"]} == {"on_stdout", "on_stderr"} and not set(names) & {"on_stdout", "on_stderr"}
    assert table["default_tmpfs_mb"] == 64
    assert subprocess.run([SERVE, "--options", "xml"], capture_output=True, timeout=boxlib.HANG).returncode == 2


def test_each_word_is_an_option_of_run(table, cloche):
    surface = json.loads(cloche("help", "--json").out)
    run = {o["name"] for v in surface["verbs"] if v["name"] == "run" for o in v["options"]}
    assert {o["word"] for o in table["options"] if o.get("word")} <= run


def test_the_page_of_the_configuration_names_what_it_leaves_out(table):
    text = (DOCS / "CONFIG.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `defaults`"))
    left_out = {o["name"] for o in table["options"] if not o["config"] and o["name"] != "egress_allow"}
    assert set(re.findall(r"`(\w+)`", row.split("but", 1)[1].split("|")[0])) == left_out


def run(argv, env=None):
    """Exit code, output and complaint, as text."""
    r = boxlib.communicate([str(a) for a in argv], env=env)
    return r.rc, r.out.decode(), r.err.decode()


# ---- cloche.yaml ----

@pytest.fixture
def config(ws):
    """config(text) writes it, and gives the environment that finds it."""
    def write(text):
        (ws / "config").mkdir(exist_ok=True)
        (ws / "config" / "cloche.yaml").write_text(text)
        return dict(boxlib.base_env(), CLOCHE_HOME=str(ws))
    return write


def check(*args, env=None):
    return run([boxlib.CLOCHE, "config", "check", *args], env=env)


def test_config_check(config, ws):
    env = config("defaults:\n  memory_mb: 100\nvcpu:\n  a: {cpus: 1}\n")
    assert check(env=env) == (0, f"{ws}/config/cloche.yaml: ok (1 defaults, 1 profiles)\n", "")
    o = json.loads(check("--json", env=env)[1])
    assert o == {"ok": True, "file": f"{ws}/config/cloche.yaml", "there": True, "defaults": {"memory_mb": 100}, "vcpu": ["a"], "vdisk": [],
                 "vgpio": []}
    other = ws / "other.yaml"
    other.write_text("defaults:\n  memory_mb: 100\n  memory: 5\n")
    rc, out, err = check(other, env=env)
    assert (rc, out) == (1, "") and f"{other}:3:3: no key \"memory\"" in err and err.count("\n") == 1
    rc, out, err = check(other, "--json", env=env)
    o = json.loads(out)
    assert (rc, o["ok"], o["line"], o["column"]) == (1, False, 3, 3) and o["error"].startswith(f"{other}:3:3: ")


@pytest.mark.parametrize("words, rc", [((), 2), (("chek",), 2), (("check", "a", "b"), 2), (("check", "--yaml"), 2), (("check", "/nonexistent"), 1),
                                       (("check", "/"), 1), (("check", "/dev/zero"), 1)])
def test_config_words(words, rc):
    r = run([boxlib.CLOCHE, "config", *words])
    assert r[0] == rc and r[1] == "" and r[2].count("\n") == 1, r


def test_no_configuration_is_none(ws):
    rc, out, _ = check(env={"CLOCHE_HOME": str(ws)})
    assert rc == 0 and "not there" in out
    assert not (ws / "config").exists()


def test_a_fifo_is_no_configuration(config, ws):
    env = config("")
    os.unlink(ws / "config" / "cloche.yaml")
    os.mkfifo(ws / "config" / "cloche.yaml")
    rc, _, err = check(env=env)
    assert rc == 1 and "no regular file" in err


def test_a_configuration_that_cant_be_read_is_named(config, ws):
    env, file = config(""), ws / "config" / "cloche.yaml"

    def opened():
        with Serve(env=env) as s:
            return s.ask("open")

    def unreadable():
        file.write_text("")
        file.chmod(0)

    assert opened().get("sandbox"), "no control"
    wrong = [(file.mkdir, "no regular file"), (lambda: file.symlink_to(file), "Too many levels"), (lambda: file.write_text("defaults: ["), ":2:1: ")]
    for make, why in wrong + [(unreadable, "Permission denied")] * (os.geteuid() != 0):
        (file.rmdir if file.is_dir() else file.unlink)()
        make()
        e = opened()["error"]
        assert (e["type"], e["option"]) == ("option", "cloche.yaml") and str(file) in e["message"] and why in e["message"], e
        assert "docs/CONFIG.md" in e["allowed"]


def test_the_program_beside_is_missing(ws):
    """The one line that says what to do."""
    alone = ws / "cloche"
    shutil.copy(boxlib.CLOCHE, alone)
    rc, _, err = run([alone, "config", "check"])
    assert rc == 1 and "cloche-serve" in err and "make install" in err


def test_defaults_and_profiles_reach_the_box(config):
    env = config("defaults:\n  memory_mb: 96\n  shm_mb: 2\n  env: {FROM: yaml}\n"
                 "vcpu:\n  small: {memory_mb: 80, pids: 40, cpus: 1}\n"
                 "vdisk:\n  scratch: {path: /scratch, size: 4m}\n  plain: {size: 1m}\n"
                 "vgpio:\n  null: {devices: [/dev/full]}\n")
    script = "df -k /scratch /vdisk/plain /dev/shm 2>/dev/null | awk 'NR > 1 {print $2, $6}'; echo $FROM; nproc"
    with Serve(env=env) as s:
        o = s.run(s.open(), "sh", "-c", script)
        assert o["stdout"].decode().split("\n")[:2] == ["2048 /dev/shm", "yaml"]
        assert o["limits"]["memory"]["requested"] == 96 << 20 and o["limits"]["pids"]["requested"] == 256
        b = s.open(profiles=["vcpu:small", "vdisk:scratch", "vdisk:plain"], memory_mb=None)
        o = s.run(b, "sh", "-c", script)
        assert o["stdout"].decode().splitlines() == ["4096 /scratch", "1024 /vdisk/plain", "2048 /dev/shm", "yaml", "1"]
        assert (o["limits"]["memory"]["requested"], o["limits"]["pids"]["requested"]) == (80 << 20, 40)
        o = s.run(s.open(profiles=["vcpu:small"], memory_mb=64), "true")
        assert (o["limits"]["memory"]["requested"], o["limits"]["pids"]["requested"]) == (64 << 20, 40)
        e = s.ask("open", options={"profiles": ["vcpu:big"]})["error"]
        assert (e["type"], e["option"]) == ("option", "profiles") and "there are small" in e["message"]
        config("defaults: [")  # read anew by each open
        e = s.ask("open", options={})["error"]
        assert e["type"] == "option" and "cloche.yaml:2:1" in e["message"]


def test_a_profile_of_devices(config):
    env = config("vgpio:\n  tty: {devices: [/dev/ptmx]}\n  bad: {devices: [/dev/mem]}\n")
    with Serve(env=env) as s:
        r = s.ask("open", options={"profiles": ["vgpio:bad"]})
        assert r["error"]["type"] in ("mount_refused", "option") and r["error"]["option"] == "devices"


# ---- before anything is started ----

def test_what_is_wrong_is_told_before_an_image_is_fetched(ws):
    """The image is nowhere: who asked for it would not have come to the rest."""
    env = dict(boxlib.base_env(), CLOCHE_HOME=str(ws))
    for options, kind, option in (({"mounts": {"/etc": "/x"}}, "mount_refused", "mounts"), ({"shm_mb": 600}, "option", "shm_mb"),
                                  ({"cap_add": ["FLY"]}, "option", "cap_add"), ({"tmpfs": {"/x": "1g"}}, "mount_refused", "tmpfs")):
        with Serve(env=env) as s:
            e = s.ask("open", options={"image": "registry.invalid/none:1", **options})["error"]
            assert (e["type"], e["option"]) == (kind, option), e
    rc, _, err = run([boxlib.CLOCHE, "run", "--image", "registry.invalid/none:1", "-v", "/etc:/x", "--", "true"], env=env)
    assert rc == 125 and "refused by the rule /etc" in err and "pull" not in err


def test_a_workspace_that_no_box_may_share_is_not_made(ws):
    env = dict(boxlib.base_env(), HOME=str(ws))
    with Serve(env=env) as s:
        e = s.ask("open", options={"workspace": f"{ws}/.ssh/new"})["error"]
        assert (e["type"], e["option"]) == ("mount_refused", "workspace") and not (ws / ".ssh").exists()
        assert s.run(s.open(workspace=f"{ws}/a/b"), "touch", "/workspace/f")["exit_code"] == 0
    assert (ws / "a" / "b" / "f").exists() and stat.S_ISDIR(os.stat(ws / "a" / "b").st_mode)


def test_the_environment_is_in_no_argv():
    with Serve() as s:
        b = s.open(env={"SECRET": "cloche-secret-4711"})
        n = s.request("run", sandbox=b, argv=["sh", "-c", "echo $SECRET; sleep 1000"], stream=True)
        assert s.wait_event(n, "stdout")[1] == b"cloche-secret-4711\n"
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    assert b"cloche-secret-4711" not in f.read()
            except OSError:
                pass
        assert "error" not in s.ask("cancel", call=n)


def test_the_scratch_makes_way_for_a_mount(ws):
    (ws / "in").write_text("theirs\n")
    with Serve() as s:
        o = s.run(s.open(mounts={str(ws): "/tmp"}), "cat", "/tmp/in")
        assert (o["exit_code"], o["stdout"]) == (0, b"theirs\n"), o
        o = s.run(s.open(mounts={str(ws): "/tmp/sub"}), "cat", "/tmp/sub/in")
        assert (o["exit_code"], o["stdout"]) == (0, b"theirs\n"), o
        e = s.ask("open", options={"mounts": {str(ws): "/tmp/sub"}, "tmpfs": {"/tmp": "8m"}})["error"]
        assert (e["type"], e["option"]) == ("mount_refused", "mounts")
        (ws / "sub").mkdir()
        o = s.run(s.open(mounts={str(ws): "/data"}, tmpfs={"/data/sub": "8m"}), "sh", "-c", "df -k /data/sub | awk 'END {print $2}'; cat /data/in")
        assert o["stdout"] == b"8192\ntheirs\n", o


def test_seconds_are_of_any_kind_of_number():
    with Serve() as s:
        for t in (0.5, 1, 1e-1):
            b = s.open(timeout_s=t)
            o = s.run(b, "sleep", "1000")
            assert o["fault"]["type"] == "timeout" and o["limits"]["timeout"]["requested"] == round(t * 1e6)
