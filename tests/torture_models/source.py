"""Source partitions, whose records name their origin, and what a mirror reads of them: envelopes or records."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.wrap.wrap import WrapContext
from shoal.protocol.wire.compression import Codec
from tests.support.shallow.world import poll
from tests.support.shallow.wrapping import wrap_record_set

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey

__all__ = ["Batch", "envelopes", "record_id", "source_log"]

FIRST_TIMESTAMP = 1_700_000_000_000
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.ZSTD)
_SIZES = (3, 1, 5, 2, 4, 1, 2)  # records of a batch


class Batch(NamedTuple):
    base: int
    records: tuple[NewRecord, ...]
    stored: bytes

    @property
    def end(self) -> int:
        return self.base + len(self.records)


@lru_cache(maxsize=64)
def source_log(source: int, partition: int, batches: int) -> tuple[Batch, ...]:
    log, base = [], 0
    for number in range(batches):
        size = _SIZES[(number + 2 * source + partition) % len(_SIZES)]
        records = tuple(_record(source, partition, base + at) for at in range(size))
        stored = encode_batch(records, base_offset=base, codec=_CODECS[number % len(_CODECS)], leader_epoch=0)
        log.append(Batch(base, records, stored))
        base += size
    return tuple(log)


def _record(source: int, partition: int, offset: int) -> NewRecord:
    key = None if offset % 3 == 2 else b"k%d" % (offset % 4)
    value = b"%d/%d/%d:" % (source, partition, offset) + b"payload " * (offset % 5)
    return NewRecord(FIRST_TIMESTAMP + offset, key, value, ((b"h", b"%d" % offset),) if offset % 4 == 0 else ())


def record_id(record: NewRecord) -> tuple[int, int, int]:
    """Source, partition, offset."""
    assert record.value is not None
    source, partition, offset = bytes(record.value).split(b":", 1)[0].split(b"/")
    return int(source), int(partition), int(offset)


def envelopes(
    source: int,
    partition: int,
    batches: Sequence[Batch],
    serials: Callable[[], int],
    keep: Callable[[EnvelopeKey, memoryview], None] | None = None,
) -> list[NewRecord]:
    """The records that the mirror's application gets from these batches. `keep`: it gets claim checks."""
    record_set = b"".join(batch.stored for batch in batches)
    context = WrapContext(
        cluster=f"source-{source}",
        topic="orders",
        partition=partition,
        fetch_offset=batches[0].base,
        flow=source,
        serials=serials,
        min_batch_bytes=0,
        keep=keep,
    )
    parts = wrap_record_set(record_set, 0, len(record_set), context).parts
    assert parts is not None
    return [seen.record for seen in poll(b"".join(parts), batches[0].base)]


new_serials = count
