"""`cloche setup`: what a command installs becomes a layer, found by what made it, and an image that has it."""
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess

import boxlib
import pytest
import setups

SMALL_SCRIPT = "echo made >/etc/made"

SERVICE = [
    # As packages of servers are: a user of their own, directories that are closed, files that are theirs, a service to be started.
    ("preinst", "useradd --system --home-dir /var/lib/odd --shell /usr/sbin/nologin odd\n"),
    ("postinst", "chown odd:odd /var/lib/odd\nchown root:odd /etc/odd.d\nchmod 02755 /var/lib/odd\nchgrp odd /usr/bin/odd\nchmod 04755 /usr/bin/odd\n"
                 "mknod /var/lib/odd/tty c 5 0\nsetcap cap_net_raw+ep /usr/bin/odd-cap 2>/dev/null || true\n"
                 "invoke-rc.d odd start || true\necho configured >>/etc/odd.d/state\n"),
]


@pytest.fixture(scope="module")
def debian(image):
    with setups.directory() as path:
        home = setups.Home(path / "home")
        debs = path / "debs"
        debs.mkdir()
        odd = setups.package(debs, "odd", [("etc/odd.d", 0o550, None), ("var/lib/odd", 0o750, None), ("etc/odd.d/conf", 0o440, "conf\n"),
                                           ("usr/bin/odd", 0o755, "#!/bin/sh\necho odd is here\n"), ("usr/bin/odd-cap", 0o755, "#!/bin/sh\n"),
                                           ("etc/init.d/odd", 0o755, "#!/bin/sh\n### BEGIN INIT INFO\n# Provides: odd\n### END INIT INFO\ntouch /started\n")],
                             SERVICE, depends="plain-one")
        plain = setups.package(debs, "plain-one", [("usr/share/plain-one/file", 0o644, "plain\n")])
        home.id = home.debian(image("debian"), [odd, plain])
        yield home


@pytest.fixture(scope="module")
def small(image):
    with setups.directory() as path:
        home = setups.Home(path)
        home.fill(image("busybox"))
        yield home


def said(r):
    """The one line of complaint."""
    lines = r.err.decode().splitlines()
    assert len(lines) == 1, r
    return lines[0]


def test_a_package_with_scripts_users_and_owners(debian):
    r = debian.setup(setups.DEBIAN, "odd", "apt-get", "install", "-y", "/packages/odd_1.0_all.deb", "/packages/plain-one_1.0_all.deb")
    assert r.rc == 0, r
    assert (r.o["image"], r.o["found"], r.o["base"]) == ("local/odd:latest", False, debian.id)
    tree = debian.tree(r.o["layer"])
    assert r.o["entries"] == len(tree)
    # Set-id bits were cleared, nothing is a device, what was closed is closed.
    assert stat.S_IMODE(tree["usr/bin/odd"].st_mode) == 0o755 and r.o["set_ids_cleared"] >= 1
    assert "var/lib/odd/tty" not in tree
    assert stat.S_IMODE(tree["etc/odd.d"].st_mode) == 0o550 and "etc/odd.d/state" in tree
    assert {row.st_uid for row in tree.values()} == {os.geteuid()}
    # The service was not started, and what kept it from it is not in the result; nor is what apt needed.
    laid = {"usr/sbin/policy-rc.d", "etc/apt/apt.conf.d/00cloche", "etc/resolv.conf", "etc/hosts", "etc/hostname", "started"}
    assert not laid & set(tree), tree.keys() & laid
    r = debian.run("local/odd", "sh", "-c", "odd; id -un odd; cat /etc/odd.d/state /usr/share/plain-one/file; dpkg --audit; dpkg -s odd | grep ^Status; "
                   "ls /usr/sbin/policy-rc.d /etc/apt/apt.conf.d/00cloche; test -e /started && echo started; echo $MARK")
    assert r.o.out.splitlines() == ["odd is here", "odd", "configured", "plain", "Status: install ok installed", "base"], r
    # As the user that the package made.
    assert debian.run("local/odd", "touch", "/var/lib/odd/mine", opts=("--user", "odd")).rc == 0
    # The image's own command, and the base as it was.
    assert debian.run("local/odd").o.out == debian.run(setups.DEBIAN).o.out != ""
    assert debian.run(setups.DEBIAN, "sh", "-c", "command -v odd").rc != 0


