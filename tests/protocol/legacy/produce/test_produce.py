import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.legacy import reading
from shoal.protocol.legacy.message import Message
from shoal.protocol.legacy.produce.produce import (
    Produced,
    Refused,
    convert,
    encode_for_broker,
    encode_for_client,
    read_legacy_answer,
    read_legacy_produce,
)
from shoal.protocol.legacy.produce.up_conversion import UpConverted
from shoal.protocol.messages.produce import encode_produce_response, read_produce_request
from shoal.protocol.schema.decomposer import MAX_ELEMENTS
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.compression import Codec, decompress
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from tests.protocol.legacy.produce.test_up_conversion import ONE, as_records
from tests.support.batches import consumed, damaged
from tests.support.legacy.produce_frames import Said, produce_frame, said
from tests.support.legacy.sets import FIRST, LIMIT, codecs, magics, message_lists, numbered, wrapped, wrapper

VERSIONS = [0, 1, 2]
GOOD = wrapped(1, Codec.GZIP, [ONE])
versions = st.sampled_from(VERSIONS)
places = st.tuples(st.sampled_from(["a", "b", "ü", "x" * 249]), st.integers(0, 1 << 30))
outcomes = st.builds(Produced, st.integers(-1, 200), st.integers(-1, 1 << 62), st.integers(-1, 1 << 40))


def converted(frame: bytes, limit: int = LIMIT) -> dict[TopicPartition, UpConverted | Refused]:
    return convert(frame, read_legacy_produce(frame, read_request_header(frame)), limit=limit)


def for_broker(frame: bytes) -> bytes:
    header = read_request_header(frame)
    request = read_legacy_produce(frame, header)
    sets = {place: each.parts for place, each in converted(frame).items() if isinstance(each, UpConverted)}
    return encode_for_broker(header, request, sets)


@given(
    versions, st.dictionaries(places, st.tuples(magics, codecs, message_lists), max_size=4), st.sampled_from([-1, 0, 1])
)
def test_request_says_the_same_in_v3(
    version: int, contents: dict[tuple[str, int], tuple[int, Codec, list[Message]]], acks: int
) -> None:
    topics: dict[str, list[tuple[int, bytes]]] = {}
    expected: dict[tuple[str, int], object] = {}
    for (topic, index), (magic, codec, listed) in contents.items():
        numbers = numbered(listed, magic)
        topics.setdefault(topic, []).append((index, wrapped(magic, codec, numbers)))
        expected[topic, index] = as_records(numbers)
    upstream = for_broker(produce_frame(version, -7, topics, acks=acks, timeout_ms=30_000))
    assert read_request_header(upstream)[:4] == (0, 3, -7, "old")
    request = read_produce_request(upstream, 3)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, acks, 30_000)
    found = {(each.topic, each.partition): consumed(upstream[each.start : each.end]) for each in request.partitions}
    assert found == expected


@given(versions, st.dictionaries(places, outcomes, max_size=6), st.integers(0, 1 << 30))
def test_answer_says_the_same_in_the_clients_version(
    version: int, outcome: dict[tuple[str, int], Produced], throttle_ms: int
) -> None:
    topics: dict[str, list[bytes]] = {}
    for (topic, index), each in outcome.items():
        topics.setdefault(topic, []).append(struct.pack(">ihqq", index, *each))
    pieces = encode_produce_response(3, 9, [*topics.items()], throttle_ms=throttle_ms)
    answer = read_legacy_answer(b"".join(pieces))
    frame = encode_for_client(version, 9, answer.places.items(), throttle_ms=answer.throttle_ms)
    correlation_id, found, throttled = said(version, frame)
    assert correlation_id == 9
    assert throttled == (throttle_ms if version else None)
    assert found == {
        place: Said(each.error_code, each.base_offset, each.log_append_time if version == 2 else None)
        for place, each in outcome.items()
    }


def test_a_bad_set_is_refused_for_its_partition_alone() -> None:
    bad = damaged(GOOD, len(GOOD) - 1)
    bomb = wrapped(1, Codec.GZIP, [ONE._replace(value=bytes(100_000))])
    found = converted(produce_frame(2, 1, {"t": [(0, GOOD), (1, bad)], "u": [(5, bomb), (0, GOOD), (1, b"")]}), 50_000)
    codes = [each.error_code if isinstance(each, Refused) else each.records for each in found.values()]
    assert list(found) == [("t", 0), ("t", 1), ("u", 5), ("u", 0), ("u", 1)]
    assert codes == [1, 2, 10, 1, 0]
    assert "CRC" in str(found[TopicPartition("t", 1)])


def test_a_request_of_bombs_costs_two_limits_and_leaves_room_for_what_is_small() -> None:
    bomb, small = wrapped(1, Codec.GZIP, [ONE._replace(value=bytes(1 << 20))]), GOOD
    broken = wrapper(1, Codec.GZIP, bytes(900_000))
    sets = [bomb, broken, bomb, broken, bomb, small]
    opened = []

    def counted(codec: Codec, data: Buffer, room: int) -> bytes:
        opened.append(room)
        return decompress(codec, data, room)

    limit = 1_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "decompress", counted)
        found = converted(produce_frame(2, 1, {"t": list(enumerate(sets))}), limit)
    assert sum(opened) <= 2 * limit
    assert [isinstance(each, Refused) for each in found.values()] == [True] * 5 + [False]


def test_null_record_set_is_an_empty_one() -> None:
    frame = produce_frame(0, 1, {"t": [(0, b"")]})
    assert converted(frame[:-4] + b"\xff" * 4) == {("t", 0): ([], 0, Codec.NONE)}


def test_partition_that_stands_twice_is_refused_with_the_request() -> None:
    with pytest.raises(RemoteProtocolError, match="twice"):
        converted(produce_frame(2, 1, {"t": [(0, GOOD), (0, GOOD)]}))


def test_more_partitions_than_a_broker_leads_are_refused_with_the_request() -> None:
    assert len(converted(produce_frame(2, 1, {"t": [(index, b"") for index in range(MAX_ELEMENTS)]}))) == MAX_ELEMENTS
    with pytest.raises(RemoteProtocolError):
        converted(produce_frame(2, 1, {"t": [(index, b"") for index in range(MAX_ELEMENTS + 1)]}))


@pytest.mark.parametrize("version", [-1, 3, 9])
def test_other_versions_are_not_for_this(version: int) -> None:
    with pytest.raises(RemoteProtocolError):
        converted(produce_frame(version, 1, {"t": [(0, GOOD)]}))


@pytest.mark.parametrize("version", VERSIONS)
def test_request_that_is_cut_short_is_refused(version: int) -> None:
    frame = produce_frame(version, 1, {"topic": [(0, GOOD)]})
    for end in range(12, len(frame)):
        with pytest.raises(RemoteProtocolError):
            converted(frame[:end])


def test_sets_keep_their_timestamps_below_v2_too() -> None:
    """A 0.9 producer sets none, but a client may send magic 1 in v1."""
    (found,) = converted(produce_frame(1, 1, {"t": [(0, GOOD)]})).values()
    assert isinstance(found, UpConverted)
    assert [each.timestamp for each in consumed(bytes(found.parts[0]))] == [FIRST]
