"""Brokers of the target die one after the other under an exactly-once mirror: through Shoal and, for comparison,
without it.

Kafka Connect never restarts a failed task, and each error of a task's transactional producer fails it: its partitions
are not copied until an operator restarts it. Only this may leave a copy incomplete here, and after a restart the copy
is complete. An incomplete copy for any other reason fails the test, which then reports all details.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.compare import first_difference, reconcile
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import NotReady, ToolFailed, TrafficFailed
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.mirror import MirrorSpec, running_mirror
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.exactly_once.test_exactly_once import is_refused, long_transactions
from tests.brokers.mirror.exactly_once.test_exactly_once_clusters import both
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, steady
from tests.brokers.mirror.test_multi_broker import EXTRA
from tests.support.kafka.tasks import FAILED, TaskStatus, task_statuses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.mirror import Mirror
    from tests.conftest import Aliases

pytestmark = pytest.mark.slow

MORE = 2_000  # records
# Seconds to wait for brokers that may be dead, for an offset or a topic.
_ASKED = 2.0
_READ = 10.0
# Errors of a producer whose transactional id another one has taken, at a commit or a batch (KAFKA-20785 is about the
# last name).
FENCED = ("ProducerFencedException", "InvalidProducerEpochException", "InvalidTxnStateException")
_SOURCE = "MirrorSourceConnector-"


@dataclass(slots=True, kw_only=True)
class Watch:
    """A mirror within one cluster, its copy as a read_committed reader sees it, and its tasks that failed."""

    cluster: Cluster
    topic: str
    mirror: Mirror
    failures: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def remote(self) -> str:
        return self.mirror.spec.remote_topic(self.topic)

    @property
    def tasks(self) -> list[str]:
        """The transactional ids of those that copy (org.apache.kafka.connect.runtime.Worker)."""
        spec = self.mirror.spec
        return [f"{spec.source_alias}-mm2-{_SOURCE}{number}" for number in range(spec.tasks)]

    async def has_failed(self) -> bool:
        return bool(self.failures)

    async def until(self, happened: Callable[[], Awaitable[bool]], what: str) -> None:
        """Raises NotReady if it has not `happened` in time and no task has failed; failed ones are restarted."""

        async def decided() -> bool:
            return await happened() or bool(await self._failed())

        while not await happened():
            try:
                await until(decided, within=WITHIN, what=what, process=self.mirror.process, poll_s=0.25)
            except NotReady as error:
                raise NotReady(f"{error}\n{await self._told()}") from None
            if failed := await self._failed():
                self.failures |= {status.place: f"{name}: {status.causes}" for name, status in failed.items()}
                self.mirror.kill()  # a dedicated mirror has no other way to start a task again
                self.mirror.restart()

    async def more(self) -> None:
        """Wait until more is copied and committed."""
        before = sum((await self._ends()).values())

        async def copied() -> bool:
            return sum((await self._ends()).values()) >= before + MORE

        await self.until(copied, f"{MORE} records more behind {before} in {self.remote}")

    async def whole(self) -> None:
        """Wait until no record is missing; then nothing is altered, out of order or duplicated."""
        ours = await read_copy(self.cluster.bootstrap, self.topic)
        theirs = ours

        async def copied() -> bool:
            nonlocal theirs
            with suppress(TrafficFailed):
                theirs = await read_copy(self.cluster.bootstrap, self.remote, isolation=READ_COMMITTED)
                return reconcile(ours, theirs).missing == 0
            return False

        await self.until(copied, f"{self.remote} to hold all {ours.records} records")
        assert await first_difference(ours, theirs) is None
        await self.until(self._is_settled, "no transaction to be open")

    async def _is_settled(self) -> bool:
        """True if no open transaction is left, neither in the copy nor in the mirror's offsets."""
        for topic in (self.remote, f"mm2-offsets.{self.mirror.spec.source_alias}.internal"):
            ends = await self._ends(topic, committed=False)
            if not ends or ends != await self._ends(topic):
                return False
        return True

    async def _ends(self, topic: str | None = None, *, committed: bool = True) -> Mapping[int, int]:
        """Last stable offsets or end offsets by partition; empty for a missing or unavailable topic."""
        with suppress(TrafficFailed):
            topics = Topics(self.cluster.bootstrap, within=_ASKED)
            spans = await topics.spans(topic or self.remote, committed=committed)
            return {partition: span.end for partition, span in spans.items()}
        return {}

    async def _statuses(self) -> Mapping[str, TaskStatus]:
        with suppress(TrafficFailed):
            return await task_statuses(self.cluster.bootstrap, self.mirror.spec, within=_READ)
        return {}

    async def _failed(self) -> Mapping[str, TaskStatus]:
        """Copying tasks that have failed since their last start."""
        return {
            name: status
            for name, status in (await self._statuses()).items()
            if name.startswith(_SOURCE) and status.state == FAILED and status.place not in self.failures
        }

    async def _told(self) -> str:
        statuses = (f"{name}: {one.state} {one.causes}" for name, one in (await self._statuses()).items())
        errors = (line for line in self.mirror.log.read_text().splitlines() if " ERROR " in line or "Exception" in line)
        asked = [("list",), *(("describe", "--transactional-id", task) for task in self.tasks)]
        copies = [("--topic", self.remote, "--partition", str(number)) for number in range(PARTITIONS)]
        asked += [("describe-producers", *copy) for copy in copies]
        return "\n".join(
            [
                f"end offsets {await self._ends(committed=False)}, last stable offsets {await self._ends()}",
                *statuses,
                *[await self._transactions(*arguments) for arguments in asked],
                *errors,
                *self.failures.values(),
            ]
        )

    async def _transactions(self, *arguments: str) -> str:
        try:
            described = await run_tool("TransactionsCommand", "--bootstrap-server", self.cluster.bootstrap, *arguments)
        except ToolFailed as error:
            described = str(error)
        return f"transactions {' '.join(arguments)}:\n{described}"


