"""End offsets of one topic, polled cheaply: one prebuilt ListOffsets request on one plain socket.

An admin client costs milliseconds of CPU per request, on the machine that is being measured.
Every broker since 0.10.1 supports ListOffsets v1 (schema ListOffsetsRequest.json).
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Self

from shoal.protocol.wire.error_codes import ErrorCode, error_name

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["EndOffsets", "read_ends", "request"]

_LIST_OFFSETS, _VERSION = 2, 1
_CONSUMER, _LATEST = -1, -1
_NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
TIMEOUT_S = 30.0  # a busy broker may take seconds; one that takes this long is broken


def request(topic: str, partitions: int) -> bytes:
    name = _string(topic)
    places = b"".join(struct.pack(">iq", at, _LATEST) for at in range(partitions))
    body = struct.pack(">ii", _CONSUMER, 1) + name + struct.pack(">i", partitions) + places
    head = struct.pack(">hhi", _LIST_OFFSETS, _VERSION, 0) + _string("shoal-demo")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def read_ends(answer: bytes) -> dict[int, int]:
    """End offset by partition, from an answer without its size; 0 while the topic is being created.

    Raises OSError when the broker answers with any other error.
    """
    (name_size,) = struct.unpack_from(">h", answer, 8)  # after the correlation id and the number of topics: 1
    at = 10 + name_size
    (count,) = struct.unpack_from(">i", answer, at)
    ends = {}
    for partition, error, _, offset in struct.iter_unpack(">ihqq", answer[at + 4 : at + 4 + 22 * count]):
        if error and error not in _NOT_YET:
            raise OSError(f"ListOffsets answered {error_name(error)} for partition {partition}")
        ends[partition] = 0 if error else offset
    return ends


class EndOffsets:
    """Polls the single broker of a cluster. Blocking, for less than a millisecond."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, tls: SSLContext | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._request = request(topic, partitions)
        plain = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def total(self) -> int:
        """Records in all partitions together. Raises OSError when the broker is gone."""
        self._socket.sendall(self._request)
        size = self._answers.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker closed the connection")
        return sum(read_ends(self._answers.read(int.from_bytes(size, "big"))).values())
