"""The engine without dependencies: mutated inputs for a given time, thousands per second; a finding is minimised."""

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic

from tests.fuzz.check import MEMORY_LIMIT, check, limit_memory, peak_memory
from tests.fuzz.hostile import hostile
from tests.fuzz.kept import KEPT, keep
from tests.fuzz.target import Target

__all__ = ["fuzz", "fuzz_all", "smallest"]


def fuzz_all(targets: Sequence[Target], seconds: float, number: int) -> bool:
    """Whether nothing was found. `number` seeds the choice of inputs."""
    limit_memory()
    before, broken = peak_memory(), 0
    for target in targets:
        try:
            print(f"{target.name}: {fuzz(target, seconds, number)}", flush=True)
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            broken += 1
    grown = peak_memory() - before
    print(f"{len(targets)} targets, {broken} broken, {grown >> 20} MiB of memory", flush=True)
    return not broken and grown <= MEMORY_LIMIT


def fuzz(target: Target, seconds: float, number: int, *, kept: Path = KEPT) -> str:
    """-> a summary. Raises the decoder's exception, for a minimised input that is saved in `kept`."""
    random, seeds = Random(number), target.seeds()
    inputs, slowest = 0, 0.0
    for data in seeds:
        check(target, data)
    end = monotonic() + seconds
    while monotonic() < end:
        data = hostile(random, seeds)
        try:
            slowest = max(slowest, check(target, data))
        except Exception as error:
            shorter = smallest(target, data, type(error))
            keep(target.name, shorter, kept)
            check(target, shorter)
            raise
        inputs += 1
    return f"{inputs} inputs, the slowest took {slowest * 1000:.1f} ms"


def smallest(target: Target, data: bytes, kind: type[Exception]) -> bytes:
    """`data` without bytes that are not needed to raise `kind`: removes halves, quarters, ..., single bytes."""
    size = len(data) // 2
    while size:
        start = 0
        while start < len(data):
            shorter = data[:start] + data[start + size :]
            if _raises(target, shorter, kind):
                data = shorter
            else:
                start += size
        size //= 2
    return data


def _raises(target: Target, data: bytes, kind: type[Exception]) -> bool:
    try:
        check(target, data)
    except Exception as error:
        return type(error) is kind
    return False
