"""Record batches of format v2 (KIP-98, DefaultRecordBatch.java): read the header, re-stamp it, build a batch.

The CRC does not cover baseOffset, batchLength, partitionLeaderEpoch and magic; it covers everything from `attributes`
to the end of the batch. So a consumer needs only the 61 header bytes, and what must change before a batch is produced
again is in the 36 bytes from `attributes` to `baseSequence`: the checksum is patched (wire/crc.py), the payload is
never touched.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias

from shoal.protocol.records.record import Headers, Record, Slice, int64, read_records, write_record
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.wire.compression import Codec, compress, decompress
from shoal.protocol.wire.crc import Buffer, combine, crc32c, shift
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = [
    "CODEC_MASK",
    "HEADER_SIZE",
    "BatchHeader",
    "NewRecord",
    "Stored",
    "body_crc",
    "body_crcs",
    "encode_batch",
    "open_batch",
    "produced_again",
    "producible_header",
    "read_batch_header",
    "read_fields",
    "read_stored",
    "require_crc",
    "seal_batch",
    "stamped_header",
    "synthetic_header",
]

_HEADER = Struct(
    ">"
    "q"  # baseOffset
    "i"  # batchLength: of all bytes after it
    "i"  # partitionLeaderEpoch
    "b"  # magic
    "I"  # crc: of all bytes after it
    "h"  # attributes
    "i"  # lastOffsetDelta
    "q"  # baseTimestamp
    "q"  # maxTimestamp
    "q"  # producerId
    "h"  # producerEpoch
    "i"  # baseSequence
    "i"  # records count
)
_STORED = Struct(">qi4xbIhi16s10sii")  # the same, with the timestamps in one piece, and producerId and producerEpoch
_PRODUCIBLE = Struct(">qiibIhi16sqhii")
HEADER_SIZE = _HEADER.size
_CRC_FROM = 21  # attributes
STAMPS_TO = 57  # the end of baseSequence
_PRODUCER = Struct(">qhi")  # producerId, producerEpoch, baseSequence
_AROUND_STAMPS = Struct(">17sIH20s14s4s")  # to magic, crc, attributes, to maxTimestamp, those stamps, records

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # KIP-534: baseTimestamp is then the delete horizon
CLEARED = TRANSACTIONAL | DELETE_HORIZON
UNPRODUCIBLE = LOG_APPEND_TIME | CONTROL  # clearing these would change timestamps, or turn markers into records

# How clearing these bits, or the producer fields, changes the checksum of the 36 bytes up to baseSequence. The checksum
# is linear in the difference of two buffers of equal length, and equal leading bytes do not count.
_STAMPED = STAMPS_TO - _CRC_FROM
_CHANGE_BY_BITS = {
    bits: crc32c(bits.to_bytes(2, "big") + bytes(_STAMPED - 2)) ^ crc32c(bytes(_STAMPED))
    for bits in (0, TRANSACTIONAL, DELETE_HORIZON, CLEARED)
}
_SEQUENCE = Struct(">i")
_CRC_OF_NO_PRODUCER = crc32c(_PRODUCER.pack(-1, -1, -1))

_CODECS = tuple(Codec)

Stored: TypeAlias = tuple[int, int, int, int, int, int, bytes, bytes, int, int]
"""baseOffset, batchLength, magic, crc, attributes, lastOffsetDelta, bytes of the timestamps, bytes of producerId and
producerEpoch, baseSequence, records count."""


class BatchHeader(NamedTuple):
    """The 61 bytes, in order. Offsets and timestamps (ms) are those of the log, deltas are relative."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """Raises RemoteProtocolError for an unknown codec id (5-7)."""
        try:
            return _CODECS[self.attributes & CODEC_MASK]
        except IndexError:
            raise RemoteProtocolError(f"unknown codec {self.attributes & CODEC_MASK}") from None

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    def require_positive(self) -> None:
        """Raises RemoteProtocolError if an offset or a count is negative."""
        if self.base_offset < 0 or self.last_offset_delta < 0 or self.record_count < 0:
            raise RemoteProtocolError("negative offset or count in a batch header")

    def timestamp(self, record: Record) -> int:
        """The record's timestamp as a consumer sees it (ms)."""
        return self.max_timestamp if self.is_log_append_time else int64(self.base_timestamp + record.timestamp_delta)


