"""Groups rows by several columns, in numpy: each row's group, and each group's first row.

Columns become small numbers (a string its index in a dictionary), combined into one number like digits. A hash of
that number gives dense groups. Spark's own grouping builds and compares a key of about 150 bytes for each row instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Groups", "dense", "grouped", "is_word", "summed"]

Numbers = npt.NDArray[np.int64]
_MOST: Final = 1 << 62
_NARROW: Final = 1 << 20
"""Integers that span less than this are used as digits directly."""


class Groups(NamedTuple):
    """`codes`: of each row, from 0 and in the order in which groups appear. `first`: of each group, its first row."""

    codes: Numbers
    first: Numbers

    def __len__(self) -> int:
        return len(self.first)


def grouped(columns: Sequence[pa.Array | Numbers], *, most: int = _MOST, narrow: int = _NARROW) -> Groups:
    """At least one column; all have the same length, which is not 0. Null is a value."""
    codes, size = _digits(columns[0], narrow)
    for column in columns[1:]:
        digits, count = _digits(column, narrow)
        if size * count > most:
            codes, size = _digits(dense(codes), narrow)
        codes, size = codes * count + digits, size * count
    codes = dense(codes)
    first = np.empty(int(codes.max()) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return Groups(codes, first)


def summed(groups: Groups, values: npt.NDArray[Any]) -> Numbers:
    """Sums by group. Exact while the total is below 2^53."""
    return np.bincount(groups.codes, values.astype(np.float64), len(groups)).astype(np.int64)


def is_word(column: pa.Array, word: str) -> npt.NDArray[np.bool_]:
    """One flag per row of a column of strings."""
    encoded = _encoded(column)
    equal = pc.fill_null(pc.equal(encoded.dictionary, word), False).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = np.append(equal, False)[_places(encoded)]
    return found


def _digits(column: pa.Array | Numbers, narrow: int) -> tuple[Numbers, int]:
    """-> a number for each row, and one more than the largest possible."""
    if isinstance(column, np.ndarray):
        least, most = int(column.min()), int(column.max())
        if most - least < narrow:
            return column.astype(np.int64) - least, most - least + 1
        column = pa.array(column)
    encoded = _encoded(column)
    return _places(encoded), len(encoded.dictionary) + 1


def dense(codes: Numbers) -> Numbers:
    """The same groups as numbers from 0 without gaps, in the order in which they appear."""
    return _places(pa.array(codes).dictionary_encode())


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()


def _places(encoded: pa.DictionaryArray) -> Numbers:
    places = encoded.indices
    if places.null_count:
        places = places.fill_null(len(encoded.dictionary))
    numbers: Numbers = places.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
