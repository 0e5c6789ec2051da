"""Fixtures of the attacks; see attack.py."""
import shutil

import pytest

from . import attack


@pytest.fixture(scope="session")
def probe():
    """The attacking program (attack.Probe). It replaces the suite's fixture of that name: one program here, many there."""
    where = attack.public_dir("ct-probe-")
    yield attack.Probe(where)
    shutil.rmtree(where, ignore_errors=True)


@pytest.fixture
def public():
    """A directory that everybody may search, gone afterwards."""
    where = attack.public_dir()
    yield where
    shutil.rmtree(where, ignore_errors=True)


@pytest.fixture
def traps(public):
    t = attack.Traps(public)
    yield t
    t.close()
