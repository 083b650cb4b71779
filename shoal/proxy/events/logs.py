"""Logs: one line per event, for people (aligned) or for machines (JSON). Never one per request.

`log.info("event-id", extra=event("a sentence", key=value, ...))`: the id is constant, and `shoal/proxy/events` has its
row; the fields have the variable parts. People read the sentence, machines the id and the fields. With
`extra=fields(key=value, ...)` people read the id and the fields as well.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from shoal.command_line import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from shoal.proxy.config.settings import LogSettings

__all__ = [
    "REPEAT_SECONDS",
    "Complain",
    "HumanFormatter",
    "JsonFormatter",
    "LogThrottle",
    "event",
    "event_of",
    "fields",
    "more_of_this_kind",
    "set_up_logs",
]

_FIELDS = "shoal_fields"
_TEXT = "shoal_text"
_WRITER = "shoal"  # name of the handler that writes the log
_EVENT_WIDTH = 24  # longer events push their fields to the right
_MOST_RECENT = 100  # subjects of a throttle: ~200 bytes each
_MOST_TEXT = 2_000  # characters of a field or sentence: client ids and topic names of requests have up to 32,767
_MOST_TRACE = 20_000  # of a traceback


def fields(**values: object) -> dict[str, object]:
    """The `extra` of a log call."""
    return {_FIELDS: values}


def event(text: str, /, **values: object) -> dict[str, object]:
    """The `extra` of a log call whose human form is a sentence. A field that is None is left out."""
    return {_TEXT: text, _FIELDS: values}


def event_of(record: logging.LogRecord) -> tuple[str | None, Mapping[str, object]]:
    """Its sentence, None without one, and its fields."""
    return getattr(record, _TEXT, None), getattr(record, _FIELDS, {})


class Complain(Protocol):
    """Logs an error that may recur, at a limited rate. `values`: the fields of the event."""

    def __call__(self, event_id: str, text: str, /, **values: object) -> None: ...


REPEAT_SECONDS = 10.0
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

    def admit(self, event_id: str, *subject: Hashable) -> int | None:
        """For an event that may recur: None if it is no news, else how many of its lines were left out since the last.

        The same subject is news once in `REPEAT_SECONDS`, and only some subjects of one event are.
        """
        return self.left_out(event_id) if self.is_news((event_id, *subject), REPEAT_SECONDS, event_id) else None

    def is_new_error(self, error: Exception, seconds: float) -> bool:
        """The same for an error in Shoal: its subject is the line of code that raised it."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        return self.is_news((type(error), trace and (trace.tb_frame.f_code, trace.tb_lineno)), seconds)

    def left_out(self, kind: Hashable) -> int:
        """How many lines of this kind are missing since the last one."""
        return self._left_out.pop(kind, 0)

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


def more_of_this_kind(left_out: int) -> str:
    """For the end of a sentence."""
    return f" ({left_out:,} more of this kind since the last such line)" if left_out else ""


def _bounded(text: str, most: int = _MOST_TEXT) -> str:
    """Without its middle, if it is too long: the end has the advice."""
    cut = len(text) - most
    return text if cut <= 0 else f"{text[: most // 2]}[{cut:,} characters left out]{text[len(text) - most // 2 :]}"


class HumanFormatter(logging.Formatter):
    """`2026-11-24 10:02:05.120+0100 info    listening                listener=source address=127.0.0.1:19092`

    `worker`: the number of this process, if it is one of several.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._prefix = "" if worker is None else f"[worker {worker}] "

    def format(self, record: logging.LogRecord) -> str:
        local = time.localtime(record.created)
        when = f"{time.strftime('%Y-%m-%d %H:%M:%S', local)}.{int(record.msecs):03d}{time.strftime('%z', local)}"
        sentence = printable(_bounded(_sentence(record)))  # a client id may hold anything
        text = f"{when} {record.levelname.lower():<7} {self._prefix}{sentence}".rstrip()
        return text if record.exc_info is None else f"{text}\n{_bounded(_trace(self, record), _MOST_TRACE)}"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    assert record.exc_info is not None
    return formatter.formatException(record.exc_info)


def _sentence(record: logging.LogRecord) -> str:
    text, found = event_of(record)
    if text is not None:
        return text
    pairs = [f"{key}={_plain(value)}" for key, value in found.items() if value is not None]
    return " ".join([f"{record.getMessage():<{_EVENT_WIDTH}}", *pairs])


def _plain(value: object) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    needs_quotes = not text or any(c in ' "=' or not c.isprintable() for c in text)
    return json.dumps(text, ensure_ascii=False) if needs_quotes else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC, ISO 8601), level, event, the sentence as `message`, then the fields."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._own: dict[str, object] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._own,
        }
        text, found = event_of(record)
        values = {"message": text, **found}
        entry.update((key, _jsonable(value)) for key, value in values.items() if value is not None)
        if record.exc_info is not None:
            entry["exception"] = _bounded(_trace(self, record), _MOST_TRACE)
        return json.dumps(entry)


def _jsonable(value: object) -> object:
    if isinstance(value, list):
        return [_bounded(str(item)) for item in value]
    return value if isinstance(value, (bool, int, float, dict)) else _bounded(str(value))


_FORMATTERS: dict[str, Callable[[int | None], logging.Formatter]] = {"human": HumanFormatter, "json": JsonFormatter}


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
    text = f"{lines} lines of this log are missing: they could not be written (is its disk full?)"
    record = logging.LogRecord("shoal", logging.WARNING, "", 0, "log-lines-missing", None, None)
    vars(record).update(event(text, lines=lines))
    return record


def _handler(stream: TextIO | None) -> logging.Handler:
    if stream is None:
        with suppress(OSError, ValueError):  # a stand-in for stderr may have no descriptor
            return _Lines(sys.stderr.fileno())
    return logging.StreamHandler(stream or sys.stderr)


def set_up_logs(settings: LogSettings, stream: TextIO | None = None, *, worker: int | None = None) -> None:
    """From now on, all loggers below `shoal` write to `stream` (stderr); other libraries are not affected.

    `worker`: this process is the worker of this number, and writes to the same stream as the others: whole lines.
    """
    handler = _handler(stream)
    handler.setFormatter(_FORMATTERS[settings.format](worker))
    handler.set_name(_WRITER)
    log = logging.getLogger("shoal")
    for old in log.handlers[:]:
        if old.name == _WRITER:  # others count lines
            log.removeHandler(old)
    log.addHandler(handler)
    log.setLevel(settings.level.upper())
    log.propagate = False
