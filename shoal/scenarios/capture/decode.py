"""Physical rows -> Arrow, one column at a time, and only the requested ones.

Strings are plain strings (Spark takes no dictionaries from Python), each looked up in the file's table of names. A
column with nulls costs a mask; one without nulls does not.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shoal.scenarios.capture.schema import Enumerated, Name, Plain, Type, Worked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from enum import IntEnum

    from shoal.scenarios.capture.rows import NameTable
    from shoal.scenarios.capture.schema import Column

__all__ = ["Decoder", "arrow_schema"]

_Rows = npt.NDArray[np.void]
_TYPES: Final = {Type.LONG: pa.int64(), Type.INT: pa.int32(), Type.STRING: pa.string(), Type.BOOLEAN: pa.bool_()}
_NUMBERS: Final = {Type.LONG: np.int64, Type.INT: np.int32, Type.BOOLEAN: np.bool_}
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", None, None, None)
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_BEFORE_LENGTH: Final = 12
"""Bytes of a record batch up to the end of the length field, which does not count them."""


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _TYPES[column.type], column.nullable) for column in columns])


class Decoder:
    """Decodes the rows of one file."""

    def __init__(self, columns: Sequence[Column], names: NameTable, proxy: str) -> None:
        self.schema = arrow_schema(columns)
        self._columns = columns
        self._names = names
        self._proxy = proxy

    def decode(self, rows: _Rows) -> pa.RecordBatch:
        """`rows`: of `rows.as_rows`."""
        return pa.RecordBatch.from_arrays([self._column(column, rows) for column in self._columns], schema=self.schema)

    def _column(self, column: Column, rows: _Rows) -> pa.Array:
        match column.source:
            case Plain():
                return _plain(column.type, column.source, rows)
            case Name(field, null):
                return self._names.strings(rows[field], null)
            case Enumerated(field, of):
                return _words(of).take(pa.array(np.ascontiguousarray(rows[field])))
            case Worked():
                return pa.repeat(self._proxy, len(rows)) if column.name == "proxy" else _WORKED[column.name](rows)


def _plain(type_: Type, source: Plain, rows: _Rows) -> pa.Array:
    field = rows[source.field]
    known = None if source.null is None else field != source.null
    if source.header:
        known = _with_header(rows) & (True if known is None else known)
    return _masked(field.astype(_NUMBERS[type_]), known)


def _masked(values: npt.NDArray[Any], known: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(values) if known is None or known.all() else pa.array(values, mask=~known)


def _with_header(rows: _Rows) -> npt.NDArray[np.bool_]:
    """Batches of magic 2: the only format whose header is in the row."""
    with_header: npt.NDArray[np.bool_] = rows["magic"] == 2
    return with_header


def _last_offset(rows: _Rows) -> pa.Array:
    known = _with_header(rows) & (rows["log_offset"] >= 0)
    return _masked(rows["log_offset"] + rows["last_offset_delta"], known)


def _batch_bytes(rows: _Rows) -> pa.Array:
    lengths = rows["batch_length"].astype(np.int32)
    return pa.array(np.where(_with_header(rows), lengths + np.int32(_BEFORE_LENGTH), np.int32(0)))


def _codec(rows: _Rows) -> pa.Array:
    return _looked_up(_CODECS, rows["attributes"] & 0x07, rows)


def _timestamp_type(rows: _Rows) -> pa.Array:
    return _looked_up(("create", "append"), (rows["attributes"] & _LOG_APPEND_TIME) >> 3, rows)


def _looked_up(words: tuple[str | None, ...], positions: npt.NDArray[np.int16], rows: _Rows) -> pa.Array:
    positions = np.where(_with_header(rows), positions, len(words)).astype(np.int8)
    return pa.array((*words, None), pa.string()).take(pa.array(positions))


def _bit(bit: int) -> Callable[[_Rows], pa.Array]:
    return lambda rows: pa.array((rows["attributes"] & bit) != 0)


@cache
def _words(of: type[IntEnum]) -> pa.Array:
    """Names by number. A later version may have more numbers."""
    named = {member.value: member.name.lower() for member in of}
    return pa.array([named.get(number, f"?{number}") for number in range(256)], pa.string())


_WORKED: Final[Mapping[str, Callable[[_Rows], pa.Array]]] = MappingProxyType(
    {
        "last_offset": _last_offset,
        "batch_bytes": _batch_bytes,
        "codec": _codec,
        "timestamp_type": _timestamp_type,
        "transactional": _bit(_TRANSACTIONAL),
        "control": _bit(_CONTROL),
    }
)
