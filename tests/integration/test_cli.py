"""The command line itself: what it takes, what it refuses and how, and that help, man page, completion and parser are one thing."""
import json
import os
import pathlib
import shutil
import subprocess

import boxlib
import programs
import pytest

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
OK = ["--", "sh", "-c", "echo ran"]

BAD = [
    [], ["--"], ["--no-such-option", *OK], ["--memroy", "64m", *OK], ["-Z", *OK], ["-iZ", *OK],
    ["--memory", *OK[:1]], ["--memory"], ["--memory", "64m", "--memory", "65m", *OK], ["--json", "--json", *OK],
    ["--memory", "0", *OK], ["--memory", "-1", *OK], ["--memory", "64q", *OK], ["--memory", "", *OK], ["--memory", "99999999999999t", *OK],
    ["--memory", "1e3", *OK], ["--memory", " 64m", *OK], ["--memory", "64m ", *OK], ["--memory", "0x10", *OK], ["--memory", "nan", *OK],
    ["--memory", "18446744073709551616", *OK],
    ["--pids", "0", *OK], ["--pids", "-5", *OK], ["--pids", "many", *OK], ["--pids", "1.5", *OK], ["--pids", "4294967296000", *OK],
    ["--cpus", "0", *OK], ["--cpus", "-1", *OK], ["--cpus", "nan", *OK], ["--cpus", "inf", *OK], ["--cpus", "x", *OK],
    ["--timeout", "soon", *OK], ["--timeout", "-1s", *OK], ["--timeout", "1w", *OK], ["--timeout", "1e99s", *OK],
    ["--kill-after", "x", *OK], ["--max-output", "lots", *OK], ["--file-size", "x", *OK], ["--open-files", "x", *OK],
    ["--open-files", "0", *OK], ["--shm-size", "x", *OK], ["--workspace-max", "x", *OK],
    ["--tmp-size", "x", *OK], ["--tmp-size", "0", *OK], ["--tmp-size", "2g", *OK],
    ["--network", "bridge", *OK], ["--proc", "some", *OK], ["--security-profile", "nonsense", *OK], ["--image", "", *OK],
    ["--image", "host", "--rootfs", "/", *OK], ["--rootfs", "/no/such/dir", *OK], ["--rootfs", "/etc/hostname", *OK],
    ["--workspace", "/no/such/dir", *OK], ["--workspace", "/etc/hostname", *OK], ["--workspace", "", *OK],
    ["-v", "/no/such:/x", *OK], ["-v", "nocolon", *OK], ["-v", ":/x", *OK], ["-v", "/tmp:", *OK], ["-v", "/tmp:/x:zz", *OK],
    ["-v", "/tmp:/x:ro:ro", *OK], ["-v", "/tmp:rel", *OK], ["-v", "/tmp:/x", "-v", "/etc:/x", *OK],
    ["--tmpfs", "/x", *OK], ["--tmpfs", "/x:", *OK], ["--tmpfs", "/x:0", *OK], ["--tmpfs", "x:1m", *OK], ["--tmpfs", "/proc:1m", *OK],
    ["--tmpfs", "/x:1m", "--tmpfs", "/x:2m", *OK], ["--tmpfs", "/../x:1m", *OK],
    ["-w", "relative", *OK], ["-w", "", *OK], ["-e", "=x", *OK], ["-e", "", *OK], ["-e", "A B=1", *OK],
    ["--env-file", "/no/such/file", *OK], ["--env-file", "/", *OK],
    ["--user", "", *OK], ["--user", "-1", *OK], ["--user", "no such user", *OK], ["--user", "4294967295", *OK], ["--user", "1:", *OK],
    ["--user", "1:2:3", *OK], ["--user", "99999999999", *OK], ["--user", "../x", *OK], ["--user", "0x0", *OK],
    ["--ulimit", "nofile", *OK], ["--ulimit", "x=1", *OK], ["--cap-add", "NOT_A_CAP", *OK], ["--cap-drop", "", *OK],
    ["--seccomp-rule", "allow=no_such_call", *OK], ["--seccomp-rule", "maybe=read", *OK], ["--seccomp-rule", "allow=", *OK],
    ["--device", "/dev/no-such", *OK], ["--device", "/etc/hostname", *OK], ["--device", "dev/null", *OK],
    ["--device", "/dev/../etc/hostname", *OK], ["--apparmor", "bad name", *OK], ["--apparmor", "no-such-profile-here", *OK],
    ["--json=yes", *OK], ["--kill-after", "1s", "--timeout", "0", *OK],
]


