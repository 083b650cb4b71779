"""Logs: one line per event, for people (aligned) or for machines (JSON). Never one per request.

`log.info("event", extra=fields(key=value, ...))`: the event is constant, and the fields have the variable parts, so
both forms can be searched. With `extra=event("a sentence", key=value, ...)` the human form is the sentence.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from shoal.proxy.config.settings import LogSettings

__all__ = ["HumanFormatter", "JsonFormatter", "LogThrottle", "event", "fields", "set_up_logs"]

_FIELDS = "shoal_fields"
_TEXT = "shoal_text"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_EVENT_WIDTH = 24  # longer events push their fields to the right
_MOST_RECENT = 100  # subjects of a throttle: ~200 bytes each


def fields(**values: object) -> dict[str, object]:
    """The `extra` of a log call."""
    return {_FIELDS: values}


def event(text: str, /, **values: object) -> dict[str, object]:
    """The `extra` of a log call whose human form is a sentence."""
    return {_TEXT: text, _FIELDS: values}


_MOST_OF_A_KIND = 20  # lines about strangers that send something else each time


class LogThrottle:
    """Which subjects were logged recently: a client that cannot be served reconnects many times a second."""

    def __init__(self, most: int = _MOST_RECENT) -> None:
        self._most = most
        self._logged_at: dict[Hashable, float] = {}  # the oldest first
        self._kinds: dict[Hashable, tuple[float, int]] = {}  # start of the interval, subjects in it; oldest first
        self._left_out: dict[Hashable, int] = {}  # by kind, since its last line

    def is_news(self, subject: Hashable, seconds: float, kind: Hashable = None) -> bool:
        """Whether it was not logged in the last `seconds`; if so, it counts as logged now.

        `kind`: of a subject with text that a peer chooses; of one kind, only some subjects are news in `seconds`. What
        is no news counts in `left_out`.
        """
        import trio  # loads slowly, and `shoal check` needs only the rest of this module

        now = trio.current_time()
        is_recent = now < self._logged_at.get(subject, -math.inf) + seconds
        if is_recent or (kind is not None and not self._has_room(kind, now, seconds)):
            self._count(kind)
            return False
        self._logged_at.pop(subject, None)
        self._logged_at[subject] = now
        if len(self._logged_at) > self._most:
            del self._logged_at[next(iter(self._logged_at))]
        return True

    def left_out(self, kind: Hashable) -> str:
        """For the end of a line of this kind: how many are missing since the last one."""
        number = self._left_out.pop(kind, 0)
        return f" ({number:,} more of this kind since the last such line)" if number else ""

    def _count(self, kind: Hashable) -> None:
        if kind is None:
            return
        self._left_out[kind] = self._left_out.get(kind, 0) + 1
        if len(self._left_out) > self._most:
            del self._left_out[next(iter(self._left_out))]

    def _has_room(self, kind: Hashable, now: float, seconds: float) -> bool:
        start, count = self._kinds.pop(kind, (now, 0))
        if now >= start + seconds:
            start, count = now, 0
        self._kinds[kind] = start, count + 1
        if len(self._kinds) > self._most:
            del self._kinds[next(iter(self._kinds))]
        return count < _MOST_OF_A_KIND


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(record, _FIELDS, {})
    return found


class HumanFormatter(logging.Formatter):
    """`10:02:05.120 info    listening                listener=source address=127.0.0.1:19092`"""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        sentence = _CONTROLS.sub(lambda match: repr(match[0])[1:-1], _sentence(record))  # a client id may hold anything
        text = f"{when}.{int(record.msecs):03d} {record.levelname.lower():<7} {sentence}".rstrip()
        return text if record.exc_info is None else f"{text}\n{self.formatException(record.exc_info)}"


def _sentence(record: logging.LogRecord) -> str:
    if (text := getattr(record, _TEXT, None)) is not None:
        return str(text)
    pairs = [f"{key}={_plain(value)}" for key, value in _fields_of(record).items() if value is not None]
    return " ".join([f"{record.getMessage():<{_EVENT_WIDTH}}", *pairs])


def _plain(value: object) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    needs_quotes = not text or any(c in ' "=' or not c.isprintable() for c in text)
    return json.dumps(text, ensure_ascii=False) if needs_quotes else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC, ISO 8601), level, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry.update((key, value) for key, value in _fields_of(record).items() if value is not None)
        if record.exc_info is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


_FORMATTERS = {"human": HumanFormatter, "json": JsonFormatter}


class _Lines(logging.Handler):
    """Writes to a descriptor, line by line, without a buffer. If the disk is full, lines are lost: nothing raises, and
    nothing waits. When lines can be written again, the first one has the number of lost ones."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._missing = 0
        self._torn = False  # the last line is incomplete

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._missing:
                self._write(self.format(_missing_lines(self._missing)))
                self._missing = 0
            self._write(self.format(record))
        except OSError:
            self._missing += 1
        except Exception:
            self.handleError(record)

    def _write(self, text: str) -> None:
        rest = memoryview(f"{chr(10) * self._torn}{text}\n".encode(errors="backslashreplace"))
        while rest:
            written = os.write(self._descriptor, rest)
            self._torn = written < len(rest)
            rest = rest[written:]


def _missing_lines(lines: int) -> logging.LogRecord:
    what = f"{lines} lines of this log are missing: they could not be written (is its disk full?)"
    return logging.LogRecord("shoal", logging.WARNING, "", 0, what, None, None)


def _handler(stream: TextIO | None) -> logging.Handler:
    if stream is None:
        with suppress(OSError, ValueError):  # a stand-in for stderr may have no descriptor
            return _Lines(sys.stderr.fileno())
    return logging.StreamHandler(stream or sys.stderr)


def set_up_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """From now on, all loggers below `shoal` write to `stream` (stderr); other libraries are not affected."""
    handler = _handler(stream)
    handler.setFormatter(_FORMATTERS[settings.format]())
    log = logging.getLogger("shoal")
    for old in log.handlers[:]:
        log.removeHandler(old)
    log.addHandler(handler)
    log.setLevel(settings.level.upper())
    log.propagate = False
