"""Tests that only make sense in the Debian guest: they change sysctls, load AppArmor profiles and mount file systems. CLOCHE_PLACE, set by
tools/guest/suite, is the row of places.tsv that runs; elsewhere nothing here runs."""
import os

import pytest


def pytest_collection_modifyitems(items):
    if not os.environ.get("CLOCHE_PLACE"):
        for item in items:
            if "/guest/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="only in the guest: make test-guest"))


@pytest.fixture(scope="session")
def place():
    return os.environ["CLOCHE_PLACE"]
