"""Contents and faults of an index file, for `ls`, `verify` and `compact`. Needs no numpy."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.index.blocks import Damaged, Torn
from shoal.protocol.capture.index.columns import FIELDS, Kind
from shoal.scenarios.capture.index import IndexReader, Rows

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.capture.files import CaptureFile

__all__ = ["NAME_FIELDS", "Survey", "field_at", "is_being_written", "survey"]

_TIME: Final = Struct("<q")
_NUMBER: Final = Struct("<I")


def field_at(name: str) -> int:
    """Offset of a field in a row."""
    at = 0
    for field, order in FIELDS:
        if field.name == name:
            return at
        at += Struct(order + field.code).size
    raise KeyError(name)


NAME_FIELDS: Final = tuple(field.name for field, _ in FIELDS if field.name_number)
_KIND_AT: Final = field_at("kind")
_NUMBERS_AT: Final = {name: field_at(name) for name in NAME_FIELDS}


@dataclass(kw_only=True)
class Survey:
    """`is_open`: a process is writing it. `unknown`: numbers that no NAMES block has; `damaged`: byte ranges."""

    file: CaptureFile
    size: int
    is_open: bool
    proxy: str = ""
    blocks: int = 0
    rows: int = 0
    batches: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    is_closed: bool = False
    is_started: bool = False
    stated: int | None = None
    dropped: int = 0
    damaged: list[Damaged]
    torn: Torn | None = None
    unknown: set[int]

    @property
    def state(self) -> str:
        ended = "closed" if self.is_closed else "open" if self.is_open else "left"
        hurt = ("damaged",) if self.damaged or not self.is_started else ()
        return ", ".join((ended, *(("torn",) if self.torn else ()), *hurt))

    @property
    def problems(self) -> list[str]:
        """Empty when there is no problem. A torn end is normal while the file is open."""
        found = [f"bytes {damage.start} to {damage.end} are damaged" for damage in self.damaged]
        if not self.is_started:
            found.append("does not name its writer: its first block is missing")
        if self.torn and not self.is_open:
            found.append(f"torn at byte {self.torn.start}: {self.size - self.torn.start} bytes are not a whole block")
        if self.is_closed and self.stated is not None and self.stated != self.rows:
            found.append(f"its writer counted {self.stated} rows")
        if self.dropped:
            found.append(f"{self.dropped} rows could not be written")
        if self.unknown:
            found.append(
                f"{len(self.unknown)} names are missing: {', '.join(f'?{n}' for n in sorted(self.unknown)[:5])}"
            )
        return found


def survey(file: CaptureFile, names: bool = False) -> Survey:
    """Read the whole file; `names`: look for unknown names, too. Raises OSError, UnreadableFile."""
    is_open = is_being_written(file.path)
    result = Survey(file=file, size=file.path.stat().st_size, is_open=is_open, damaged=[], unknown=set())
    reader = IndexReader(path=file.path, end=result.size)
    for found in reader:
        match found:
            case Rows():
                _count(result, reader, found.payload, names)
            case Damaged():
                result.damaged.append(found)
            case Torn():
                result.torn = found
    result.proxy, result.blocks = reader.proxy, reader.blocks
    result.is_started = bool(reader.written_by)
    result.is_closed = bool(reader.state.get("closed"))
    result.stated, result.dropped = _whole(reader.state.get("written")), _whole(reader.state.get("dropped")) or 0
    return result


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _count(result: Survey, reader: IndexReader, payload: bytes, names: bool) -> None:
    size = reader.row_size
    result.rows += len(payload) // size
    result.batches += payload[_KIND_AT::size].count(Kind.BATCH)
    times = [_TIME.unpack_from(payload, at)[0] for at in (0, len(payload) - size)]
    result.first_ns = min(times) if result.first_ns is None else min(result.first_ns, *times)
    result.last_ns = max(times) if result.last_ns is None else max(result.last_ns, *times)
    for at in _NUMBERS_AT.values() if names else ():
        quarters = (payload[at + byte :: size] for byte in range(_NUMBER.size))
        numbers = set(zip(*quarters, strict=True))
        result.unknown |= {
            number
            for four in numbers
            if (number := int.from_bytes(bytes(four), "little")) and number not in reader.names
        }


def is_being_written(path: Path) -> bool:
    """The writer holds a lock until its process ends."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
