"""`shoal_log_lines_total` goes on after a reload of `[log]`, which replaces the handlers that write lines."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.admin.log_lines import LogLines
from shoal.proxy.config.settings import LogSettings
from shoal.proxy.events.logs import set_up_logs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    log = logging.getLogger("shoal")
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


def test_lines_are_counted_before_and_after_the_log_is_set_up_again() -> None:
    log = logging.getLogger("shoal.listener")
    log.parent.handlers.clear()  # type: ignore[union-attr]
    first, second = io.StringIO(), io.StringIO()
    set_up_logs(LogSettings(), first)
    lines = LogLines.installed()
    log.error("one")
    set_up_logs(LogSettings(format="json"), second)
    log.error("two")
    assert lines.counts["error"] == 2
    assert LogLines.installed() is lines
    assert (len(first.getvalue().splitlines()), len(second.getvalue().splitlines())) == (1, 1)
