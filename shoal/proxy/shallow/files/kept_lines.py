"""A file that a process writes at an orderly stop for the next one: a first line that identifies it, then a line of
JSON per row.

It is read once, and removed from the disk before its rows are used: so there is none after a kill, and a crash of the
machine does not bring an old one back. Errors are logged, and lose only this state.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.state_files import sync_directory, write_lines
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["KeptLines"]

log = logging.getLogger("shoal.unwrap")

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLines:
    """`first` is the first line. If rows are lost, `lost` is logged as the consequence, and `failed` is called."""

    path: Path
    first: str
    lost: str
    failed: Callable[[], None] = lambda: None

    def save(self, rows: Iterable[object]) -> None:
        """No rows, no file."""
        lines = [json.dumps(row) for row in rows]
        try:
            if self.path.exists() and not self._is_ours(self.path.read_text()):
                return self._not_kept("it is not Shoal's: move it away, or choose another state-dir")
            self.path.unlink(missing_ok=True)
            if lines:
                write_lines(self.path, [self.first, *lines])
        except (OSError, ValueError) as error:
            self._not_kept(f"{error}: make room, or choose another state-dir")

    def _not_kept(self, why: str) -> None:
        self.failed()
        text = f"cannot write {self.path} ({why}): {self.lost}"
        log.warning("state-file-not-written", extra=event(text, file=str(self.path), error=why))

    def take(self, decode: Callable[[Any], Row]) -> list[Row]:
        """All rows, or none. `decode` may raise ValueError, TypeError, RemoteProtocolError."""
        try:
            if not self.path.exists():
                return []
            text = self.path.read_text()
            if not self._is_ours(text):
                raise ValueError("it is not Shoal's")
            rows = [decode(json.loads(line)) for line in text.splitlines()[1:]]
            self.path.unlink()
            sync_directory(self.path.parent)
        except (OSError, ValueError, TypeError, OverflowError, RemoteProtocolError, RecursionError) as error:
            self.failed()
            text = f"cannot read {self.path} ({error}): {self.lost}"
            log.warning("state-file-not-read", extra=event(text, file=str(self.path), error=str(error)))
            return []
        return rows

    def _is_ours(self, text: str) -> bool:
        """True for an empty file, too: after a crash of the machine a file may have its name but no content."""
        return not text or text.startswith(f"{self.first}\n")
