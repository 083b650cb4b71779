"""Splits the broker's answer to a joined request into the results of its batches.

The owner of a partition's only batch gets the broker's result unchanged. In a set (all or nothing at a broker that
is proven to accept sets) each owner gets the same result with its own base offset: the set's, plus the records before
its batch. If a set was refused, as a set or because of one of its batches, nothing was appended: its batches are sent
again one by one (`CoalescingPolicy.answered`), so that one owner's bad batch only delays the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.coalesce.joinable import LaneKey, PartitionBatch
from shoal.protocol.messages.produce import ProducedPartition, read_produce_response
from shoal.protocol.records.batch import CODEC_MASK
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer, PartitionRef

__all__ = ["BatchResult", "JoinedAnswer", "read_joined_answer"]

_ONE_BY_ONE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,  # the answer of 2.2 and 2.3 to a set
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)

_BASE_OFFSET = Struct(">q")
_LAST_OFFSET: Final = (1 << 63) - 1
_BASE_OFFSET_AT: Final = 6  # after Index (int32) and ErrorCode (int16)


class BatchResult(NamedTuple):
    """The broker's result for one batch; `content` is the element of PartitionResponses for its owner."""

    error_code: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedAnswer:
    """`results` of each target are in the order of its batches; there are none for the targets in `split`.

    `names_brokers`: the frame has addresses (NodeEndpoints, KIP-951), which owners of errors need.
    """

    throttle_ms: int
    names_brokers: bool
    results: dict[PartitionRef, list[BatchResult]]
    split: dict[PartitionRef, int]  # target -> the error code


def read_joined_answer(
    frame: Buffer, key: LaneKey, sets: Mapping[PartitionRef, Sequence[PartitionBatch]]
) -> JoinedAnswer:
    """The answer `frame` to the joined request of `sets`.

    Raises RemoteProtocolError unless it has exactly one result for each partition that was sent.
    """
    response = read_produce_response(frame, key.version)
    results: dict[PartitionRef, list[BatchResult]] = {}
    split: dict[PartitionRef, int] = {}
    for answered in response.partitions:
        ref = PartitionRef(answered.topic, answered.partition)
        parts = sets.get(ref)
        if parts is None or ref in results or ref in split:
            raise RemoteProtocolError(f"the answer to Produce has {ref}, which was not sent, or has it twice")
        if len(parts) == 1:
            results[ref] = [BatchResult(answered.error_code, bytes(frame[answered.start : answered.end]))]
        elif answered.error_code in _ONE_BY_ONE or _cannot_be_decompressed(answered.error_code, parts):
            split[ref] = answered.error_code
        else:
            results[ref] = list(_results(frame, answered, parts))
    if missing := sets.keys() - results.keys() - split.keys():
        raise RemoteProtocolError(f"the answer to Produce does not contain {next(iter(missing))}")
    return JoinedAnswer(
        throttle_ms=response.throttle_ms,
        names_brokers=response.node_endpoints is not None,
        results=results,
        split=split,
    )


def _cannot_be_decompressed(error_code: int, parts: Sequence[PartitionBatch]) -> bool:
    """May be so: a broker says no more of it, and it decompresses to check, before it appends. Without compression the
    error has another cause, and something may have been appended.
    """
    return error_code == ErrorCode.UNKNOWN_SERVER_ERROR and any(part.header.attributes & CODEC_MASK for part in parts)


def _results(frame: Buffer, one: ProducedPartition, parts: Sequence[PartitionBatch]) -> Iterator[BatchResult]:
    content = bytes(frame[one.start : one.end])
    base_offset = one.base_offset
    for part in parts:
        if base_offset > _LAST_OFFSET:
            raise RemoteProtocolError(f"the answer to Produce has base offset {one.base_offset}, too large for a set")
        if base_offset != one.base_offset:
            changed = bytearray(content)
            _BASE_OFFSET.pack_into(changed, _BASE_OFFSET_AT, base_offset)
            yield BatchResult(one.error_code, bytes(changed))
        else:
            yield BatchResult(one.error_code, content)
        if not one.error_code:
            base_offset += part.header.record_count
