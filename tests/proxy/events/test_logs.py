"""Log lines as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from typing import TYPE_CHECKING, Literal

import pytest

from shoal.proxy.config.settings import LogSettings
from shoal.proxy.events.logs import HumanFormatter, LogThrottle, event, fields, set_up_logs
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

log = logging.getLogger("shoal.test")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger("shoal")
    handlers, level, propagate = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = handlers, propagate
    root.setLevel(level)


LogFormat = Literal["human", "json"]


def stream(level: Literal["info", "warning"] = "info", form: LogFormat = "human") -> io.StringIO:
    out = io.StringIO()
    set_up_logs(LogSettings(level=level, format=form), out)
    return out


def human(out: io.StringIO) -> str:
    (line,) = out.getvalue().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d\d\d[+-]\d{4} ", line)
    return untimed(line)


def untimed(line: str) -> str:
    return line[29:]


def test_people_get_time_level_event_and_fields() -> None:
    out = stream()

    log.info("listening", extra=fields(listener="source", rate=2.5, pair=None, reason='not "yet"', empty=""))

    assert human(out) == 'info    listening                listener=source rate=2.5 reason="not \\"yet\\"" empty=""'


def test_people_get_a_sentence_where_there_is_one() -> None:
    out = stream()

    log.warning("flow", extra=event("source: wrapped 3 batches", wrapped_batches=3))

    assert human(out) == "warning source: wrapped 3 batches"


def test_machines_get_one_object_per_line() -> None:
    out = stream(form="json")

    log.warning("flow", extra=event("source: wrapped 3 batches", wrapped_batches=3, pair=None, raw={"small": 1}))

    entry = json.loads(out.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {
        "level": "warning",
        "event": "flow",
        "message": "source: wrapped 3 batches",
        "wrapped_batches": 3,
        "raw": {"small": 1},
    }


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
def test_people_get_the_date_and_the_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    record = logging.makeLogRecord({"created": 1795514525.12, "msecs": 120.0, "msg": "draining", "levelname": "INFO"})
    try:
        text = HumanFormatter().format(record)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (
        text
        == {
            "UTC": "2026-11-24 10:02:05.120+0000 info    draining",
            "Asia/Kathmandu": "2026-11-24 15:47:05.120+0545 info    draining",
            "America/St_Johns": "2026-11-24 06:32:05.120-0330 info    draining",
        }[zone]
    )


@pytest.mark.parametrize("form", ["human", "json"])
def test_what_a_client_sends_cannot_forge_a_line(form: LogFormat) -> None:
    out = stream(form=form)

    log.info("client %s", "x\n10:00:00.000 info all is well\r\x1b[2J\u2028\u202e")

    assert len(out.getvalue().splitlines()) == 1
    assert out.getvalue().removesuffix("\n").isprintable()


@pytest.mark.parametrize("form", ["human", "json"])
def test_what_a_client_sends_cannot_fill_the_disk(form: LogFormat) -> None:
    """A client id or topic name may have 32,767 bytes, and bytes that are no text."""
    out = stream(form=form)
    name = "\ud800\x00" * 16_000

    log.info("connection-ended", extra=event(f"client {name} ended: check its user", client_id=name, raw={"small": 1}))

    (line,) = out.getvalue().splitlines()
    line.encode(errors="strict" if form == "json" else "backslashreplace")
    assert "ended: check its user" in line
    assert "characters left out" in line
    assert len(line) < 30_000  # 2,000 characters twice, as \udxxx\u0000
    assert form == "human" or json.loads(line)["raw"] == {"small": 1}


@pytest.mark.parametrize("form", ["human", "json"])
def test_exceptions_are_kept(form: LogFormat) -> None:
    out = stream(form=form)

    try:
        raise RuntimeError("boom")
    except RuntimeError:
        log.exception("failed")

    assert "RuntimeError: boom" in out.getvalue()
    assert len(out.getvalue().splitlines()) == (1 if form == "json" else out.getvalue().count("\n"))


def test_lower_levels_are_left_out() -> None:
    out = stream(level="warning")

    log.info("listening")
    log.error("no")

    assert human(out) == "error   no"


def test_setting_up_twice_writes_once() -> None:
    stream()
    out = stream()

    log.info("listening")

    assert len(out.getvalue().splitlines()) == 1


def test_a_full_disk_costs_lines_and_one_line_says_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing raises nothing, queues nothing for later, and never appends to a torn line."""
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk, (disk.path / "log").open("w") as err:
        monkeypatch.setattr("sys.stderr", err)
        set_up_logs(LogSettings())
        disk.fill(leave=4096)
        for number in range(1000):
            log.info("line %d", number)
        disk.empty()
        log.info("again")
        err.flush()
        *before, torn, missing, again = [untimed(line) for line in (disk.path / "log").read_text().splitlines()]
    assert before == [f"info    line {number}" for number in range(len(before))]
    assert before
    assert f"info    line {len(before)}".startswith(torn)
    assert missing == (
        f"warning {1000 - len(before)} lines of this log are missing: they could not be written (is its disk full?)"
    )
    assert again == "info    again"


async def test_a_throttle_lets_a_subject_pass_once_in_its_period(mock_clock: MockClock) -> None:
    throttle = LogThrottle()
    assert throttle.is_news("a", 10)
    assert throttle.is_news("b", 10)
    mock_clock.jump(9)
    assert not throttle.is_news("a", 10)
    mock_clock.jump(1)
    assert throttle.is_news("a", 10)
    assert not throttle.is_news("a", 10)


async def test_a_throttle_forgets_what_was_logged_the_longest_time_ago() -> None:
    throttle = LogThrottle(2)
    assert throttle.is_news("a", 10)
    assert throttle.is_news("b", 10)
    assert throttle.is_news("c", 10)
    assert not throttle.is_news("b", 10)
    assert throttle.is_news("a", 10)


async def test_of_one_kind_only_some_subjects_are_news(mock_clock: MockClock) -> None:
    throttle = LogThrottle()
    news = [throttle.is_news(f"garbage {number}", 10, "garbage") for number in range(1000)]
    assert sum(news) == 20
    assert throttle.is_news("something else", 10, "other")
    assert throttle.is_news("without a kind", 10)
    mock_clock.jump(10)
    assert throttle.is_news("garbage 1000", 10, "garbage")


async def test_a_line_says_how_many_of_its_kind_were_left_out(mock_clock: MockClock) -> None:
    throttle = LogThrottle(2)
    for number in (*range(1000), 999, 998):
        throttle.is_news(f"garbage {number}", 10, "garbage")
    mock_clock.jump(10)
    assert throttle.is_news("garbage", 10, "garbage")
    assert throttle.left_out("garbage") == 982
    assert throttle.left_out("garbage") == 0
    for number in range(300):
        throttle.is_news("garbage", 10, f"kind {number}")
    assert len(throttle._left_out) == 2
