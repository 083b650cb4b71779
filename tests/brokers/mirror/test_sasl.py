"""A mirror that authenticates: SCRAM at the source, PLAIN at the target, both at the brokers and through Shoal, which
has no credentials.

So Shoal learns brokers, topic ids, names, and that these are two clusters, from the mirror's requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.records.batch import read_batch_header
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.records import oddities, orders
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.agent.logs import log_batches
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.support.kafka.clusters import Pair, SharedClusters

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases

_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


@pytest.fixture
def sasl_pair(shared_clusters: SharedClusters, sasl_cluster: Cluster) -> Pair:
    source = shared_clusters.cluster("sasl-source", ClusterSpec(users={"alice": "right"}))
    scanners = (Scanner(source.bootstrap), Scanner(sasl_cluster.bootstrap))
    return Pair(source=source, target=sasl_cluster, scanners=scanners)


def credentials(alias: str, mechanism: str) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{_MODULES[mechanism]}"
    return {
        f"{alias}.security.protocol": "SASL_PLAINTEXT",
        f"{alias}.sasl.mechanism": mechanism,
        f"{alias}.sasl.jaas.config": f'{module} required username="alice" password="right";',
    }


async def test_a_mirror_that_authenticates(sasl_pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    source, target = sasl_pair.source.sasl_bootstrap, sasl_pair.target.sasl_bootstrap
    bootstrap = sasl_pair.source.bootstrap
    await Topics(bootstrap).create(topic, 4)
    extra = {
        **credentials(aliases.source, "SCRAM-SHA-512"),
        **credentials(aliases.target, "PLAIN"),
        f"{aliases.source}.bootstrap.servers": source,
        f"{aliases.target}.bootstrap.servers": target,
    }
    async with flowing(
        sasl_pair, aliases, tmp_path, Wiring(topics=topic, source=source, target=target, extra=extra)
    ) as flow:
        for seed in range(4):
            layout = Layout(partitions=4, run=100)
            await fill(bootstrap, topic, orders(4_000, seed=seed), layout=layout, compression_type="zstd")
            await fill(bootstrap, topic, oddities(400, seed=seed), layout=layout, compression_type="lz4")
            await flow.check(topic)
    assert flow.shoal.log.read_text().count("broker discovery failed") == 2, "Shoal did not know before the mirror came"
    counts = flow.counts()
    assert counts["unwrapped_records"] >= counts["wrapped_records"] > 5_000
    copies = (log_batches(sasl_pair.target.nodes[1], flow.remote(topic), partition) for partition in range(4))
    ids = {read_batch_header(batch, 0, len(batch)).producer_id for batches in copies for batch in batches}
    assert ids - {-1}, "Shoal has asked for an id over the mirror's own connection: no other client here has one"
