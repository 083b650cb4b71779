"""A histogram with fixed bounds, cheap enough for every request: one search and two additions."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Histogram"]


class Histogram:
    """`counts` has one entry per bound (values up to it, and above the one before), and one for larger values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """`weight`: how many such values there were."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight

    def cumulative(self) -> list[int]:
        """For each bound the number of values up to it; the last one is the number of all values."""
        return list(accumulate(self.counts))
