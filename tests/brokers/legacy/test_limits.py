"""Small chunks, a small budget, clients with small limits and many at once: every record arrives anyway."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.brokers.legacy.old_clients.sources import source
from tests.brokers.legacy.old_clients.traffic import consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.legacy.old_clients.client import OldClient
    from tests.brokers.legacy.old_clients.kinds import Kind

    from .conftest import Shoals

pytestmark = pytest.mark.kafka
PARTITIONS, BATCH, RECORDS = 4, 200, 1_600
# Bytes of one partition in an answer; the records have about 420 bytes.
_SMALL: dict[str, dict[str, object]] = {
    "java-0.8.2.2": {"max.partition.fetch.bytes": 10_000},
    "java-0.9.0.1": {"max.partition.fetch.bytes": 10_000},
    "java-0.10.2.2": {"max.partition.fetch.bytes": 10_000},
    "kafka-python-0.9": {"max_partition_fetch_bytes": 10_000},
    "librdkafka-0.9.0": {"fetch.message.max.bytes": 10_000},
}


@pytest.fixture
def narrow(modern: Cluster, shoals: Shoals) -> str:
    """A Shoal with the smallest chunks and a very small budget."""
    options = {"chunk-bytes": "16KiB", "budget-bytes": "512KiB", "fetch-bytes": "64KiB"}
    _, bootstrap = shoals("narrow", modern, **options)
    return bootstrap


@pytest.mark.parametrize("codec", ["lz4", pytest.param("none", marks=pytest.mark.slow)])
def test_many_clients_with_small_limits(
    old_clients: Callable[[Kind], OldClient], modern: Cluster, narrow: str, topic: str, codec: str
) -> None:
    """All at once, each with a consumer of all partitions."""
    trio.run(_filled, modern.bootstrap, topic, codec)
    logs = [trio.run(partial(source, modern.bootstrap, topic, partition=one)) for one in range(PARTITIONS)]
    kinds = [KINDS[name] for name in _SMALL]
    names = [_reading(old_clients(kind), kind, narrow, topic) for kind in kinds]
    for kind, name in zip(kinds, names, strict=True):
        client = old_clients(kind)
        seen = client.take(name, RECORDS)
        client.ask("close", name)
        assert len(seen) == RECORDS, kind.name
        for partition, log in enumerate(logs):
            assert [one for one in seen if one.partition == partition] == log.as_seen(kind), (kind.name, partition)


def _reading(client: OldClient, kind: Kind, bootstrap: str, topic: str) -> str:
    name = consumer(client, kind, bootstrap, f"g-{topic}-{kind.name}", settings=_SMALL[kind.name])
    for partition in range(PARTITIONS):
        client.ask("assign", name, topic, partition, 0)
    return name


async def _filled(bootstrap: str, topic: str, codec: str) -> None:
    await Topics(bootstrap).create(topic, PARTITIONS)
    layout = Layout(partitions=PARTITIONS, run=BATCH, exact=True)
    await fill(bootstrap, topic, orders(RECORDS), layout=layout, compression_type=codec)
