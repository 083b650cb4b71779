"""The bins of `jobs/columns/bins.py` for arrays: microseconds, four bins per doubling. Bin 0: below 1 us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from shoal.scenarios.jobs.columns.bins import BELOW_ONE, PER_DOUBLING, middle, share_bin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["PLACES", "by_bin", "histogram", "percentile_ms"]

PLACES: Final = 112
"""The last bin begins at 190 s, and has everything above."""


def histogram(nanoseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """-> a count for each bin."""
    microseconds = np.maximum(nanoseconds, 1).astype(np.float32) * np.float32(1e-3)
    bins = np.floor(np.log2(microseconds) * PER_DOUBLING)
    places = np.clip(bins, BELOW_ONE, PLACES + BELOW_ONE - 1).astype(np.int64) - BELOW_ONE
    return np.bincount(places, minlength=PLACES).astype(np.int64)


def by_bin(counts: Sequence[int]) -> dict[int, int]:
    """Bin number -> count, where there are any."""
    return {place + BELOW_ONE: int(count) for place, count in enumerate(counts) if count}


def percentile_ms(counts: Sequence[int], share: float) -> float:
    """Off by 9 % at most; 0 without counts, or below a microsecond."""
    found = share_bin(by_bin(counts).items(), share)
    return 0.0 if found is None else middle(found) / 1000
