"""The batches of an envelope for a mirror topic: at their own offsets, as their source has them.

Only the producer's fields and the bits of transactions and of the cleaner are removed, with the CRC patched; a broker
with the agent takes anything else: holes, LogAppendTime, tiny batches.
"""

from typing import NamedTuple

from shoal.protocol.records.batch import CODEC_MASK, CONTROL, HEADER_SIZE, produced_again, read_stored
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MirroredBatch", "mirrored_batches"]

_LAST_CODEC = max(Codec)


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


def mirrored_batches(key: EnvelopeKey, value: memoryview) -> tuple[MirroredBatch, ...]:
    """Raises RemoteProtocolError unless they are those that the key states."""
    made, at, end = list[MirroredBatch](), 0, len(value)
    while at <= end - HEADER_SIZE:
        stored = read_stored(value, at)
        base, length, magic, _, attributes, last_delta, *_, count = stored
        stop = at + LOG_OVERHEAD + length
        if magic != 2 or not at + HEADER_SIZE <= stop <= end or not 0 < count <= last_delta + 1:
            raise RemoteProtocolError(f"{key}: a batch of magic {magic}, {length} bytes, {count} records at {base}")
        if attributes & CONTROL or attributes & CODEC_MASK > _LAST_CODEC:
            raise RemoteProtocolError(f"a batch of {key} at {base} should never have been wrapped")
        if base < (made[-1].last + 1 if made else 0):
            raise RemoteProtocolError(f"{key}: a batch at {base} behind {made[-1].last if made else -1}")
        header = produced_again(stored)
        made.append(MirroredBatch(base, base + last_delta, count, header, value[at + HEADER_SIZE : stop]))
        at = stop
    ends = (made[0].base, made[-1].last) if made else (key.first_offset, key.last_offset)
    found = len(made), sum(batch.records for batch in made), ends, at
    if found != (key.batches, key.records, (key.first_offset, key.last_offset), len(value)):
        raise RemoteProtocolError(f"the batches of {key} are not those that its key states")
    return tuple(made)
