"""The broker is killed and restarted, then Shoal: old clients continue, acknowledged records are neither lost nor
moved, and readers miss nothing."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.legacy.old_clients.client import Record
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.brokers.legacy.old_clients.sources import source
from tests.brokers.legacy.old_clients.traffic import consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers.legacy.old_clients.client import OldClient, Seen
    from tests.brokers.legacy.old_clients.kinds import Kind
    from tests.brokers.legacy.old_clients.sources import Source

    from .conftest import Route

pytestmark = pytest.mark.kafka
_TESTED = ("java-0.8.2.2", "java-0.9.0.1", "java-0.10.2.2", "kafka-python-0.9", "librdkafka-0.9.0")
_AT_ONCE = 10
_MORE = 100
_WITHIN = 60.0


class Writing:
    """An old client's producer that runs in its own thread, and the acknowledged records."""

    def __init__(self, client: OldClient, kind: Kind, bootstrap: str, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._name = f"writing-{topic}"
        self._going_on = True
        self.acknowledged: list[bytes] = []
        client.ask("producer", self._name, *kind.words(kind.producer(bootstrap, "gzip")))
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def stop(self) -> None:
        self._going_on = False
        self._thread.join()
        self._client.ask("close", self._name)

    def _write(self) -> None:
        number = 0
        while self._going_on:
            values = [b"%d" % at for at in range(number, number + _AT_ONCE)]
            number += _AT_ONCE
            self._client.send(self._name, self._topic, 0, [Record(None, value) for value in values])
            outcomes = self._client.outcomes(self._name)
            self.acknowledged += [
                value for value, outcome in zip(values, outcomes, strict=True) if not outcome.startswith("error")
            ]


async def _all_have_more(writers: list[Writing], what: str) -> None:
    wanted = [len(writer.acknowledged) + _MORE for writer in writers]
    await until(
        lambda: all(len(writer.acknowledged) >= least for writer, least in zip(writers, wanted, strict=True)),
        within=_WITHIN,
        what=f"records to be acknowledged {what}",
    )


async def _disturbed(route: Route, writers: list[Writing]) -> None:
    (node,) = route.cluster.nodes.values()
    await _all_have_more(writers, "at first")
    node.kill()
    await node.start()
    await _all_have_more(writers, "by the broker that came back")
    if route.shoal is not None:
        route.shoal.kill()
        await route.shoal.start()
        await _all_have_more(writers, "through the Shoal that came back")


class Topic(NamedTuple):
    """One kind of client writes and reads continuously: alone and, if supported, in a group."""

    kind: Kind
    client: OldClient
    name: str
    writing: Writing
    reader: str
    member: str | None

    @classmethod
    def of(cls, kind: Kind, client: OldClient, route: Route, name: str) -> Topic:
        trio.run(Topics(route.cluster.bootstrap).create, name)
        reader = consumer(client, kind, route.bootstrap, f"none-{name}")
        client.ask("assign", reader, name, 0, 0)
        member = consumer(client, kind, route.bootstrap, f"g-{name}", commits=True) if kind.groups else None
        if member is not None:
            client.ask("subscribe", member, name)
        return cls(kind, client, name, Writing(client, kind, route.bootstrap, name), reader, member)

    def check(self, log: Source) -> None:
        """The writer has stopped; `log`: the records of the broker."""
        acknowledged = set(self.writing.acknowledged)
        values = (one.record.value for one in log.seen)
        assert [*dict.fromkeys(value for value in values if value in acknowledged)] == self.writing.acknowledged
        wanted = log.as_seen(self.kind)
        assert self._read(self.reader, len(wanted)) == wanted, self.name
        if self.member is not None:  # uncommitted records are read again after the group was lost
            assert sorted(set(self._read(self.member, len(wanted)))) == wanted, self.name

    def _read(self, name: str, number: int) -> list[Seen]:
        """All records that a consumer has read since its start, up to `number` different ones; errors while no broker
        answers are ignored."""
        seen: list[Seen] = []
        deadline = monotonic() + _WITHIN
        while len(set(seen)) < number and monotonic() < deadline:
            seen += self.client.take_through_errors(name, number, within=0.5)
        self.client.ask("close", name)
        return seen


@pytest.mark.slow
def test_they_come_back(old_clients: Callable[[Kind], OldClient], route: Route, topic: str) -> None:
    kinds = [KINDS[name] for name in _TESTED]
    topics = [Topic.of(kind, old_clients(kind), route, f"{topic}-{kind.name}") for kind in kinds]
    try:
        trio.run(_disturbed, route, [one.writing for one in topics])
    finally:
        for one in topics:
            one.writing.stop()
    for one in topics:
        one.check(trio.run(source, route.cluster.bootstrap, one.name))
