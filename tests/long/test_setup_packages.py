"""Package managers in set-up boxes, with the packages of others from their mirrors; what they installed then runs in ordinary boxes.

Needs a network, a few minutes and 3 GB below /tmp: `make test-long`, or `tests/run tests/long`.
"""
import pathlib
import shutil

import pytest
import setups

HOST_CA = "/etc/ssl/certs/ca-certificates.crt"
CA = "/etc/ssl/machine.crt"  # another name than the package's, which is made anew
BIG = ("git build-essential nginx postgresql openssh-server openssh-client systemd dbus man-db sudo iputils-ping python3-pip npm "
       "rpm dnf createrepo-c libcap2-bin")
LONG = ("--timeout", "1800")


@pytest.fixture(scope="module")
def home(image):
    """Debian, with the certificates that this machine trusts: mirrors may be behind a proxy of its own."""
    with setups.directory() as path:
        h = setups.Home(path)

        def fill(where):
            setups.unpack(image("debian"), where)
            (where / CA[1:]).parent.mkdir(parents=True, exist_ok=True)
            (where / CA[1:]).write_bytes(pathlib.Path(HOST_CA).read_bytes())
            shutil.rmtree(where / "var/lib/apt/lists")  # as images are published
            (where / "var/lib/apt/lists").mkdir()
        h.image(setups.DEBIAN, [h.layer(fill)], env=["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
        r = h.setup(setups.DEBIAN, "big", "apt-get", "install", "-y", "--no-install-recommends", *BIG.split(), opts=LONG, net=True, timeout=2000)
        assert r.rc == 0, r
        yield h


def box(home, image, script, *opts):
    r = home.run(image, "bash", "-c", script, opts=("--memory", "1g", *opts))
    assert r.rc == 0, (r, r.o.err)
    return r.o.out


def test_nothing_was_left_half_done(home):
    assert box(home, "local/big", "dpkg --audit") == ""
    assert int(box(home, "local/big", "dpkg -l | grep -c '^ii'")) > 400
    layer = home.kept()[-1]
    assert [p for p, row in home.tree(layer).items() if row.st_mode & 0o6000 and not (row.st_mode & 0o170000) == 0o040000] == []


def test_git_and_a_compiler(home):
    assert "made" in box(home, "local/big", "cd /tmp && git init -q r && cd r && echo a >f && git add f && "
                                            "git -c user.name=a -c user.email=a@b commit -qm made && git log --oneline")
    assert box(home, "local/big", "cd /tmp && printf '#include <stdio.h>\\nint main(void){puts(\"ran\");}' >a.c && gcc -o a a.c && ./a") == "ran\n"


def test_nginx_as_its_user(home):
    ask = "exec 3<>/dev/tcp/127.0.0.1/80; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"
    up = "for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/80) 2>/dev/null && break; sleep 0.1; done; "
    assert "200 OK" in box(home, "local/big", "nginx; " + up + ask, "--user", "www-data")
    r = home.run("local/big", "nginx", opts=("--user", "0"))
    assert r.rc != 0 and "chown" in r.o.err, r  # as the page says


def test_postgresql_as_its_user(home):
    script = ("export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); initdb -D /tmp/pg >/dev/null && "
              "pg_ctl -D /tmp/pg -o '-k /tmp' -l /tmp/log -w start >/dev/null && "
              "psql -h /tmp -d postgres -Atc 'select 6 * 7'; pg_ctl -D /tmp/pg stop -m immediate >/dev/null")
    assert box(home, "local/big", script, "--user", "postgres") == "42\n"


def test_sshd(home):
    script = ("mkdir -p /run/sshd; /usr/sbin/sshd -t && /usr/sbin/sshd -p 2222; "
              "for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/2222) 2>/dev/null && break; sleep 0.1; done; "
              "exec 3<>/dev/tcp/127.0.0.1/2222; head -1 <&3")
    assert "SSH-2.0-OpenSSH" in box(home, "local/big", script)


def test_pip(home):
    r = home.setup("local/big", "pip", "pip", "install", "-q", "requests", opts=(*LONG, "-e", f"PIP_CERT={CA}", "-e", "PIP_BREAK_SYSTEM_PACKAGES=1"), net=True,
                   timeout=2000)
    assert r.rc == 0, r
    assert box(home, "local/pip", "python3 -c 'import requests; print(requests.__file__)'").startswith("/usr/local/lib/python3")


def test_npm(home):
    r = home.setup("local/big", "npm", "npm", "install", "-g", "--cafile", CA, "is-odd", opts=(*LONG, "-e", f"NODE_EXTRA_CA_CERTS={CA}"),
                   net=True, timeout=2000)
    assert r.rc == 0, r
    assert box(home, "local/npm", "NODE_PATH=$(npm root -g) node -e 'console.log(require(\"is-odd\")(3))'") == "true\n"


SPEC = r"""
Name: NAME
Version: 1
Release: 1
Summary: a package of a test
License: none
BuildArch: noarch
"""
SHELL = SPEC.replace("NAME", "shell") + "AutoReqProv: no\nProvides: /bin/sh\n%description\nwhat Debian has\n%files\n"
OWN = SPEC.replace("NAME", "own") + r"""Requires: shell
%description
own
%install
mkdir -p %{buildroot}/usr/bin %{buildroot}/etc/own.d %{buildroot}/var/lib/own
printf '#!/bin/sh\necho own runs\n' >%{buildroot}/usr/bin/own
cp %{buildroot}/usr/bin/own %{buildroot}/usr/bin/own-suid
cp %{buildroot}/usr/bin/own %{buildroot}/usr/bin/own-cap
%pre
useradd -r own
%post
echo configured >/etc/own.d/state
%files
%attr(0755,root,root) /usr/bin/own
%attr(4755,root,root) /usr/bin/own-suid
%caps(cap_net_raw=ep) /usr/bin/own-cap
%dir %attr(0550,root,own) /etc/own.d
%dir %attr(0750,own,own) /var/lib/own
"""
DNF = """
mkdir -p /repo
printf '%s' "$1" >/root/shell.spec
printf '%s' "$2" >/root/own.spec
rpmbuild -bb /root/shell.spec /root/own.spec
cp /root/rpmbuild/RPMS/noarch/*.rpm /repo
createrepo_c -q /repo
dnf -y --releasever=1 --disablerepo='*' --repofrompath=own,file:///repo --nogpgcheck --setopt=own.gpgcheck=0 install own
"""


def test_dnf_from_a_repository_of_our_own(home):
    """rpm takes a refused file capability for an error: it is set, and gone from the layer."""
    r = home.setup("local/big", "rpm", "sh", "-ec", DNF, "sh", SHELL, OWN, opts=LONG)
    assert r.rc == 0 and r.o["set_ids_cleared"] >= 1, r
    assert box(home, "local/rpm", "own; id -un own; cat /etc/own.d/state; rpm -q own; stat -c %a /usr/bin/own-suid").split("\n")[:-1] == [
        "own runs", "own", "configured", "own-1-1.noarch", "755"]
