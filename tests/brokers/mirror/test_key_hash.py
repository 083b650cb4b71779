"""Mirrors that choose the partition by the hash of the key (`partition-by-key`): a real MirrorMaker 1, and librdkafka's
murmur2."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer

from shoal.protocol.shallow.envelope import EnvelopeKey, encode_key, with_partition_nonce
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.records import Record, orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import Jvm, write_properties
from shoal.scenarios.kafka.process import Process
from tests.brokers.mirror.rig.flow import WITHIN, counted
from tests.support.kafka.catchup import until_copied
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.support.kafka.clusters import Pair

PARTITIONS = 6
MM1_VERSION = "3.9.1"  # the last with MirrorMaker 1 in it
_PORTS = 3  # of a listener


def produce_by_key(bootstrap: str, topic: str, records: Iterable[Record]) -> list[int]:
    """Choose partitions by the key's murmur2, like Java producers. -> the partition of each record, in order."""
    producer = Producer(client_config(bootstrap, partitioner="murmur2_random", compression_type="zstd", linger_ms=200))
    chosen: dict[int, int] = {}

    def delivered(number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        chosen[number] = message.partition() or 0

    for number, record in enumerate(records):
        told = partial(delivered, number)
        producer.produce(topic, record.value, record.key, on_delivery=told, timestamp=record.timestamp)
        producer.poll(0)
    assert producer.flush(60) == 0
    return [chosen[number] for number in sorted(chosen)]


def key(partition: int, serial: int) -> bytes:
    plain = EnvelopeKey(
        cluster="MkU3OEVBNTcwNTJENDM2Qg",
        topic="orders",
        partition=partition,
        first_offset=10 * serial,
        last_offset=10 * serial + 9,
        batches=2,
        records=10,
        payload=500,
        payload_crc=serial,
        flow=7,
        serial=serial,
    )
    return encode_key(with_partition_nonce(plain, PARTITIONS))


async def test_another_client_puts_envelopes_into_the_partition_that_they_name(pair: Pair, topic: str) -> None:
    await Topics(pair.target.bootstrap).create(topic, PARTITIONS)
    wanted = [number % PARTITIONS for number in range(300)]
    records = (Record(b"no envelope", key(partition, serial)) for serial, partition in enumerate(wanted))
    assert await in_thread(partial(produce_by_key, pair.target.bootstrap, topic, records)) == wanted
    await Topics(pair.target.bootstrap).delete(topic)  # such keys have no place in a topic: later tests would find them


def shoal_between(pair: Pair, work: Path) -> tuple[ShoalProcess, int, int]:
    """A Shoal for the mirror whose group is mm1; -> it (not started) and its two ports."""
    source, target = free_port_block(_PORTS), free_port_block(_PORTS)
    shallow = {"mirror-clients": r"^mm1-\d+$", "partition-by-key": True}
    modes: tuple[tuple[str, str, int, dict[str, object]], ...] = (
        ("source", pair.source.bootstrap, source, {"mode": "wrap", "pair": "target", "shallow": shallow}),
        ("target", pair.target.bootstrap, target, {"mode": "unwrap"}),
    )
    document = {
        "cluster": [{"name": name, "bootstrap": bootstrap} for name, bootstrap, _, _ in modes],
        "listener": [
            {
                "name": name,
                "cluster": name,
                "listen": f"127.0.0.1:{port}",
                "ports": f"{port + 1}-{port + _PORTS - 1}",
                **mode,
            }
            for name, _, port, mode in modes
        ],
    }
    config = write_toml(work / "shoal.toml", document)
    argv = ["run", "-c", str(config), "--log-format", "json", "--report-every", "0.5"]
    return ShoalProcess(argv, work=work, ports=[source, target]), source, target


@contextmanager
def mirror_maker_1(work: Path, lib: Path, topic: str, source: int, target: int) -> Iterator[Process]:
    consumer = {
        "bootstrap.servers": f"127.0.0.1:{source}",
        "group.id": "mm1",  # and its consumers are named mm1-0, mm1-1, ...: MirrorMaker 1 overwrites client.id
        "auto.offset.reset": "earliest",
    }
    producer = {
        "bootstrap.servers": f"127.0.0.1:{target}",
        "compression.type": "none",
        "enable.idempotence": "false",
    }
    files = (
        *("--consumer.config", str(write_properties(work / "consumer.properties", consumer))),
        *("--producer.config", str(write_properties(work / "producer.properties", producer))),
    )
    argv = Jvm(lib=lib).argv("kafka.tools.MirrorMaker", *files, "--include", topic, "--num.streams", "1")
    process = Process(argv, log=work / "mm1.log", name="MirrorMaker 1")
    try:
        yield process
    finally:
        if process.running:
            process.kill()


@pytest.mark.slow
async def test_mirror_maker_1(pair: Pair, topic: str, tmp_path: Path) -> None:
    """It re-produces each record with its key and without a partition."""
    source, target = pair.source.bootstrap, pair.target.bootstrap
    for bootstrap in (source, target):
        await Topics(bootstrap).create(topic, PARTITIONS)
    await in_thread(partial(produce_by_key, source, topic, orders(12_000)))
    shoal, *ports = shoal_between(pair, tmp_path)
    lib = await jars(MM1_VERSION)
    async with running_shoal(shoal):
        with mirror_maker_1(tmp_path, lib, topic, *ports) as process:
            for seed in range(1, 5):
                ours = await read_copy(source, topic)
                theirs = await until_copied(ours, target, topic, within=WITHIN, process=process)
                assert await first_difference(ours, theirs) is None
                await in_thread(partial(produce_by_key, source, topic, orders(12_000, seed=seed)))
            ours = await read_copy(source, topic)
            theirs = await until_copied(ours, target, topic, within=WITHIN, process=process)
            assert await first_difference(ours, theirs) is None
            assert await pair.envelopes() == []
    counts = counted(shoal, "total")
    assert counts["unwrapped_records"] >= counts["wrapped_records"] > 5_000
