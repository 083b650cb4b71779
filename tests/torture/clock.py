"""A clock of its own for a process: a library that is preloaded (`clock.c`) moves the time of day and leaves the monotonic clock alone.

(libfaketime cannot: told to leave the monotonic clock alone, its 0.9.10 breaks `sleep` of Python and of Java.)
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE = Path(__file__).with_name("clock.c")
_OFFSET = struct.Struct("=q")


@dataclass(frozen=True, slots=True)
class Clock:
    file: Path

    def environment(self) -> Mapping[str, str]:
        """Of the process; nothing where there is no C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return {}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(_OFFSET.pack(0))
        library = self.file.with_suffix(".so")
        subprocess.run((compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"), check=True)
        return {"LD_PRELOAD": str(library.resolve()), "SHOAL_CLOCK": str(self.file.resolve())}

    def set(self, seconds: float) -> None:
        """From now on the time of day is so much later (or earlier)."""
        with self.file.open("r+b") as file:
            file.write(_OFFSET.pack(round(seconds)))
