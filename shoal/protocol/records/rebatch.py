"""Cut one batch in several, for a broker that answered MESSAGE_TOO_LARGE (its max.message.bytes counts per batch).

Records are spliced, not decoded: of each only the length and the offset delta are written anew. Keeping the batch's
baseTimestamp keeps the timestamp deltas, and everything from the key on is copied as it stands.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass

from shoal.protocol.records.batch import (
    HEADER_SIZE,
    TRANSACTIONAL,
    UNPRODUCIBLE,
    BatchHeader,
    read_batch_header,
    require_crc,
    seal_batch,
)
from shoal.protocol.records.record import int64, read_record_bounds
from shoal.protocol.wire.compression import decompress
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_varint, read_varlong, write_varint

__all__ = ["MAX_DECOMPRESSED", "MAX_RECORDS", "split_batch"]

# What one batch may grow to in memory. Brokers take 1 MiB compressed by default and JSON shrinks 10-20 fold, so a batch of
# the default size fits several times over; a bomb (zstd: 1:30000) does not.
MAX_DECOMPRESSED = 64 * 1024 * 1024
# About 3 us each, so 3 s in all: the caller's thread does nothing else meanwhile.
MAX_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutter:
    header: BatchHeader
    payload: bytes  # decompressed
    starts: "array[int]"  # where each record starts, and the end of the last

    def halves(self, first: int, last: int, limit: int) -> list[bytes]:
        """Records `first` to `last` (exclusive), cut where half of the bytes lie on either side, and on until they fit.

        The bytes of a piece halve within two levels, single records aside, so this is no deep recursion.
        """
        if last - first == 1:
            return [self.batch(first, last)]
        half = (self.starts[first] + self.starts[last]) // 2
        middle = min(max(bisect_left(self.starts, half, first, last), first + 1), last - 1)
        return self._fitting(first, middle, limit) + self._fitting(middle, last, limit)

    def _fitting(self, first: int, last: int, limit: int) -> list[bytes]:
        batch = self.batch(first, last)
        return [batch] if len(batch) <= limit or last - first == 1 else self.halves(first, last, limit)

    def batch(self, first: int, last: int) -> bytes:
        body, header = bytearray(), self.header
        newest = max(self._append(body, index, index - first) for index in range(first, last))
        return seal_batch(
            bytes(body),
            codec=header.codec,
            record_count=last - first,
            base_timestamp=header.base_timestamp,
            max_timestamp=newest,
            **self._stamps(first),
        )

    def _stamps(self, first: int) -> dict[str, int]:
        """Those of the piece that begins with record `first`: the sequence goes on counting, and wraps to 0."""
        header = self.header
        if header.producer_id < 0 or header.base_sequence < 0:
            return {}
        return {
            "attributes": header.attributes & TRANSACTIONAL,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": (header.base_sequence + first) & 0x7FFFFFFF,
        }

    def _append(self, body: bytearray, index: int, offset_delta: int) -> int:
        """Returns the record's timestamp."""
        payload, end = self.payload, self.starts[index + 1]
        start, _ = read_record_bounds(payload, self.starts[index])
        timestamp_delta, middle = read_varlong(payload, start + 1, end)
        _, rest = read_varint(payload, middle, end)
        if end - rest < 3:  # key, value and headers take a byte each
            raise RemoteProtocolError("record ends before its headers")
        offset = write_varint(offset_delta)
        body += write_varint(end - start + len(offset) - (rest - middle))
        body += payload[start:middle]
        body += offset
        body += payload[rest:end]
        return int64(self.header.base_timestamp + timestamp_delta)


def split_batch(
    buf: Buffer, start: int, end: int, *, limit: int, max_decompressed: int = MAX_DECOMPRESSED
) -> list[bytes]:
    """The records of the batch `buf[start:end]` as two or more producible batches, of at most `limit` bytes where possible.

    Same codec; timestamps, keys, values, headers and their order exact; offsets dense from 0; leader epoch -1; producer id,
    epoch and transactional bit kept, the sequence counted on (-1 where there are none); attribute bits 3, 5 and 6 clear. A single record cannot be cut: it is a batch of its own, however large.
    No record, a control or LogAppendTime batch, a CRC mismatch, damage, more than `max_decompressed` plain bytes or MAX_RECORDS records:
    RemoteProtocolError.
    """
    header = read_batch_header(buf, start, end)
    require_crc(header, buf, start, end)
    if header.attributes & UNPRODUCIBLE or not 0 < header.record_count <= MAX_RECORDS:
        raise RemoteProtocolError(
            f"batch of {header.record_count} records, attributes {header.attributes:#x} cannot be cut"
        )
    payload = decompress(header.codec, memoryview(buf)[start + HEADER_SIZE : end], max_decompressed)
    cutter = _Cutter(header=header, payload=payload, starts=_record_starts(payload, header.record_count))
    return cutter.halves(0, header.record_count, limit)


def _record_starts(payload: bytes, count: int) -> "array[int]":
    starts, pos = array("Q", [0]), 0
    for _ in range(count):
        _, pos = read_record_bounds(payload, pos)
        starts.append(pos)
    if pos != len(payload):
        raise RemoteProtocolError(f"{len(payload) - pos} bytes after the last record")
    return starts
