"""Logs: one line per event, for people (aligned) or for machines (JSON). Never one per request.

An event is `log.info("event name", extra=fields(key=value, ...))`; what the event is goes into the message and never
varies, what varies goes into the fields, so that both forms can be searched.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HumanFormatter", "JsonFormatter", "LogSettings", "fields", "set_up_logs"]

_FIELDS = "shoal_fields"
_EVENT_WIDTH = 24  # longer events push their fields to the right


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: str = "info"  # debug, info, warning, error
    format: str = "human"  # human, json
    report_every: float = 5.0  # seconds between lines of what flows; 0 = none


def fields(**values: object) -> dict[str, Mapping[str, object]]:
    """The `extra` of a log call."""
    return {_FIELDS: values}


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(record, _FIELDS, {})
    return found


class HumanFormatter(logging.Formatter):
    """`10:02:05.120 info    listening                listener=source address=127.0.0.1:19092`"""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{when}.{record.msecs:03.0f} {record.levelname.lower():<7} {record.getMessage():<{_EVENT_WIDTH}}"
        pairs = [f"{key}={_plain(value)}" for key, value in _fields_of(record).items() if value is not None]
        text = " ".join([line, *pairs]).rstrip()
        return text if record.exc_info is None else f"{text}\n{self.formatException(record.exc_info)}"


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
        return json.dumps(entry, default=str, ensure_ascii=False)


_FORMATTERS = {"human": HumanFormatter, "json": JsonFormatter}


def set_up_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Everything under `shoal` goes to `stream` (stderr) from now on; other libraries are left alone."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_FORMATTERS[settings.format]())
    log = logging.getLogger("shoal")
    for old in log.handlers[:]:
        log.removeHandler(old)
    log.addHandler(handler)
    log.setLevel(settings.level.upper())
    log.propagate = False
