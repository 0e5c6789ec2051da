"""A user for whom no systemd manager runs, in a guest with systemd (tools/guest/run -a loner): no runtime directory, nothing delegated."""
import json
import os

import pytest

from boxlib import box, cloche


@pytest.fixture(autouse=True)
def nobody_lends_a_group():
    if os.geteuid() == 0 or os.path.exists(f"/run/user/{os.geteuid()}") or not os.path.isdir("/run/systemd/system"):
        pytest.skip("needs an ordinary user without a systemd user manager")


def test_it_is_said_with_the_fix():
    r = box("--require-limits", "--", "true", json=False)
    said = r.raw_err.decode()
    assert r.rc == 125 and said.count("\n") == 1
    assert f"scope: uid {os.geteuid()} has no systemd user manager; fix: sudo loginctl enable-linger {os.geteuid()};" in said
    # the control: without the option it runs, and says on which rung
    r = box("--", "echo", "ran")
    assert r.rc == 0 and r.o.out == "ran\n"
    assert r.o["limits"]["memory"]["rung"] == "supervised" and not r.o["limits"]["memory"]["enforced"]
    assert any("supervised" in note for note in r.o["notes"])


def test_doctor_says_the_same():
    rows = {c["id"]: c for c in json.loads(cloche("doctor", "--json").out)["rows"]}
    linger = f"sudo loginctl enable-linger {os.geteuid()}"
    assert rows["limits"]["status"] == "degraded" and linger in rows["limits"]["fix"], rows["limits"]
    assert rows["session"]["status"] == "info" and linger in rows["session"]["fix"], rows["session"]


def test_a_directory_of_another_user_is_no_way_around():
    r = box("--require-limits", "--", "true", json=False, env={"XDG_RUNTIME_DIR": "/run/user/1000"})
    assert r.rc == 125 and b"scope: " in r.raw_err
