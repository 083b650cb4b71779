"""Measures one mirror run from outside: wall time, CPU and memory from the first mirrored record to the last.

The target's end offsets are the clock: a record counts when the target has it, not when the mirror reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import trio

from shoal.scenarios import memory
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.process import Process

__all__ = ["Cast", "Measured", "Sample", "measure", "watch"]

POLL_S = 0.05
SAMPLE_S = 0.25
STALL_S = 60.0  # without another record; a rebalance or a retry of the mirror takes less

Cast = Mapping[str, Process]  # by role


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a run. `cpu_s` counts from the first record."""

    at_s: float
    records: int
    cpu_s: Mapping[str, float]  # by role
    mib: Mapping[str, float]  # by role, resident


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    wall_s: float
    cpu_s: Mapping[str, float]  # by role
    peak_mib: Mapping[str, float]  # by role
    samples: tuple[Sample, ...]  # every SAMPLE_S


async def measure(cast: Cast, total: Callable[[], int], wanted: int, show: Callable[[int, float], None]) -> Measured:
    """Measure until `total()`, the records on the target, is `wanted`.

    `show` gets the total and the seconds since the first record. Raises NotReady with the ends of the logs when a
    process of the `cast` has ended, or no record arrives for STALL_S.
    """
    await watch(cast, total, 1, lambda _: show(0, 0.0))
    start = trio.current_time()
    before = {role: process.usage().cpu_s for role, process in cast.items()}
    for process in cast.values():
        memory.reset_peak(process.pid)
    samples: list[Sample] = []

    def look(records: int) -> None:
        at = trio.current_time() - start
        show(records, at)
        if not samples or at >= samples[-1].at_s + SAMPLE_S:
            samples.append(_sample(cast, at, records, before))

    await watch(cast, total, wanted, look)
    wall = trio.current_time() - start
    samples.append(_sample(cast, wall, wanted, before))
    return Measured(
        wall_s=wall,
        cpu_s=samples[-1].cpu_s,
        peak_mib={role: process.usage().peak_mib for role, process in cast.items()},
        samples=tuple(samples),
    )


def _sample(cast: Cast, at: float, records: int, before: Mapping[str, float]) -> Sample:
    return Sample(
        at_s=at,
        records=records,
        cpu_s={role: process.usage().cpu_s - before[role] for role, process in cast.items()},
        mib={role: memory.resident_mib(process.pid) for role, process in cast.items()},
    )


async def watch(cast: Cast, total: Callable[[], int], wanted: int, show: Callable[[int], None]) -> None:
    """Poll until there are `wanted` records. Raises NotReady as `measure` does."""
    seen, moved = 0, trio.current_time()
    while (records := _asked(cast, total, seen)) < wanted:
        if records > seen:
            seen, moved = records, trio.current_time()
        _check(cast, records)
        if trio.current_time() - moved > STALL_S:
            raise NotReady(f"no record arrived for {STALL_S:g} s after {records:,}\n{_tails(cast)}")
        with suppress(ProcessLookupError):  # its memory is gone, its exit code comes: the next look says which it was
            show(records)
        await trio.sleep(POLL_S)


def _asked(cast: Cast, total: Callable[[], int], seen: int) -> int:
    try:
        return total()
    except OSError as error:
        _check(cast, seen)
        raise NotReady(f"the target does not answer after {seen:,} records: {error}\n{_tails(cast)}") from error


def _check(cast: Cast, records: int) -> None:
    for process in cast.values():
        if not process.running:
            raise NotReady(f"{process.name} ended with {process.exit_code} after {records:,} records\n{process.tail()}")


def _tails(cast: Cast) -> str:
    return "\n".join(process.tail() for process in cast.values())
