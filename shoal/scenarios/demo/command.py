"""What the demos share as commands: exit codes, the number of records, and how a run ends without a report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from shoal.scenarios.kafka.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.scenarios.demo.phases import Phases
    from shoal.scenarios.progress import Progress

__all__ = ["FAILED", "INTERRUPTED", "NOT_EQUAL", "OK", "attempt", "record_count"]

OK, NOT_EQUAL, FAILED, INTERRUPTED = 0, 1, 2, 130

R = TypeVar("R")


def record_count(least: int) -> Callable[[str], int]:
    """The type of an argument: at least so many records."""

    def parse(text: str) -> int:
        digits = text.replace("_", "").replace(",", "")
        if not digits.isdecimal():
            raise argparse.ArgumentTypeError(f'"{text}" is not a number of records, for example 1000000')
        count = int(digits)
        if count < least:
            raise argparse.ArgumentTypeError(f"{count} is too few: at least {least:,}")
        return count

    return parse


def attempt(run: Callable[[], R], progress: Progress, phases: Phases, work: Path) -> R | int:
    """-> the report, or the exit code of a run that has none. `work` has the logs."""
    try:
        return run()
    except KeyboardInterrupt:
        progress.say("interrupted; all that was started has been ended")
        return INTERRUPTED
    except (HarnessError, KafkaException, OSError) as error:
        where = f"failed in: {phases.current}\n" if phases.current else ""
        progress.say(f"\n{where}{error}\nlogs: {work}")
        return FAILED
