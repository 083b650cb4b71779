from __future__ import annotations

import pytest
from trio.testing import MockClock

from shoal.proxy.net.trio_internals import TrioInternals


@pytest.fixture(params=["in the fast lane", "by tasks"])
def lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test twice: with pumps stepped inside trio's wait, and with pumps woken by trio."""
    if request.param == "by tasks":
        monkeypatch.setattr(TrioInternals, "find", lambda: None)


@pytest.fixture
def clock() -> MockClock:
    """Jumps when all tasks wait; a test must request it."""
    return MockClock(autojump_threshold=0.005)
