"""The one answer to a produce request that became several: a partition response for each of its partitions.

What a broker said of a partition is kept as it said it (error message, current leader, log start offset), only the base
offset of an opened partition is set anew. Addresses of other brokers (NodeEndpoints, KIP-951) are rewritten on the way.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from shoal.protocol.messages.produce import encode_partition_error, encode_produce_response, read_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.transform.addresses import rewrite_endpoints
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.connection.in_flight import blaming_the_broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.shallow.unwrap.delivery import Target
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.topic_names import Naming
    from shoal.proxy.net.transport import Buffer

__all__ = ["ProduceAnswer"]

_BASE_OFFSET = Struct(">q")
_BASE_OFFSET_AT = 6  # of a partition response: behind Index (int32) and ErrorCode (int16)


class ProduceAnswer:
    """`lookup` gives a broker's address as the client must see it."""

    def __init__(self, version: int, naming: Naming, lookup: Callable[[int, str, int], tuple[str, int]]) -> None:
        self._version = version
        self._naming = naming
        self._lookup = lookup
        self._parts: dict[Target, bytes] = {}
        self._said: dict[Target, dict[int, bytes]] = {}  # error code -> the last answer with it
        self._throttle_ms = 0
        self._node_endpoints = b""

    def take(self, frame: bytearray) -> dict[Target, tuple[int, int]]:
        """The broker's answer to one round -> error code and base offset of each partition in it. Raises UpstreamFault."""
        answer: Buffer = frame
        with blaming_the_broker():
            response = read_produce_response(answer, self._version)
            if response.node_endpoints is not None:
                answer = self._rewritten(frame)
                response = read_produce_response(answer, self._version)
        self._throttle_ms = max(self._throttle_ms, response.throttle_ms)
        if response.node_endpoints is not None:
            self._node_endpoints = bytes(answer[slice(*response.node_endpoints)])
        answered = {}
        for one in response.partitions:
            with blaming_the_broker():
                target = self._naming.target(one.topic, one.partition)
            self._parts[target] = said = bytes(answer[one.start : one.end])
            self._said.setdefault(target, {})[one.error_code] = said
            answered[target] = one.error_code, one.base_offset
        return answered

    def _rewritten(self, frame: bytearray) -> Buffer:
        edited = rewrite_endpoints(ApiKey.PRODUCE, self._version, frame, self._lookup)
        return edited if isinstance(edited, (bytes, bytearray, memoryview)) else b"".join(edited)

    def refuse(self, target: Target, error_code: int, message: str | None) -> None:
        """An error of Shoal's own."""
        self._parts[target] = encode_partition_error(self._version, target.partition, error_code, message)

    def fail(self, target: Target, error_code: int, message: str | None) -> None:
        """An error that ended the partition; the broker's own words are kept where it is the broker's error."""
        said = self._said.get(target, {}).get(error_code)
        if said is None:
            self.refuse(target, error_code, message)
        else:
            self._parts[target] = said

    def succeed(self, target: Target, base_offset: int) -> None:
        said = self._said.get(target, {}).get(ErrorCode.NONE)
        if said is None:  # nothing was sent in this request: all of it was appended before
            self.refuse(target, ErrorCode.NONE, None)
        part = bytearray(said or self._parts[target])
        _BASE_OFFSET.pack_into(part, _BASE_OFFSET_AT, base_offset)
        self._parts[target] = bytes(part)

    def encode(self, correlation_id: int) -> list[Buffer]:
        topics: dict[Topic, list[Buffer]] = {}
        for target, part in self._parts.items():
            topics.setdefault(self._naming.said(target), []).append(part)
        return encode_produce_response(
            self._version,
            correlation_id,
            list(topics.items()),
            throttle_ms=self._throttle_ms,
            node_endpoints=self._node_endpoints,
        )
