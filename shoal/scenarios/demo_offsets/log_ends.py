"""End offsets of many topics, asked for together; waiting until a mirror has filled the target up to given ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.demo_offsets.plan import PARTITIONS
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["STALL_S", "LogEnds", "behind"]

STALL_S = 90.0  # without another record; the start of a mirror takes less
_POLL_S = 0.1
_ANSWER_S = 10.0


class LogEnds:
    """The end offsets of a cluster's partitions."""

    def __init__(self, bootstrap: str, topics: Iterable[str]) -> None:
        self._admin = AdminClient(client_config(bootstrap))
        self._partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]

    async def now(self) -> dict[TopicPartition, int]:
        """0 where a partition does not exist yet or has no leader."""
        return await trio.to_thread.run_sync(self._ask)

    async def until(
        self,
        wanted: Mapping[TopicPartition, int],
        check: Callable[[], None],
        show: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Wait until every log ends at the wanted offset or behind it.

        `check` is called regularly, to raise an error; `show` gets the sum of the offsets so far, and of the wanted.
        Raises NotReady when nothing is appended for STALL_S.
        """
        seen, moved = -1, trio.current_time()
        while left := behind(wanted, ends := await self.now()):
            done = sum(ends.values())
            if done > seen:
                seen, moved = done, trio.current_time()
            check()
            if trio.current_time() - moved > STALL_S:
                raise NotReady("\n".join([f"nothing was appended for {STALL_S:g} s", *left]))
            show(done, sum(wanted.values()))
            await trio.sleep(_POLL_S)

    async def until_begun(self, check: Callable[[], None]) -> None:
        """Wait for the first record of all. Raises NotReady as `until` does."""
        begin = trio.current_time()
        while not any((await self.now()).values()):
            check()
            if trio.current_time() - begin > STALL_S:
                raise NotReady(f"no record arrived within {STALL_S:g} s")
            await trio.sleep(_POLL_S)

    def _ask(self) -> dict[TopicPartition, int]:
        wanted = {ClientPartition(*partition): OffsetSpec.latest() for partition in self._partitions}
        ends = dict.fromkeys(self._partitions, 0)
        for asked, future in self._admin.list_offsets(wanted, request_timeout=_ANSWER_S).items():
            try:
                ends[TopicPartition(asked.topic, asked.partition)] = future.result(_ANSWER_S).offset
            except (KafkaException, TimeoutError):
                continue
        return ends


def behind(wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[str]:
    """A line for each partition that ends before the wanted offset."""
    return [
        f"{topic}-{partition} ends at {ends.get(TopicPartition(topic, partition), 0)}, not at {end}"
        for (topic, partition), end in wanted.items()
        if ends.get(TopicPartition(topic, partition), 0) < end
    ]