def read_fields(buf: Buffer, pos: int) -> tuple[int, ...]:
    """The header fields of the magic 2 batch whose header is complete at `pos`, in the order of `BatchHeader`.

    Nothing is checked: for loops over many batches, where creating a `BatchHeader` for each costs more than reading it.
    """
    return _HEADER.unpack_from(buf, pos)


def read_batch_header(buf: Buffer, pos: int, end: int) -> BatchHeader:
    """The header of the batch at `pos`, which must end at or before `end` (`recordset.split` finds such batches).

    Raises RemoteProtocolError for a magic other than 2, a size that does not fit, a negative offset or count. The CRC
    is not checked (`body_crc`), nor the codec (`BatchHeader.codec`).
    """
    if end - pos < HEADER_SIZE:
        raise RemoteProtocolError(f"{end - pos} bytes are no batch header")
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buf, pos))
    if header.magic != 2:
        raise RemoteProtocolError(f"magic {header.magic} where a batch of magic 2 was expected")
    if not HEADER_SIZE <= header.batch_length + LOG_OVERHEAD <= end - pos:
        raise RemoteProtocolError(f"batch of {header.size} bytes, {end - pos} are there")
    header.require_positive()
    return header


def body_crc(buf: Buffer, start: int, end: int) -> int:
    """The expected `crc` of the batch `buf[start:end]`: the only pass over its payload."""
    return crc32c(memoryview(buf)[start + _CRC_FROM : end])


def body_crcs(buf: Buffer, starts: Iterable[int], ends: Iterable[int]) -> list[int]:
    """`body_crc` of each batch; `starts` and `ends` are parallel."""
    view = memoryview(buf)
    return [crc32c(view[start + _CRC_FROM : end]) for start, end in zip(starts, ends, strict=True)]


def require_crc(header: BatchHeader, buf: Buffer, start: int, end: int) -> None:
    """RemoteProtocolError unless `header` is that of exactly `buf[start:end]` and its CRC is right."""
    if header.size != end - start:
        raise RemoteProtocolError(f"batch of {header.size} bytes in a span of {end - start}")
    if body_crc(buf, start, end) != header.crc:
        raise RemoteProtocolError(f"batch at offset {header.base_offset}: CRC mismatch")


def producible_header(buf: Buffer, start: int, end: int) -> bytes:
    """The 61 header bytes with which the batch `buf[start:end]` may be produced, its payload unchanged.

    baseOffset 0, leader epoch, producer id, epoch and sequence -1, attribute bits 4 and 6 cleared, as UnifiedLog and
    LogValidator require, and the CRC patched from the old one, so that the broker still detects damage to the payload.
    Raises RemoteProtocolError for a control or LogAppendTime batch (they are never wrapped).
    """
    if end - start < HEADER_SIZE:
        raise RemoteProtocolError(f"{end - start} bytes are no batch header")
    stored = read_stored(buf, start)
    _, length, magic, _, attributes, *_ = stored
    if magic != 2 or length + LOG_OVERHEAD != end - start or attributes & UNPRODUCIBLE:
        raise RemoteProtocolError(
            f"batch of magic {magic}, {length} bytes, attributes {attributes:#x} may not be produced"
        )
    return produced_again(stored)


def read_stored(buf: Buffer, pos: int) -> Stored:
    """The fields of the magic 2 batch whose header is complete at `pos`. Nothing is checked."""
    return _STORED.unpack_from(buf, pos)


def produced_again(stored: Stored) -> bytes:
    """`producible_header` of the batch with these fields, which must be producible."""
    _, length, _, crc, attributes, last_delta, timestamps, producer, sequence, count = stored
    former = crc32c(_SEQUENCE.pack(sequence), crc32c(producer))
    change = _CHANGE_BY_BITS[attributes & CLEARED] ^ former ^ _CRC_OF_NO_PRODUCER
    if change:
        crc ^= shift(change, length + LOG_OVERHEAD - STAMPS_TO)
    return _PRODUCIBLE.pack(0, length, -1, 2, crc, attributes & ~CLEARED, last_delta, timestamps, -1, -1, -1, count)


