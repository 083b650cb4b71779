"""ZooKeeper mode, which Kafka 3.9 still has: the leader appends through the same code, so sets are taken there, too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from shoal.protocol.compression import Codec
from shoal.protocol.records.recordset import split
from shoal.scenarios.kafka.broker import wait_for_brokers
from shoal.scenarios.kafka.jars import jars
from shoal.scenarios.kafka.jvm import Jvm, agent_option, write_properties
from shoal.scenarios.kafka.ports import LOOPBACK, free_ports, is_free
from shoal.scenarios.kafka.process import Process, until
from shoal.scenarios.kafka.topics import Topics

from .logs import as_logged
from .sets import Answer, batches, produce_one

pytestmark = pytest.mark.agent
START_S = 60.0
NODE_ID = 1


@asynccontextmanager
async def running(jvm: Jvm, work: Path, main: str, properties: dict[str, str], port: int) -> AsyncIterator[Process]:
    """A program, from when it listens on `port`."""
    config = write_properties(work / f"{main}.properties", properties)
    process = Process(jvm.argv(main, str(config)), log=work / f"{main}.log", name=main)
    try:
        await until(lambda: not is_free(port), within=START_S, what=f"{main} to listen", process=process)
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def zookeeper_cluster(version: str, work: Path) -> AsyncIterator[str]:
    """One broker of `version` with the agent and its ZooKeeper; its address. Its log is below `work / "data"`."""
    lib = await jars(version)
    keeper_port, port = free_ports(2)
    keeper = {"dataDir": str(work / "zookeeper"), "clientPort": str(keeper_port), "clientPortAddress": LOOPBACK}
    keeper |= {"admin.enableServer": "false", "tickTime": "500"}
    broker = {
        "broker.id": str(NODE_ID),
        "zookeeper.connect": f"{LOOPBACK}:{keeper_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log.dirs": str(work / "data"),
        "offsets.topic.replication.factor": "1",
    }
    with_agent = Jvm(lib=lib, options=(agent_option(),))
    keeper_main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    async with (
        running(Jvm(lib=lib), work, keeper_main, keeper, keeper_port),
        running(with_agent, work, "kafka.Kafka", broker, port) as process,
    ):
        assert f"Kafka {version} takes several batches per partition" in process.output()
        await wait_for_brokers(f"{LOOPBACK}:{port}", {NODE_ID}, process=process)
        yield f"{LOOPBACK}:{port}"


async def test_a_zookeeper_broker_takes_sets(tmp_path: Path, topic: str) -> None:
    async with zookeeper_cluster("3.9.1", tmp_path) as address:
        await Topics(address).create(topic)
        take = partial(produce_one, address, topic)
        sent = batches(20, tuple(Codec))
        assert take(sent) == Answer(0, 0)
        log = b"".join(path.read_bytes() for path in (tmp_path / "data" / f"{topic}-0").glob("*.log"))
    assert [log[span.start : span.end] for span in split(log, 0, len(log)).spans] == as_logged(sent)
