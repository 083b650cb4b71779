"""python -m tests.torture_models [--seconds N] [--seed N] [--jobs N] [--go-on] [--without FEATURE ...]"""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.torture_models.schedules import FEATURES, Schedule, drawn, kind, run, shrunk

CHUNK = 25  # schedules


class Chunk(NamedTuple):
    """The results of some seeds. `failures`: (seed, findings)."""

    steps: int
    cpu: float
    failures: list[tuple[int, list[str]]]


def main(argv: Sequence[str]) -> int:
    """0: nothing found."""
    arguments = _arguments(argv)
    begin, failures = time.monotonic(), Counter[str]()
    number, steps, cpu = 0, 0, 0.0
    for chunk in _chunks(arguments, begin + arguments.seconds):
        number, steps, cpu = number + CHUNK, steps + chunk.steps, cpu + chunk.cpu
        for seed, found in chunk.failures:
            failures[kind(found)] += 1
            if failures[kind(found)] == 1:
                _report(seed, drawn(seed, arguments.without), found)
        if failures and not arguments.go_on:
            break
    took = time.monotonic() - begin
    pace = f"{number / took * 60:.0f} a minute, {number / max(cpu, 0.01) * 60:.0f} a minute of CPU time"
    print(f"{number} schedules, {steps} steps in {took:.1f} s: {pace}; failures: {dict(failures)}")
    return 1 if failures else 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    what = (
        "Schedules of mirrors, a Shoal and a replicated target, as models. Prints the shortest schedule of a failure."
    )
    parser = argparse.ArgumentParser(prog="python -m tests.torture_models", description=what)
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: %(default)g)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first schedule, increased by 1 for each (default: 0)"
    )
    parser.add_argument("--schedules", type=int, default=sys.maxsize, help="stop after this many")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)d)")
    parser.add_argument("--go-on", action="store_true", help="count failures by kind, and shorten the first of each")
    parser.add_argument(
        "--without", nargs="*", choices=FEATURES, default=(), help="features that the schedules must not have"
    )
    return parser.parse_args(argv)


def _chunks(arguments: argparse.Namespace, until: float) -> Iterator[Chunk]:
    starts = iter(range(arguments.seed, min(arguments.seed + arguments.schedules, sys.maxsize), CHUNK))
    if arguments.jobs == 1:
        for start in starts:
            if time.monotonic() >= until:
                return
            yield _check(start, arguments.without)
        return
    with ProcessPoolExecutor(arguments.jobs) as pool:
        waiting = [pool.submit(_check, next(starts), arguments.without) for _ in range(2 * arguments.jobs)]
        while waiting:
            yield waiting.pop(0).result()
            if time.monotonic() < until and (following := next(starts, None)) is not None:
                waiting.append(pool.submit(_check, following, arguments.without))


def _check(start: int, without: Sequence[str]) -> Chunk:
    logging.disable(logging.CRITICAL)
    begin, steps, failures = time.process_time(), 0, []
    for seed in range(start, start + CHUNK):
        schedule = drawn(seed, without)
        steps += len(schedule.steps)
        if found := run(schedule):
            failures.append((seed, found))
    return Chunk(steps, time.process_time() - begin, failures)


def _report(seed: int, schedule: Schedule, found: Sequence[str]) -> None:
    logging.disable(logging.CRITICAL)
    print(f"seed {seed} fails:\n  " + "\n  ".join(found[:5]), flush=True)
    short = shrunk(schedule)
    print(f"its shortest part that fails in the same way:\n{short}\n  " + "\n  ".join(run(short)[:5]), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
