"""Groups of two kinds of old consumers: one joins, one leaves, and together they read every record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.process import until
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.brokers.legacy.old_clients.traffic import consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.brokers.legacy.old_clients.client import OldClient, Seen
    from tests.brokers.legacy.old_clients.kinds import Kind

    from .conftest import Route

pytestmark = pytest.mark.kafka
PARTITIONS, RECORDS = 4, 200
_GROUPED = [kind for kind in KINDS.values() if kind.groups]
_PAIRS = list(zip(_GROUPED, [*_GROUPED[3:], *_GROUPED[:3]], strict=True))
_SETTLED_S = 30.0
_LAST_S = 0.3  # how long to wait for records that must not arrive


class Member(NamedTuple):
    client: OldClient
    name: str

    def assigned(self) -> set[str]:
        return set(self.client.ask("assigned", self.name))


@pytest.mark.parametrize(("first", "second"), _PAIRS, ids=[f"{one.name}+{two.name}" for one, two in _PAIRS])
def test_members_come_and_go(
    first: Kind, second: Kind, old_clients: Callable[[Kind], OldClient], route: Route, topic: str
) -> None:
    clients = (old_clients(first), old_clients(second))
    trio.run(_come_and_go, clients, (first, second), route, topic)


async def _come_and_go(clients: Sequence[OldClient], kinds: Sequence[Kind], route: Route, topic: str) -> None:
    bootstrap = route.cluster.bootstrap
    await Topics(bootstrap).create(topic, PARTITIONS)
    everything = {f"{topic} {partition}" for partition in range(PARTITIONS)}
    filled = Filled(bootstrap, topic)
    one = await _joined(clients[0], kinds[0], route, topic)
    await _until(lambda: one.assigned() == everything, "the first to have all")
    await filled.more()
    seen = await _taken(one, filled.total)
    two = await _joined(clients[1], kinds[1], route, topic)
    await _until(
        lambda: len(one.assigned()) == 2 and one.assigned() | two.assigned() == everything, "each to have half"
    )
    await filled.more()
    seen += [*await _taken(one, RECORDS // 2), *await _taken(two, RECORDS // 2)]
    await trio.to_thread.run_sync(one.client.ask, "close", one.name)
    await _until(lambda: two.assigned() == everything, "the second to have all")
    await filled.more()
    seen += await _taken(two, RECORDS)
    assert two.client.take(two.name, 1, within=_LAST_S) == []
    assert sorted((at.partition, at.offset) for at in seen) == filled.places()
    assert await trio.to_thread.run_sync(_committed, bootstrap, topic) == [filled.total // PARTITIONS] * PARTITIONS
    await trio.to_thread.run_sync(two.client.ask, "close", two.name)


class Filled:
    """A topic; every partition repeatedly gets the same number of records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.total = 0

    async def more(self) -> None:
        layout = Layout(partitions=PARTITIONS, run=RECORDS // PARTITIONS)
        self.total += await fill(
            self._bootstrap, self._topic, orders(RECORDS, seed=self.total), layout=layout, compression_type="gzip"
        )

    def places(self) -> list[tuple[int, int]]:
        return [(partition, at) for partition in range(PARTITIONS) for at in range(self.total // PARTITIONS)]


async def _joined(client: OldClient, kind: Kind, route: Route, topic: str) -> Member:
    def join() -> Member:
        name = consumer(client, kind, route.bootstrap, f"g-{topic}", commits=True)
        client.ask("subscribe", name, topic)
        return Member(client, name)

    return await trio.to_thread.run_sync(join)


async def _taken(member: Member, number: int) -> list[Seen]:
    seen = await trio.to_thread.run_sync(member.client.take, member.name, number)
    assert len(seen) == number
    return seen


async def _until(true: Callable[[], bool], what: str) -> None:
    await until(lambda: trio.to_thread.run_sync(true), within=_SETTLED_S, what=what)


def _committed(bootstrap: str, topic: str) -> list[int]:
    modern = Consumer({**client_config(bootstrap), "group.id": f"g-{topic}", "enable.auto.commit": False})
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    offsets = [one.offset for one in modern.committed(places, timeout=30)]
    modern.close()
    return offsets
