"""Leaders of the partitions, looked up once, before the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.multibatch.dialogue import Dialogue
from shoal.protocol.multibatch.messages import metadata, metadata_request
from shoal.protocol.schema.api import ApiKey
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.replay.sending.wire import converse, open_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.multibatch.dialogue import Talk
    from shoal.protocol.multibatch.messages import Metadata
    from shoal.protocol.wire.sasl import Credentials
    from shoal.scenarios.replay.sending.wire import Address

__all__ = ["find_leaders"]


async def find_leaders(
    bootstrap: Address, topics: Sequence[str], credentials: Credentials | None = None
) -> dict[tuple[str, int], Address]:
    """(topic, partition) -> its leader's address, as `bootstrap` reports it. Raises TrafficFailed, OSError."""
    async with open_wire(bootstrap, credentials) as wire:
        found = await converse(wire, _ask(topics))
    addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
    leaders = {(partition.topic or "", partition.partition): partition.leader for partition in found.partitions}
    if missing := [place for place, leader in leaders.items() if leader not in addresses]:
        raise TrafficFailed(f"no leader for {missing[:10]}")
    return {place: addresses[leader] for place, leader in leaders.items()}


def _ask(topics: Sequence[str]) -> Talk[Metadata]:
    dialogue = Dialogue()
    yield from dialogue.learn_versions()
    frame, version = yield from dialogue.ask(ApiKey.METADATA, metadata_request(topics))
    return metadata(frame, version)
