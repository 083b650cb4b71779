"""Progress of the demo by phase: a temporary line while a phase runs, then a line with its result."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.scenarios.progress import Progress

__all__ = ["Phases"]

TITLE, OUTCOME = 30, 66  # columns


class Phases:
    """`total` phases are announced as 1/total, 2/total and so on."""

    def __init__(self, progress: Progress, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._total = total
        self._clock = clock
        self._number = 0
        self.current = ""
        """The title of the current or last phase: where a failure happened."""

    @contextmanager
    def phase(self, title: str) -> Iterator[Phase]:
        self._number += 1
        self.current = title
        phase = Phase(self._progress, f"{self._number:>2}/{self._total}  {title.ljust(TITLE)}  ")
        phase.now("...")
        start = self._clock()
        yield phase
        self._progress.say(f"{phase.head}{phase.outcome.ljust(OUTCOME)}  {self._clock() - start:6.1f} s")


class Phase:
    def __init__(self, progress: Progress, head: str) -> None:
        self._progress = progress
        self.head = head
        self.outcome = "done"

    def now(self, text: str, done: float = 0, total: float = 0) -> None:
        """Show the progress."""
        self._progress.update(f"{self.head}{text}", done, total)

    def note(self, text: str) -> None:
        """A line of its own, before the phase's final line."""
        self._progress.say(f"{self.head}{text}")

    def done(self, outcome: str) -> None:
        """Set the text of the phase's final line."""
        self.outcome = outcome