@pytest.mark.parametrize("args", BAD, ids=lambda a: " ".join(a).replace("/", "|")[:60] or "nothing")
def test_bad_input_is_one_line_and_runs_nothing(cloche, args):
    r = cloche("run", *args)
    assert r.rc in (2, 125), r
    assert b"ran" not in r.out and r.out == b"", r
    lines = r.err.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("cloche"), r
    assert 20 < len(lines[0]) < 700, r


def test_the_control_for_bad_input(cloche):
    assert cloche("run", *OK).out == b"ran\n"
    good = ["--memory", "64m", "--pids", "32", "--cpus", "1", "--timeout", "20s", "--kill-after", "1s", "--max-output", "1m", "--file-size", "1m",
            "--open-files", "64", "--shm-size", "1m", "--network", "none", "--proc", "full", "--image", "host", "--tmpfs", "/x:1m", "-w", "/tmp",
            "-e", "A=1", "--user", "5:6", "--ulimit", "nofile=40:50", "--cap-drop", "ALL", "--seccomp-rule", "deny=sync", "-q"]
    r = cloche("run", *good, *OK)
    assert (r.rc, r.out) == (0, b"ran\n"), r
    r = cloche("run", *[w.replace("--memory", "--memory=64m") for w in good if w != "64m"], *OK)
    assert (r.rc, r.out) == (0, b"ran\n"), r


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\nb", "a\rb", "\u202eabc", "\x07"])
def test_hostile_text_is_not_printed_raw(cloche, text):
    """Escape bytes and newlines of the caller's words do not reach the terminal."""
    for args in (["run", "--image", text, *OK], ["run", "-v", f"/no/{text}:/x", *OK], ["run", "--" + text, *OK], [text],
                 ["run", "--user", text, *OK], ["run", "--", "/no/" + text]):
        r = cloche(*args)
        assert r.rc not in (0, 139, 134), r
        assert r.err.count(b"\n") == 1, r
        assert not any(c in r.err for c in (b"\x1b", b"\r", b"\x07", "\u202e".encode())), r


def test_json_of_a_usage_error_stays_one_line(cloche):
    r = cloche("run", "--json", "--memory", "x", *OK)
    assert r.rc == 2 and len(r.err.splitlines()) == 1, r


def test_unknown_verbs_and_bare_call(cloche):
    r = cloche()
    assert r.rc == 2 and b"run" in r.err and len(r.err.splitlines()) < 25
    r = cloche("rnu", "--", "true")
    assert r.rc == 2 and b"run" in r.err, r
    for word, verb in (("srve", b"serve"), ("svae", b"save"), ("sav", b"save"), ("imort", b"import")):
        r = cloche(word)
        assert r.rc == 2 and b'did you mean "%s"?' % verb in r.err, r
    for verb in ("doctor", "gc", "version", "man", "completion", "help"):
        r = cloche(verb, "--no-such-option")
        assert r.rc == 2 and len(r.err.splitlines()) == 1, r
    assert cloche("version").out.startswith(b"cloche 0.") or cloche("version").rc == 0


def surface(cloche):
    r = cloche("help", "--json")
    assert r.rc == 0, r
    return json.loads(r.out)


