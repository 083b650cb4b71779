"""Asks the leaders of all partitions what they say of mirror topics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal.command_line import listed
from shoal.protocol.mirror_topics.probe import State, encode_probe, read_probe_answers
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.brokers import Brokers, NoAnswer
from shoal.proxy.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from shoal.protocol.messages.topics import Topics
    from shoal.protocol.mirror_topics.probe import ProbeAnswer
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.config.settings import ClusterSettings, Limits

__all__ = ["NO_LEADER", "ORDINARY", "Survey", "brokers_of", "by_reason", "said", "shown", "survey"]

ORDINARY = "not a mirror topic there: the broker has no agent, or shoal.mirror.topics does not match the topic"
NO_LEADER = "has no leader"
_HINT = ": the port may require TLS (--tls) or a login (--sasl-mechanism)"
_SHOWN = 5  # partitions that a message names


def brokers_of(settings: ClusterSettings, limits: Limits, *, client_id: str, patience: float) -> Brokers:
    """`patience`: seconds for an answer. Raises OperatorError."""
    return Brokers(Cluster(settings, limits), client_id=client_id, patience=patience, hint=_HINT)


def said(brokers: Brokers, found: Survey, partition: TopicPartition, why: str) -> str:
    """With the name of the leader, which says so."""
    leader = found.topics.leaders.get(partition, -1)
    return why if leader < 0 else f"{brokers.name(leader)}: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """`unanswered`: why there is no answer for a partition."""

    topics: Topics
    answers: dict[TopicPartition, ProbeAnswer] = field(default_factory=dict)
    unanswered: dict[TopicPartition, str] = field(default_factory=dict)

    def having(self, *states: State) -> list[TopicPartition]:
        return sorted(partition for partition, answer in self.answers.items() if answer.state in states)

    def said(self, *states: State) -> dict[TopicPartition, str]:
        """What the leaders answered, in words."""
        return {partition: str(self.answers[partition]) for partition in self.having(*states)}

    def ends(self) -> dict[TopicPartition, int]:
        """The log ends of mirror topics."""
        return {partition: self.answers[partition].log_end for partition in self.having(State.MIRROR)}


async def survey(brokers: Brokers, names: Sequence[str], without: Collection[TopicPartition] = ()) -> Survey:
    """All partitions of these topics except `without`. Raises NoAnswer if no broker returns the metadata."""
    topics = await brokers.topics(names)
    found = Survey(topics=topics)
    live = {broker.node_id for broker in topics.brokers}
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in sorted(topics.leaders.items()):
        if partition.topic not in names or partition in without:
            continue
        if leader not in live:
            found.unanswered[partition] = NO_LEADER
        else:
            by_leader[leader].append(partition)
    async with trio.open_nursery() as nursery:
        for leader, partitions in by_leader.items():
            nursery.start_soon(_probe, brokers, leader, partitions, found)
    return found


async def _probe(brokers: Brokers, leader: int, partitions: list[TopicPartition], found: Survey) -> None:
    try:
        frame = await brokers.exchange(leader, encode_probe(brokers.client_id, partitions))
        found.answers.update(read_probe_answers(frame, partitions))
    except (NoAnswer, RemoteProtocolError) as error:
        found.unanswered.update(dict.fromkeys(partitions, str(error)))


def by_reason(reasons: Mapping[TopicPartition, str]) -> dict[str, list[TopicPartition]]:
    found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for partition, why in sorted(reasons.items()):
        found[why].append(partition)
    return found


def shown(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return listed(f"{topic}-{partition}" for topic, partition in partitions[:_SHOWN]) + more
