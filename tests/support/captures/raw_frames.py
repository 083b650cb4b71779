"""A short raw capture: a connection that produces, one that fetches in a session, one that joins a group after SASL."""

from __future__ import annotations

from itertools import count
from typing import Any

from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame, response_frame
from shoal.protocol.schema.headers import write_request_header
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import write_int32

PROXY, CLIENT_ID = "0a0b0c0d", "captured"
TOPIC, TOPIC_ID = "orders", bytes(range(16))
SESSION = 77
START_NS, STEP_NS = 1_750_000_000_000_000_000, 20_000_000


class Recording:
    """Frames in the order in which they are added, a step of time apart."""

    def __init__(self) -> None:
        self.frames: list[CapturedFrame] = []
        self._correlation = count(1)
        self._time = count(START_NS, STEP_NS)

    def ask(self, connection: int, key: ApiKey, version: int, values: dict[str, Any]) -> int:
        number = next(self._correlation)
        frame = request_frame(key, version, number, CLIENT_ID, values)
        self.add(connection, Sender.CLIENT, frame)
        return number

    def answer(self, connection: int, key: ApiKey, version: int, number: int, values: dict[str, Any]) -> None:
        self.add(connection, Sender.BROKER, response_frame(key, version, number, values))

    def add(self, connection: int, sender: Sender, frame: bytes, withheld: str | None = None) -> None:
        self.frames.append(CapturedFrame(next(self._time), PROXY, connection, sender, frame, withheld))


def batch(number: int, codec: Codec, **stamps: int) -> bytes:
    records = [NewRecord(1_750_000_000_000 + number, b"k%d" % at, b"value %d of %d" % (at, number)) for at in range(5)]
    return encode_batch(records, codec=codec, **stamps)


def produce(topic: str | bytes, batches: dict[int, bytes], transactional_id: str | None = None) -> dict[str, Any]:
    named: dict[str, Any] = {"Name": topic} if isinstance(topic, str) else {"TopicId": topic}
    data = [{"Index": partition, "Records": records} for partition, records in batches.items()]
    return {
        "TransactionalId": transactional_id,
        "Acks": -1,
        "TimeoutMs": 30_000,
        "TopicData": [{**named, "PartitionData": data}],
    }


def fetch(epoch: int, session: int, offsets: dict[int, int]) -> dict[str, Any]:
    partitions = [
        {"Partition": partition, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1,
         "LogStartOffset": -1, "PartitionMaxBytes": 1 << 20}
        for partition, offset in offsets.items()
    ]  # fmt: skip
    return {
        "ReplicaId": -1,
        "MaxWaitMs": 40,
        "MinBytes": 1,
        "MaxBytes": 1 << 20,
        "SessionId": session,
        "SessionEpoch": epoch,
        "Topics": [{"Topic": TOPIC, "Partitions": partitions}] if offsets else [],
    }


def metadata_answer(recording: Recording, connection: int, number: int) -> None:
    partitions = [{"PartitionIndex": at, "LeaderId": 1, "LeaderEpoch": 3} for at in range(2)]
    topic = {"Name": TOPIC, "TopicId": TOPIC_ID, "Partitions": partitions}
    recording.answer(connection, ApiKey.METADATA, 12, number, {"ClusterId": "c", "Topics": [topic]})


def short_recording(fetching: int = 2) -> Recording:
    """Eight batches to two partitions, which can be replayed; connection `fetching` fetches them in a session."""
    recording = Recording()
    number = recording.ask(1, ApiKey.API_VERSIONS, 3, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"})
    recording.answer(1, ApiKey.API_VERSIONS, 3, number, {})
    number = recording.ask(1, ApiKey.METADATA, 12, {"Topics": [{"Name": TOPIC}]})
    metadata_answer(recording, 1, number)
    for at, codec in enumerate((Codec.NONE, Codec.ZSTD, Codec.LZ4, Codec.GZIP)):
        stamps = {"producer_id": 4711, "producer_epoch": 2, "base_sequence": 5 * at}
        batches = {partition: batch(2 * at + partition, codec, **stamps) for partition in range(2)}
        version, topic = ((9, TOPIC), (13, TOPIC_ID))[at % 2]
        recording.ask(1, ApiKey.PRODUCE, version, produce(topic, batches))
    recording.ask(1, ApiKey.PRODUCE, 9, produce(TOPIC, {0: batch(90, Codec.NONE)}, transactional_id="tx"))
    number = recording.ask(fetching, ApiKey.FETCH, 12, fetch(0, 0, {0: 0, 1: 1_000_000}))
    recording.answer(fetching, ApiKey.FETCH, 12, number, {"SessionId": SESSION})
    for epoch in range(1, 6):
        number = recording.ask(fetching, ApiKey.FETCH, 12, fetch(epoch, SESSION, {}))
        recording.answer(fetching, ApiKey.FETCH, 12, number, {"SessionId": SESSION})
    recording.add(3, Sender.CLIENT, header(ApiKey.SASL_AUTHENTICATE, 2), withheld="a password")
    recording.add(3, Sender.CLIENT, header(ApiKey.JOIN_GROUP, 5))
    return recording


def header(key: ApiKey, version: int) -> bytes:
    """A request that has only a header."""
    head = write_request_header(key, version, 1, CLIENT_ID)
    return write_int32(len(head)) + head
