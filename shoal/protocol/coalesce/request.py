"""A joined request as bytes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from shoal.protocol.coalesce.joinable import LaneKey, PartitionBatch
from shoal.protocol.messages.produce import encode_partition, encode_plain_produce
from shoal.protocol.wire.types import PartitionRef

if TYPE_CHECKING:
    from shoal.protocol.wire.types import Topic

__all__ = ["encode_joined"]

_LEADER: Final = 1


def encode_joined(
    key: LaneKey, client_id: str | None, correlation_id: int, sets: Mapping[PartitionRef, Sequence[PartitionBatch]]
) -> bytes:
    """One request with these batches of each target.

    acks=0 becomes 1: with 0 a broker closes the connection after an error in one partition, which would affect all
    clients.
    """
    topics: dict[Topic, list[bytes]] = {}
    for target, parts in sets.items():
        if len(parts) == 1:
            element = parts[0].content
        else:
            element = encode_partition(key.version, target.partition, [part.batch for part in parts])
        topics.setdefault(target.topic, []).append(element)
    acks = key.acks or _LEADER
    return encode_plain_produce(key.version, correlation_id, client_id, acks, key.timeout_ms, list(topics.items()))
