"""A part whose files cannot grow is restarted, whether or not it exits by itself."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.process import Process

from .parts import Part

if TYPE_CHECKING:
    from pathlib import Path

WRITES = "import time\nwhile True:\n  print('x' * 100_000, flush=True); time.sleep(0.01)"
IS_QUIET = "import time; time.sleep(3600)"


@pytest.mark.parametrize("program", [WRITES, IS_QUIET])
async def test_a_part_without_a_disk_begins_anew(tmp_path: Path, program: str) -> None:
    processes: list[Process] = []

    async def start() -> None:
        processes.append(Process([sys.executable, "-c", program], log=tmp_path / "log", name="part"))

    await start()
    part = Part("part", start, lambda: processes[-1], lambda _: None)
    await part.starved(0.1)
    assert len(processes) == 2
    assert not processes[0].running
    assert processes[1].running
    assert resource.prlimit(processes[1].pid, resource.RLIMIT_FSIZE) == resource.getrlimit(resource.RLIMIT_FSIZE)
    processes[1].kill()


async def test_a_part_that_ends_by_itself_is_noted(tmp_path: Path) -> None:
    processes: list[Process] = []

    async def start() -> None:
        processes.append(Process([sys.executable, "-c", IS_QUIET], log=tmp_path / "log", name="part"))

    await start()
    part = Part("part", start, lambda: processes[-1], lambda _: None)
    await part.down(0.0, orderly=False)
    await part.down(0.0, orderly=True)
    assert part.deaths == []
    processes[-1].kill()
    await part.heal()
    processes[-1].kill()
    await part.down(0.0, orderly=False)
    await part.heal()
    assert part.deaths == [-9, -9]
    assert len(processes) == 5
    processes[-1].kill()
