"""The response to Fetch v0-v3 without its record sets, which are converted and sent piece by piece.

    frame size int32, correlation id int32, [throttle time int32, v1+], topics: int32 count, each
        topic STRING, partitions: int32 count, each
            partition int32, error code int16, high watermark int64, record set size int32, record set

So everything before a record set is fixed once its size is promised.
"""

from collections.abc import Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.wire.errors import LocalProtocolError
from shoal.protocol.wire.types import write_int32, write_string

__all__ = ["Promised", "write_heads"]

_PARTITION = Struct(">ihqi")  # partition, error code, high watermark, record set size
_LARGEST: Final = 2**31 - 1
_FRAME_SIZE: Final = 4


class Promised(NamedTuple):
    """A partition of a response; `size` bytes of record set follow its head."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    size: int


def write_heads(version: int, correlation_id: int, throttle_ms: int, partitions: Sequence[Promised]) -> list[bytes]:
    """For each partition, in order, all bytes between the previous record set and its own; at least one buffer.

    The frame's size includes the promised sets; raises LocalProtocolError if it exceeds an int32. Adjacent partitions
    of a topic share the topic's head.
    """
    heads, topics = _of_topics(partitions)
    start = write_int32(correlation_id) + (write_int32(throttle_ms) if version else b"") + write_int32(topics)
    heads = [start + heads[0], *heads[1:]] if heads else [start]
    size = sum(map(len, heads)) + sum(partition.size for partition in partitions)
    if size > _LARGEST - _FRAME_SIZE:
        raise LocalProtocolError(f"an answer of {size} bytes does not fit a frame")
    heads[0] = write_int32(size) + heads[0]
    return heads


def _of_topics(partitions: Sequence[Promised]) -> tuple[list[bytes], int]:
    heads: list[bytes] = []
    topics = 0
    for topic, grouped in groupby(partitions, lambda partition: partition.topic):
        rows = [_PARTITION.pack(*partition[1:]) for partition in grouped]
        heads += [write_string(topic) + write_int32(len(rows)) + rows[0], *rows[1:]]
        topics += 1
    return heads, topics
