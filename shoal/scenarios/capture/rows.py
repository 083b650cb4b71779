"""Physical rows as numpy arrays, and the strings that their numbers refer to."""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shoal.protocol.capture.index.columns import FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NameTable", "as_rows", "row_dtype"]

_KINDS: Final = {"b": "i1", "B": "u1", "h": "i2", "i": "i4", "I": "u4", "q": "i8"}
_SPARSE: Final = 1024
"""With this many unnamed numbers in the list, names are looked up one by one: the writer counts from 1."""


@cache
def row_dtype(row_size: int) -> np.dtype[np.void]:
    """Fields that a later version appended to the row are skipped."""
    names, formats, offsets, at = [], [], [], 0
    for field, order in FIELDS:
        names.append(field.name)
        formats.append(order + _KINDS[field.code])
        offsets.append(at)
        at += Struct(order + field.code).size
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": row_size})


def as_rows(payload: bytes, row_size: int) -> npt.NDArray[np.void]:
    """No copy."""
    return np.frombuffer(payload, row_dtype(row_size))


class NameTable:
    """Names by number, looked up for whole columns. Follows `names` while it grows. An unnamed number shows as
    `?NUMBER`."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._count = -1
        self._tables: dict[bool, pa.Array] = {}

    def strings(self, numbers: npt.NDArray[np.uint32], null: bool) -> pa.Array:
        """`null`: number 0 is null, otherwise the empty string."""
        table, numbers = self._table(null), np.ascontiguousarray(numbers)
        if not len(numbers) or numbers.max() < len(table):
            return table.take(pa.array(numbers))
        found, positions = np.unique(numbers, return_inverse=True)
        texts = [self._text(int(number), null) for number in found]
        return pa.array(texts, pa.string()).take(pa.array(positions))

    def numbers_of(self, wanted: frozenset[str]) -> npt.NDArray[np.uint32]:
        """The numbers that have one of these names."""
        return np.array([number for number, name in self._names.items() if name in wanted], np.uint32)

    def _table(self, null: bool) -> pa.Array:
        if len(self._names) != self._count:
            self._count, self._tables = len(self._names), {}
        if null not in self._tables:
            size = min(max(self._names, default=0) + 1, 2 * self._count + _SPARSE)
            self._tables[null] = pa.array([self._text(number, null) for number in range(size)], pa.string())
        return self._tables[null]

    def _text(self, number: int, null: bool) -> str | None:
        name = self._names.get(number)
        if name is None:
            name = f"?{number}" if number else ""
        return None if null and not number else name
