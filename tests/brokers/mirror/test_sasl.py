"""A mirror that authenticates: SCRAM at the source, PLAIN at the target.

Either at the brokers, through Shoal, which has no credentials: so Shoal learns brokers, topic ids, names, and that
these are two clusters, from the mirror's requests. Or at Shoal, which logs in at the brokers.
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
from tests.support.secrets import users_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases

_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


@pytest.fixture
def sasl_pair(shared_clusters: SharedClusters, sasl_cluster: Cluster) -> Pair:
    source = shared_clusters.cluster("sasl-source", ClusterSpec(users={"alice": "right"}))
    scanners = (Scanner(source.bootstrap), Scanner(sasl_cluster.bootstrap))
    return Pair(source=source, target=sasl_cluster, scanners=scanners)


def credentials(prefix: str, mechanism: str, user: str = "alice", password: str = "right") -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{_MODULES[mechanism]}"
    return {
        f"{prefix}.security.protocol": "SASL_PLAINTEXT",
        f"{prefix}.sasl.mechanism": mechanism,
        f"{prefix}.sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


@pytest.mark.slow
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
    assert counts["claim_checks"] == 0
    assert "Shoal has no login there" in flow.shoal.log.read_text()
    copies = (log_batches(sasl_pair.target.nodes[1], flow.remote(topic), partition) for partition in range(4))
    ids = {read_batch_header(batch, 0, len(batch)).producer_id for batches in copies for batch in batches}
    assert ids - {-1}, "Shoal has asked for an id over the mirror's own connection: no other client here has one"


@pytest.mark.slow
async def test_a_mirror_that_logs_in_at_shoal(sasl_pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """Its sessions are shorter than the test."""
    source, target = sasl_pair.source.sasl_bootstrap, sasl_pair.target.sasl_bootstrap
    bootstrap = sasl_pair.source.bootstrap
    await Topics(bootstrap).create(topic, 4)
    password = tmp_path / "password"
    password.write_text("right")
    password.chmod(0o600)
    users = users_file(tmp_path / "users", {"mirror": "for-shoal"})
    at_shoal = {"mechanisms": ["PLAIN", "SCRAM-SHA-512"], "users": str(users), "session-seconds": 5}
    at_brokers = {"mechanism": "SCRAM-SHA-256", "username": "alice", "password": {"file": str(password)}}
    extra = {
        **credentials(f"{aliases.source}.consumer", "SCRAM-SHA-512", "mirror", "for-shoal"),
        **credentials(f"{aliases.target}.producer", "PLAIN", "mirror", "for-shoal"),
    }
    wiring = Wiring(
        topics=topic,
        source=source,
        target=target,
        extra=extra,
        tables={"cluster": {"sasl": at_brokers}, "listener": {"sasl": at_shoal}},
    )
    async with flowing(sasl_pair, aliases, tmp_path, wiring) as flow:
        for seed in range(4):
            layout = Layout(partitions=4, run=100)
            await fill(bootstrap, topic, orders(4_000, seed=seed), layout=layout, compression_type="zstd")
            await flow.check(topic)
    counts = flow.counts()
    assert counts["unwrapped_records"] >= counts["wrapped_records"] > 5_000
    assert counts["claim_checks"] > 0
    assert "for-shoal" not in flow.shoal.log.read_text()
