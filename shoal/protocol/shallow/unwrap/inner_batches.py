"""The batches inside an envelope, checked against its key, with headers that a broker takes from a producer.

`inner_batches` are for an ordinary topic, where they get new offsets. `mirrored_batches` are for a mirror topic, at
their own offsets, as their source has them: only the producer's fields and the bits of transactions and of the cleaner
are removed, with the CRC patched; a broker with the agent takes anything else: holes, LogAppendTime, tiny batches.
"""

from collections.abc import Sequence
from operator import sub
from typing import NamedTuple

from shoal.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    UNPRODUCIBLE,
    Stored,
    produced_again,
    read_stored,
)
from shoal.protocol.records.producible import Columns, SmallBatches
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.shallow.batch_row import BatchSlice
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MirroredBatch", "inner_batches", "mirrored_batches"]

_NEVER_WRAPPED = UNPRODUCIBLE | DELETE_HORIZON
_LAST_CODEC = max(Codec)
_COPIED_BELOW = 16 * 1024  # average bytes of a batch


class MirroredBatch(NamedTuple):
    """Offsets are those of both clusters; `header` has 61 bytes, base offset 0."""

    base: int
    last: int
    records: int
    header: bytes
    payload: memoryview

    @property
    def size(self) -> int:
        return HEADER_SIZE + len(self.payload)


def inner_batches(key: EnvelopeKey, value: memoryview) -> BatchSlice:
    """The batches of an envelope; they match its key, and a broker can append them."""
    origin = f"{key.cluster}/{key.topic}-{key.partition}"
    bounds, stored = _stored(value, origin)
    if not stored:
        raise RemoteProtocolError(f"{key} has no batches")
    columns = Columns.of(stored)
    _require_wrappable(columns, stored, origin)
    offsets, counts = columns.base_offsets, columns.counts
    found = len(stored), sum(counts), (offsets[0], offsets[-1] + counts[-1] - 1), bounds[-1]
    if found != (key.batches, key.records, (key.first_offset, key.last_offset), len(value)):
        raise RemoteProtocolError(f"the batches of {key} are not those that its key states")
    return BatchSlice.of_envelope(origin, _producible(value, bounds, stored, columns), bounds, counts, offsets)


def _stored(value: memoryview, source: str) -> tuple[list[int], list[Stored]]:
    """-> the start of each batch of a value and the end of the last; their headers."""
    bounds, stored, at, end = [0], list[Stored](), 0, len(value)
    while at <= end - HEADER_SIZE:
        header = read_stored(value, at)
        stop = at + LOG_OVERHEAD + header[1]
        if header[2] != 2 or not at + HEADER_SIZE <= stop <= end:
            raise RemoteProtocolError(f"{source}: a batch of magic {header[2]} and {header[1]} bytes at {header[0]}")
        stored.append(header)
        bounds.append(stop)
        at = stop
    return bounds, stored


def _require_wrappable(columns: Columns, stored: Sequence[Stored], origin: str) -> None:
    """Raises RemoteProtocolError for the first batch that no Shoal would wrap."""
    if _are_wrappable(columns):
        return
    for base_offset, _, _, _, attributes, last_delta, *_, count in stored:
        if base_offset < 0 or not 0 < count == last_delta + 1 or attributes & _NEVER_WRAPPED:
            raise RemoteProtocolError(f"a batch of {origin} at {base_offset} should never have been wrapped")
        if attributes & CODEC_MASK > _LAST_CODEC:
            raise RemoteProtocolError(f"a batch of {origin} at {base_offset} has an unknown codec")


def _are_wrappable(columns: Columns) -> bool:
    """A fast check of all of them by column, like `eligible.are_plain`."""
    return (
        min(columns.base_offsets) >= 0
        and min(columns.counts) > 0
        and set(map(sub, columns.counts, columns.last_deltas)) == {1}
        and not any(bits & _NEVER_WRAPPED or bits & CODEC_MASK > _LAST_CODEC for bits in set(columns.attributes))
    )


def _producible(
    value: memoryview, bounds: Sequence[int], stored: Sequence[Stored], columns: Columns
) -> Sequence[tuple[Buffer, ...]] | SmallBatches:
    """The batches of a value with producible headers. Small ones are copied, which costs less than two buffers each."""
    if len(value) >= _COPIED_BELOW * len(stored):
        spans = zip(stored, bounds, bounds[1:], strict=False)
        return [(produced_again(header), value[at + HEADER_SIZE : stop]) for header, at, stop in spans]
    return SmallBatches(value, bounds, columns)


def mirrored_batches(key: EnvelopeKey, value: memoryview) -> tuple[MirroredBatch, ...]:
    """Raises RemoteProtocolError unless they are those that the key states."""
    made = list[MirroredBatch]()
    bounds, found = _stored(value, str(key))
    for stored, at, stop in zip(found, bounds, bounds[1:], strict=False):
        base, _, _, _, attributes, last_delta, *_, count = stored
        if not 0 < count <= last_delta + 1:
            raise RemoteProtocolError(f"{key}: a batch of {count} records over {last_delta + 1} offsets at {base}")
        if attributes & CONTROL or attributes & CODEC_MASK > _LAST_CODEC:
            raise RemoteProtocolError(f"a batch of {key} at {base} should never have been wrapped")
        if base < (made[-1].last + 1 if made else 0):
            raise RemoteProtocolError(f"{key}: a batch at {base} behind {made[-1].last if made else -1}")
        header = produced_again(stored)
        made.append(MirroredBatch(base, base + last_delta, count, header, value[at + HEADER_SIZE : stop]))
    ends = (made[0].base, made[-1].last) if made else (key.first_offset, key.last_offset)
    stated = len(made), sum(batch.records for batch in made), ends, bounds[-1]
    if stated != (key.batches, key.records, (key.first_offset, key.last_offset), len(value)):
        raise RemoteProtocolError(f"the batches of {key} are not those that its key states")
    return tuple(made)
