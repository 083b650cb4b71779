"""The prebuilt requests, read back by kio, which shares no code with them."""

import uuid
from typing import Any

import pytest
import zstandard
from kio import index
from kio.records.readers import read_batch
from kio.serial import entity_reader

from tests.support import frames

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
TOPIC = frames.Topic("bench-fetch", TOPIC_ID.bytes)
STAMP_MS = 1_700_000_000_000
VALUES = [b"", b"a", b"b" * 200]


def parse(frame: bytes) -> tuple[Any, Any]:
    """(header, request) of a frame, which must end exactly where its size says."""
    size, key, version = (int.from_bytes(frame[at:end], "big") for at, end in ((0, 4), (4, 6), (6, 8)))
    assert size == len(frame) - 4
    schema: Any = index.load_request_schema(key, version)
    header, header_size = entity_reader(schema.__header_schema__)(frame, 4)
    request, request_size = entity_reader(schema)(frame, 4 + header_size)
    assert 4 + header_size + request_size == len(frame)
    assert header.client_id == "bench"
    return header, request


@pytest.mark.parametrize(
    "frame", [frames.api_versions("bench"), frames.metadata("bench"), frames.list_offsets("bench", TOPIC)]
)
def test_small_requests_are_whole(frame: bytes) -> None:
    parse(frame)


def test_fetch_asks_for_each_partition_outside_of_a_session() -> None:
    limits = frames.FetchLimits(response=8_000, partition=2_000)
    _, request = parse(frames.fetch("bench", TOPIC, {0: 5, 3: 1 << 40}, limits))
    assert (request.session_id, request.session_epoch, request.max_bytes) == (0, -1, 8_000)
    (topic,) = request.topics
    assert topic.topic_id == TOPIC_ID
    places = [(place.partition, place.fetch_offset, place.partition_max_bytes) for place in topic.partitions]
    assert places == [(0, 5, 2_000), (3, 1 << 40, 2_000)]


@pytest.mark.parametrize(("version", "attribute", "named"), [(13, "topic_id", TOPIC_ID), (11, "name", TOPIC.name)])
def test_produce_carries_each_batch_as_it_is(version: int, attribute: str, named: object) -> None:
    batches = {0: frames.batch(VALUES, STAMP_MS), 7: frames.batch([b"x" * 5_000], STAMP_MS)}
    _, request = parse(frames.produce("bench", TOPIC, batches, version=version))
    (topic,) = request.topic_data
    assert getattr(topic, attribute) == named
    assert (request.transactional_id, request.acks) == (None, -1)
    assert {place.index: bytes(place.records) for place in topic.partition_data} == batches


def test_batch_is_read_by_others() -> None:
    found, size = read_batch(frames.batch(VALUES, STAMP_MS), 0)
    assert size == len(frames.batch(VALUES, STAMP_MS))
    assert [record.value for record in found.records] == VALUES
    assert (found.producer_id, found.base_sequence, found.last_offset_delta) == (-1, -1, 2)


def test_zstd_batch_holds_the_same_records() -> None:
    plain, packed = frames.batch(VALUES, STAMP_MS), frames.batch(VALUES, STAMP_MS, zstd=True)
    assert zstandard.decompress(packed[61:]) == plain[61:]
    assert packed[21:23] == b"\0\4"  # attributes: zstd
    assert packed[23:61] == plain[23:61]