def frozen(full):
    """What may not change without being announced."""
    return {
        "verbs": {v["name"]: {"operands": v["operands"],
                              "options": {o["name"]: {k: o[k] for k in ("letter", "type", "value", "choices", "many", "default", "conflicts")}
                                          for o in v["options"]}} for v in full["verbs"]},
        "exit_codes": [[c["code"], c["fault"]] for c in full["exit_codes"]],
    }


def test_surface_is_frozen(cloche):
    """CLOCHE_WRITE_SURFACE=1 writes the snapshot anew: only together with a line in the changelog."""
    now, path = frozen(surface(cloche)), DATA / "surface.json"
    if os.environ.get("CLOCHE_WRITE_SURFACE"):
        path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    assert now == json.loads(path.read_text())


def test_no_option_twice(cloche):
    for v in surface(cloche)["verbs"]:
        names = [o["name"] for o in v["options"]] + [o["letter"] for o in v["options"] if o["letter"]]
        assert len(names) == len(set(names)), v["name"]


SAMPLE = {"size": "64m", "duration": "5s", "number": "50", "cpus": "1", "string": "x", "dir": "/tmp", "path": "/etc/hostname"}
SPECIAL = {"image": "host", "rootfs": None, "v": "/usr:/x:ro", "volume": "/usr:/x:ro", "tmpfs": "/x:1m", "env": "A=1", "env-file": "/dev/null",
           "user": "5", "ulimit": "nofile=9", "seccomp-rule": "deny=sync", "cap-add": "CHOWN", "cap-drop": "ALL", "apparmor": None,
           "device": "/dev/null", "workdir": "/tmp", "workspace": None, "require-limits": None, "workspace-max": None, "kill-after": None,
           "tty": None, "rootfs-max": None, "platform": "linux/arm64"}


def test_every_advertised_option_parses(cloche, ws):
    """Each row of the table, given alone with a fitting value, is accepted: the box starts, or the host lacks what is asked for."""
    tree = programs.worktree(ws)
    for o in next(v for v in surface(cloche)["verbs"] if v["name"] == "run")["options"]:
        value = SPECIAL.get(o["name"], o["choices"][0] if o["choices"] else SAMPLE.get(o["type"], "1"))
        words = {"workspace": ["--workspace", str(ws)], "workspace-max": ["--workspace", str(ws), "--workspace-max", "9m"],
                 "kill-after": ["--timeout", "9s", "--kill-after", "1s"], "rootfs": ["--rootfs", str(ws)],
                 "git": ["--git", "--workspace", str(tree)], "apparmor": ["--apparmor", "nothing"]}.get(o["name"])
        if words is None:
            words = ["--" + o["name"]] if o["type"] == "flag" else ["--" + o["name"], value]
        r = cloche("run", *words, "--", "true")
        fine = r.rc != 2 or b"needs an image" in r.err
        assert b"nknown option" not in r.err and fine or o["name"] in ("apparmor", "require-limits"), (o["name"], r)


def test_help_is_the_verbs_own(cloche):
    for v in surface(cloche)["verbs"]:
        for ask in (["help", v["name"]], [v["name"], "--help"], [v["name"], "-h"]):
            r = cloche(*ask)
            assert r.rc == 0 and r.err == b"", r
            text = r.out.decode()
            for o in v["options"]:
                assert "--" + o["name"] in text, (v["name"], o["name"])
            assert all(len(line) <= 80 for line in text.splitlines()), v["name"]
    assert b"--memory" not in cloche("help", "gc").out
    assert cloche("run", "--help").out == cloche("help", "run").out


def test_help_is_not_taken_from_the_command(cloche):
    assert cloche("run", "sh", "-c", 'echo "$@"', "sh", "--help", "-h").out == b"--help -h\n"


