"""Modern and old clients read what old clients write: every record, every codec."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.legacy.old_clients.client import Record
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.brokers.legacy.old_clients.traffic import as_seen, read, various, write
from tests.brokers.proxy.rig.data import read as read_modern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers.legacy.old_clients.client import OldClient
    from tests.brokers.legacy.old_clients.kinds import Kind

    from .conftest import Route

pytestmark = pytest.mark.kafka


def test_what_old_clients_write(kind: Kind, client: OldClient, route: Route, topic: str) -> None:
    """One record in a batch of its own, then many; each codec has its partition."""
    trio.run(Topics(route.cluster.bootstrap).create, topic, len(kind.codecs))
    written = various(300, kind)
    for partition, codec in enumerate(kind.codecs):
        outcomes = [
            *write(client, kind, route.bootstrap, topic, written[:1], codec, partition),
            *write(client, kind, route.bootstrap, topic, written[1:], codec, partition),
        ]
        assert outcomes == ["-" if kind.family == "scala" else str(at) for at in range(len(written))]
    for partition, records in read_modern(route.cluster.bootstrap, topic, partitions=len(kind.codecs)).items():
        assert [Record(record.key, record.value, record.timestamp) for record in records] == written, kind.codecs[
            partition
        ]
    for partition, _ in enumerate(kind.codecs):
        seen = read(client, kind, route.bootstrap, topic, len(written), partition=partition)
        assert seen == as_seen(written, kind, partition=partition)


_NO_ACKS: dict[str, dict[str, object]] = {
    "java-0.8.2.2": {"acks": 0},
    "scala-0.8.2.2": {"request.required.acks": 0},
    "java-0.10.2.2": {"acks": 0},
    "kafka-python-0.9": {"acks": 0},
    "librdkafka-0.9.0": {"acks": 0},
}


@pytest.mark.parametrize("kind", [KINDS[name] for name in _NO_ACKS], ids=list(_NO_ACKS))
def test_without_acknowledgements(kind: Kind, client: OldClient, route: Route, topic: str) -> None:
    """The request has no answer; the next one has."""
    topics = Topics(route.cluster.bootstrap)
    trio.run(topics.create, topic)
    written = various(50, kind)
    write(client, kind, route.bootstrap, topic, written, "gzip", run=10, settings=_NO_ACKS[kind.name])
    trio.run(partial(topics.until_total, topic, len(written), within=20))
    modern = read_modern(route.cluster.bootstrap, topic)[0]
    assert [Record(one.key, one.value, one.timestamp) for one in modern] == written


def test_a_set_larger_than_a_batch_may_be(
    old_clients: Callable[[Kind], OldClient], through_shoal: Route, topic: str
) -> None:
    """Old brokers limited single messages, not message sets: 3 MB here, while a batch may have 1 MB."""
    kind, route = KINDS["scala-0.8.2.2"], through_shoal
    trio.run(Topics(route.cluster.bootstrap).create, topic)
    written = [Record(b"%d" % index, random.Random(index).randbytes(10_000)) for index in range(300)]
    outcomes = write(old_clients(kind), kind, route.bootstrap, topic, written, "none", run=len(written))
    assert outcomes == ["-"] * len(written)
    modern = read_modern(route.cluster.bootstrap, topic)[0]
    assert [Record(one.key, one.value, one.timestamp) for one in modern] == written
