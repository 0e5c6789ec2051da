"""`cloche setup` on the host image: what is installed beside this machine's own programs, read-only for every box."""
import json
import os

import boxlib
import pytest
from serving import Serve

# As pip does it, without a network: a wheel that is made on the spot.
WHEEL = """import zipfile
with zipfile.ZipFile('/tmp/thing-1.0-py3-none-any.whl', 'w') as z:
    z.writestr('thing.py', 'ANSWER = %d\\n\\ndef main():\\n    print(ANSWER)\\n')
    z.writestr('thing-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n')
    z.writestr('thing-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('thing-1.0.dist-info/entry_points.txt', '[console_scripts]\\nthing = thing:main\\n')
    z.writestr('thing-1.0.dist-info/RECORD', '')
"""


@pytest.fixture
def run(home):
    """run(words...) in a store of the test's own: the code, the output, the complaint."""
    def go(*words):
        r = boxlib.communicate([boxlib.CLOCHE, *map(str, words)], env={"CLOCHE_HOME": str(home)})
        return r.rc, r.out.decode(), r.err.decode()
    return go


def made(run, *command, name="x", options=()):
    rc, out, err = run("setup", "--no-network", "--json", "--name", name, *options, "--", *command)
    assert rc == 0, (out, err)
    return json.loads(out)


PLANT = ("sh", "-c", "echo 'ANSWER = 5' >thing.py; mkdir bin; printf '#!/bin/sh\\necho tool\\n' >bin/tool; chmod +x bin/tool")


def test_what_was_installed_is_there_read_only(run):
    first = made(run, *PLANT)
    assert not first["found"] and made(run, *PLANT)["found"] and made(run, *PLANT, name="y")["id"] == first["id"]
    script = ("tool; python3 -c 'import thing; print(thing.ANSWER, thing.__file__)'; for f in x thing.py; do echo X >>/opt/deps/$f; done; "
              "grep ' /opt/deps ' /proc/mounts")
    rc, out, err = run("run", "--image", "local/x", "--", "sh", "-c", script)
    lines = out.splitlines()
    assert rc == 0 and lines[:2] == ["tool", "5 /opt/deps/thing.py"] and err.count("Read-only file system") == 2, (out, err)
    assert lines[2].split()[3].startswith("ro,")
    # the host image itself has nothing of it
    assert run("run", "--", "sh", "-c", "ls /opt/deps")[0] != 0


@pytest.mark.parametrize("options", [("--security-profile", "untrusted"), ("--read-only",), ("--user", "0"), ("--no-pyc-cache",), ("--supervised",)])
def test_it_is_so_whatever_else_is_asked(run, options):
    made(run, *PLANT)
    rc, out, err = run("run", *options, "--image", "local/x", "--", "sh", "-c", "tool; touch /opt/deps/f")
    assert (rc, out) == (1, "tool\n") and "Read-only file system" in err, err


def test_writable_is_for_one_box(run):
    made(run, *PLANT)
    script = "echo 'ANSWER = 6' >/opt/deps/thing.py && rm /opt/deps/bin/tool && python3 -c 'import thing; print(thing.ANSWER)'"
    assert run("run", "--deps-writable", "--image", "local/x", "--", "sh", "-c", script)[:2] == (0, "6\n")
    assert run("run", "--deps-writable", "--image", "local/x", "--", "sh", "-c", "tool; cat /opt/deps/thing.py")[1] == "tool\nANSWER = 5\n"


def test_one_above_another(run):
    made(run, *PLANT)
    made(run, "sh", "-c", "tool >was; rm bin/tool; echo 'ANSWER = 7' >thing.py", name="z", options=("--image", "local/x"))
    rc, out, _ = run("run", "--image", "local/z", "--", "sh", "-c", "cd /opt/deps; cat was thing.py; ls bin")
    assert (rc, out) == (0, "tool\nANSWER = 7\n")
    assert run("run", "--image", "local/x", "--", "tool")[1] == "tool\n"


def test_the_box_of_a_setup(run):
    """Nothing but /opt/deps is kept, and it is the user's like any other box."""
    made(run, "sh", "-c", "id -u >who; pwd >where; echo x >/tmp/t; echo x >/home/user/h; echo x >/usr/x; touch done")
    rc, out, _ = run("run", "--image", "local/x", "--", "sh", "-c", "cd /opt/deps; cat who where; ls -A . /tmp /home/user")
    assert (rc, out.split()) == (0, ["1000", "/opt/deps", ".:", "done", "where", "who", "/home/user:", "/tmp:"]), out


@pytest.mark.parametrize("command", [("apt-get", "install", "git"), ("sh", "-c", "cd / && apt install git"), ("/usr/bin/dnf", "install", "x"),
                                     ("sh", "-c", "apk add git")])
def test_the_systems_packages_need_an_image(run, command):
    rc, out, err = run("setup", "--name", "x", "--", *command)
    assert (rc, out) == (2, "") and "take an image" in err and err.count("\n") == 1
    assert run("run", "--pull", "never", "--image", "local/x", "--", "true")[0] == 125


