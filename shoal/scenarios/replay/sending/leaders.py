"""Leaders of the partitions, looked up once, before the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.multibatch.dialogue import Dialogue
from shoal.protocol.multibatch.messages import metadata, metadata_request
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.replay.sending.wire import converse, open_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.multibatch.dialogue import Talk
    from shoal.protocol.multibatch.messages import Metadata
    from shoal.scenarios.replay.sending.wire import Address

__all__ = ["find_leaders"]


async def find_leaders(bootstrap: Address, topics: Sequence[str]) -> dict[TopicPartition, Address]:
    """Partition -> its leader's address, as `bootstrap` reports it. Raises TrafficFailed, OSError."""
    async with open_wire(bootstrap) as wire:
        answer = await converse(wire, _ask(topics))
    addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    leaders = {TopicPartition(found.topic or "", found.partition): found.leader for found in answer.partitions}
    if missing := [f"{topic}-{number}" for (topic, number), leader in leaders.items() if leader not in addresses]:
        raise TrafficFailed(f"no leader for {', '.join(missing[:10])}")
    return {partition: addresses[leader] for partition, leader in leaders.items()}


def _ask(topics: Sequence[str]) -> Talk[Metadata]:
    dialogue = Dialogue()
    yield from dialogue.learn_versions()
    frame, version = yield from dialogue.ask(ApiKey.METADATA, metadata_request(topics))
    return metadata(frame, version)
