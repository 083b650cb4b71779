"""Records as a consumer decodes them, in the form in which tests compare them."""

from collections.abc import Sequence

import cramjam

from shoal.protocol.records.batch import HEADER_SIZE, NewRecord, encode_batch, open_batch
from shoal.protocol.records.record import Slice
from shoal.protocol.records.recordset import LOG_OVERHEAD, split
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import crc32c

__all__ = ["consumed", "damaged", "raw_snappy_batch"]

LIMIT = 64 * 1024 * 1024


def _copy(part: Slice | None) -> bytes | None:
    return None if part is None else bytes(part)


def consumed(record_set: bytes) -> list[NewRecord]:
    """Every record of the whole batches in `record_set`, with its timestamp and offset delta, as bytes."""
    records = []
    for span in split(record_set, 0, len(record_set)).spans:
        header, inside = open_batch(record_set, span.start, span.end, limit=LIMIT)
        records += [
            NewRecord(
                header.timestamp(record),
                _copy(record.key),
                _copy(record.value),
                tuple((bytes(key), _copy(value)) for key, value in record.headers),
                record.offset_delta,
            )
            for record in inside
        ]
    return records


def damaged(data: bytes, position: int, flip: int = 0x40) -> bytes:
    """`data` with the bits `flip` of one byte turned over."""
    changed = bytearray(data)
    changed[position] ^= flip
    return bytes(changed)


def raw_snappy_batch(records: Sequence[NewRecord]) -> bytes:
    """One block without framing, as librdkafka writes it."""
    batch = encode_batch(records)
    packed = bytes(cramjam.snappy.compress_raw(batch[HEADER_SIZE:]))
    header = bytearray(batch[:HEADER_SIZE])
    header[8:12] = (HEADER_SIZE - LOG_OVERHEAD + len(packed)).to_bytes(4, "big")
    header[22] |= Codec.SNAPPY
    header[17:21] = crc32c(packed, crc32c(header[21:])).to_bytes(4, "big")
    return bytes(header) + packed
