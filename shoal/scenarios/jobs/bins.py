"""Histograms with four bins per doubling, and percentiles from them.

A histogram can be added to another one, a percentile cannot; so jobs count bins first and read percentiles off at the end. Bin b holds
what is at least 2^(b/4) and less than 2^((b+1)/4), so a value that is told as the middle of its bin is off by 9 % at most. All below 1
is bin -1. Powers of two are edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BELOW_ONE", "PER_DOUBLING", "lower_edge", "middle", "share_bin"]

PER_DOUBLING: Final = 4
BELOW_ONE: Final = -1


def lower_edge(number: int) -> float:
    return 0.0 if number < 0 else float(2 ** (number / PER_DOUBLING))


def middle(number: int) -> float:
    """The geometric middle, which is what a percentile is told as."""
    return 0.0 if number < 0 else float(2 ** ((number + 0.5) / PER_DOUBLING))


def share_bin(counts: Iterable[tuple[int, int]], share: float) -> int | None:
    """Of (bin, count): the bin in which the share is reached. None without counts."""
    ordered = sorted(counts)
    total, reached = sum(count for _, count in ordered), 0
    for number, count in ordered:
        reached += count
        if total and reached >= (share - 1e-9) * total:
            return number
    return None
