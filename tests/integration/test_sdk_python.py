"""The scenarios (tests/scenarios), with the Python package's two faces."""
import asyncio
import os
import re

import boxlib
import pytest
import scenarios
import sdk

ALL = scenarios.load()
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(scope="module")
def cloche(leftovers, tmp_path_factory):
    home = tmp_path_factory.mktemp("sdk")
    home.chmod(0o755)
    (home / "config").mkdir()
    (home / "config" / "cloche.yaml").write_text(scenarios.CONFIG)
    with sdk.in_home(home) as module:
        module.loaded, module.home = set(), home
        yield module


@pytest.mark.parametrize("face", ["threads", "asyncio"])
@pytest.mark.parametrize("file, scenario", ALL, ids=[f"{f}: {s['name']}" for f, s in ALL])
def test_scenario(cloche, image, file, scenario, face):
    for need in scenario.get("needs", []):
        if need == "root" and not boxlib.IS_ROOT or need == "user" and boxlib.IS_ROOT:
            pytest.skip(f"needs {'root' if need == 'root' else 'an unprivileged caller'}")
        if need == "address_space" and boxlib.sanitized():
            pytest.skip("needs an address space that a sanitizer has not taken")
        if need.startswith("device:") and not os.path.exists(need[7:]):
            pytest.skip(f"needs {need}")
        if need.startswith("image:") and need not in cloche.loaded:
            sdk.load_image(cloche.home, image(need[6:]).path, need[6:])
            cloche.loaded.add(need)
    asyncio.run(scenarios.Run(cloche, scenario, face).run())


def test_every_option_has_a_scenario_and_a_wrong_value():
    """docs/OPTIONS.md is printed from the table that `open` is read with."""
    options = re.findall(r"^\| `(\w+)` \|", (boxlib.ROOT / "docs" / "OPTIONS.md").read_text(encoding="utf-8"), re.M)
    assert len(options) > 30
    effect = {s["name"].split(":")[0] for f, s in ALL if f == "options"}
    wrong = {s["name"].split(":")[0] for f, s in ALL if f == "wrong"}
    callbacks = {"on_stdout", "on_stderr"}
    assert set(options) - effect - callbacks == set() and set(options) - wrong - callbacks == set()
    hints = set(sdk.module().Options.__annotations__)
    assert set(options) <= hints and hints - set(options) == {"on_progress"}
