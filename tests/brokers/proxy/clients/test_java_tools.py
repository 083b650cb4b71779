"""Kafka's command line tools (Java clients) through Shoal. They could not resolve a leaked broker address."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.java.tools import run_tool
from tests.brokers.proxy.rig.data import new_topic, read, wait_until_gone

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

in_thread = trio.to_thread.run_sync
pytestmark = pytest.mark.kafka


async def _tool(stand: Stand, name: str, *args: str, stdin: bytes = b"") -> str:
    return await run_tool(name, "--bootstrap-server", stand.bootstrap, *args, stdin=stdin)


async def test_topics_are_created_described_and_deleted(brokers: Cluster, stand: Stand) -> None:
    topic = f"java-{uuid.uuid4().hex[:12]}"
    await _tool(stand, "TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3")
    described = await _tool(stand, "TopicCommand", "--describe", "--topic", topic)
    assert len(set(re.findall(r"Leader: (\d)", described))) == 3
    await _tool(stand, "TopicCommand", "--delete", "--topic", topic)
    await in_thread(wait_until_gone, brokers, topic)
    assert topic not in (await _tool(stand, "TopicCommand", "--list")).split()


async def test_records_are_produced_consumed_and_counted(brokers: Cluster, stand: Stand) -> None:
    topic, group = new_topic(brokers, [[1], [2], [3]]), f"g-{uuid.uuid4().hex[:12]}"
    lines = [f"line {number}" for number in range(2000)]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    await _tool(stand, "ConsoleProducer", "--topic", topic, "--compression-codec", "zstd", stdin=stdin)
    offsets = await _tool(stand, "GetOffsetShell", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 2000
    start = ("--topic", topic, "--from-beginning", "--group", group)
    consumed = await _tool(stand, "ConsoleConsumer", *start, "--max-messages", "2000", "--timeout-ms", "30000")
    assert sorted(consumed.splitlines()) == sorted(lines)
    stored = read(brokers.bootstrap, topic, partitions=3)
    assert sorted((record.value or b"").decode() for records in stored.values() for record in records) == sorted(lines)
    filled = {partition for partition, records in stored.items() if records}
    await _offsets_of_the_group_can_be_reset(stand, topic, group, filled)


async def _offsets_of_the_group_can_be_reset(stand: Stand, topic: str, group: str, filled: set[int]) -> None:
    described = await _tool(stand, "ConsumerGroupCommand", "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    lags = {int(row[2]): row[5] for row in rows}
    assert filled <= set(lags), described  # the consumer may have left before it learned an empty partition's end
    assert set(lags.values()) == {"0"}, described
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert len(re.findall(rf"{topic}\s+\d\s+0\b", await _tool(stand, "ConsumerGroupCommand", *reset))) == 3
    members = await _tool(stand, "ConsumerGroupCommand", "--describe", "--group", group, "--state")
    # The coordinator is named by address; its node is one of Shoal's.
    addresses = [(host, int(port)) for host, port in re.findall(r"([\w.-]+):(\d+)\s+\(\d\)", members)]
    assert addresses
    assert all(stand.is_ours(*address) for address in addresses), members


@pytest.mark.slow
async def test_configs_are_altered_and_described(brokers: Cluster, stand: Stand) -> None:
    entity = ("--entity-type", "topics", "--entity-name", new_topic(brokers, [[1]]))
    await _tool(stand, "ConfigCommand", *entity, "--alter", "--add-config", "max.message.bytes=123456")
    assert "max.message.bytes=123456" in await _tool(stand, "ConfigCommand", *entity, "--describe")


@pytest.mark.slow
async def test_the_quorum_is_described_with_the_controllers_own_addresses(brokers: Cluster, stand: Stand) -> None:
    status = await _tool(stand, "MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+[123]\b", status)
    voters = re.search(r"CurrentVoters:\s+(.*)", status)
    assert voters is not None
    assert len(re.findall(r'"id": [123]|\b[123]\b', voters[1])) >= 3
    assert "shoal.test" not in status
    direct = await run_tool("MetadataQuorumCommand", "--bootstrap-server", brokers.bootstrap, "describe", "--status")
    theirs = re.search(r"CurrentVoters:\s+(.*)", direct)
    assert theirs is not None
    assert voters[1] == theirs[1]
    assert not any(f":{stand.broker(node_id)[1]}" in voters[1] for node_id in brokers.nodes)


@pytest.mark.slow
async def test_acls_are_added_and_listed(brokers: Cluster, stand: Stand) -> None:
    topic = new_topic(brokers, [[1]])
    rule = ("--topic", topic, "--deny-principal", "User:nobody-here", "--operation", "Read")
    await _tool(stand, "AclCommand", "--add", *rule)
    assert "User:nobody-here" in await _tool(stand, "AclCommand", "--list", "--topic", topic)
    await _tool(stand, "AclCommand", "--remove", "--force", *rule)
    assert "User:nobody-here" not in await _tool(stand, "AclCommand", "--list", "--topic", topic)


async def test_features_and_api_versions_are_described(stand: Stand) -> None:
    versions = await _tool(stand, "BrokerApiVersionsCommand")
    named = {(host, int(port)) for host, port in re.findall(r"^([\w.-]+):(\d+) \(id: \d", versions, re.MULTILINE)}
    assert named == {stand.broker(node) for node in stand.cluster.nodes}
    assert "metadata.version" in await _tool(stand, "FeatureCommand", "describe")


@pytest.mark.slow
async def test_a_leader_is_elected(brokers: Cluster, stand: Stand, tmp_path: Path) -> None:
    topic = new_topic(brokers, [[1, 2, 3]])
    moved = tmp_path / "moved.json"
    moved.write_text(
        '{"version": 1, "partitions": [{"topic": "%s", "partition": 0, "replicas": [2, 3, 1]}]}' % topic  # noqa: UP031
    )
    plan = ("--reassignment-json-file", str(moved))
    await _tool(stand, "ReassignPartitionsCommand", *plan, "--execute")
    assert "is completed" in await _tool(stand, "ReassignPartitionsCommand", *plan, "--verify")
    elect = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    await _tool(stand, "LeaderElectionCommand", *elect)
    assert "Leader: 2" in await _tool(stand, "TopicCommand", "--describe", "--topic", topic)
