"""A record set: the RECORDS field of one partition, a sequence of record batches.

All formats share offset: int64, length: int32, then `length` bytes with the magic in the fifth, so a set can be split
without reading further. Entries of magic 0 and 1 are messages (a compressed one wraps many); `Span.magic` distinguishes
them. A broker fills a Fetch response up to a byte limit and may truncate the last entry anywhere: clients drop that
tail and fetch it again.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["LOG_OVERHEAD", "MIN_LENGTHS", "RecordSet", "Span", "entries", "split"]

LOG_OVERHEAD = 12  # offset and length, which the length does not include
_PREFIX = Struct(
    ">"
    "q"  # baseOffset; the message's offset below magic 2
    "i"  # batchLength
    "4x"  # partitionLeaderEpoch; the CRC below magic 2
    "b"  # magic
)
MIN_LENGTHS = {0: 14, 1: 22, 2: 49}  # LegacyRecord.RECORD_OVERHEAD_V0, V1; DefaultRecordBatch's header


class Span(NamedTuple):
    """One whole entry: `buf[start:end]`."""

    start: int
    end: int
    magic: int
    base_offset: int


class RecordSet(NamedTuple):
    """`buf[tail:end]` is the truncated rest; tail == end if there is none."""

    spans: list[Span]
    tail: int


def entries(buf: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The whole entries of `buf[start:end]`, each as the fields of a `Span`; a truncated tail is left out. Raises as
    `split`."""
    unpack = _PREFIX.unpack_from
    last_prefix = end - _PREFIX.size
    while start <= last_prefix:
        base_offset, length, magic = unpack(buf, start)
        if length < MIN_LENGTHS.get(magic, 1 << 31):
            raise RemoteProtocolError(f"record batch of magic {magic} and {length} bytes")
        stop = start + LOG_OVERHEAD + length
        if stop > end:
            break
        yield start, stop, magic, base_offset
        start = stop


def split(buf: Buffer, start: int, end: int) -> RecordSet:
    """Split `buf[start:end]` into its entries, as ByteBufferLogInputStream does.

    Raises RemoteProtocolError for a length that no entry can have, or an unknown magic.
    """
    spans = [Span(*entry) for entry in entries(buf, start, end)]
    return RecordSet(spans, spans[-1].end if spans else start)
