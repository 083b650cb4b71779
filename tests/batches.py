"""What a consumer gets out of bytes: the form in which tests compare records."""

from shoal.protocol.records.batch import NewRecord, open_batch
from shoal.protocol.records.record import Slice
from shoal.protocol.records.recordset import split

__all__ = ["consumed", "damaged"]

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
