"""The source's log of one partition, as Shoal sees it: its first and last offset, and when it reached which end.

The end is the high watermark for a mirror that reads all records, and the last stable offset for one with
read_committed: it cannot copy what is after that, so an open transaction is no lag.
"""

from typing import NamedTuple

__all__ = ["MAX_SAMPLES", "SourceLog"]

MAX_SAMPLES = 64
"""Ends with their times, ~100 bytes each; only while the mirror is behind. Above it, every second one is dropped: an
age is then too low by at most 1/16 of the time that it spans."""

_SAMPLE_SECONDS = 0.5


class _Sample(NamedTuple):
    end: int
    at: float


class SourceLog:
    """`start`, `end`: -1 while unknown. `observed_at`: of the last observation; any clock, s."""

    __slots__ = ("_samples", "end", "observed_at", "start")

    def __init__(self) -> None:
        self.start = self.end = -1
        self.observed_at = float("-inf")
        self._samples: list[_Sample] = []

    def observe(self, start: int, end: int, mirrored: int, now: float, *, is_certain: bool = False) -> None:
        """`start` -1: the answer does not say. `mirrored`: records below it need no age.

        A new leader's high watermark may be behind for a while, so `end` goes back only if it is certain.
        """
        end = end if is_certain else max(end, self.end)
        self.start = max(self.start, start)
        self.observed_at = now
        samples = self._samples
        if samples and samples[0].end <= mirrored:
            self._samples = samples = [sample for sample in samples if sample.end > mirrored]
        if end > max(mirrored, self.end if samples else -1):
            if samples and now - samples[-1].at < _SAMPLE_SECONDS:
                samples[-1] = samples[-1]._replace(end=end)
            else:
                samples.append(_Sample(end, now))
            if len(samples) > MAX_SAMPLES:
                del samples[1::2]
        self.end = end

    def waiting_since(self, mirrored: int) -> float | None:
        """When the oldest record that is not mirrored was first seen in the log; None: everything is mirrored."""
        return next((sample.at for sample in self._samples if sample.end > mirrored), None)

    def restart(self, start: int = -1, end: int = -1) -> None:
        """It is another log now, or a shorter one."""
        self.start, self.end = start, end
        self._samples = []
