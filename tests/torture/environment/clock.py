"""A private clock for a process: a preloaded library (`clock.c`) shifts the time of day, not the monotonic clock.

(libfaketime 0.9.10 cannot: with an unshifted monotonic clock it breaks `sleep` of Python and of Java.)
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
        """Environment of the process; empty without a C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return {}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(_OFFSET.pack(0))
        library = self.file.with_suffix(".so")
        subprocess.run((compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"), check=True)
        return {"LD_PRELOAD": str(library.resolve()), "SHOAL_CLOCK": str(self.file.resolve())}

    def set(self, seconds: float) -> None:
        """Shift the time of day by this much from now on (negative: back)."""
        with self.file.open("r+b") as file:
            file.write(_OFFSET.pack(round(seconds)))
