"""A consumer group of one member that commits by hand, and its offsets, which are copied as they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.demo_offsets.compare import Identity
from shoal.scenarios.demo_offsets.log_ends import STALL_S
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.copies import fingerprint
from shoal.scenarios.kafka.content.reading import READ_COMMITTED, partition_of
from shoal.scenarios.kafka.errors import NotReady, TrafficFailed
from shoal.scenarios.kafka.process import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from confluent_kafka import Message

    from shoal.scenarios.kafka.content.clients import Setting

__all__ = ["GroupReading", "committed_offsets", "read_as_group", "set_offsets"]

_AT_ONCE = 500  # records between two commits: few, so that the group may stop within a batch
_POLL_S = 0.2
_ANSWER_S = 10.0
_COORDINATOR_S = 90.0
_END_OF_PARTITION = KafkaError._PARTITION_EOF
# "Message might be too large to fetch": after ten fetches of a partition with nothing but empty batches, librdkafka
# reports every further one like this, and reads on.
_ONLY_EMPTY = KafkaError.MSG_SIZE_TOO_LARGE


@dataclass(slots=True)
class GroupReading:
    """What a group has read in one cluster, by the source's names."""

    records: Counter[Identity] = field(default_factory=Counter)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset. At the end of a partition it is behind the markers and holes there, as a Java consumer's is."""
    complaints: int = 0
    """Fetches that had only empty batches, which librdkafka reports (`_ONLY_EMPTY`)."""


async def read_as_group(
    bootstrap: str,
    group: str,
    topics: Mapping[str, str],
    reading: GroupReading,
    *,
    reset: str,
    done: Callable[[], bool],
    check: Callable[[], None],
) -> None:
    """Read committed records into `reading`, and commit, until `done()`.

    `topics`: the source's name of each topic, by its name in this cluster. `check` is called regularly, to raise an
    error. Raises TrafficFailed, and NotReady when nothing is read for STALL_S.
    """
    settings = client_config(
        bootstrap,
        group_id=group,
        isolation_level=READ_COMMITTED,
        auto_offset_reset=reset,
        enable_auto_commit=False,
        enable_partition_eof=True,
        fetch_wait_max_ms=50,
    )
    member = _Member(settings, topics, reading)
    moved = trio.current_time()
    try:
        while not done():
            check()
            if await in_thread(member.step):
                moved = trio.current_time()
            elif trio.current_time() - moved > STALL_S:
                raise NotReady(f"the group has read nothing at {bootstrap} for {STALL_S:g} s: {_shown(reading)}")
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(member.close)


def _shown(reading: GroupReading) -> str:
    return ", ".join(f"{topic}-{number} at {at}" for (topic, number), at in sorted(reading.positions.items()))


class _Member:
    """Blocking."""

    def __init__(self, settings: dict[str, Setting], topics: Mapping[str, str], reading: GroupReading) -> None:
        self._topics = topics
        self._reading = reading
        self._consumer = Consumer(settings)
        self._consumer.subscribe(list(topics))
        self.close = self._consumer.close

    def step(self) -> int:
        """Read what has arrived, and commit; the number of records, and of ends of partitions that were met."""
        messages = self._consumer.consume(_AT_ONCE, _POLL_S)
        reached = {
            partition_of(message): self._take(message) for message in messages if not self._is_complaint(message)
        }
        if reached:
            offsets = [ClientPartition(*partition, offset) for partition, offset in reached.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        return len(reached)

    def _is_complaint(self, message: Message) -> bool:
        error = message.error()
        found = error is not None and error.code() == _ONLY_EMPTY
        self._reading.complaints += found
        return found

    def _take(self, message: Message) -> int:
        """The next offset to read. Raises TrafficFailed."""
        error, offset = message.error(), message.offset() or 0
        if error is not None and error.code() != _END_OF_PARTITION:
            raise TrafficFailed(f"the group can't read {message.topic()}-{message.partition()}@{offset}: {error}")
        name, number = partition_of(message)
        topic = self._topics[name]
        if error is None:
            self._reading.records[Identity(topic, number, fingerprint(message, timestamp_types=True))] += 1
            offset += 1
        self._reading.positions[TopicPartition(topic, number)] = offset
        return offset


async def committed_offsets(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    """Raises NotReady."""
    admin = AdminClient(client_config(bootstrap))

    def ask() -> Future[ConsumerGroupTopicPartitions]:
        request = [ConsumerGroupTopicPartitions(group)]
        return admin.list_consumer_group_offsets(request, request_timeout=_ANSWER_S)[group]

    found = await _answered(ask, f"{bootstrap} to list the offsets of group {group}")
    return {
        TopicPartition(answered.topic, answered.partition): answered.offset for answered in found.topic_partitions or []
    }


async def set_offsets(bootstrap: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Only the offsets: leader epochs are those of a cluster. Raises NotReady."""
    admin = AdminClient(client_config(bootstrap))
    wanted = [ClientPartition(*partition, offset) for partition, offset in offsets.items()]

    def ask() -> Future[ConsumerGroupTopicPartitions]:
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        return admin.alter_consumer_group_offsets(request, request_timeout=_ANSWER_S)[group]

    await _answered(ask, f"{bootstrap} to take the offsets of group {group}")


async def _answered(ask: Callable[[], Future[ConsumerGroupTopicPartitions]], what: str) -> ConsumerGroupTopicPartitions:
    """The answer without an error. Asked again until there is a coordinator, which a new cluster chooses late."""
    answers: list[ConsumerGroupTopicPartitions] = []
    refused = ""

    async def answered() -> bool:
        nonlocal refused
        try:
            answer = await in_thread(partial(ask().result, 2 * _ANSWER_S))
        except (TrafficFailed, TimeoutError) as error:
            refused = str(error) or "no answer"
            return False
        refused = next(
            (str(answered.error) for answered in answer.topic_partitions or [] if answered.error is not None), ""
        )
        answers.append(answer)
        return not refused

    try:
        await until(answered, within=_COORDINATOR_S, what=what, poll_s=0.2)
    except NotReady as error:
        raise NotReady(f"{error}{refused}") from None
    return answers[-1]
