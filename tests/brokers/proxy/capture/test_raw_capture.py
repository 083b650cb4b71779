"""The raw capture of real brokers' traffic, read by tshark (Debian package; `scripts/setup` installs it)."""

from __future__ import annotations

import base64
import subprocess
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.capture.frames.pcapng import Sender
from shoal.protocol.capture.frames.pcapng_reader import Decoder
from tests.brokers.proxy.rig.data import IN_TIME, TIMESTAMP, Record, new_topic, produce, read, various
from tests.brokers.proxy.rig.frames import Closed, Wire, framed, request
from tests.brokers.proxy.rig.stand import PASSWORD, USER
from tests.support.kafka_python import KafkaConsumer, KafkaProducer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shoal.protocol.capture.frames.pcapng import CapturedFrame
    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka


def _capturing(new_stand: Callable[..., Stand], directory: Path, **conditions: object) -> Stand:
    directory.mkdir()
    raw = {"directory": str(directory), **conditions}
    return new_stand(capture={"directory": str(directory), "raw": raw})


def _tshark(path: Path, fields: Sequence[str], wanted: str = "kafka") -> list[dict[str, str]]:
    asked = [part for field in fields for part in ("-e", field)]
    command = ["tshark", "-r", str(path), "-Y", wanted, "-T", "fields", *asked]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [dict(zip(fields, line.split("\t"), strict=True)) for line in told.splitlines()]


def _frames(path: Path) -> list[CapturedFrame]:
    decoder = Decoder()
    frames = list(decoder.feed(path.read_bytes()))
    assert (decoder.torn, decoder.incomplete) == (0, 0)
    return frames


def _file(directory: Path) -> Path:
    (path,) = directory.glob("shoal-*.pcapng")
    return path


def _exchange(stand: Stand, topic: str, count: int) -> list[bytes]:
    """In the versions of Kafka 2.4, the newest that Debian's tshark dissects."""
    settings = {"bootstrap_servers": stand.bootstrap, "api_version": (2, 4)}
    producer = KafkaProducer(**settings, client_id="the-producer", acks="all", linger_ms=100, batch_size=100_000)
    for number in range(count):
        producer.send(topic, b"v%d" % number, b"key", partition=0)
    producer.flush(IN_TIME)
    producer.close()
    consumer = KafkaConsumer(**settings, client_id="the-consumer", auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    got: list[bytes] = []
    deadline = monotonic() + IN_TIME
    while len(got) < count:
        assert monotonic() < deadline, got
        got += [record.value for records in consumer.poll(500).values() for record in records]
    consumer.close()
    return got


@pytest.mark.usefixtures("forgotten_sockets")
async def test_tshark_reads_topic_client_and_batches(
    brokers: Cluster, new_stand: Callable[..., Stand], tmp_path: Path
) -> None:
    stand = _capturing(new_stand, tmp_path / "raw")
    topic = new_topic(brokers, [[1]])
    await stand.shoal.start()
    assert _exchange(stand, topic, 100) == [b"v%d" % number for number in range(100)]
    await stand.shoal.stop()
    path = _file(tmp_path / "raw")

    rows = _tshark(path, ["kafka.api_key", "kafka.client_id", "kafka.topic_name", "kafka.batch_size"])
    produced = [row for row in rows if row["kafka.client_id"] == "the-producer" and row["kafka.api_key"] == "0"]
    assert {row["kafka.topic_name"] for row in produced} == {topic}
    assert sum(int(row["kafka.batch_size"]) for row in produced) == 100
    fetched = [row for row in rows if row["kafka.api_key"] == "1" and not row["kafka.client_id"]]
    assert sum(int(size) for row in fetched for size in row["kafka.batch_size"].split(",") if size) == 100
    assert any(row["kafka.client_id"] == "the-consumer" for row in rows)


async def test_only_what_mentions_the_topic_with_its_answer(
    brokers: Cluster, new_stand: Callable[..., Stand], tmp_path: Path
) -> None:
    """Requests of librdkafka, whose newest versions identify topics by id."""
    wanted, other = (new_topic(brokers, [[1], [2]]) for _ in range(2))
    stand = _capturing(new_stand, tmp_path / "raw", topics=[wanted], apis=["Produce", "Fetch"])
    await stand.shoal.start()
    records = [Record(b"key", b"value %d." % number, TIMESTAMP + number) for number in range(100)]
    for topic in (other, wanted):
        sent = produce(stand.bootstrap, topic, records, partitions=2)
        assert read(stand.bootstrap, topic, partitions=2) == sent
    await stand.shoal.stop()
    frames = _frames(_file(tmp_path / "raw"))
    asked, answered = ([frame.frame for frame in frames if frame.sender is sender] for sender in Sender)

    assert {int.from_bytes(frame[4:6], "big") for frame in asked} == {0, 1}
    assert 0 <= len(asked) - len(answered) <= 2  # a consumer's last polls, on its brokers
    assert not any(other.encode() in frame.frame for frame in frames)
    for value in (b"value 0.", b"value 99."):
        assert sum(value in frame for frame in asked) == 1
        assert any(value in frame for frame in answered)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_credentials_are_not_in_the_file(
    brokers: Cluster, new_stand: Callable[..., Stand], tmp_path: Path, mechanism: str
) -> None:
    stand = _capturing(new_stand, tmp_path / "raw")
    topic = new_topic(brokers, [[1]])
    await stand.shoal.start()
    sasl: dict[str, Any] = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    produce(stand.sasl_bootstrap, topic, various(10), **{"security.protocol": "SASL_PLAINTEXT", **sasl})
    with Wire(*stand.sasl_broker(1)) as wire:  # as clients before Kafka 1.0
        assert not isinstance(wire.ask(request("sasl_handshake", 0, {"mechanism": "PLAIN"})), Closed)
        assert wire.ask(framed(f"\0{USER}\0{PASSWORD}".encode())) == bytes(4)
        assert not isinstance(wire.ask(request("metadata", 12, {"topics": []})), Closed)
    await stand.shoal.stop()
    path = _file(tmp_path / "raw")
    data, frames = path.read_bytes(), _frames(path)

    logins = [frame for frame in frames if frame.sender is Sender.CLIENT and frame.frame[4:6] == b"\0\x24"]
    assert logins
    assert all(one.withheld for one in logins)
    assert sum(frame.withheld == "withheld: a SASL token" for frame in frames) == 2
    assert topic.encode() in data
    secrets = [PASSWORD.encode(), *(base64.b64encode(b"x"[:pad] + PASSWORD.encode())[4:-4] for pad in (0, 1))]
    for secret in (*secrets, f"\0{USER}\0".encode(), f"n={USER},r=".encode(), b",p=", b"c=biws", b",i=4096"):
        assert secret not in data
