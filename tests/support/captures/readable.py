"""Rows of the index in tests: a sink that keeps them, and rows as plain values."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from shoal.protocol.capture.index.columns import FIELDS, ROW_SIZE, Direction, Handling, Kind
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.sink import MemorySink
from shoal.protocol.capture.index.tap import MAX_WAITING, Tap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import IntEnum


__all__ = ["IDS", "Kept", "in_chunks", "new_tap", "read_row"]

IDS = {b"i" * 16: "by-id"}
_NAMES = frozenset(field.name for field, _ in FIELDS if field.name_number)
_ENUMS: Mapping[str, type[IntEnum]] = {"kind": Kind, "direction": Direction, "handling": Handling}


def read_row(row: bytes, names: Mapping[int, str]) -> dict[str, Any]:
    """Field by field, with names for numbers (None for 0)."""
    values, pos = {}, 0
    for field, order in FIELDS:
        packed = Struct(order + field.code)
        (value,) = packed.unpack_from(row, pos)
        pos += packed.size
        if field.name_number:
            value = names[value] if value else None
        values[field.name] = _ENUMS[field.name](value) if field.name in _ENUMS else value
    assert pos == ROW_SIZE == len(row)
    return values


class Kept(MemorySink):
    """Its rows one by one."""

    def __init__(self) -> None:
        super().__init__(lambda _, topic_id: IDS.get(topic_id))

    def add(self, rows: bytes) -> None:
        assert rows
        assert len(rows) % ROW_SIZE == 0
        super().add(rows)

    @property
    def raw(self) -> list[bytes]:
        rows = b"".join(self.pieces)
        return [rows[at : at + ROW_SIZE] for at in range(0, len(rows), ROW_SIZE)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [read_row(row, self.names) for row in self.raw]


def new_tap(most_waiting: int = MAX_WAITING) -> tuple[Tap, Kept]:
    kept = Kept()
    place = ConnectionInfo(connection=7, listener="here", cluster="there", node=3)
    return Tap(place, kept, most_waiting=most_waiting), kept


def in_chunks(data: bytes, sizes: Iterable[int]) -> Iterable[memoryview]:
    """`data` cut into chunks of these sizes; the rest is the last one."""
    view, pos = memoryview(data), 0
    for size in sizes:
        if pos >= len(data):
            return
        yield view[pos : pos + size]
        pos += size
    if pos < len(data):
        yield view[pos:]
