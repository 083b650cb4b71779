"""Produce v0-v2 as old clients put it on the wire, and what they understand of the answer; written from the protocol
guide."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Said", "produce_frame", "said"]


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def produce_frame(
    version: int,
    correlation_id: int,
    topics: Mapping[str, Sequence[tuple[int, bytes]]],
    *,
    acks: int = 1,
    timeout_ms: int = 1000,
    client_id: str = "old",
) -> bytes:
    body = struct.pack(">hii", acks, timeout_ms, len(topics))
    for topic, partitions in topics.items():
        body += _string(topic) + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">ii", index, len(records)) + records for index, records in partitions)
    payload = struct.pack(">hhi", 0, version, correlation_id) + _string(client_id) + body
    return struct.pack(">i", len(payload)) + payload


class Said(NamedTuple):
    """`log_append_time` is None below v2."""

    error_code: int
    base_offset: int
    log_append_time: int | None


def said(version: int, frame: bytes) -> tuple[int, dict[tuple[str, int], Said], int | None]:
    """Correlation id, partitions in their order, throttle time (None in v0). The frame is used up."""
    size, correlation_id, topics = struct.unpack_from(">iii", frame)
    assert size == len(frame) - 4
    pos, found = 12, {}
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", frame, pos)
        topic = frame[pos + 2 : pos + 2 + length].decode()
        (partitions,) = struct.unpack_from(">i", frame, pos + 2 + length)
        pos += 6 + length
        for _ in range(partitions):
            index, error_code, base_offset = struct.unpack_from(">ihq", frame, pos)
            pos += 14
            stamp = None
            if version == 2:
                (stamp,) = struct.unpack_from(">q", frame, pos)
                pos += 8
            found[topic, index] = Said(error_code, base_offset, stamp)
    throttle = None
    if version:
        (throttle,) = struct.unpack_from(">i", frame, pos)
        pos += 4
    assert pos == len(frame)
    return correlation_id, found, throttle
