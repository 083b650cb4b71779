"""python -m tests.torture_models [--seconds N] [--seed N] [--go-on]: schedules of the models, thousands a minute."""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.torture_models.schedules import FEATURES, Schedule, drawn, kind, run, shrunk


def main(argv: Sequence[str]) -> int:
    """0: nothing found."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture_models", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule, which each next one adds 1 to")
    parser.add_argument("--schedules", type=int, default=sys.maxsize, help="at most so many")
    parser.add_argument("--go-on", action="store_true", help="count failures by kind, and shrink the first of each")
    parser.add_argument("--without", nargs="*", choices=FEATURES, default=(), help="what the schedules shall not have")
    arguments = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    begin, cpu = time.monotonic(), time.process_time()
    failures: Counter[str] = Counter()
    steps, seed = 0, arguments.seed
    while time.monotonic() < begin + arguments.seconds and seed < arguments.seed + arguments.schedules:
        schedule = drawn(seed, arguments.without)
        found = run(schedule)
        steps += len(schedule.steps)
        if found:
            failures[kind(found)] += 1
            if failures[kind(found)] == 1:
                _report(seed, schedule, found)
            if not arguments.go_on:
                break
        seed += 1
    took = time.monotonic() - begin
    number = seed - arguments.seed
    cpu = time.process_time() - cpu
    pace = f"{number / took * 60:.0f} a minute, {number / cpu * 60:.0f} a minute of CPU time"
    print(f"{number} schedules, {steps} steps in {took:.1f} s: {pace}; failures: {dict(failures)}")
    return 1 if failures else 0


def _report(seed: int, schedule: Schedule, found: Sequence[str]) -> None:
    short = shrunk(schedule)
    print(f"seed {seed} fails:\n  " + "\n  ".join(found[:5]))
    print(f"its shortest part that fails in the same way:\n{short}\n  " + "\n  ".join(run(short)[:5]), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