@asynccontextmanager
async def through_shoal(cluster: Cluster, topic: str, aliases: Aliases, work: Path) -> AsyncIterator[Watch]:
    extra = {**long_transactions(aliases), **EXTRA}
    pair = both(cluster)
    async with flowing(pair, aliases, work, Wiring(topics=topic, exactly_once=True, extra=extra)) as flow:
        yield Watch(cluster=cluster, topic=topic, mirror=flow.running)
        assert not is_refused(flow)
        assert await pair.envelopes() == []
    assert flow.counts()["unwrapped_records"] > 0


@asynccontextmanager
async def without_shoal(cluster: Cluster, topic: str, aliases: Aliases, work: Path) -> AsyncIterator[Watch]:
    spec = MirrorSpec(
        source=cluster.bootstrap,
        target=cluster.bootstrap,
        topics=topic,
        tasks=2,
        exactly_once=True,
        source_alias=aliases.source,
        target_alias=aliases.target,
        extra={**long_transactions(aliases), **EXTRA},
    )
    async with running_mirror(work, spec) as mirror:
        yield Watch(cluster=cluster, topic=topic, mirror=mirror)


either = pytest.mark.parametrize("mirroring", [through_shoal, without_shoal], ids=["through-shoal", "without-shoal"])


@either
async def test_a_task_fails(
    three_brokers: Cluster,
    topic: str,
    aliases: Aliases,
    tmp_path: Path,
    mirroring: Callable[..., AbstractAsyncContextManager[Watch]],
) -> None:
    """Another producer takes the transactional id: batches in flight are aborted, and a restart copies the rest."""
    await Topics(three_brokers.bootstrap).create(topic, PARTITIONS)
    async with mirroring(three_brokers, topic, aliases, tmp_path) as watch:
        async with steady(both(three_brokers), topic):
            await watch.more()
            assert not watch.failures
            await in_thread(partial(fence, three_brokers.bootstrap, watch.tasks[0]))
            await watch.until(watch.has_failed, f"the task of {watch.tasks[0]} to fail")
            await watch.more()
        await watch.whole()
        assert all(any(name in failure for name in FENCED) for failure in watch.failures.values()), watch.failures


def fence(bootstrap: str, transactional_id: str) -> None:
    Producer(client_config(bootstrap, transactional_id=transactional_id)).init_transactions(WITHIN)


@either
async def test_brokers_of_the_target_die(
    three_brokers: Cluster,
    topic: str,
    aliases: Aliases,
    tmp_path: Path,
    mirroring: Callable[..., AbstractAsyncContextManager[Watch]],
) -> None:
    """Each takes its leaders with it, and perhaps a transaction coordinator, in the middle of transactions."""
    await Topics(three_brokers.bootstrap).create(topic, PARTITIONS)
    async with mirroring(three_brokers, topic, aliases, tmp_path) as watch:
        async with steady(both(three_brokers), topic):
            for at_once in (False, True):
                for node in three_brokers.nodes.values():
                    await watch.more()
                    node.kill()
                    if not at_once:  # others lead then, when it comes back
                        await watch.more()
                    await node.start()
                    await three_brokers.wait_whole()
            await watch.more()
        await watch.whole()
        print(*watch.failures.values(), sep="\n")
