"""Old clients read what modern ones wrote: without headers, everything else is exact.

Kafka 3.9.1 is no reference for transactions: it also sends aborted records to old clients, some records twice in one
answer, and at the end of a log only padding, from which clients conclude that a message is too large.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.legacy.old_clients.client import ClientFailed
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.brokers.legacy.old_clients.sources import make_sources, source
from tests.brokers.legacy.old_clients.traffic import consumer, read

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.legacy.old_clients.client import OldClient
    from tests.brokers.legacy.old_clients.kinds import Kind
    from tests.brokers.legacy.old_clients.sources import Source

    from .conftest import Route, Shoals

pytestmark = pytest.mark.kafka
_CORRUPT = "(?i)corrupt|invalid|crc|bad message|error code 2|authoriz"
_MADE: dict[str, dict[str, Source]] = {}


@pytest.fixture
def sources(route: Route) -> dict[str, Source]:
    """Created by the first test that needs it."""
    bootstrap = route.cluster.bootstrap
    if bootstrap not in _MADE:
        _MADE[bootstrap] = trio.run(make_sources, bootstrap, f"sources-{uuid.uuid4().hex[:8]}")
    return _MADE[bootstrap]


def _names(kind: Kind, route: Route) -> list[str]:
    """The Scala library of 0.8 has no LZ4."""
    names = [
        "none",
        "gzip",
        "snappy",
        "lz4",
        "appended",
        "compacted",
        "large",
        *(["transacted"] if route.shoal else ()),
    ]
    return [name for name in names if "lz4" in kind.codecs or name not in ("lz4", "transacted", "large")]


def test_every_record(kind: Kind, client: OldClient, route: Route, sources: dict[str, Source]) -> None:
    for name in _names(kind, route):
        topic, wanted = sources[name].topic, sources[name]
        seen = read(client, kind, route.bootstrap, topic, len(wanted.seen))
        if name == "compacted" and seen != wanted.as_seen(kind):  # the cleaner has continued
            wanted = sources[name] = trio.run(source, route.cluster.bootstrap, topic)
            seen = read(client, kind, route.bootstrap, topic, len(wanted.seen))
        assert seen == wanted.as_seen(kind), name


def test_from_the_middle_of_a_batch(kind: Kind, client: OldClient, route: Route, sources: dict[str, Source]) -> None:
    for name, offset in (("gzip", 30), ("none", 31), ("large", 2_500)):
        if name not in _names(kind, route):
            continue
        wanted = sources[name].as_seen(kind, since=offset)
        seen = read(client, kind, route.bootstrap, sources[name].topic, len(wanted), offset=offset)
        assert seen == wanted, name


_ZSTD_READERS = [kind for kind in KINDS.values() if kind.family != "scala"]  # reads as java-0.8.2.2 does


@pytest.mark.parametrize("kind", _ZSTD_READERS, ids=lambda kind: kind.name)
def test_zstd_is_refused(kind: Kind, client: OldClient, through_shoal: Route, topic: str) -> None:
    """The client gets one error that it knows; the log names the cause and the fix."""
    trio.run(_in_zstd, through_shoal.cluster.bootstrap, topic)
    name = consumer(client, kind, through_shoal.bootstrap, f"g-{topic}")
    client.ask("assign", name, topic, 0, 0)
    with pytest.raises(ClientFailed, match=_CORRUPT):
        client.take(name, 1)
    client.ask("close", name)
    assert through_shoal.shoal is not None
    said = [line for line in through_shoal.shoal.output().splitlines() if topic in line]
    assert any("zstd" in line and 'compression = "none"' in line for line in said), said


def test_zstd_is_opened(kind: Kind, client: OldClient, modern: Cluster, topic: str, shoals: Shoals) -> None:
    """With the Shoal that sends everything uncompressed."""
    _, bootstrap = shoals("opening", modern, compression="none")
    trio.run(_in_zstd, modern.bootstrap, topic)
    wanted = trio.run(source, modern.bootstrap, topic).as_seen(kind)
    assert read(client, kind, bootstrap, topic, len(wanted)) == wanted


async def _in_zstd(bootstrap: str, topic: str) -> None:
    await Topics(bootstrap).create(topic)
    await fill(bootstrap, topic, orders(1_000), layout=Layout(run=500), compression_type="zstd")
