"""Columns for readers of the index: name, type and source in the physical row (`columns.FIELDS`).

A reader sees null where the proxy did not know a value; the physical row has an impossible number there (-1, or 0 for a
name). Fields of the batch header are null, 0 or false in a row without one: a request without records, or an old
format.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.index.columns import Direction, Handling, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["COLUMNS", "Column", "Enumerated", "Name", "Plain", "Type", "Worked", "chosen"]


class Type(Enum):
    """The values are names that Spark's and Arrow's types have in common."""

    LONG = "long"
    INT = "int"
    STRING = "string"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Plain:
    """The field of this name. Null where its value is `null`; with `header`, also without a batch header."""

    field: str
    null: int | None = None
    header: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """The string whose number the field has. Number 0 is null, or the empty string."""

    field: str
    null: bool = False


@dataclass(frozen=True, slots=True)
class Enumerated:
    field: str
    of: type[IntEnum]


@dataclass(frozen=True, slots=True)
class Worked:
    """Computed from several fields, by the function of the column's name in `decode`."""

    null: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: Type
    source: Plain | Name | Enumerated | Worked

    @property
    def nullable(self) -> bool:
        match self.source:
            case Plain(null=null, header=header):
                return header or null is not None
            case Name(null=null) | Worked(null=null):
                return null
            case Enumerated():
                return False


_LONG, _INT, _STRING, _BOOLEAN = Type
_TABLE: Final[tuple[tuple[str, Type, Plain | Name | Enumerated | Worked], ...]] = (
    ("time_ns", _LONG, Plain("time_ns")),
    ("latency_ns", _LONG, Plain("latency_ns", null=-1)),
    ("proxy", _STRING, Worked()),
    ("connection", _LONG, Plain("connection")),
    ("request", _LONG, Plain("request")),
    ("client", _STRING, Name("client")),
    ("software", _STRING, Name("software")),
    ("listener", _STRING, Name("listener")),
    ("cluster", _STRING, Name("cluster")),
    ("node", _INT, Plain("node", null=-1)),
    ("kind", _STRING, Enumerated("kind", Kind)),
    ("direction", _STRING, Enumerated("direction", Direction)),
    ("handling", _STRING, Enumerated("handling", Handling)),
    ("reason", _STRING, Name("reason", null=True)),
    ("api_key", _INT, Plain("api_key")),
    ("api_version", _INT, Plain("api_version")),
    ("topic", _STRING, Name("topic", null=True)),
    ("partition", _INT, Plain("partition", null=-1)),
    ("base_offset", _LONG, Plain("log_offset", null=-1)),
    ("last_offset", _LONG, Worked(null=True)),
    ("records", _INT, Plain("record_count")),
    ("batch_bytes", _INT, Worked()),
    ("raw_bytes", _INT, Plain("raw_bytes", null=-1)),
    ("codec", _STRING, Worked(null=True)),
    ("base_timestamp", _LONG, Plain("base_timestamp", null=-1, header=True)),
    ("max_timestamp", _LONG, Plain("max_timestamp", null=-1, header=True)),
    ("timestamp_type", _STRING, Worked(null=True)),
    ("producer_id", _LONG, Plain("producer_id", null=-1, header=True)),
    ("producer_epoch", _INT, Plain("producer_epoch", null=-1, header=True)),
    ("base_sequence", _INT, Plain("base_sequence", null=-1, header=True)),
    ("transactional", _BOOLEAN, Worked()),
    ("control", _BOOLEAN, Worked()),
    ("acks", _INT, Plain("acks", null=-2)),
    ("error", _INT, Plain("error", null=-32768)),
    ("throttle_ms", _INT, Plain("throttle_ms")),
    ("request_bytes", _INT, Plain("request_bytes", null=-1)),
    ("response_bytes", _INT, Plain("response_bytes", null=-1)),
    ("has_keys", _BOOLEAN, Plain("has_keys", null=-1)),
    ("source_topic", _STRING, Name("source_topic", null=True)),
    ("source_partition", _INT, Plain("source_partition", null=-1)),
    ("source_first", _LONG, Plain("source_first", null=-1)),
    ("source_last", _LONG, Plain("source_last", null=-1)),
)
COLUMNS: Final[Mapping[str, Column]] = MappingProxyType(
    {name: Column(name=name, type=kind, source=source) for name, kind, source in _TABLE}
)


def chosen(names: Sequence[str] | None = None) -> tuple[Column, ...]:
    """The columns of these names, in this order; all for None. Raises ValueError that lists the unknown ones."""
    wanted = tuple(COLUMNS) if names is None else tuple(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise ValueError(f"no such column: {', '.join(unknown)} (there are {', '.join(COLUMNS)})")
    return tuple(COLUMNS[name] for name in wanted)
