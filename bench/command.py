"""The common command line of the benchmarks: measure, report errors, print the tables, write the report."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import trio
from confluent_kafka import KafkaException

from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["benchmark", "warn_if_busy"]

OK, FAILED, INTERRUPTED = 0, 1, 130
Report = dict[str, Any]


def warn_if_busy(progress: Progress) -> None:
    """A ratio depends on the load, too: caches are cold, and a proxy with several threads loses more."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        progress.say(f"the machine is busy (load {load:.1f} on {cores} cores): expect wider spreads and false verdicts")


def benchmark(
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Progress], Awaitable[Report]],
    as_tables: Callable[[Report], str],
    remark: str,
) -> int:
    """-> the exit code. `options.out`: the directory of `report.json`. `remark` is printed below the tables."""
    progress = Progress(sys.stderr)
    try:
        report = trio.run(measure, options, progress)
    except KeyboardInterrupt:
        progress.say("interrupted; everything that was started has been ended")
        return INTERRUPTED
    except (HarnessError, KafkaException, OSError, RuntimeError) as error:
        progress.say(f"benchmark failed: {error}")
        return FAILED
    progress.clear()
    print(as_tables(report))
    target: Path = options.out / "report.json"
    target.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{remark} Full figures: {target}")
    return OK
