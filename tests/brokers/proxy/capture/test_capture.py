"""The index has every batch that Kafka's dump tool finds in a log: once as produced, once for each consumer that read
it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import trio
from confluent_kafka import Consumer, Producer

from shoal.protocol.capture.index.columns import Direction, Handling, Kind
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.java.tools import run_tool
from tests.brokers.proxy.rig.data import IN_TIME, TIMESTAMP, new_topic
from tests.support.captures.capture_index import whole_index
from tests.support.kafka_python import KafkaProducer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

in_thread = trio.to_thread.run_sync
pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("forgotten_sockets")]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 600  # records of each producer
RECORDS = COUNT * (len(CODECS) + 3)
_DUMPED = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) .*?producerId: (-?\d+) producerEpoch: "
    r"(-?\d+) "
    r".*?CreateTime: (\d+) size: (\d+) magic: 2 compresscodec: (\w+)"
)
Batch = tuple[int, int, int, int, int, int, int, int, str]


def produce_by_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    settings: dict[str, str | bool] = {
        "client.id": f"rdkafka-{codec}",
        "compression.type": codec,
        "enable.idempotence": codec == "zstd",
    }
    producer = Producer(client_config(bootstrap, **settings, **{"batch.num.messages": 40}))
    for number in range(COUNT):
        producer.produce(topic, b"value %d" % number * 5, partition=number % 3, timestamp=TIMESTAMP + number)
    assert not producer.flush(IN_TIME)


def produce_by_kafka_python(bootstrap: str, topic: str, codec: str | None, acks: int | str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks=acks, compression_type=codec, client_id="python", batch_size=900
    )
    for number in range(COUNT):
        producer.send(topic, b"value %d" % number, partition=number % 3, timestamp_ms=TIMESTAMP + number)
    producer.flush(IN_TIME)
    producer.close()


def consume_by_librdkafka(bootstrap: str, topic: str) -> None:
    settings = {"client.id": "reader-rdkafka", "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(client_config(bootstrap, **settings, **{"fetch.message.max.bytes": 3000}))
    consumer.subscribe([topic])
    seen = 0
    while seen < RECORDS:
        found = consumer.consume(min(500, RECORDS - seen), IN_TIME)
        assert found
        seen += len(found)
    consumer.close()


async def traffic(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        await in_thread(produce_by_librdkafka, bootstrap, topic, codec)
    await in_thread(produce_by_kafka_python, bootstrap, topic, "gzip", "all")
    await in_thread(produce_by_kafka_python, bootstrap, topic, None, 0)
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    lines = "".join(f"line {number}\n" for number in range(COUNT)).encode()
    named = ("--producer-property", "client.id=java")
    await run_tool("ConsoleProducer", *where, "--compression-codec", "snappy", *named, stdin=lines)
    await in_thread(consume_by_librdkafka, bootstrap, topic)
    named = ("--consumer-property", "client.id=reader-java")
    await run_tool("ConsoleConsumer", *where, "--from-beginning", *named, "--max-messages", str(RECORDS))


async def dumped(brokers: Cluster, topic: str) -> dict[int, list[Batch]]:
    """The batches of each partition, from all its segments; partition n is on broker n + 1."""
    folders = [brokers.nodes[at + 1].data / f"{topic}-{at}" for at in range(3)]
    logs = {str(log): at for at, folder in enumerate(folders) for log in sorted(folder.glob("*.log"))}
    said = await run_tool("DumpLogSegments", "--files", ",".join(logs))
    _, *dumps = said.split("Dumping ")
    found: dict[int, list[Batch]] = {at: [] for at in range(3)}
    for dump in dumps:
        batches = [(*map(int, groups[:8]), groups[8].lower()) for groups in _DUMPED.findall(dump)]
        assert len(batches) == dump.count("baseOffset:")
        found[logs[dump.split()[0]]] += batches
    return found


def as_dumped(row: dict[str, Any]) -> Batch:
    return (
        row["log_offset"],
        row["log_offset"] + row["last_offset_delta"],
        row["record_count"],
        row["base_sequence"],
        row["producer_id"],
        row["producer_epoch"],
        row["max_timestamp"],
        row["batch_length"] + 12,
        CODECS[row["attributes"] & 7],
    )


def by_client(rows: list[dict[str, Any]], direction: Direction) -> dict[str, dict[int, list[Batch]]]:
    found: dict[str, dict[int, list[Batch]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["direction"] is direction and row["kind"] is Kind.BATCH:
            found[row["client"]][row["partition"]].append(as_dumped(row))
    return found


async def test_the_index_holds_every_batch_of_the_log(
    brokers: Cluster, new_stand: Callable[..., Stand], tmp_path: Path
) -> None:
    topic = new_topic(brokers, [[1], [2], [3]])
    index = tmp_path / "index"
    index.mkdir()
    stand = new_stand(capture={"directory": str(index)})
    await stand.shoal.start()
    await traffic(stand.bootstrap, topic)
    await stand.shoal.stop()
    in_log = await dumped(brokers, topic)
    rows = [row for row in whole_index(index) if row["topic"] == topic]
    assert {row["handling"] for row in rows} == {Handling.PASSED}
    for name, partitions in by_client(rows, Direction.FETCHED).items():
        assert partitions == in_log, name
    assert set(by_client(rows, Direction.FETCHED)) == {"reader-rdkafka", "reader-java"}
    produced = by_client(rows, Direction.PRODUCED)
    unanswered = [row for row in rows if row["acks"] == 0]
    assert all(row["log_offset"] == row["latency_ns"] == -1 for row in unanswered)
    known = {p: sorted(b for of in produced.values() for b in of[p] if b[0] >= 0) for p in in_log}
    for partition, batches in in_log.items():
        without = [batch for batch in batches if batch not in known[partition]]
        assert known[partition] == [batch for batch in batches if batch in known[partition]]
        sizes = [batch[2:8] for batch in produced["python"][partition] if batch[0] < 0]
        assert sizes == [batch[2:8] for batch in without]
    answered = [row for row in rows if row["direction"] is Direction.PRODUCED and row["acks"]]
    assert all((row["error"], row["latency_ns"] > 0) == (0, True) for row in answered)
    assert sum(row["record_count"] for row in rows if row["direction"] is Direction.PRODUCED) == RECORDS
    assert {row["node"] for row in rows} == {1, 2, 3}
    software = {row["client"]: row["software"].partition("/")[0] for row in rows if row["software"]}
    assert (software["java"], software["reader-java"]) == ("apache-kafka-java", "apache-kafka-java")
