"""The past of counters: the median of their records in the previous windows of their level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from shoal.scenarios.jobs.cascade.cells import joined
from shoal.scenarios.jobs.columns.groups import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from shoal.scenarios.jobs.cascade.cells import Cells, Keys

__all__ = ["PAST", "past_of"]

PAST: Final = 10
"""Windows."""
_UNKNOWN: Final = np.iinfo(np.int64).max


def past_of(keys: Keys, seconds: int, recent: Sequence[Cells]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """-> medians, 0 where nothing is known, and the number of known windows. `recent`: may have other cells, too."""
    count = keys.size
    known = joined([keys, *(cells.keys for cells in recent)])
    flows = grouped([known.topic, known.client]).codes
    windows = (known.window - known.window.min()) // seconds + PAST  # so that no flow begins where another one ends
    places = flows * (int(windows.max()) + 1) + windows
    asked, there = places[:count], places[count:]
    order = np.argsort(there)
    there = np.append(there[order], _UNKNOWN)
    records = np.concatenate([*(cells.total[:, 0] for cells in recent), [0]]).astype(np.int64)[np.append(order, -1)]
    values = np.full((count, PAST), _UNKNOWN)
    for past in range(PAST):
        at = np.searchsorted(there, asked - (past + 1))
        found = there[at] == asked - (past + 1)
        values[found, past] = records[at[found]]
    values.sort(axis=1)
    number = (values != _UNKNOWN).sum(axis=1)
    middle = [values[np.arange(count), np.maximum(half, 0)] for half in ((number - 1) // 2, number // 2)]
    return np.where(number > 0, (middle[0] + middle[1]) / 2, 0.0), number.astype(np.int32)
