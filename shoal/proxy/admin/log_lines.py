"""Counts the lines of the log by level."""

from __future__ import annotations

import logging

__all__ = ["LogLines"]

_LEVELS = ("debug", "info", "warning", "error", "critical")


class LogLines(logging.Handler):
    """Since it was installed."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(_LEVELS, 0)

    @classmethod
    def installed(cls) -> LogLines:
        """The one of this process."""
        log = logging.getLogger("shoal")
        known = next((handler for handler in log.handlers if isinstance(handler, cls)), None)
        if known is None:
            known = cls()
            log.addHandler(known)
        return known

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        self.counts[level] = self.counts.get(level, 0) + 1
