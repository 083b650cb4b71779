"""The target's partitions: whether they are mirror topics, and where their logs end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.list_offsets import LATEST, encode_list_offsets, read_list_offsets
from shoal.protocol.mirror_topics.probe import State
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cli.asking.survey import ORDINARY, said, survey
from shoal.proxy.cluster.brokers import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.proxy.cli.asking.survey import Survey
    from shoal.proxy.cluster.brokers import Brokers

__all__ = ["TargetLogs"]

_READ_UNCOMMITTED = 0
_NO_TOPIC = "the target has no such topic"
_NO_PARTITION = "the target has no such partition"
_PROMOTED = (
    "it was promoted, so offsets of the source may stand for other records there: without --every, those that are "
    "committed now are copied"
)


class TargetLogs:
    """What the leaders say is asked once of each topic; `seconds`: how long the question is repeated.

    The end of a log is its high watermark: what is behind it may be lost with the leader. Promoted partitions have one
    only with `with_promoted`.
    """

    def __init__(self, brokers: Brokers, *, seconds: float, pause_seconds: float, with_promoted: bool = True) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.unanswered: dict[TopicPartition, str] = {}
        self._brokers = brokers
        self._seconds = seconds
        self._pause_seconds = pause_seconds
        self._wanted = (State.MIRROR, State.PROMOTED) if with_promoted else (State.MIRROR,)
        self._others: dict[TopicPartition, str] = {}
        self._wrong_topics: dict[str, str] = {}
        self._asked: set[str] = set()

    def why_not(self, partition: TopicPartition) -> str:
        """Why a partition without an end is left out."""
        by_topic = self._wrong_topics.get(partition.topic, _NO_PARTITION)
        return self.unanswered.get(partition) or self._others.get(partition) or by_topic

    async def learn(self, topics: Iterable[str]) -> None:
        """Raises NoAnswer if no broker returns the metadata."""
        names = sorted(set(topics) - self._asked)
        if not names:
            return
        self._asked.update(names)
        deadline = trio.current_time() + self._seconds
        while True:
            late = await self._attempt(names)
            if not late or trio.current_time() >= deadline:
                self.unanswered |= late
                return
            await trio.sleep(self._pause_seconds)

    async def _attempt(self, names: Sequence[str]) -> dict[TopicPartition, str]:
        """-> the partitions that have to be asked again, and why."""
        found = await survey(self._brokers, names, self.ends.keys() | self._others.keys())
        self._note(found, names)
        mirrors: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in found.having(*self._wanted):
            mirrors[found.topics.leaders[partition]].append(partition)
        late = {**found.said(State.PASSING), **found.unanswered}
        async with trio.open_nursery() as nursery:
            for leader, partitions in mirrors.items():
                nursery.start_soon(self._list, leader, partitions, late)
        return {partition: said(self._brokers, found, partition, why) for partition, why in late.items()}

    def _note(self, found: Survey, names: Sequence[str]) -> None:
        """What does not change by itself."""
        for name in names:
            topic = found.topics.topics.get(name)
            if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._wrong_topics[name] = _NO_TOPIC
            elif topic.error_code:
                self._wrong_topics[name] = error_name(topic.error_code)
        self._others |= dict.fromkeys(found.having(State.ORDINARY), ORDINARY)
        if State.PROMOTED not in self._wanted:
            self._others |= dict.fromkeys(found.having(State.PROMOTED), _PROMOTED)
        self._others |= {
            partition: said(self._brokers, found, partition, why)
            for partition, why in found.said(State.REFUSED).items()
        }

    async def _list(self, leader: int, partitions: Sequence[TopicPartition], late: dict[TopicPartition, str]) -> None:
        request = encode_list_offsets(
            self._brokers.client_id, partitions, timestamp=LATEST, isolation_level=_READ_UNCOMMITTED
        )
        try:
            rows = read_list_offsets(await self._brokers.exchange(leader, request))
        except (NoAnswer, RemoteProtocolError) as error:
            late.update(dict.fromkeys(partitions, str(error)))
            return
        answers = {TopicPartition(row.topic, row.partition): row for row in rows}
        for partition in partitions:
            row = answers.get(partition)
            if row is None:
                late[partition] = "the answer to ListOffsets leaves it out"
            elif row.error_code or row.offset < 0:
                late[partition] = error_name(row.error_code)
            else:
                self.ends[partition] = row.offset
