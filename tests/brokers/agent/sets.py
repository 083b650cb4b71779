"""Record sets and raw produce requests that no ordinary client sends."""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal.protocol.messages.produce import ProduceRequest, encode_produce_request, read_produce_response
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import write_request_header
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import write_int32
from tests.brokers.proxy.rig.frames import CORRELATION_ID, Closed, Wire

TIMESTAMP = 1_700_000_000_000
VERSION = 9  # of Produce: flexible, topics by name, known to all tested brokers


class Answer(NamedTuple):
    error: int
    base_offset: int


def records(count: int, *, seed: int = 0, size: int = 60) -> list[NewRecord]:
    """Records with keys, headers, ascending timestamps and somewhat compressible values."""
    draw = random.Random(seed)
    return [
        NewRecord(
            TIMESTAMP + seed * 1000 + index,
            b"key-%d-%d" % (seed, index),
            bytes(draw.choices(b"abcdefgh", k=size)),
            ((b"seed", b"%d" % seed),) if index % 2 else (),
        )
        for index in range(count)
    ]


def batches(count: int, codecs: Sequence[Codec] = (Codec.NONE,), *, each: int = 3) -> list[bytes]:
    """`count` batches of 1 to `each` records, the codecs in turn."""
    return [
        encode_batch(records(1 + index % each, seed=index), codec=codecs[index % len(codecs)]) for index in range(count)
    ]


def exchange(
    address: str,
    sets: Mapping[tuple[str, int], Sequence[bytes]],
    *,
    version: int = VERSION,
    acks: int = -1,
    transactional_id: str | None = None,
) -> bytes | Closed:
    """Send one request with these batches by topic and partition; -> the whole frame of the answer."""
    host, _, port = address.rpartition(":")
    with Wire(host, int(port)) as wire:
        return wire.ask(frame_of(sets, version=version, acks=acks, transactional_id=transactional_id))


def frame_of(
    sets: Mapping[tuple[str, int], Sequence[bytes]],
    *,
    version: int = VERSION,
    acks: int = -1,
    transactional_id: str | None = None,
) -> bytes:
    """The same request's frame."""
    head = write_int32(0) + write_request_header(ApiKey.PRODUCE, version, CORRELATION_ID, "sets")
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, partitions=())
    topics = [(topic, [(partition, list(batches))]) for (topic, partition), batches in sets.items()]
    return b"".join(encode_produce_request(head, request, CORRELATION_ID, topics))


def produce(
    address: str,
    sets: Mapping[tuple[str, int], Sequence[bytes]],
    *,
    version: int = VERSION,
    acks: int = -1,
    transactional_id: str | None = None,
) -> dict[tuple[str, int], Answer] | Closed:
    """The same; -> the broker's answer for each partition."""
    answer = exchange(address, sets, version=version, acks=acks, transactional_id=transactional_id)
    if isinstance(answer, Closed):
        return answer
    rows = read_produce_response(answer, version).partitions
    return {(str(row.topic), row.partition): Answer(row.error_code, row.base_offset) for row in rows}


def produce_one(
    address: str, topic: str, batches: Sequence[bytes], *, version: int = VERSION, transactional_id: str | None = None
) -> Answer:
    """The same for partition 0 of one topic, acknowledged by all replicas."""
    answers = produce(address, {(topic, 0): batches}, version=version, transactional_id=transactional_id)
    assert not isinstance(answers, Closed)
    return answers[topic, 0]
