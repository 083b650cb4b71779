"""A record set whose headers are read once, for all later questions about it.

If batches are tiny, the work per batch dominates the proxy's cost. So one loop reads headers and does nothing else.
Later questions take the headers by column, in loops that run in C.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from shoal.protocol.records.batch import HEADER_SIZE, BatchHeader, read_fields
from shoal.protocol.records.recordset import LOG_OVERHEAD, MIN_LENGTHS, entries
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["NEWEST_MAGIC", "Fields", "ScannedSet", "scan"]

Fields: TypeAlias = tuple[int, ...]
"""The fields of a `BatchHeader`, in its order; of an entry below magic 2 only the first four, without a leader epoch.
"""

NEWEST_MAGIC = 2
_LEAST = MIN_LENGTHS[NEWEST_MAGIC]


class ScannedSet(NamedTuple):
    """The whole entries of a record set, by column: start, end and fields of each.

    `is_v2`: all of them are batches of magic 2. A truncated tail is left out. If the record set cannot be split
    (`is_readable` is False), there are no entries.
    """

    starts: list[int]
    ends: list[int]
    headers: list[Fields]
    is_v2: bool = True
    is_readable: bool = True

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.starts)

    def next_offset(self, fetch_offset: int) -> int:
        """The next fetch offset of a consumer that gets this record set unchanged; -1 if the set is damaged."""
        if not self.headers:
            return fetch_offset if self.is_readable else -1
        last = self.headers[-1]
        if last[3] != NEWEST_MAGIC:
            return last[0] + 1
        return last[0] + last[6] + 1 if min(last[0], last[6], last[12]) >= 0 else -1

    def batches(self) -> Iterator[tuple[int, int, BatchHeader]]:
        """Start, end and header of each batch of magic 2. Raises RemoteProtocolError at a negative offset or count."""
        for start, end, fields in zip(self.starts, self.ends, self.headers, strict=True):
            if fields[3] == NEWEST_MAGIC:
                header = BatchHeader._make(fields)
                header.require_positive()
                yield start, end, header


_UNREADABLE = ScannedSet([], [], [], is_readable=False)


def scan(buf: Buffer, start: int, end: int) -> ScannedSet:
    """Scan the record set `buf[start:end]`. Checksums are not checked."""
    starts, headers, at, last = list[int](), list[Fields](), start, end - HEADER_SIZE
    while at <= last:
        fields = read_fields(buf, at)
        length = fields[1]
        stop = at + LOG_OVERHEAD + length
        if length < _LEAST or fields[3] != NEWEST_MAGIC or stop > end:
            break
        starts.append(at)
        headers.append(fields)
        at = stop
    is_v2 = True
    try:
        for at_entry, stop, magic, base_offset in entries(buf, at, end):
            is_v2 &= magic == NEWEST_MAGIC
            starts.append(at_entry)
            headers.append(
                read_fields(buf, at_entry)
                if magic == NEWEST_MAGIC
                else (base_offset, stop - at_entry - LOG_OVERHEAD, -1, magic)
            )
            at = stop
    except RemoteProtocolError:
        return _UNREADABLE
    return ScannedSet(starts, [*starts[1:], at] if starts else [], headers, is_v2)
