"""Offsets of old clients: committed ones, the ends of a partition, and by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.records import EPOCH_MS, Record
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import fill
from tests.brokers.legacy.old_clients.client import ClientFailed
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.brokers.legacy.old_clients.traffic import consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers.legacy.old_clients.client import OldClient
    from tests.brokers.legacy.old_clients.kinds import Kind

    from .conftest import Route

pytestmark = pytest.mark.kafka
RECORDS, GONE, STEP_MS = 10, 3, 1_000


def _modern_consumer(route: Route, group: str) -> Consumer:
    return Consumer({**client_config(route.cluster.bootstrap), "group.id": group, "enable.auto.commit": False})


def _told(words: list[str]) -> str:
    """The offset; 0.8.2 also returns the metadata."""
    (line,) = words
    return line.split(" ")[0]


def test_commits(kind: Kind, client: OldClient, route: Route, topic: str) -> None:
    """They are in the group's offsets, where modern consumers find them, and vice versa."""
    trio.run(Topics(route.cluster.bootstrap).create, topic, 2)
    group = f"g-{topic}"
    name = consumer(client, kind, route.bootstrap, group)
    assert client.ask("committed", name, topic, 0) == ["null"]
    client.ask("assign", name, topic, 0, 0)
    client.ask("commit", name, topic, 0, 17)
    modern = _modern_consumer(route, group)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert [one.offset for one in modern.committed(places, timeout=30)] == [17, -1001]
    assert _told(client.ask("committed", name, topic, 0)) == "17"
    assert client.ask("committed", name, topic, 1) == ["null"]
    client.ask("close", name)
    modern.commit(offsets=[TopicPartition(topic, 1, 23)], asynchronous=False)
    modern.close()
    name = consumer(client, kind, route.bootstrap, group)
    assert _told(client.ask("committed", name, topic, 1)) == "23"
    client.ask("close", name)


def _filled(route: Route, topic: str) -> None:
    """Ten records, a second from each other, of which the first three were deleted."""
    topics = Topics(route.cluster.bootstrap)
    trio.run(topics.create, topic)
    records = (Record(b"v%d" % index, timestamp=EPOCH_MS + index * STEP_MS) for index in range(RECORDS))
    trio.run(fill, route.cluster.bootstrap, topic, records)
    trio.run(topics.delete_records, topic, {0: GONE})


def test_ends(kind: Kind, client: OldClient, route: Route, topic: str) -> None:
    _filled(route, topic)
    name = consumer(client, kind, route.bootstrap, f"g-{topic}")
    assert client.ask("offset", name, topic, 0, "earliest") == [str(GONE)]
    assert client.ask("offset", name, topic, 0, "latest") == [str(RECORDS)]
    client.ask("close", name)


@pytest.mark.parametrize("kind", [KINDS["java-0.10.1.1"], KINDS["java-0.10.2.2"]], ids=str)
def test_times(kind: Kind, client: OldClient, route: Route, topic: str) -> None:
    """ListOffsets v1, since 0.10.1."""
    _filled(route, topic)
    name = consumer(client, kind, route.bootstrap, f"g-{topic}")
    asked = (0, EPOCH_MS + 5 * STEP_MS, EPOCH_MS + 5 * STEP_MS + 1, EPOCH_MS + RECORDS * STEP_MS)
    assert [client.ask("offset", name, topic, 0, at) for at in asked] == [[str(GONE)], ["5"], ["6"], ["null"]]
    client.ask("close", name)


def test_times_as_08_asks(old_clients: Callable[[Kind], OldClient], route: Route, topic: str) -> None:
    """ListOffsets v0: up to N offsets, the latest first."""
    kind = KINDS["java-0.8.2.2"]
    client = old_clients(kind)
    _filled(route, topic)
    name = consumer(client, kind, route.bootstrap, f"g-{topic}")
    asked = ("latest,1", "latest,2", "earliest,5", "latest,0")
    assert [client.ask("offset", name, topic, 0, what) for what in asked] == [["10"], ["10,3"], ["3"], [""]]
    client.ask("close", name)


def test_what_08_kept_in_zookeeper(old_clients: Callable[[Kind], OldClient], through_shoal: Route, topic: str) -> None:
    """Version 0 of OffsetCommit and OffsetFetch: Shoal also uses the group's offsets. Without a commit, the answer is
    that of a missing ZooKeeper node."""
    kind = KINDS["java-0.8.2.2"]
    client = old_clients(kind)
    route, group = through_shoal, f"g-{topic}"
    trio.run(Topics(route.cluster.bootstrap).create, topic, 2)
    words = kind.words({**kind.consumer(route.bootstrap, group), "offsets.version": 0})
    client.ask("consumer", topic, *words)
    with pytest.raises(ClientFailed, match="UnknownTopicOrPartition"):
        client.ask("committed", topic, topic, 0)
    client.ask("commit", topic, topic, 0, 5)
    assert client.ask("committed", topic, topic, 0) == ["5 said by a test"]
    client.ask("close", topic)
    modern = _modern_consumer(route, group)
    (found,) = modern.committed([TopicPartition(topic, 0)], timeout=30)
    modern.close()
    assert found.offset == 5
