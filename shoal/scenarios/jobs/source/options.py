"""Options of the data sources: strings from Spark, parsed and checked.

path               a directory of index files, or one of them
columns            names separated by commas: fewer columns are read much faster (default: all)
topics             names separated by commas: rows of these topics only
from, to           times of the capture clock, from inclusive, to exclusive: ISO 8601 (UTC without a zone), or
                   nanoseconds of Unix time
splitBytes         size of the part of a file that one task reads (default: 64 MiB)
maxBytesPerTrigger stream: about this many bytes per micro-batch (default: everything available)
failOnDataLoss     stream: fail when a file is gone that was not read to its end (default: true)
show               "rows" (default), or "faults": what could not be read, see FAULTS
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import LongType, StringType, StructField, StructType

from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.capture.selection import Selection
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.source.schema import projection

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FAULTS", "Options", "instant_ns"]

_MIB: Final = 1024 * 1024
_SPLIT: Final = 64 * _MIB

FAULTS: Final = StructType(
    [
        StructField("file", StringType(), nullable=False),
        StructField("proxy", StringType(), nullable=False),
        StructField("what", StringType(), nullable=False),  # damaged, torn, dropped
        StructField("start", LongType(), nullable=False),  # byte in the file
        StructField("amount", LongType(), nullable=False),  # bytes; dropped: rows of this process until now
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    path: Path
    columns: tuple[str, ...]
    selection: Selection
    split_bytes: int = _SPLIT
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    faults: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Raises JobError."""
        given = {name.lower(): value for name, value in given.items()}
        if not given.get("path"):
            raise JobError("path", "is missing: use .load(PATH), a directory of index files or one of them")
        per_trigger = given.get("maxbytespertrigger")
        return cls(
            path=Path(given["path"].removeprefix("file:")),
            columns=_columns(given.get("columns")),
            selection=_selection(given),
            split_bytes=_positive("splitBytes", given.get("splitbytes", str(_SPLIT))),
            max_bytes=None if per_trigger is None else _positive("maxBytesPerTrigger", per_trigger),
            fail_on_data_loss=_one_of("failOnDataLoss", given, "true", "false") == "true",
            faults=_one_of("show", given, "rows", "faults") == "faults",
        )

    @property
    def schema(self) -> StructType:
        return FAULTS if self.faults else projection(self.columns)


def _columns(text: str | None) -> tuple[str, ...]:
    try:
        return tuple(column.name for column in chosen(None if text is None else _names(text)))
    except ValueError as error:
        raise JobError("columns", str(error)) from None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _selection(given: Mapping[str, str]) -> Selection:
    topics = given.get("topics")
    return Selection(
        topics=None if topics is None else frozenset(_names(topics)),
        from_ns=instant_ns("from", given.get("from")),
        to_ns=instant_ns("to", given.get("to")),
    )


def instant_ns(name: str, text: str | None) -> int | None:
    """Raises JobError, which names the option."""
    if text is None:
        return None
    try:
        return int(text) if text.isdigit() else _iso_ns(text)
    except ValueError:
        raise JobError(name, f"{text!r} is not a time: write for example 2026-11-22T03:00:00") from None


def _iso_ns(text: str) -> int:
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def _positive(name: str, text: str) -> int:
    if not text.isdigit() or not int(text):
        raise JobError(name, f"{text!r} is not a positive number")
    return int(text)


def _one_of(name: str, given: Mapping[str, str], *values: str) -> str:
    """The first value is the default."""
    value = given.get(name.lower(), values[0]).lower()
    if value not in values:
        raise JobError(name, f"{value!r} is none of {', '.join(values)}")
    return value
