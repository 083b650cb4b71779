"""Fixed schedules must not fail again; open ones must fail, otherwise their mark must be removed."""

from __future__ import annotations

import pytest

from tests.torture_models.known import FAULTS, OPEN
from tests.torture_models.schedules import run


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"issue 14: {OPEN[name][0]}")]
            if name in OPEN
            else [],
        )
        for name in FAULTS
    ],
)
def test_a_schedule_that_failed_once(name: str) -> None:
    assert run(FAULTS[name]) == []
