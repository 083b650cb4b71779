"""What was measured once per round: the median and the spread of the rounds, and what a change of it means."""

from __future__ import annotations

from math import comb
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NOISE", "Spread", "known_median", "ratios"]

NOISE = 0.05  # medians that differ by less are the same, however narrow the spreads are
_DIGITS = 3
_UNSURE = 1 / 16  # of five rounds: none of them is left out


class Spread(NamedTuple):
    """The true median is between `low` and `high` with 94 % or more, from five rounds on, whatever the distribution."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Raises statistics.StatisticsError if there are none."""
        each = sorted(values)
        middle, left_out = median(each), _outside(len(each))
        ends = (each[left_out], each[-1 - left_out])
        return cls(*(round(value, _DIGITS) for value in (middle, *ends)))

    def above(self, other: Spread) -> bool:
        """The median is above the spread of the other, the spread is above its median, and by more than NOISE."""
        return self.median > max(other.high, other.median * (1 + NOISE)) and self.low > other.median


def _outside(rounds: int) -> int:
    """Rounds that are left out at each end: none of up to 8, one of 9 to 11, two of 12 to 14, three of 15.

    The median is below the lowest of n values with a probability of 1/2**n: the sign test.
    """
    outside, below = 0, 1
    while 2 * (below + comb(rounds, outside + 1)) <= _UNSURE * 2**rounds:
        outside += 1
        below += comb(rounds, outside)
    return outside


def known_median(values: Iterable[float | None]) -> float | None:
    """Rounds without a value are left out; None: none has one."""
    known = [value for value in values if value is not None]
    return round(median(known), _DIGITS) if known else None


def ratios(above: Sequence[float | None], below: Sequence[float | None]) -> list[float]:
    """One per round that has both. A difference may be negative or zero: such a round has no ratio."""
    return [
        numerator / other
        for numerator, other in zip(above, below, strict=False)
        if numerator and other and min(numerator, other) > 0
    ]