def test_apt_elsewhere_has_no_such_help(debian):
    """The control: in an ordinary box the same command fails, as the kernel refuses what the emulation says is done."""
    r = debian.run(setups.DEBIAN, "apt-get", "install", "-y", "/packages/odd_1.0_all.deb", "/packages/plain-one_1.0_all.deb", opts=("--memory", "1g"))
    assert r.rc != 0 and any("cloche setup --image debian:12" in note for note in r.o["notes"]), r  # and says where it works


def test_apt_finds_packages_without_lists(debian, image):
    """As images are published: with sources, and without the lists of what these have."""
    with setups.directory() as path:
        home = setups.Home(path / "home")
        deb = setups.package(path, "found", [("usr/share/found/file", 0o644, "found\n")])

        def repository(where):
            listed = where / "packages"
            control = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True).stdout
            (listed / "Packages").write_text(f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\n"
                                             f"SHA256: {hashlib.sha256(deb.read_bytes()).hexdigest()}\n")
            shutil.rmtree(where / "var/lib/apt/lists")
            (where / "var/lib/apt/lists/partial").mkdir(parents=True)
            shutil.rmtree(where / "etc/apt/sources.list.d", ignore_errors=True)
            (where / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/packages ./\n")
        home.debian(image("debian"), [deb], then=repository)
        r = home.setup(setups.DEBIAN, "with-found", "apt-get", "install", "-y", "found", net=True)
        assert r.rc == 0, r
        assert not [p for p in home.tree(r.o["layer"]) if "lists/" in p and "_Packages" in p]
        assert home.run("local/with-found", "cat", "/usr/share/found/file").o.out == "found\n"
        # Its code is the command's, and words are words.
        assert home.setup(setups.DEBIAN, "none", "apt-get", "install", "-y", "no such; true", net=True).rc == 100
        # The controls: somebody else's apt, and without a network nothing is fetched.
        assert home.setup(setups.DEBIAN, "by-shell", "sh", "-c", "apt-get install -y found", net=True).rc == 100
        assert home.setup(setups.DEBIAN, "offline", "apt-get", "install", "-y", "found").rc == 100


def test_programs_that_change_owners_and_users(debian):
    script = ("useradd -m bob && groupadd team && usermod -aG team bob && su bob -c 'id -un' && mkdir /x && cp -a /etc/passwd /x && "
              "chown bob:team /x/passwd && tar -C / -cpf /x/t.tar etc/passwd && mkdir /y && tar -C /y -xpf /x/t.tar && "
              "setpriv --reuid=1 --clear-groups true && install -o bob -g team -m 0600 /etc/passwd /x/installed && test -e /dev/ptmx")
    r = debian.setup(setups.DEBIAN, "tools", "sh", "-ec", script)
    assert r.rc == 0, r
    assert debian.run("local/tools", "sh", "-c", "id -nG bob").o.out == "bob team\n"


def test_the_second_time_it_is_there(small):
    script = "cat /proc/sys/kernel/random/uuid >/id"
    first = small.setup("small", "one", "sh", "-c", script)
    made = small.kept()
    again = small.setup("small", "two", "sh", "-c", script)
    assert first.rc == again.rc == 0 and not first.o["found"] and again.o["found"]
    assert first.o["layer"] == again.o["layer"] and small.kept() == made
    assert small.run("local/one", "cat", "/id").o.out == small.run("local/two", "cat", "/id").o.out != ""
    text = small.setup("small", "one", "sh", "-c", script, json=False)
    assert b"there already" in text.out, text
    # Whatever can change the result makes another one.
    for opts, command in (((), ("sh", "-c", script + " ")), (("-e", "A=1"), ("sh", "-c", script)), ((), ("sh", "-c", script, "x"))):
        other = small.setup("small", "other", *command, opts=opts)
        assert other.rc == 0 and not other.o["found"] and other.o["layer"] != first.o["layer"], other
    a = small.setup("small", "other", "sh", "-c", script, opts=("-e", "FROM_HERE"), env={"FROM_HERE": "1"})
    b = small.setup("small", "other", "sh", "-c", script, opts=("-e", "FROM_HERE"), env={"FROM_HERE": "2"})
    assert not a.o["found"] and not b.o["found"]


def test_over_what_setup_made(small):
    assert small.setup("small", "a", "sh", "-c", "echo a >/a; echo 1 >/n; mkdir /d; echo x >/d/x; ln -s a /l").rc == 0
    r = small.setup("local/a", "b", "sh", "-c", "echo b >/b; rm /n; rm -r /d; mkdir /d; echo y >/d/y; mv /l /m")
    assert r.rc == 0, r
    got = small.run("local/b", "sh", "-c", "cat /a /b /m; ls /d; ls /n /l")
    assert got.o.out.split() == ["a", "b", "a", "y"], got
    # As the kernel wrote them: whiteouts, and an opaque directory.
    tree = small.tree(r.o["layer"])
    assert stat.S_ISCHR(tree["n"].st_mode) and tree["n"].st_rdev == 0
    assert os.getxattr(small.layers / r.o["layer"] / "d", "user.overlay.opaque") == b"y"
    assert not small.drafts()


def test_sockets_go_and_fifos_stay(small):
    r = small.setup("small", "kinds", "sh", "-c", "mkfifo /fifo; echo x >/file; nc -l -U /socket & sleep 0.3; ls -l /socket || true; kill $!; mkdir -m 0 /shut")
    tree = small.tree(r.o["layer"]) if r.rc == 0 else {}
    assert "fifo" in tree and "file" in tree and not any(stat.S_ISSOCK(row.st_mode) for row in tree.values()), r
    assert stat.S_IMODE(tree["shut"].st_mode) == 0


def test_files_laid_for_the_run_are_the_images_own_again(small):
    """Touched, they are copies that go; written anew, they are the command's."""
    r = small.setup("small", "names", "sh", "-c", "chmod 600 /etc/hosts; echo mine >/etc/hostname; cat /etc/hosts")
    assert r.rc == 0, r
    tree = small.tree(r.o["layer"])
    assert "etc/hostname" in tree and "etc/hosts" not in tree
    assert (small.layers / r.o["layer"] / "etc/hostname").read_text() == "mine\n"


@pytest.mark.parametrize("opts, command, rc, words", [
    ((), "echo first; echo second >&2; exit 3", 3, ["first", "second", "code 3"]),
    ((), "kill -9 $$", 137, ["killed"]),
    (("--timeout", "1"), "echo begun; sleep 50", 124, ["begun", "timeout: the deadline"]),
    (("--disk", "2m"), "head -c 67108864 /dev/zero >/zeros; sleep 9", 137, ["workspace_full", "--disk"]),
])
def test_a_command_that_fails_leaves_nothing(small, opts, command, rc, words):
    before = small.kept(), small.names()
    r = small.setup("small", "failed", "sh", "-c", command, opts=opts, json=False)
    assert r.rc == rc and r.out == b"", r
    assert all(w in r.err.decode() for w in words), r
    assert (small.kept(), small.names()) == before and not small.drafts()


def test_the_end_of_a_long_output_is_shown(small):
    r = small.setup("small", "failed", "sh", "-c", "seq 1 100000; exit 1", json=False)
    lines = r.err.decode().split()
    assert r.rc == 1 and "100000" in lines and "99980" in lines and "99000" not in lines, r
    r = small.setup("small", "shown", "sh", "-c", "echo shown", json=False, opts=("--verbose",))
    assert r.rc == 0 and b"shown" in r.err.splitlines(), r


def test_failures_as_json(small):
    r = small.setup("small", "failed", "sh", "-c", "echo out; exit 4")
    assert (r.rc, r.o["exit_code"], r.o.out, r.o.fault) == (4, 4, "out\n", None), r
    r = small.setup("small", "failed", "no-such-command")
    assert r.rc == 127 and r.o.fault_type == "exec_failed", r
    r = small.setup("nowhere.invalid/none", "failed", "true", timeout=120)
    assert r.rc == 125 and r.o.fault["stage"] == "image", r


@pytest.mark.parametrize("args, words", [
    (["--", "true"], "needs --name"),
    (["--bytecode"], "needs --image"),
    (["--image", "small", "--", "true"], "needs --name"),
    (["--image", "small", "--name", "x"], "needs a command"),
    (["--image", "host", "--bytecode"], "needs --image"),
    (["--image", "small", "--name", "../x", "--", "true"], "--name"),
    (["--image", "small", "--name", "Large", "--", "true"], "--name"),
    (["--image", "small", "--name", "x@sha256:" + "0" * 64, "--", "true"], "--name"),
    (["--image", "../x", "--name", "x", "--", "true"], "--image"),
    (["--image", "small", "--name", "x", "--memory", "1", "--", "true"], "--memory"),
    (["--image", "small", "--name", "x", "-v", "/a:/b", "--", "true"], "-v"),
    (["--image", "small", "--name", "x", "--workspace", ".", "--", "true"], "--workspace"),
])
def test_bad_words(small, args, words):
    r = boxlib.cloche("setup", *args, env=small.env)
    assert r.rc == 2 and words in said(r), r
    assert not small.drafts()


def test_a_missing_base_is_named(small):
    r = small.setup("local/none", "x", "true", json=False)
    assert r.rc == 125 and "local/none" in said(r), r


def test_network(small):
    probe = ("sh", "-c", "ls /sys/class/net 2>/dev/null; cat /proc/net/dev")
    alone = small.setup("small", "net", *probe, json=False, opts=("--verbose",))
    assert b"eth" not in alone.err and b"lo" in alone.err, alone
    shared = small.setup("small", "net", *probe, json=False, opts=("--verbose",), net=True)
    assert b"all of this machine's network" in shared.err, shared
    here = {line.split(":")[0].strip() for line in open("/proc/self/net/dev", encoding="ascii").readlines()[2:]}
    assert all(name.encode() in shared.err for name in here), shared


def test_two_at_once(small):
    script = "sleep 1; cat /proc/sys/kernel/random/uuid >/id"
    argv = [boxlib.CLOCHE, "setup", "--no-network", "--json", "--image", "small", "--name", "twice", "--", "sh", "-c", script]
    both = [subprocess.Popen(argv, env={**boxlib.base_env(), **small.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    boxlib.STARTED.update(p.pid for p in both)
    out = [p.communicate(timeout=boxlib.HANG) for p in both]
    assert [p.returncode for p in both] == [0, 0], out
    layers = {json.loads(o)["layer"] for o, _ in out}
    assert len(layers) == 1 and layers <= set(small.kept())
    assert small.run("local/twice", "cat", "/id").rc == 0 and not small.drafts()


def test_killed_in_the_middle(small):
    """No name, no layer; what is left of the draft goes with the next who looks, and the same command works."""
    script = "echo x >/file; chmod 4755 /file; touch /tmp/begun; sleep 3"
    before = small.kept(), small.names()
    argv = [boxlib.CLOCHE, "setup", "-q", "--no-network", "--image", "small", "--name", "killed", "--", "sh", "-c", script]
    p = subprocess.Popen(argv, env={**boxlib.base_env(), **small.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    boxlib.STARTED.add(p.pid)
    assert boxlib.wait_for(lambda: list((small.top / "draft").glob("*/tree/tmp/begun"))), "it did not begin"
    p.send_signal(signal.SIGKILL)
    p.communicate()
    assert (small.kept(), small.names()) == before and len(small.drafts()) == 1
    # Whoever finds it finds nothing that he may run: nobody else gets in.
    assert stat.S_IMODE((small.top / "draft").stat().st_mode) & 0o077 == 0
    # The last of its processes has the draft until it is gone.
    assert boxlib.wait_for(lambda: boxlib.cloche("gc", env=small.env).rc == 0 and not small.drafts(), every=0.1)
    assert small.setup("small", "killed", "sh", "-c", script).rc == 0
    assert small.run("local/killed", "cat", "/file").o.out == "x\n"


def test_cancelled(small):
    """By the caller, as from a terminal: nothing is made and nothing left."""
    argv = [boxlib.CLOCHE, "setup", "-q", "--no-network", "--image", "small", "--name", "cancelled", "--", "sh", "-c", "touch /tmp/begun; sleep 50"]
    with subprocess.Popen(argv, env={**boxlib.base_env(), **small.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as p:
        boxlib.STARTED.add(p.pid)
        assert boxlib.wait_for(lambda: list((small.top / "draft").glob("*/tree/tmp/begun"))), "it did not begin"
        p.send_signal(signal.SIGINT)
        assert p.wait(boxlib.HANG) == 130
    assert not small.drafts() and "local+cancelled=latest" not in small.names()


def test_time_of_finding_is_no_run(small):
    """Found at once: no box is started."""
    assert small.setup("small", "slow", "sh", "-c", "sleep 2").rc == 0

    def again():
        r = small.setup("small", "slow", "sh", "-c", "sleep 2")
        assert r.o["found"]
        return r.seconds
    assert boxlib.cheapest(again, 2) < 2


def test_a_store_on_an_overlay(small):
    """As in a container whose root is one: told, with what to do. An ordinary caller's box runs there; root's needs what overlays lack."""
    script = ('mount -t tmpfs x /mnt && mkdir /mnt/u /mnt/w /mnt/m && mount -t overlay x /mnt/m '
              f'-o userxattr,lowerdir={small.home},upperdir=/mnt/u,workdir=/mnt/w && export CLOCHE_HOME=/mnt/m && exec "$@"')
    inside = ("unshare", "-m" if boxlib.IS_ROOT else "-Urm", "sh", "-ec", script, "sh", boxlib.CLOCHE)
    if not boxlib.IS_ROOT:
        control = boxlib.communicate([*inside, "run", "--image", "small", "--", "true"])
        assert control.rc == 0, control
    r = boxlib.communicate([*inside, "setup", "-q", "--no-network", "--image", "small", "--name", "x", "--", "sh", "-c", "echo x >/overlaid"])
    assert r.rc == 125 and "CLOCHE_HOME" in said(r), r


def test_removed_with_its_last_name(small):
    """A layer stays as long as an image has it; then it goes, and the same command runs again."""
    script = ("sh", "-c", "cat /proc/sys/kernel/random/uuid >/id")
    first = small.setup("small", "rm-one", *script, opts=("-e", "RM=1"))
    assert small.setup("local/rm-one", "rm-two", "sh", "-c", "echo x >/x").rc == 0
    assert boxlib.cloche("rm", "local/rm-one", env=small.env).rc == 0
    assert first.o["layer"] in small.kept() and small.run("local/rm-two", "cat", "/id").rc == 0
    assert boxlib.cloche("rm", "local/rm-two", env=small.env).rc == 0
    assert first.o["layer"] not in small.kept()
    assert not small.setup("small", "rm-one", *script, opts=("-e", "RM=1")).o["found"]
