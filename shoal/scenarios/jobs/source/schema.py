"""The schema of captured rows for all jobs: one row per record batch, and one per request without records.

Names and types are those of every reader of captures: `shoal/scenarios/capture/schema.py` gives the source of each, and
`shoal/protocol/capture/index/columns.py` the meaning of the numbers. Times `*_ns` are Unix time in nanoseconds by the
proxy's clock; timestamps are Kafka's, in milliseconds. Null is "not known" or "none".
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType

from shoal.scenarios.capture.schema import Column, Type, chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ROW", "projection"]

_TYPES: Final[Mapping[Type, DataType]] = MappingProxyType(
    {Type.LONG: LongType(), Type.INT: IntegerType(), Type.STRING: StringType(), Type.BOOLEAN: BooleanType()}
)


def projection(names: Sequence[str] | None) -> StructType:
    """The columns of these names, in this order; None is all. Raises ValueError that lists the unknown ones."""
    return StructType([_field(column) for column in chosen(names)])


def _field(column: Column) -> StructField:
    return StructField(column.name, _TYPES[column.type], column.nullable)


ROW: Final = projection(None)
