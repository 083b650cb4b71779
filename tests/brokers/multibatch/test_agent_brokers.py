"""Real brokers with the Java agent are proven; a proof does not outlive its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.multibatch.proof import Result
from shoal.protocol.multibatch.trial import SCRATCH_PREFIX
from shoal.protocol.schema.api import ApiKey
from shoal.proxy.config.settings import Limits
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import Upstream
from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from tests.brokers.multibatch.test_real_brokers import probe, proxied, topics
from tests.proxy.cluster.test_multi_batch import ASK, LOOK
from tests.support.rig import request

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.proxy.net.broker_client import BrokerClient

pytestmark = [pytest.mark.kafka, pytest.mark.agent]


async def says(client: BrokerClient, key: int) -> bool:
    return (await client.exchange(request(key, 0, 7)))[8:] == b"1"


@pytest.mark.parametrize("version", ["4.3.0", "3.9.1"])
async def test_a_broker_with_the_agent_is_proven(version: str, tmp_path: Path) -> None:
    async with running_cluster(tmp_path, ClusterSpec(version=version, agent=True)) as cluster:
        report = await probe(cluster.bootstrap)
        assert report.result is Result.PROVEN, report.brokers[0].proof.why
        assert report.brokers[0].proof.stamps
        assert not {name for name in topics(cluster) if name.startswith(SCRATCH_PREFIX)}


async def test_a_broker_that_comes_back_is_proven_again_and_without_its_agent_it_is_not(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, ClusterSpec(agent=True)) as cluster:
        node = cluster.nodes[1]
        async with proxied(cluster.bootstrap) as (server, broker):
            for agent in (True, False):
                with open_client(Upstream(Limits()), [broker]) as client:
                    assert await says(client, ASK)
                    node.kill()
                    with pytest.raises(PeerLost):  # for the broker itself
                        await client.exchange(request(ApiKey.API_VERSIONS, 0, 8))
                node.agent = agent
                await node.start()
                with open_client(Upstream(Limits()), [broker]) as client:
                    assert not await says(client, LOOK)
                    assert await says(client, ASK) is agent
            (known,) = server.clusters["c"].proofs.proofs().values()
            assert "error 87" in known.why
