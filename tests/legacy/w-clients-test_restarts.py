"""The broker is killed and comes back, then Shoal: old clients go on, nothing acknowledged is lost or moved, readers miss nothing."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.process import until
from shoal.scenarios.kafka.topics import Topics

from .clients import Record
from .kinds import KINDS
from .sources import source
from .traffic import consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from .clients import OldClient
    from .conftest import Route
    from .kinds import Kind

pytestmark = pytest.mark.kafka
_TESTED = ("java-0.8.2.2", "java-0.9.0.1", "java-0.10.2.2", "kafka-python-0.9", "librdkafka-0.9.0")
_AT_ONCE = 10
_MORE = 100
_WITHIN = 60.0


class Writing:
    """A producer of an old client that goes on in a thread of its own, and what was acknowledged."""

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
    wanted = [len(one.acknowledged) + _MORE for one in writers]
    await until(
        lambda: all(len(one.acknowledged) >= least for one, least in zip(writers, wanted, strict=True)),
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


def test_broker_and_shoal_come_back(old_clients: Callable[[Kind], OldClient], route: Route, topic: str) -> None:
    """Each client writes into a topic of its own, and reads it all the while."""
    kinds = [KINDS[name] for name in _TESTED]
    topics = {kind.name: f"{topic}-{kind.name}" for kind in kinds}
    readers, writers = {}, []
    for kind in kinds:
        trio.run(Topics(route.cluster.bootstrap).create, topics[kind.name])
        client = old_clients(kind)
        readers[kind.name] = name = consumer(client, kind, route.bootstrap, f"g-{topics[kind.name]}")
        client.ask("assign", name, topics[kind.name], 0, 0)
        writers.append(Writing(client, kind, route.bootstrap, topics[kind.name]))
    try:
        trio.run(_disturbed, route, writers)
    finally:
        for one in writers:
            one.stop()
    for kind, writer in zip(kinds, writers, strict=True):
        log = trio.run(source, route.cluster.bootstrap, topics[kind.name])
        values = [one.record.value for one in log.seen]
        assert [*dict.fromkeys(value for value in values if value in set(writer.acknowledged))] == writer.acknowledged
        assert _read_on(old_clients(kind), readers[kind.name], len(log.seen)) == log.as_seen(kind), kind.name


def _read_on(client: OldClient, name: str, number: int) -> list[object]:
    """All that the consumer has read since it began; errors while nobody answered are not counted."""
    seen: list[object] = []
    deadline = monotonic() + _WITHIN
    while len(seen) < number and monotonic() < deadline:
        seen += client.take_through_errors(name, number - len(seen), within=1)
    client.ask("close", name)
    return seen
