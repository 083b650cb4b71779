"""Log lines in tests: as sentences for `caplog`, and compared with the table of events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shoal.proxy.events.fields import FIELDS
from shoal.proxy.events.logs import event_of
from shoal.proxy.events.table import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["LineCheck", "as_sentence", "problems"]

_ALWAYS = {"time", "level", "event", "message", "exception"}


def as_sentence(record: logging.LogRecord) -> bool:
    """A filter: the message becomes the sentence, and the id `record.event`."""
    if not hasattr(record, "event"):
        text, _ = event_of(record)
        record.event, record.msg = record.msg, record.msg if text is None else text
    return True


def problems(entry: Mapping[str, object]) -> Iterator[str]:
    """What is not as in the tables; `entry`: a line of a JSON log."""
    row = EVENTS.get(str(entry["event"]))
    if row is None:
        yield f"no row: {entry}"
        return
    if entry["level"] not in {logging.getLevelName(level).lower() for level in row.levels}:
        yield f"{row.id}: level {entry['level']}"
    for name, value in entry.items():
        if name in _ALWAYS or value is None:
            continue
        if name not in row.fields:
            yield f"{row.id}: no field {name}"
        elif not FIELDS[name].fits(value):
            yield f"{row.id}: {name} = {value!r} is no {FIELDS[name].kind.value}"


class LineCheck(logging.Handler):
    """Collects what is wrong with the lines of Shoal."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] == "shoal" and record.name != "shoal.test":
            _, values = event_of(record)
            shown = getattr(record, "event", record.msg)
            self.found += problems({"event": shown, "level": record.levelname.lower(), **values})
