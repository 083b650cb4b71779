"""Split a batch for a broker that answered MESSAGE_TOO_LARGE (its max.message.bytes applies per batch).

Records are spliced, not decoded: only the length and the offset delta of each are rewritten. The baseTimestamp and
the timestamp deltas are kept, and everything from the key on is copied unchanged.

`compress_plain` compresses a batch that a mirror sends uncompressed (its producer should not compress envelopes again),
as a whole payload. No record is decoded; producer id, epoch and sequence are kept.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass

from shoal.protocol.records.batch import (
    HEADER_SIZE,
    TRANSACTIONAL,
    UNPRODUCIBLE,
    BatchHeader,
    body_crc,
    read_batch_header,
    require_crc,
    seal_batch,
)
from shoal.protocol.records.record import int64, read_record_bounds
from shoal.protocol.wire.compression import Codec, compress, decompress
from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_varint, read_varlong, write_varint

__all__ = ["MAX_DECOMPRESSED", "MAX_RECORDS", "compress_plain", "split_batch"]

# Maximum decompressed bytes of a batch. Brokers take 1 MiB compressed by default and JSON shrinks 10-20 fold, so a
# batch of the default size fits several times over; a decompression bomb (zstd: 1:30000) does not.
MAX_DECOMPRESSED = 64 * 1024 * 1024
# About 3 us each, so 3 s in total: the caller's thread is blocked meanwhile.
MAX_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutter:
    header: BatchHeader
    payload: bytes  # decompressed
    starts: "array[int]"  # the start of each record, and the end of the last

    def halves(self, first: int, last: int, limit: int) -> list[bytes]:
        """Records `first` to `last` (exclusive), halved by bytes until the pieces fit.

        A piece's bytes halve within two levels, except for single records, so the recursion is shallow.
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
        """The stamps of the piece that begins with record `first`: the sequence continues, and wraps to 0."""
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
    """The records of the batch `buf[start:end]` as two or more producible batches, of at most `limit` bytes where
    possible.

    Same codec; timestamps, keys, values, headers and their order exact; offsets dense from 0; leader epoch -1; producer
    id, epoch and transactional bit kept, the sequence continued (-1 where there is none); attribute bits 3, 5 and 6
    clear. A single record cannot be split: it becomes its own batch of any size. Raises RemoteProtocolError for a
    batch without records, a control or LogAppendTime batch, a CRC mismatch, damage, more than `max_decompressed` plain
    bytes or MAX_RECORDS records.
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


def compress_plain(header: BatchHeader, frame: Buffer, start: int, end: int, codec: Codec) -> list[Buffer] | None:
    """The record set `frame[start:end]` with its only, uncompressed batch compressed; None = forward it unchanged.

    `header` is that of its first batch. None, too, if the result would not be smaller, or a broker would refuse the
    original: a new checksum must not hide damage.
    """
    if codec is Codec.NONE or header.codec or header.is_control:
        return None
    if header.size != end - start or body_crc(frame, start, end) != header.crc:
        return None
    payload = compress(codec, memoryview(frame)[start + HEADER_SIZE : end])
    if len(payload) >= end - start - HEADER_SIZE:
        return None
    head = bytearray(memoryview(frame)[start : start + HEADER_SIZE])
    head[8:12] = (HEADER_SIZE - 12 + len(payload)).to_bytes(4, "big")  # batchLength
    head[21:23] = (header.attributes | codec).to_bytes(2, "big", signed=True)
    head[17:21] = crc32c(payload, crc32c(head[21:])).to_bytes(4, "big")
    return [head, payload]