def test_what_fails_is_not_there(run):
    rc, _, err = run("setup", "--no-network", "--name", "x", "--", "sh", "-c", "touch f; exit 3")
    assert rc == 3 and "nothing was made" in err
    assert run("run", "--pull", "never", "--image", "local/x", "--", "true")[0] == 125
    assert run("setup", "--bytecode")[0] == 2 and run("setup", "--name", "x")[0] == 2 and run("setup", "--", "true")[0] == 2


def test_it_is_not_saved(run, ws):
    """It is right over this machine's /usr alone."""
    made(run, *PLANT)
    rc, _, err = run("save", "local/x", "-o", ws / "x.tar")
    assert rc != 0 and "host image" in err and not (ws / "x.tar").exists(), err


def test_pip(run):
    if not os.path.exists("/usr/bin/pip3"):
        pytest.skip("no pip here")
    command = f"python3 -c \"{WHEEL % 9}\" && pip3 install --no-index --no-deps /tmp/thing-1.0-py3-none-any.whl"
    made(run, "sh", "-c", command)
    assert run("run", "--image", "local/x", "--", "sh", "-c", "thing; python3 -c 'import thing; print(thing.__file__)'")[:2] == (
        0, "9\n/opt/deps/thing.py\n")


# As npm does it, without a network: a package that is packed on the spot, and what it brings to PATH.
PACKAGE = """mkdir /tmp/p && cd /tmp/p
echo '{"name": "thing", "version": "1.0.0", "main": "thing.js", "bin": {"thing": "tool.js"}}' >package.json
echo 'exports.answer = 9' >thing.js
printf '#!/usr/bin/env node\\nconsole.log(require("thing").answer)\\n' >tool.js
npm pack --silent
"""
ANSWER = "console.log(require('thing').answer, require.resolve('thing'))"


@pytest.mark.parametrize("where, at", [("", "node_modules"), ("-g ", "lib/node_modules")])
def test_npm(run, ws, where, at):
    if not os.path.exists("/usr/bin/npm"):
        pytest.skip("no npm here")
    made(run, "sh", "-ec", f"{PACKAGE} cd /opt/deps; npm install --offline {where}/tmp/p/thing-1.0.0.tgz")
    (ws / "own.mjs").write_text("import thing from 'thing'; console.log(thing.answer)")
    script = f'node -e "{ANSWER}"; thing; touch /opt/deps/{at}/x'
    rc, out, err = run("run", "--workspace", ws, "--image", "local/x", "--", "sh", "-c", script)
    assert out == f"9 /opt/deps/{at}/thing/thing.js\n9\n" and "Read-only file system" in err, (out, err)
    if not where:  # from a module of the workspace, too
        assert run("run", "--workspace", ws, "--image", "local/x", "--", "node", "own.mjs")[:2] == (0, "9\n")
        words = ("-e", "import('thing').then((m) => console.log(m.answer))")
        assert run("run", "--read-only", "--image", "local/x", "--", "node", *words)[:2] == (0, "9\n")
    # nothing of it is on the host image
    assert run("run", "--", "sh", "-c", f'ls /node_modules; node -e "{ANSWER}"')[0] != 0


def test_npm_through_a_session(home):
    if not os.path.exists("/usr/bin/npm"):
        pytest.skip("no npm here")
    with Serve(env=dict(boxlib.base_env(), CLOCHE_HOME=str(home))) as s:
        b = s.open(setup=f"({PACKAGE}); npm install --offline /tmp/p/thing-1.0.0.tgz")
        assert s.code(b, ANSWER, language="node")["stdout"] == b"9 /opt/deps/node_modules/thing/thing.js\n"
        assert s.code(b, "import('thing').then((m) => console.log(m.answer))", language="node")["stdout"] == b"9\n"
        assert s.run(b, "thing")["stdout"] == b"9\n"


def test_through_a_session(home):
    env = dict(boxlib.base_env(), CLOCHE_HOME=str(home))
    setup = "echo \"ANSWER = $N\" >thing.py"
    with Serve(env=env) as s:
        b = s.open(setup=setup, env={"N": "3"})
        assert s.code(b, "import thing; print(thing.ANSWER)")["stdout"] == b"3\n"
        assert s.run(b, "touch", "/opt/deps/x")["exit_code"] == 1
        assert s.code(s.open(setup=setup, env={"N": "4"}), "import thing; print(thing.ANSWER)")["stdout"] == b"4\n"
        w = s.open(setup=setup, env={"N": "3"}, deps_readonly=False)
        assert s.run(w, "sh", "-c", "echo ANSWER = 8 >/opt/deps/thing.py; cat /opt/deps/thing.py")["stdout"] == b"ANSWER = 8\n"
        assert s.code(w, "import thing; print(thing.ANSWER)")["stdout"] == b"3\n"
