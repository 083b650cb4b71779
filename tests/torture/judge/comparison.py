"""Compares source, target and ledger of a world, topic by topic, according to each topic's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

from shoal.scenarios.kafka.errors import TrafficFailed
from tests.torture.clients.ledger import Ending, Fate
from tests.torture.plan import TARGET

from .attribution import NONE, Doubled, attribute
from .judge import Findings, Seen, Terms, judge_partition, judge_source
from .reading import Held, read_topic
from .segments import Batch, batches, is_stamped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.torture.environment.world import World
    from tests.torture.plan import TopicPlan

    from .verdict import Verdict
    from .watch import Watch

T = TypeVar("T")
_TRIES = 10
_TRY_S = 2.0


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Retry for a while: brokers that have just restarted may not know their leaders."""
    for _ in range(_TRIES):
        try:
            return await call()
        except TrafficFailed:
            await trio.sleep(_TRY_S)
    return await call()


class Comparison:
    """One topic and its copy. Call `prepare` once no producer writes any more; `compare` any number of times."""

    def __init__(self, world: World, topic: TopicPlan) -> None:
        self._world = world
        self._plan = world.plan
        self.topic = topic
        self._mirror = world.plan.mirror_of(topic)
        self._held: Held = {}
        self.name = f"{topic.cluster}/{topic.name}"

    @property
    def target(self) -> str:
        return self._world.target_name(self.topic)

    @property
    def _is_exact(self) -> bool:
        """The mirror copies committed records only, each once."""
        return self._mirror.exactly_once or self._plan.shoal.same_offsets

    @property
    def _is_new(self) -> bool:
        return self.topic.key in self._world.recreated

    @property
    def _has_gaps(self) -> bool:
        """The source has lost old records: only the ledger knows all records that it ever had."""
        return self.topic.compacted or self.topic.shortened

    async def prepare(self) -> Findings:
        """Read the source; returns findings in the source itself."""
        world, topic = self._world, self.topic
        self._held = await patiently(lambda: self._read_source(committed=self._is_exact))
        committed = self._held
        if world.plan.transactional(topic.cluster) and not self._is_exact:
            committed = await patiently(lambda: self._read_source(committed=True))
        complete = not (self._is_new or self._has_gaps)
        return judge_source(topic.cluster, topic.name, committed, world.ledger, complete=complete)

    @property
    def records(self) -> int:
        return sum(map(len, self._held.values()))

    async def compare(self) -> Findings:
        """Raises TrafficFailed."""
        world, topic = self._world, self.topic
        if topic.shortened:
            self._held = await self._read_source(committed=self._is_exact)
        bootstrap = world.clusters[TARGET].bootstrap
        target = await read_topic(bootstrap, self.target, committed=self._is_exact)
        source = self._history() if self._has_gaps else self._held
        findings = Findings()
        for partition in sorted(source.keys() | target.keys()):
            findings.add(
                judge_partition(
                    partition,
                    self._kept(source.get(partition, [])),
                    self._own(target.get(partition, [])),
                    world.ledger,
                    self._terms(),
                    required=self._kept(self._held.get(partition, [])) if self._has_gaps else None,
                )
            )
        return findings

    def attributed(self, findings: Findings, verdict: Verdict, watch: Watch) -> dict[str, list[str]]:
        """Duplicates, by cause."""
        if self._is_exact:
            return {NONE: [f"{self.name}/{partition}@{offset}" for partition, offset in findings.doubled]}
        logs: dict[int, list[Batch]] = {}
        old = any(
            producer.age_s and (producer.cluster, producer.topic) == self.topic.key for producer in self._plan.producers
        )
        doubled = []
        for partition, offset in findings.doubled:
            if partition not in logs:
                logs[partition] = self._log(partition)
            doubled.append(
                Doubled(
                    where=f"{self.name}/{partition}@{offset}",
                    when=watch.when(self.target, partition, offset),
                    stamped=is_stamped(logs[partition], offset),
                    old=old,
                )
            )
        return attribute(doubled, verdict.faults, watch.tasks_began)

    def _log(self, partition: int) -> list[Batch]:
        """The longest log of a target broker."""
        nodes = self._world.clusters[TARGET].nodes.values()
        return max((batches(node.data, self.target, partition) for node in nodes), key=len, default=[])

    def _terms(self) -> Terms:
        return Terms(
            committed=self._is_exact,
            same_offsets=self._plan.shoal.same_offsets,
            keeps_time=self.topic.keeps_time,
            required=not self._is_new,
            latest_only=self.topic.compacted,
            partial=self._has_gaps,
        )

    async def _read_source(self, *, committed: bool) -> Held:
        world = self._world
        bootstrap = world.clusters[self.topic.cluster].bootstrap
        return await read_topic(bootstrap, world.source_name(self.topic), committed=committed)

    def _kept(self, records: list[Seen]) -> list[Seen]:
        """Records without those that the mirror's transform drops."""
        if not self.topic.filtered:
            return records
        entries = self._world.ledger.entries
        return [
            seen
            for seen in records
            if not isinstance(seen.identity, bytes)
            or (entry := entries.get(seen.identity)) is None
            or not entry.dropped
        ]

    def _own(self, records: list[Seen]) -> list[Seen]:
        """Records without those of the other source, if both are copied into one topic."""
        if len(self._plan.mirrors) == 1:
            return records
        entries, cluster = self._world.ledger.entries, self.topic.cluster
        return [
            seen
            for seen in records
            if not isinstance(seen.identity, bytes)
            or (entry := entries.get(seen.identity)) is None
            or entry.cluster == cluster
        ]

    def _history(self) -> Held:
        """Everything that was acknowledged or is in the source."""
        ledger = self._world.ledger
        places: dict[int, dict[int, Seen]] = {number: {} for number in self._held}
        for identity, entry in ledger.entries.items():
            if (entry.cluster, entry.topic) != self.topic.key or entry.fate is not Fate.ACKED:
                continue
            if self._is_exact and ledger.ending(entry) is not Ending.COMMITTED:
                continue
            seen = Seen(identity, entry.content, entry.timestamp or 0, 0, entry.offset)
            places.setdefault(entry.partition, {})[entry.offset] = seen
        for number, records in self._held.items():
            places[number] |= {seen.offset: seen for seen in records}
        return {number: [records[offset] for offset in sorted(records)] for number, records in places.items()}