def test_man_page(cloche):
    r = cloche("man")
    assert r.rc == 0 and r.out.startswith(b".TH CLOCHE 1")
    plain = r.out.decode().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
    for v in surface(cloche)["verbs"]:
        for o in v["options"]:
            assert "--" + o["name"] in plain, o["name"]
    for c in surface(cloche)["exit_codes"]:
        assert c["code"] in plain and (c["fault"] or "") in plain
    if shutil.which("groff"):
        g = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=r.out, capture_output=True, timeout=boxlib.HANG, check=False)
        assert g.returncode == 0 and g.stderr == b"", g.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(cloche, shell):
    r = cloche("completion", shell)
    assert r.rc == 0 and r.err == b""
    for v in surface(cloche)["verbs"]:
        assert v["name"] in r.out.decode()
        for o in v["options"]:
            assert o["name"] in r.out.decode(), o["name"]
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=r.out, capture_output=True, timeout=boxlib.HANG, check=False).returncode == 0
    r = cloche("completion", "ksh")
    assert r.rc == 2 and b"for bash, zsh and fish" in r.err, r


@pytest.fixture
def bash_offers(cloche, tmp_path):
    script = tmp_path / "c"
    script.write_bytes(cloche("completion", "bash").out)

    def offers(*words):
        """For the last one."""
        ask = (f'source {script}; fn=$(complete -p cloche | sed "s/.*-F \\([^ ]*\\).*/\\1/"); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
               'COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; $fn cloche "${@: -1}" "${@: -2:1}"; printf "%s\\n" "${COMPREPLY[@]}"')
        p = subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, timeout=boxlib.HANG, check=False, cwd=tmp_path)
        assert p.stderr == "", p.stderr
        return {w.strip().rstrip("=") for w in p.stdout.split()}
    return offers


def test_bash_completes_what_the_parser_knows(cloche, bash_offers):
    want = {"--" + o["name"] for v in surface(cloche)["verbs"] if v["name"] == "run" for o in v["options"]}
    got = bash_offers("cloche", "run", "--")
    assert want <= got, want - got


def test_bash_completes_operands(bash_offers, tmp_path):
    (tmp_path / "x.yaml").touch()
    assert bash_offers("cloche", "config", "") == bash_offers("cloche", "config", "--json", "c") == bash_offers("cloche", "config", "--", "") == {"check"}
    assert bash_offers("cloche", "config", "x") == set()
    for words in (("config", "check"), ("config", "--", "check"), ("load",), ("import",)):
        assert bash_offers("cloche", *words, "x") == {"x.yaml"}, words
    assert bash_offers("cloche", "config", "check", "x.yaml", "x") == bash_offers("cloche", "import", "x.yaml", "x") == set()
    assert bash_offers("cloche", "completion", "") == {"bash", "zsh", "fish"} and {"run", "help"} <= bash_offers("cloche", "help", "")


def test_fish_completes_operands(cloche, tmp_path):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    script = tmp_path / "c"
    script.write_bytes(cloche("completion", "fish").out)
    (tmp_path / "x.yaml").touch()

    def offers(line):
        p = subprocess.run(["fish", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True, timeout=boxlib.HANG, check=False,
                           cwd=tmp_path, env={**boxlib.base_env(), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
        return {w.split("\t")[0] for w in p.stdout.splitlines()}
    assert offers("cloche config ") == {"check"}
    assert offers("cloche config check x") == offers("cloche load x") == {"x.yaml"}
    assert offers("cloche completion ") == {"bash", "zsh", "fish"}


def test_doctor_and_gc_speak_json(cloche):
    for verb in ("doctor", "gc"):
        r = cloche(verb, "--json")
        assert r.rc in (0, 1, 2) and isinstance(json.loads(r.out), dict), r
    assert cloche("doctor").out.strip()


def test_writing_into_a_full_device_is_said():
    with open("/dev/full", "wb") as full:
        p = subprocess.run([boxlib.CLOCHE, "help"], stdout=full, stderr=subprocess.PIPE, timeout=boxlib.HANG, check=False)
        assert p.returncode != 0 and p.stderr
        p = subprocess.run(boxlib.argv_of(["true"]), stdout=full, stderr=subprocess.PIPE, timeout=boxlib.HANG, check=False)
        assert p.returncode != 0
