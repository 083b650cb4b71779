"""What the agent reports, and that it does not patch unknown versions."""

import zipfile
from pathlib import Path

import pytest

from shoal.scenarios.kafka import broker
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import agent_option
from shoal.scenarios.kafka.metrics import attribute

from .conftest import USUAL
from .sets import Answer, batches, produce_one

PATCHED = (
    "ProduceRequest.validateRecords, LogValidator.validateMessagesAndAssignOffsets, "
    "BrokerCompressionType.targetCompression, UnifiedLog.analyzeAndValidateProducerState, "
    "ProducerStateManager.clearVerificationStateEntry, VerificationStateEntry.lowestSequence"
)
EPOCHS = ", VerificationStateEntry.supportsEpochBump"
BEAN = "shoal:type=MultiBatchAgent"
INVALID = 87
JAVA_11 = 55  # of a class file's format


def said(cluster: Cluster) -> list[str]:
    return [line for line in cluster.nodes[1].process.output().splitlines() if line.startswith("shoal-agent")]


def disguised_as(version: str, monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    (work / "front" / "kafka").mkdir(parents=True)
    (work / "front" / "kafka" / "kafka-version.properties").write_text(f"version={version}\n")

    async def disguised(real: str) -> Path:
        return Path(f"{work / 'front'}:{await jars(real)}")  # the class path is this with "/*" at its end

    monkeypatch.setattr(broker, "jars", disguised)


def test_the_jar_is_for_java_11_and_brings_no_package_that_a_broker_may_have() -> None:
    jar = zipfile.ZipFile(agent_option().partition(":")[2])
    classes = [name for name in jar.namelist() if name.endswith(".class")]
    assert "shoal/agent/Agent.class" in classes
    assert {name.rpartition("/")[0].split("/")[:2] == ["shoal", "agent"] for name in classes} == {True}
    assert max(int.from_bytes(jar.read(name)[6:8], "big") for name in classes) <= JAVA_11


async def test_one_line_tells_what_is_patched(cluster: Cluster, version: str) -> None:
    assert said(cluster) == [
        f"shoal-agent 0.1.0: Kafka {version} takes several batches per partition; patched: "
        f"{PATCHED}{EPOCHS if version >= '4.1' else ''}"
    ]


@pytest.mark.parametrize(
    "disguise",
    ["4.4.0", *(pytest.param(one, marks=pytest.mark.agent) for one in ("4.1.0", "3.8.1", "4.3.0-vendor"))],
)
async def test_an_unknown_broker_starts_as_stock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, topic: str, disguise: str
) -> None:
    """A 4.3.0 that claims to be another version: unknown ones, and one with different classes."""
    disguised_as(disguise, monkeypatch, tmp_path)
    async with running_cluster(tmp_path, ClusterSpec(agent=True, jmx=True)) as cluster:
        (line,) = said(cluster)
        assert line.startswith(f"shoal-agent 0.1.0: Kafka {disguise} is left as it is, nothing is patched: ")
        known = "this version is none of 3.9.x, 4.0.x, 4.1.x, 4.2.x, 4.3.x"
        assert line.endswith(
            "there is no class org.apache.kafka.common.record.BaseRecords" if disguise == "4.1.0" else known
        )
        await Topics(cluster.bootstrap).create(topic)
        address = cluster.nodes[1].address
        assert produce_one(address, topic, batches(1)) == Answer(0, 0)
        assert produce_one(address, topic, batches(2)) == Answer(INVALID, -1)
        assert await attribute(cluster.nodes[1], BEAN, "Active") == ["false"]


@pytest.mark.agent
@pytest.mark.parametrize("release", USUAL)
async def test_the_bean_is_active_and_counts_sets(tmp_path: Path, topic: str, release: str) -> None:
    async with running_cluster(tmp_path, ClusterSpec(version=release, agent=True, jmx=True)) as cluster:
        node = cluster.nodes[1]
        await Topics(cluster.bootstrap).create(topic, config={"compression.type": "uncompressed"})
        for size in (1, 2, 7):
            assert produce_one(node.address, topic, batches(size)).error == 0
        wanted = {"Active": "true", "KafkaVersion": release, "Sets": "2", "Batches": "9", "SetsInPlace": "2"}
        assert {name: await attribute(node, BEAN, name) for name in wanted} == {
            name: [value] for name, value in wanted.items()
        }


@pytest.mark.agent
async def test_a_node_goes_back_to_stock_and_forth(tmp_path: Path, topic: str) -> None:
    """A log with sets is an ordinary log."""
    async with running_cluster(tmp_path, ClusterSpec(agent=True)) as cluster:
        node = cluster.nodes[1]
        await Topics(cluster.bootstrap).create(topic)
        assert produce_one(node.address, topic, batches(5)) == Answer(0, 0)
        await node.stop()
        node.agent = False
        await node.start()
        assert produce_one(node.address, topic, batches(2)) == Answer(INVALID, -1)
        assert produce_one(node.address, topic, batches(1)) == Answer(0, 9)
        await node.stop()
        node.agent = True
        await node.start()
        assert produce_one(node.address, topic, batches(2)) == Answer(0, 10)


@pytest.mark.agent
@pytest.mark.parametrize(
    ("names", "disguise", "why"),
    [
        ("orders(", "", "it is no regular expression: Unclosed group"),
        ("orders", "4.4.0", "this version is none of 3.9.x, 4.0.x, 4.1.x, 4.2.x, 4.3.x"),
        ("orders", "4.2.0", "there is no class org.apache.kafka.common.record."),
    ],
)
async def test_mirror_topics_are_off_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: str, disguise: str, why: str
) -> None:
    """And the broker starts, with ordinary topics of these names."""
    if disguise:
        disguised_as(disguise, monkeypatch, tmp_path)
    spec = ClusterSpec(agent=True, jvm_options=(f"-Dshoal.mirror.topics={names}",))
    async with running_cluster(tmp_path, spec) as cluster:
        _, line = said(cluster)
        off = (
            f"shoal-agent 0.1.0: mirror topics (shoal.mirror.topics={names}) are off, these topics are ordinary ones: "
        )
        assert line.startswith(off + why)
        await Topics(cluster.bootstrap).create("orders")
        assert produce_one(cluster.nodes[1].address, "orders", batches(1)) == Answer(0, 0)
