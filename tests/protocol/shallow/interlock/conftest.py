"""The interlock with a clock that starts at 0, and a mirror that produces through it."""

import pytest

from shoal.protocol.shallow.interlock.evidence import Evidence
from tests.protocol.shallow.interlock.mirrors import Mirror, interlock


@pytest.fixture
def rules() -> Evidence:
    return interlock()


@pytest.fixture
def mirror(rules: Evidence) -> Mirror:
    return Mirror(rules)
