"""The broker's answer to a joined request, taken apart: what it says to each batch.

The owner of a partition's only batch gets the broker's result unchanged. In a set (all or nothing at a broker that
is proven to take sets) each owner gets the same words with a base offset of its own: the set's, and the records before
it. Where a set was refused as such, or because of one of its batches, nothing was appended: its batches are sent again
one by one (`Joiner.answered`), so that one owner's bad batch costs the others nothing but time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.coalesce.joinable import LaneKey, Part, Target
from shoal.protocol.messages.produce import ProducedPartition, read_produce_response
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["Answer", "Verdict", "take_apart"]

_ONE_BY_ONE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,  # 2.2 and 2.3 say this of a set
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
    }
)

_BASE_OFFSET = Struct(">q")
_BASE_OFFSET_AT: Final = 6  # behind Index (int32) and ErrorCode (int16)


class Verdict(NamedTuple):
    """What the broker says to one batch: `content` is an element of PartitionResponses for its owner."""

    error_code: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`verdicts` of each target are in the order of its batches; there are none for the targets `split`.

    `names_brokers`: the frame holds addresses (NodeEndpoints, KIP-951), which owners of errors want to see.
    """

    throttle_ms: int
    names_brokers: bool
    verdicts: dict[Target, list[Verdict]]
    split: dict[Target, int]  # target -> the error code


def take_apart(frame: Buffer, key: LaneKey, sets: Mapping[Target, Sequence[Part]]) -> Answer:
    """The answer `frame` to the joined request of `sets`.

    Raises RemoteProtocolError unless it says exactly one thing of each partition that was sent.
    """
    response = read_produce_response(frame, key.version)
    verdicts: dict[Target, list[Verdict]] = {}
    split: dict[Target, int] = {}
    for one in response.partitions:
        target = Target(one.topic, one.partition)
        parts = sets.get(target)
        if parts is None or target in verdicts or target in split:
            raise RemoteProtocolError(f"the answer to Produce tells of {target}, which was not sent, or twice")
        if len(parts) > 1 and one.error_code in _ONE_BY_ONE:
            split[target] = one.error_code
        else:
            verdicts[target] = list(_verdicts(frame, one, parts))
    if missing := sets.keys() - verdicts.keys() - split.keys():
        raise RemoteProtocolError(f"the answer to Produce says nothing of {next(iter(missing))}")
    return Answer(
        throttle_ms=response.throttle_ms,
        names_brokers=response.node_endpoints is not None,
        verdicts=verdicts,
        split=split,
    )


def _verdicts(frame: Buffer, one: ProducedPartition, parts: Sequence[Part]) -> Iterator[Verdict]:
    content = bytes(frame[one.start : one.end])
    base_offset = one.base_offset
    for part in parts:
        if base_offset != one.base_offset:
            changed = bytearray(content)
            _BASE_OFFSET.pack_into(changed, _BASE_OFFSET_AT, base_offset)
            yield Verdict(one.error_code, bytes(changed))
        else:
            yield Verdict(one.error_code, content)
        if not one.error_code:
            base_offset += part.header.record_count
