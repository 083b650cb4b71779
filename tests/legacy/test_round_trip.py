"""What old clients write is what modern ones read, and what they read themselves: every record, every codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.topics import Topics
from tests.proxy.cluster.data import read as read_modern

from .clients import Record
from .traffic import as_seen, read, various, write

if TYPE_CHECKING:
    from .clients import OldClient
    from .conftest import Route
    from .kinds import Kind

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
        assert [Record(one.key, one.value, one.timestamp) for one in records] == written, kind.codecs[partition]
    for partition, _ in enumerate(kind.codecs):
        seen = read(client, kind, route.bootstrap, topic, len(written), partition=partition)
        assert seen == as_seen(written, kind, partition=partition)
