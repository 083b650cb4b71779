"""Selects rows by the numbers of physical rows, before decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from shoal.scenarios.capture.rows import NameTable

__all__ = ["EVERYTHING", "Selection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """None is no condition. Times are of the capture clock (`time_ns`), `from_ns` inclusive, `to_ns` exclusive."""

    topics: frozenset[str] | None = None
    clients: frozenset[str] | None = None
    from_ns: int | None = None
    to_ns: int | None = None

    def of(self, rows: npt.NDArray[np.void], names: NameTable) -> npt.NDArray[np.void]:
        conditions = []
        for field, wanted in (("topic", self.topics), ("client", self.clients)):
            if wanted is not None:
                conditions.append(np.isin(rows[field], names.numbers_of(wanted)))
        if self.from_ns is not None:
            conditions.append(rows["time_ns"] >= self.from_ns)
        if self.to_ns is not None:
            conditions.append(rows["time_ns"] < self.to_ns)
        return rows[np.logical_and.reduce(conditions)] if conditions else rows


EVERYTHING: Final = Selection()
