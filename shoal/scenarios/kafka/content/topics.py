"""Topics of one cluster: create, alter, delete, list, offsets."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from shoal.scenarios.kafka.errors import NotReady, TrafficFailed
from shoal.scenarios.kafka.process import Process, until
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity

from .clients import Setting, client_config, in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
_TIMEOUT_S = 30.0


class OffsetRange(NamedTuple):
    begin: int
    """Log start offset."""
    end: int
    """High watermark, or last stable offset under read_committed."""


class Topics:
    """Admin calls to the brokers at `bootstrap`.

    Each method raises TrafficFailed on an error, or without an answer `within` seconds. (librdkafka waits for the
    leader that it knows, even a dead one: a short timeout and a retry find the new one.)
    """

    def __init__(
        self, bootstrap: str, *, within: float = _TIMEOUT_S, login: ClientSecurity = ANYBODY, **settings: Setting
    ) -> None:
        self._admin = AdminClient(client_config(bootstrap, login, **settings))
        self._within = within

    async def create(
        self, name: str, partitions: int = 1, *, replication: int = -1, config: Mapping[str, str] | None = None
    ) -> None:
        """Returns once every partition has a leader."""
        topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        await self._done(self._admin.create_topics([topic])[name])
        await self._until_partitions(name, partitions)

    async def add_partitions(self, name: str, total: int) -> None:
        await self._done(self._admin.create_partitions([NewPartitions(name, total)])[name])
        await self._until_partitions(name, total)

    async def alter(self, name: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        await self._done(self._admin.incremental_alter_configs([resource])[resource])

    async def delete(self, *names: str) -> None:
        """Returns once the topics have left the metadata."""
        for future in self._admin.delete_topics(list(names)).values():
            await self._done(future)
        for name in names:
            await self._until_partitions(name, 0)

    async def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Move the log start offset of partitions up to the given offsets."""
        request = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        for future in self._admin.delete_records(request).values():
            await self._done(future)

    async def all_partitions(self) -> dict[str, int]:
        """Number of partitions with a leader, by topic name, internal topics included."""
        metadata = await in_thread(partial(self._admin.list_topics, timeout=self._within))
        return {
            name: sum(1 for partition in topic.partitions.values() if partition.leader >= 0)
            for name, topic in sorted(metadata.topics.items())
        }

    async def names(self) -> list[str]:
        """All topics, internal ones included."""
        return list(await self.all_partitions())

    async def partitions(self, name: str) -> int:
        """Number of partitions with a leader; 0 when the topic does not exist."""
        # Asks for all topics: a request for a missing one could create it.
        return (await self.all_partitions()).get(name, 0)

    async def spans(self, name: str, *, committed: bool = False) -> dict[int, OffsetRange]:
        """First and end offset by partition that has a leader; with `committed` the end is the last stable offset."""
        begins = await self._offsets(name, OffsetSpec.earliest(), committed)
        ends = await self._offsets(name, OffsetSpec.latest(), committed)
        with_leader = sorted(begins.keys() & ends.keys())
        return {partition: OffsetRange(begins[partition], ends[partition]) for partition in with_leader}

    async def ends(self, name: str) -> dict[int, int]:
        """End offset by partition, regardless of open transactions."""
        return await self._offsets(name, OffsetSpec.latest(), False)

    async def total(self, name: str) -> int:
        """Sum of the end offsets: the records ever produced, if there are no transaction markers."""
        return sum((await self.ends(name)).values())

    async def until_total(self, name: str, wanted: int, *, within: float, process: Process | None = None) -> None:
        """Wait until `total` is at least `wanted`, ignoring errors. Raises NotReady, immediately if `process` (a
        mirror) ends."""
        total = 0

        async def reached() -> bool:
            nonlocal total
            with suppress(TrafficFailed):  # a new topic, or a broker that is starting
                total = await self.total(name)
            return total >= wanted

        try:
            await until(reached, within=within, what=f"{name} to be full", process=process, poll_s=0.1)
        except NotReady as error:
            raise NotReady(f"{name} holds {total} of {wanted} records: {error}") from None

    async def _offsets(self, name: str, spec: OffsetSpec, committed: bool) -> dict[int, int]:
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(name, partition): spec for partition in range(await self.partitions(name))}
        if not asked:
            return {}
        futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._within)
        return {asked_of.partition: (await self._done(future)).offset for asked_of, future in futures.items()}

    async def _until_partitions(self, name: str, wanted: int) -> None:
        async def there() -> bool:
            with suppress(TrafficFailed):  # metadata can name a leader before the leader knows
                return (
                    await self.partitions(name) == wanted == len(await self._offsets(name, OffsetSpec.latest(), False))
                )
            return False

        await until(there, within=_TIMEOUT_S, what=f"topic {name} to have {wanted} partitions with a leader")

    async def _done(self, future: "Future[T]") -> T:
        try:
            return await in_thread(partial(future.result, self._within))
        except TimeoutError:
            raise TrafficFailed(f"no answer within {self._within:g} s") from None
