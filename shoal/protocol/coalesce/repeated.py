"""Repeated requests: most Produce requests of a client differ from its last one only in the batch and its partition.

    size  api  correlation id  [middle: client id ... topic]  index  length  batch  [no tags]

A joinable request of one batch leaves a `RepeatedRequest` behind. A later frame with the same bytes in these places has
the same structure, so its batch is all that is left to read; every byte outside the batch is compared. Any other frame
is read from the start (`read_joinable`).
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from shoal.protocol.coalesce.joinable import Joinable, PartitionBatch, WhyAlone, joinable_batch
from shoal.protocol.records.batch import HEADER_SIZE
from shoal.protocol.schema.headers import REQUEST_PREFIX
from shoal.protocol.wire.types import Buffer, PartitionRef, write_int32, write_uvarint

__all__ = ["MOST_MODELS", "RepeatedRequest"]

_COMPACT_FROM: Final = 9
_TAGS: Final = 3  # empty tagged fields of the partition, the topic and the request, a byte each
_INDEX_SIZE: Final = 4
_LEAST: Final = HEADER_SIZE + 4
_ROOM_OF_1, _ROOM_OF_2 = 1 << 7, 1 << 14
"""Most bytes of a compact length of 1 or 2 bytes and the records after it."""
MOST_MODELS: Final = 4
"""A client has so many, enough for a producer to a few topics; each is as large as the client id and the topic, and 100
bytes for each partition."""
MOST_TARGETS: Final = 64
"""Partitions whose references are kept; beyond it all are made anew."""


class RepeatedRequest:
    """`frame`: a request that `found` was read from. `index_at`: the place of its partition's index."""

    __slots__ = ("_api", "_index_at", "_key", "_layouts", "_middle", "_tags", "_targets", "_topic")

    def __init__(self, frame: Buffer, found: Joinable, index_at: int) -> None:
        self._key = found.key
        self._tags = _TAGS if found.key.version >= _COMPACT_FROM else 0
        self._index_at = index_at
        self._api, self._middle = bytes(frame[4:8]), bytes(frame[REQUEST_PREFIX:index_at])
        self._topic = found.parts[0].target.topic
        self._targets: dict[int, PartitionRef] = {}
        widths = (1, 2, 3) if self._tags else (_INDEX_SIZE,) * 3
        self._layouts = [(width, _layout(len(self._middle), width)) for width in widths]

    @classmethod
    def of(cls, frame: Buffer, found: Joinable) -> "RepeatedRequest | None":
        """None: it has several batches."""
        if len(found.parts) != 1:
            return None
        tags_behind = _TAGS - 1 if found.key.version >= _COMPACT_FROM else 0
        return cls(frame, found, len(frame) - tags_behind - len(found.parts[0].content))

    def read(self, frame: Buffer) -> Joinable | WhyAlone | None:
        """`frame`: a whole request. None: it is another kind of request. The result does not refer to `frame`."""
        tags, index_at = self._tags, self._index_at
        end = len(frame) - tags
        room = end - index_at - _INDEX_SIZE  # for the records and their length
        if room < _LEAST:
            return None
        width, unpack = self._layouts[0 if room <= _ROOM_OF_1 else 1 if room <= _ROOM_OF_2 else 2]
        api, middle, index, length = unpack(frame, 4)
        if middle != self._middle or api != self._api:
            return None
        if tags:
            if length != write_uvarint(room - width + 1) or frame[end] or frame[end + 1] or frame[end + 2]:
                return None
        elif length != write_int32(room - width):
            return None
        batch_at = _INDEX_SIZE + width
        batch = joinable_batch(frame, index_at + batch_at, end, self._key.version)
        if isinstance(batch, WhyAlone):
            return batch
        if (batch.producer_id >= 0) is not self._key.idempotent:
            return None
        target = self._targets.get(index) or self._target(index)
        content = bytes(frame[index_at : end + 1] if tags else frame[index_at:end])
        return Joinable(self._key, [PartitionBatch(target, content, batch, batch_at)])

    def _target(self, index: int) -> PartitionRef:
        if len(self._targets) >= MOST_TARGETS:
            self._targets.clear()
        target = self._targets[index] = PartitionRef(self._topic, index)
        return target


@lru_cache(maxsize=1024)
def _layout(middle: int, width: int) -> Callable[[Buffer, int], tuple[bytes, bytes, int, bytes]]:
    """From the API on: the API, the middle, the index, the length of the records."""
    return Struct(f">4s4x{middle}si{width}s").unpack_from
