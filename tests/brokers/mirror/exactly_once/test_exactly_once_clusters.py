"""Exactly once on more demanding targets: clients that authenticate, several brokers with partitions that move.

One cluster is both source and target, the copy has another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.scan import Scanner
from tests.brokers.mirror.exactly_once.test_exactly_once import exactly_once, is_refused, killed_at_work, markers
from tests.brokers.mirror.rig.flow import Wiring
from tests.brokers.mirror.rig.steady import PARTITIONS, steady, wrapped_more
from tests.brokers.mirror.test_multi_broker import EXTRA, move_leaders
from tests.brokers.mirror.test_sasl import credentials
from tests.support.kafka.clusters import Pair

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.conftest import Aliases

pytestmark = pytest.mark.slow


def both(cluster: Cluster) -> Pair:
    scanner = Scanner(cluster.bootstrap)
    return Pair(source=cluster, target=cluster, scanners=(scanner, scanner))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_the_mirror_authenticates(
    sasl_cluster: Cluster, topic: str, aliases: Aliases, tmp_path: Path, mechanism: str
) -> None:
    """All clients of the target authenticate, also through Shoal and at the transaction coordinator."""
    brokers = sasl_cluster.sasl_bootstrap
    extra = {
        **credentials(aliases.source, "SCRAM-SHA-512"),
        **credentials(aliases.target, mechanism),
        f"{aliases.source}.bootstrap.servers": brokers,
        "heartbeats.replication.enabled": "false",
    }
    wiring = Wiring(topics=topic, source=brokers, target=brokers, extra=extra)
    pair = both(sasl_cluster)
    async with exactly_once(pair, topic, aliases, tmp_path, wiring=wiring) as flow:
        for _ in range(2):
            await killed_at_work(flow, pair, topic)
        await flow.check(topic, isolation=READ_COMMITTED)
        assert await markers(flow, topic) > 0
        assert not is_refused(flow)


async def test_leaders_of_the_target_move(three_brokers: Cluster, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """In the middle of transactions: unanswered batches go over another connection, with the same sequences."""
    pair = both(three_brokers)
    async with exactly_once(pair, topic, aliases, tmp_path, wiring=Wiring(topics=topic, extra=EXTRA)) as flow:
        async with steady(pair, topic):
            for turn in range(1, 7):
                await wrapped_more(flow)
                await move_leaders(three_brokers, flow.remote(topic), tmp_path, turn=turn, partitions=PARTITIONS)
            await wrapped_more(flow)
        await flow.check(topic, isolation=READ_COMMITTED)
        assert await markers(flow, topic) > 0
        assert not is_refused(flow)
