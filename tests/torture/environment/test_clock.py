"""A process with a private clock sees the time of day jump in both directions, and its monotonic clock continue."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from .clock import Clock

if TYPE_CHECKING:
    from pathlib import Path

_TELLS = """
import sys, time
for _ in sys.stdin:
    time.sleep(0.001)
    print(time.time(), time.monotonic(), flush=True)
"""


def test_the_time_of_day_steps(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    environment = clock.environment()
    if not environment:
        pytest.skip("no C compiler")
    with subprocess.Popen(
        [sys.executable, "-c", _TELLS],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset in (0, 36_000, -36_000, 0):
            clock.set(offset)
            before = time.time(), time.monotonic()
            process.stdin.write("\n")
            process.stdin.flush()
            day, monotonic = map(float, process.stdout.readline().split())
            assert before[0] + offset <= day <= time.time() + offset
            assert before[1] <= monotonic <= time.monotonic()
        process.stdin.close()
