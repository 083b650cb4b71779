"""A mirror's produce request that becomes several, and its one answer, with a response for each of its partitions.

A broker's partition response is kept unchanged (error message, current leader, log start offset), except the base
offset of an opened partition. Addresses of other brokers (NodeEndpoints, KIP-951) are rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from struct import Struct
from typing import TYPE_CHECKING

from shoal.protocol.capture.index.pending import Request as IndexedRequest
from shoal.protocol.messages.produce import (
    LikeAnswers,
    ProduceTemplate,
    encode_partition_error,
    encode_produce_response,
    read_error_texts,
    read_produce_response,
)
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.transform.addresses import rewrite_endpoints
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.connection.pending import blaming_the_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shoal.protocol.messages.produce import ProduceRequest, Topics
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.wire.types import Topic, TopicPartition
    from shoal.proxy.connection.topic_names import Naming
    from shoal.proxy.net.transport import Buffer

__all__ = ["MirrorRequest", "ProduceAnswer"]

_ERROR = Struct(">h")
_ERROR_AT = 4  # in a partition response: after Index (int32)
_BASE_OFFSET = Struct(">q")
_BASE_OFFSET_AT = 6  # after ErrorCode (int16)
_NO_ACKS = 0
_LEADER = 1


@dataclass(frozen=True, kw_only=True)
class MirrorRequest:
    """A mirror's complete produce request. `partitions` are in the order of the request."""

    frame: bytearray
    header: RequestHeader
    request: ProduceRequest
    naming: Naming
    partitions: Sequence[TopicPartition]

    @property
    def wants_answer(self) -> bool:
        return self.request.acks != _NO_ACKS

    def encode(self, record_sets: Iterable[tuple[TopicPartition, Sequence[Buffer]]]) -> list[Buffer]:
        """The same request with these record sets."""
        template = ProduceTemplate(self.frame, self.request, self.header.correlation_id)
        return template.encode(self.by_topic(record_sets))

    def encode_answered(self, topics: Topics) -> list[Buffer]:
        """Like `encode`, but never with acks=0: Shoal needs each batch's answer to keep the order."""
        return self._answered.encode(topics)

    @cached_property
    def _answered(self) -> ProduceTemplate:
        request = self.request if self.wants_answer else replace(self.request, acks=self._acks)
        return ProduceTemplate(self.frame, request, self.header.correlation_id)

    @property
    def _acks(self) -> int:
        return self.request.acks if self.wants_answer else _LEADER

    def indexed(self, size: int) -> IndexedRequest:
        """What the index says of a request of `encode_answered`, of `size` bytes."""
        header = self.header
        found = IndexedRequest(header.api_key, header.api_version, header.correlation_id, size, 0)
        found.client, found.acks = (header.client_id or "").encode(), self._acks
        return found

    def by_topic(self, record_sets: Iterable[tuple[TopicPartition, Sequence[Buffer]]]) -> Topics:
        """As the request names them."""
        topics: dict[Topic, list[tuple[int, Sequence[Buffer]]]] = {}
        for partition, record_set in record_sets:
            topics.setdefault(self.naming.said(partition), []).append((partition.partition, record_set))
        return list(topics.items())


class ProduceAnswer:
    """`lookup` gives a broker's address as the client must see it."""

    def __init__(self, version: int, naming: Naming, lookup: Callable[[int, str, int], tuple[str, int]]) -> None:
        self._version = version
        self._naming = naming
        self._lookup = lookup
        self._responses: dict[TopicPartition, bytes] = {}
        self._latest: dict[TopicPartition, dict[int, bytes]] = {}  # error code -> the broker's latest response with it
        self._texts: dict[TopicPartition, str] = {}
        self._throttle_ms = 0
        self._node_endpoints = b""
        self._like: LikeAnswers | None = None  # the last answer, if it has no errors
        self._partitions: list[TopicPartition] = []  # of the last answer

    def take(self, frame: bytearray) -> dict[TopicPartition, tuple[int, int]]:
        """The broker's answer to one request -> per partition (error code, base offset). Raises UpstreamFault."""
        if self._like is not None:
            offsets = self._like.base_offsets(frame)
            if offsets is not None:  # all else is known
                return {partition: (0, offset) for partition, offset in zip(self._partitions, offsets, strict=True)}
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
        for produced in response.partitions:
            with blaming_the_broker():
                partition = self._naming.target(produced.topic, produced.partition)
            self._responses[partition] = latest = bytes(answer[produced.start : produced.end])
            self._latest.setdefault(partition, {})[produced.error_code] = latest
            answered[partition] = produced.error_code, produced.base_offset
        has_errors = any(error_code for error_code, _ in answered.values())
        if has_errors:
            self._read_texts(answer)
        is_odd = response.node_endpoints is not None or len(answered) != len(response.partitions)
        ats = [produced.base_offset_at for produced in response.partitions]
        self._like = None if has_errors or is_odd else LikeAnswers(frame, ats)
        self._partitions = list(answered)
        return answered

    def shortest(self, partitions: Sequence[TopicPartition]) -> int:
        """Bytes of the broker's answer to a request for these partitions, at least; 0: not known.

        Errors have longer answers, not shorter ones: they add texts and addresses.
        """
        if self._like is None or len(partitions) != len(self._partitions):
            return 0
        return self._like.size if all(partition in self._partitions for partition in partitions) else 0

    def _read_texts(self, answer: Buffer) -> None:
        with blaming_the_broker():
            for topic, partition, text in read_error_texts(answer, self._version):
                if text is not None:
                    self._texts[self._naming.target(topic, partition)] = text

    def text(self, partition: TopicPartition) -> str | None:
        """What the broker said about its latest error for this partition."""
        return self._texts.get(partition)

    def _rewritten(self, frame: bytearray) -> Buffer:
        edited = rewrite_endpoints(ApiKey.PRODUCE, self._version, frame, self._lookup)
        return edited if isinstance(edited, (bytes, bytearray, memoryview)) else b"".join(edited)

    def refuse(self, partition: TopicPartition, error_code: int, message: str | None) -> None:
        """An error of Shoal's own."""
        self._responses[partition] = encode_partition_error(self._version, partition.partition, error_code, message)

    def fail(self, partition: TopicPartition, error_code: int, message: str | None) -> None:
        """An error that ended the partition. If it is the broker's, the broker's response is kept."""
        latest = self._latest.get(partition, {}).get(error_code)
        if latest is None:
            self.refuse(partition, error_code, message)
        else:
            self._responses[partition] = latest

    def succeed(self, partition: TopicPartition, base_offset: int) -> None:
        latest = self._latest.get(partition, {}).get(ErrorCode.NONE)
        if latest is None:  # nothing was sent: everything was already appended
            self.refuse(partition, ErrorCode.NONE, None)
        response = bytearray(latest or self._responses[partition])
        _BASE_OFFSET.pack_into(response, _BASE_OFFSET_AT, base_offset)
        self._responses[partition] = bytes(response)

    def errors(self) -> Iterator[tuple[TopicPartition, int]]:
        """The partitions that are answered with an error."""
        for partition, response in self._responses.items():
            (error_code,) = _ERROR.unpack_from(response, _ERROR_AT)
            if error_code:
                yield partition, error_code

    def encode(self, correlation_id: int) -> list[Buffer]:
        topics: dict[Topic, list[Buffer]] = {}
        for partition, response in self._responses.items():
            topics.setdefault(self._naming.said(partition), []).append(response)
        return encode_produce_response(
            self._version,
            correlation_id,
            list(topics.items()),
            throttle_ms=self._throttle_ms,
            node_endpoints=self._node_endpoints,
        )
