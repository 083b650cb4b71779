"""ZooKeeper mode, which Kafka 3.9 still has: one broker and its ZooKeeper."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.scenarios.kafka.broker import wait_for_brokers
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import Jvm, write_properties
from shoal.scenarios.kafka.ports import LOOPBACK, free_ports, is_free
from shoal.scenarios.kafka.process import Process, until

__all__ = ["zookeeper_cluster"]

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
async def zookeeper_cluster(version: str, work: Path, *options: str) -> AsyncIterator[tuple[str, Process]]:
    """One broker of `version` and its ZooKeeper: its address, and its process, whose JVM gets `options`. Its log is
    below `work / "data"`."""
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
    keeper_main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    async with (
        running(Jvm(lib=lib), work, keeper_main, keeper, keeper_port),
        running(Jvm(lib=lib, options=options), work, "kafka.Kafka", broker, port) as process,
    ):
        await wait_for_brokers(f"{LOOPBACK}:{port}", {NODE_ID}, process=process)
        yield f"{LOOPBACK}:{port}", process
