"""A ratio that was measured once per round: the median and the spread of the rounds, and what a change of it means."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NOISE", "Spread", "ratios"]

NOISE = 0.05  # medians that differ by less are the same, however narrow the spreads are
_DIGITS = 3


class Spread(NamedTuple):
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Raises statistics.StatisticsError if there are none."""
        each = sorted(values)
        middle = median(each)
        return cls(*(round(value, _DIGITS) for value in (middle, each[0], each[-1])))

    def above(self, other: Spread) -> bool:
        """The median is above all rounds of the other, all rounds are above its median, and by more than NOISE."""
        return self.median > max(other.high, other.median * (1 + NOISE)) and self.low > other.median


def ratios(above: Sequence[float | None], below: Sequence[float | None]) -> list[float]:
    """One per round that has both. A difference may be negative or zero: such a round has no ratio."""
    return [one / other for one, other in zip(above, below, strict=False) if one and other and min(one, other) > 0]