def stamped_header(
    header: Buffer, payload: int, producer_id: int, epoch: int, sequence: int, *, transactional: bool = False
) -> bytes:
    """A batch's 61 bytes with another producer id, epoch and base sequence, transactional or not.

    `payload` is the number of bytes that follow; none of them is read.
    """
    start, crc, attributes, middle, former, end = _AROUND_STAMPS.unpack_from(header)
    producer = _PRODUCER.pack(producer_id, epoch, sequence)
    change = crc32c(former) ^ crc32c(producer)
    if transactional is not bool(attributes & TRANSACTIONAL):
        attributes ^= TRANSACTIONAL
        change ^= _CHANGE_BY_BITS[TRANSACTIONAL]
    crc ^= shift(change, payload + HEADER_SIZE - STAMPS_TO)
    return _AROUND_STAMPS.pack(start, crc, attributes, middle, producer, end)


def synthetic_header(
    *,
    base_offset: int,
    leader_epoch: int = -1,
    attributes: int = 0,
    max_timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    body_length: int,
    crc_of_body: int,
) -> bytes:
    """The 61 bytes before ONE uncompressed record with timestamp delta 0: its timestamp is `max_timestamp`.

    `crc_of_body` is the plain CRC-32C of the `body_length` bytes after the header, beginning with the record's head
    (`encode_single_record_head`).
    """
    fields = (attributes, 0, max_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, 1)
    length = HEADER_SIZE - LOG_OVERHEAD + body_length
    unsigned = _HEADER.pack(base_offset, length, leader_epoch, 2, 0, *fields)
    crc = combine(crc32c(unsigned[_CRC_FROM:]), crc_of_body, body_length)
    return _HEADER.pack(base_offset, length, leader_epoch, 2, crc, *fields)


def open_batch(buf: Buffer, start: int, end: int, *, limit: int) -> tuple[BatchHeader, Iterator[Record]]:
    """Header and records of the batch `buf[start:end]`, after a CRC check, decompressed to at most `limit` bytes.

    The records' slices are memoryviews: of `buf` itself if the batch is uncompressed. Raises RemoteProtocolError for
    damage, TooLarge above `limit`.
    """
    header = read_batch_header(buf, start, end)
    require_crc(header, buf, start, end)
    payload = memoryview(buf)[start + HEADER_SIZE : end]
    if header.codec:
        payload = memoryview(decompress(header.codec, payload, limit))
    return header, read_records(payload, header.record_count)


class NewRecord(NamedTuple):
    """A record to be put in a batch. `offset_delta`: None = its index; a value makes gaps as compaction leaves them."""

    timestamp: int
    key: Slice | None
    value: Slice | None
    headers: Headers = ()
    offset_delta: int | None = None


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """A whole batch. `attributes` gives bits 3-6; a value of None is derived from the records, as a producer does.

    A batch without records needs `last_offset_delta`: compaction keeps such batches for their producer ids.
    """
    base = base_timestamp if base_timestamp is not None else records[0].timestamp if records else -1
    newest = max_timestamp if max_timestamp is not None else max((record.timestamp for record in records), default=base)
    deltas = [index if record.offset_delta is None else record.offset_delta for index, record in enumerate(records)]
    last = last_offset_delta if last_offset_delta is not None else deltas[-1]
    payload = b"".join(
        write_record(Record(delta, int64(record.timestamp - base), record.key, record.value, tuple(record.headers)))
        for delta, record in zip(deltas, records, strict=True)
    )
    return seal_batch(
        payload,
        base_offset=base_offset,
        codec=codec,
        attributes=attributes,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_timestamp=base,
        max_timestamp=newest,
        last_offset_delta=last,
        record_count=len(records),
    )


def seal_batch(
    payload: Buffer,
    *,
    codec: Codec,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    last_offset_delta: int | None = None,
) -> bytes:
    """The batch of the uncompressed records `payload`, compressed here. Offsets are dense if `last_offset_delta` is
    None."""
    body = compress(codec, payload)
    last = record_count - 1 if last_offset_delta is None else last_offset_delta
    stamps = (base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence)
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    header = bytearray(
        _HEADER.pack(base_offset, length, leader_epoch, 2, 0, attributes | codec, last, *stamps, record_count)
    )
    header[17:21] = crc32c(body, crc32c(header[_CRC_FROM:])).to_bytes(4, "big")
    return b"".join((header, body))
