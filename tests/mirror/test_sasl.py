"""A mirror that authenticates: SCRAM at the source, PLAIN at the target, both at the brokers and through Shoal, which has no name there.

So Shoal learns brokers, topic ids and names from what the mirror asks. One cluster is both source and target; the copy has another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.records.batch import read_batch_header
from shoal.scenarios.kafka.records import oddities, orders
from shoal.scenarios.kafka.scan import Scanner
from shoal.scenarios.kafka.topics import Topics
from shoal.scenarios.kafka.traffic import Layout, fill
from tests.agent.logs import log_batches
from tests.kafka_clusters import Pair
from tests.mirror.flow import Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.conftest import Aliases

_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


@pytest.fixture
def both(sasl_cluster: Cluster) -> Pair:
    scanner = Scanner(sasl_cluster.bootstrap)
    return Pair(source=sasl_cluster, target=sasl_cluster, scanners=(scanner, scanner))


def credentials(alias: str, mechanism: str) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{_MODULES[mechanism]}"
    return {
        f"{alias}.security.protocol": "SASL_PLAINTEXT",
        f"{alias}.sasl.mechanism": mechanism,
        f"{alias}.sasl.jaas.config": f'{module} required username="alice" password="right";',
    }


async def test_a_mirror_that_authenticates(both: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    brokers = both.source.sasl_bootstrap
    await Topics(both.source.bootstrap).create(topic, 4)
    extra = {
        **credentials(aliases.source, "SCRAM-SHA-512"),
        **credentials(aliases.target, "PLAIN"),
        **{f"{alias}.bootstrap.servers": brokers for alias in aliases},
        "heartbeats.replication.enabled": "false",
    }
    async with flowing(
        both, aliases, tmp_path, Wiring(topics=topic, source=brokers, target=brokers, extra=extra)
    ) as flow:
        for seed in range(4):
            layout = Layout(partitions=4, run=100)
            await fill(both.source.bootstrap, topic, orders(4_000, seed=seed), layout=layout, compression_type="zstd")
            await fill(both.source.bootstrap, topic, oddities(400, seed=seed), layout=layout, compression_type="lz4")
            await flow.check(topic)
    assert flow.shoal.log.read_text().count("does not tell its brokers") == 2, (
        "nobody told Shoal before the mirror came"
    )
    counts = flow.counts()
    assert counts["unwrapped_records"] >= counts["wrapped_records"] > 5_000
    copies = (log_batches(both.target.nodes[1], flow.remote(topic), partition) for partition in range(4))
    ids = {read_batch_header(batch, 0, len(batch)).producer_id for batches in copies for batch in batches}
    assert ids - {-1}, "Shoal has asked for an id over the mirror's own connection: nobody else here has one"
