"""A clock of its own for a process: libfaketime moves what it is told of the time of day, and leaves the monotonic clock alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@dataclass(frozen=True, slots=True)
class Clock:
    file: Path

    def environment(self) -> Mapping[str, str]:
        """Of the process; nothing where libfaketime is not installed."""
        if not _LIBRARIES:
            return {}
        self.set(0)
        return {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def set(self, seconds: float) -> None:
        """From within a second on the time of day is so much later (or earlier)."""
        aside = self.file.with_suffix(".new")
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(f"{seconds:+.0f}s\n")
        aside.rename(self.file)
