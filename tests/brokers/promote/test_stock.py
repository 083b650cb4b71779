"""Stock brokers: the probe of a mirror topic appends nothing, and the key of a promotion is kept and disturbs no other.

What brokers do with the agent is tested where the agent is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kio.schema.alter_configs.v2 import request as alter
from kio.schema.alter_configs.v2.response import AlterConfigsResponse
from kio.schema.errors import ErrorCode

from shoal.protocol.messages.topics import encode_topics_request, read_topics
from shoal.protocol.mirror_topics.probe import State, encode_probe, read_probe_answers
from shoal.protocol.mirror_topics.promotion import encode_promotion, promotion_key, read_promotion, uuid_text
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.parse import parse_addresses
from shoal.proxy.config.settings import Limits
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.upstream import Upstream
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import fill
from shoal.scenarios.kafka.errors import ToolFailed
from shoal.scenarios.kafka.java.tools import run_tool
from tests.support.kio_messages import decode_response, request_frame

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

TOPICS = ("orders", "payments")


async def exchange(cluster: Cluster, request: bytes) -> bytes:
    with open_client(Upstream(Limits()), parse_addresses(cluster.bootstrap)) as client:
        return await client.exchange(request)


@pytest.mark.parametrize("version", ["4.3.0", pytest.param("3.9.1", marks=pytest.mark.slow)])
async def test_a_stock_broker(version: str, tmp_path: Path) -> None:
    async def configs(*arguments: str, tool: str = version) -> str:
        every = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers", "--entity-default")
        return await run_tool("ConfigCommand", *every, *arguments, version=tool)

    async def keys() -> set[str]:
        """The keys of promotions, as an operator sees them."""
        words = (await configs("--describe")).replace("=", " ").split()
        return {word for word in words if word.startswith(promotion_key(""))}

    async with running_cluster(tmp_path, ClusterSpec(version=version)) as cluster:
        topics = Topics(cluster.bootstrap)
        for topic in TOPICS:
            await topics.create(topic, 2)
        await fill(cluster.bootstrap, "orders", orders(50))
        before = [await topics.spans(topic) for topic in TOPICS]
        found = read_topics(await exchange(cluster, encode_topics_request("test", TOPICS)))
        assert found.topics.keys() == set(TOPICS)

        asked = [TopicPartition(topic, partition) for topic in TOPICS for partition in (0, 1)]
        answers = read_probe_answers(await exchange(cluster, encode_probe("test", asked)), asked)
        assert {answer.state for answer in answers.values()} == {State.ORDINARY}
        assert [await topics.spans(topic) for topic in TOPICS] == before

        ids = {topic: found.topics[topic].topic_id for topic in TOPICS}
        assert read_promotion(await exchange(cluster, encode_promotion("test", ids, validate_only=True))) == (0, "")
        assert await keys() == set()
        for topic in TOPICS:  # one after the other: the second request keeps the first one's key
            request = encode_promotion("test", {topic: ids[topic]}, validate_only=False)
            assert read_promotion(await exchange(cluster, request)) == (0, "")
        another = ("--alter", "--add-config", "log.cleaner.threads=2")
        if version == "3.9.1":  # its tool replaces all keys (AlterConfigs), and so refuses where it cannot see a value
            with pytest.raises(ToolFailed, match="All sensitive broker config entries must be specified"):
                await configs(*another)
        await configs(*another, tool="4.3.0")
        promoted = {promotion_key(topic) for topic in TOPICS}
        assert await keys() == promoted

        node = cluster.nodes[1]
        assert await node.stop()
        await node.start()
        assert await keys() == promoted
        for topic in TOPICS:
            assert uuid_text(ids[topic]) in await run_tool(
                "TopicCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", topic, version=version
            )
        await configs("--alter", "--delete-config", promotion_key("orders"), tool="4.3.0")
        assert await keys() == {promotion_key("payments")}
        assert "log.cleaner.threads=2" in await configs("--describe")

        values = {"log.cleaner.threads": "1", "min.insync.replicas": "1"}  # 4.x demands the second one (ELR)
        settings = tuple(alter.AlterableConfig(name=name, value=value) for name, value in values.items())
        defaults = alter.AlterConfigsResource(resource_type=4, resource_name="", configs=settings)  # type: ignore[arg-type]
        request = request_frame(alter.AlterConfigsRequest(resources=(defaults,), validate_only=False))
        answer = decode_response(await exchange(cluster, request), AlterConfigsResponse)
        assert [(response.error_code, response.error_message) for response in answer.responses] == [
            (ErrorCode.none, None)
        ]
        assert await keys() == set(), "AlterConfigs replaces all keys, and so it ends promotions"
