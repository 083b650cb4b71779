"""From clients' requests to a joined one, and from the broker's answer to the clients'. kio encodes and decodes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map

from shoal.protocol.coalesce.answer import read_joined_answer
from shoal.protocol.coalesce.joinable import Joinable, LaneKey, PartitionBatch, WhyAlone, read_joinable
from shoal.protocol.coalesce.repeated import RepeatedRequest
from shoal.protocol.coalesce.request import encode_joined
from shoal.protocol.messages.produce import read_produce_request
from shoal.protocol.records.batch import CONTROL, TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import PartitionRef
from tests.support.kio_messages import decode_request, encode, request_frame, response_frame
from tests.support.shallow.brokers import by_topic, make, named

VERSIONS = [version for version in schema_name_map["produce"] if version >= 3]
RECORD = NewRecord(1_700_000_000_000, b"key", b"value")
ONE, TWO = encode_batch([RECORD]), encode_batch([RECORD, RECORD], producer_id=7, producer_epoch=0, base_sequence=3)
Sets = Mapping[tuple[Any, int], bytes | None]


def topic(version: int, number: int = 1) -> Any:
    return UUID(int=number) if version >= 13 else f"t{number}"


def shown(one: Any) -> Any:
    return one.bytes if isinstance(one, UUID) else one


def frame(
    version: int, sets: Sets, *, client_id: str | None = "c", transactional_id: str | None = None, acks: int = -1
) -> bytes:
    schema = load_request_schema(0, version)
    entity = make(
        schema,
        "ProduceRequest",
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(seconds=30),
        topic_data=tuple(
            make(
                schema,
                "TopicProduceData",
                **named(name),
                partition_data=tuple(
                    make(schema, "PartitionProduceData", index=index, records=records) for index, records in parts
                ),
            )
            for name, parts in by_topic(sets).items()
        ),
    )
    return request_frame(entity, 77, client_id)


def read(data: bytes) -> Joinable | WhyAlone:
    return read_joinable(memoryview(data), read_request_header(data))


def joinable(data: bytes) -> Joinable:
    found = read(data)
    assert isinstance(found, Joinable)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", ["c", None, ""])
def test_an_ordinary_request_is_joinable(version: int, client_id: str | None) -> None:
    sets = {(topic(version, 1), 4): ONE, (topic(version, 1), 5): TWO, (topic(version, 2), 4): ONE}
    found = joinable(frame(version, sets, client_id=client_id, acks=1))
    assert found.key == LaneKey(version, 1, 30_000, client_id, idempotent=True)
    assert joinable(frame(version, {(topic(version), 4): ONE})).key.idempotent is False
    assert [(*part.target, bytes(part.batch), part.header.record_count, part.lone) for part in found.parts] == [
        (shown(name), index, batch, 1 if batch == ONE else 2, batch == TWO) for (name, index), batch in sets.items()
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_joined_request_of_one_is_the_request_itself(version: int) -> None:
    data = frame(version, {(topic(version, 1), 4): ONE, (topic(version, 2), 5): TWO})
    found = joinable(data)
    assert encode_joined(found.key, "c", 77, {part.target: [part] for part in found.parts}) == data


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_many_become_one(version: int) -> None:
    wanted = {(topic(version, number % 3), number): encode_batch([RECORD] * number) for number in range(1, 9)}
    parts = [part for place, batch in wanted.items() for part in joinable(frame(version, {place: batch})).parts]
    joined = encode_joined(LaneKey(version, 0, 500, "c"), "shoal", 5, {part.target: [part] for part in parts})
    header, _ = decode_request(joined, load_request_schema(0, version))
    assert (header.client_id, header.correlation_id) == ("shoal", 5)
    request = read_produce_request(joined, version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, 1, 500), "acks 0 is sent as 1"
    assert {
        (partition.topic, partition.partition): joined[partition.start : partition.end]
        for partition in request.partitions
    } == {(shown(name), index): batch for (name, index), batch in wanted.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_set_is_the_batches_one_after_the_other(version: int) -> None:
    parts = [joinable(frame(version, {(topic(version), 2): batch})).parts[0] for batch in (ONE, TWO, ONE)]
    joined = encode_joined(LaneKey(version, 1, 500, None), None, 5, {parts[0].target: parts})
    (one,) = read_produce_request(joined, version).partitions
    assert joined[one.start : one.end] == ONE + TWO + ONE


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (ONE + TWO, WhyAlone.UNUSUAL),
        (None, WhyAlone.UNUSUAL),
        (b"", WhyAlone.UNUSUAL),
        (ONE[:-1], WhyAlone.UNUSUAL),
        (ONE[:16] + b"\1" + ONE[17:], WhyAlone.UNUSUAL),
        (encode_batch([RECORD], attributes=TRANSACTIONAL), WhyAlone.TRANSACTIONAL),
        (encode_batch([RECORD], attributes=CONTROL), WhyAlone.TRANSACTIONAL),
        (ONE[:22] + b"\7" + ONE[23:], WhyAlone.UNUSUAL),
    ],
    ids=["two batches", "null", "empty", "cut short", "magic 1", "transactional", "control", "codec 7"],
)
def test_what_might_hurt_others_travels_alone(version: int, batch: bytes | None, why: WhyAlone) -> None:
    assert read(frame(version, {(topic(version), 0): ONE, (topic(version), 1): batch})) is why


def test_zstd_is_joined_from_v7_on() -> None:
    batch = encode_batch([RECORD], codec=Codec.ZSTD)
    assert read(frame(6, {("t", 0): batch})) is WhyAlone.UNUSUAL
    assert isinstance(read(frame(7, {("t", 0): batch})), Joinable)


def test_requests_that_say_more_travel_alone() -> None:
    assert read(frame(9, {("t", 0): ONE}, transactional_id="x")) is WhyAlone.TRANSACTIONAL
    assert read(frame(9, {("t", 0): ONE}, acks=2)) is WhyAlone.UNUSUAL
    assert read(frame(9, {})) is WhyAlone.UNUSUAL
    tagged = frame(9, {("t", 0): ONE})[4:-1] + b"\1\x63\2hi"
    assert read(len(tagged).to_bytes(4) + tagged) is WhyAlone.UNUSUAL
    with pytest.raises(RemoteProtocolError):
        read(frame(9, {("t", 0): ONE})[:-3])


def test_a_partition_named_twice_travels_alone() -> None:
    schema = load_request_schema(0, 8)
    twice = tuple(make(schema, "PartitionProduceData", index=3, records=ONE) for _ in range(2))
    topics = (make(schema, "TopicProduceData", **named("t"), partition_data=twice),)
    fields = {"transactional_id": None, "acks": 1, "timeout": timedelta(0), "topic_data": topics}
    assert read(request_frame(make(schema, "ProduceRequest", **fields), 1, "c")) is WhyAlone.UNUSUAL


# The answer


def answer(version: int, said: Mapping[tuple[Any, int], tuple[ErrorCode, int]], throttle_ms: int = 0) -> bytes:
    schema = load_response_schema(0, version)
    entity = make(
        schema,
        "ProduceResponse",
        responses=tuple(
            make(
                schema,
                "TopicProduceResponse",
                **named(name),
                partition_responses=tuple(
                    make(
                        schema,
                        "PartitionProduceResponse",
                        index=index,
                        error_code=error,
                        base_offset=offset,
                        log_append_time=None,
                        log_start_offset=3,
                        record_errors=(),
                        error_message=None,
                    )
                    for index, (error, offset) in parts
                ),
            )
            for name, parts in by_topic(said).items()
        ),
        throttle_time=timedelta(milliseconds=throttle_ms),
        node_endpoints=(),
    )
    return response_frame(entity, 5)


def partition_answer(version: int, index: int, error: ErrorCode, offset: int) -> bytes:
    schema = load_response_schema(0, version)
    fields = {"log_append_time": None, "log_start_offset": 3, "record_errors": (), "error_message": None}
    return encode(make(schema, "PartitionProduceResponse", index=index, error_code=error, base_offset=offset, **fields))


def sets_of(version: int, *batches: bytes, index: int = 0) -> dict[PartitionRef, list[PartitionBatch]]:
    parts = [joinable(frame(version, {(topic(version), index): batch})).parts[0] for batch in batches]
    return {parts[0].target: parts}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_owner_gets_its_own_partition(version: int) -> None:
    sets = sets_of(version, ONE, index=1) | sets_of(version, TWO, index=2)
    said = {(topic(version), 2): (ErrorCode.none, 40), (topic(version), 1): (ErrorCode.not_leader_or_follower, -1)}
    taken = read_joined_answer(answer(version, said, 55), LaneKey(version, 1, 0, None), sets)
    assert taken.throttle_ms == 55
    assert not taken.names_brokers
    assert not taken.split
    first, second = sets
    assert taken.results == {
        first: [(6, partition_answer(version, 1, ErrorCode.not_leader_or_follower, -1))],
        second: [(0, partition_answer(version, 2, ErrorCode.none, 40))],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_each_owner_of_a_set_gets_its_own_base_offset(version: int) -> None:
    sets = sets_of(version, TWO, ONE, TWO)
    taken = read_joined_answer(
        answer(version, {(topic(version), 0): (ErrorCode.none, 40)}), LaneKey(version, 1, 0, None), sets
    )
    (results,) = taken.results.values()
    assert results == [(0, partition_answer(version, 0, ErrorCode.none, offset)) for offset in (40, 42, 43)]


@pytest.mark.parametrize(
    ("error", "is_split"),
    [
        (ErrorCode.invalid_record, True),
        (ErrorCode.corrupt_message, True),
        (ErrorCode.message_too_large, True),
        (ErrorCode.record_list_too_large, True),
        (ErrorCode.invalid_timestamp, True),
        (ErrorCode.unknown_server_error, False),
        (ErrorCode.not_leader_or_follower, False),
        (ErrorCode.request_timed_out, False),
    ],
)
def test_a_set_is_split_where_nothing_was_appended_because_of_one_batch(error: ErrorCode, is_split: bool) -> None:
    key, said = LaneKey(9, 1, 0, None), answer(9, {("t1", 0): (error, -1)})
    taken = read_joined_answer(said, key, sets := sets_of(9, ONE, TWO))
    assert taken.split == (dict.fromkeys(sets, error.value) if is_split else {})
    (only,) = read_joined_answer(said, key, sets_of(9, ONE)).results.values()
    assert [verdict.error_code for verdict in only] == [error.value], "a lone batch keeps its error"


def test_a_set_is_split_where_one_batch_may_not_be_decompressed() -> None:
    said = answer(9, {("t1", 0): (ErrorCode.unknown_server_error, -1)})
    sets = sets_of(9, ONE, encode_batch([RECORD], codec=Codec.LZ4))
    assert read_joined_answer(said, LaneKey(9, 1, 0, None), sets).split == dict.fromkeys(sets, -1)


def test_the_offset_of_a_set_may_be_too_large_for_its_batches() -> None:
    said = answer(9, {("t1", 0): (ErrorCode.none, (1 << 63) - 2)})
    key = LaneKey(9, 1, 0, None)
    assert read_joined_answer(said, key, sets_of(9, ONE, TWO)).results
    with pytest.raises(RemoteProtocolError, match="base offset 9223372036854775806, too large"):
        read_joined_answer(said, key, sets_of(9, TWO, TWO))


def test_an_answer_must_tell_of_what_was_sent() -> None:
    key, sets = LaneKey(9, 1, 0, None), sets_of(9, ONE)
    for said in (
        {},
        {("t1", 1): (ErrorCode.none, 0)},
        {("t1", 0): (ErrorCode.none, 0), ("t2", 0): (ErrorCode.none, 0)},
    ):
        with pytest.raises(RemoteProtocolError):
            read_joined_answer(answer(9, said), key, sets)


@pytest.mark.parametrize("size", [249, 250, 30_000])
def test_a_topic_that_cannot_exist_is_kept_nowhere(size: int) -> None:
    """Names of topics are kept for 100,000 producers, and in answers' parts."""
    found = read(frame(9, {("t" * size, 0): TWO}))
    assert found is WhyAlone.UNUSUAL if size > 249 else isinstance(found, Joinable)


# -- a request like the one before -------------------------------------------------------------------------------------

SHAPES = st.tuples(
    st.sampled_from([1, 2]),  # topic
    st.sampled_from([0, 4, 300]),  # partition
    st.integers(0, 400) | st.sampled_from([60, 61, 16_000, 16_300, 16_320, 17_000]),  # bytes of the value
    st.sampled_from(["c", "other", None]),
    st.sampled_from([-1, 1]),
    st.sampled_from([0, TRANSACTIONAL, CONTROL]),
)


@given(version=st.sampled_from(VERSIONS), first=SHAPES, later=st.lists(SHAPES, max_size=4), data=st.data())
def test_a_repeated_request_is_read_as_from_the_start_or_not_at_all(
    version: int, first: Any, later: list[Any], data: st.DataObject
) -> None:
    def request(shape: Any) -> bytes:
        number, partition, size, client_id, acks, attributes = shape
        batch = encode_batch([NewRecord(1_700_000_000_000, None, bytes(size))], attributes=attributes)
        return frame(version, {(topic(version, number), partition): batch}, client_id=client_id, acks=acks)

    found = read(start := request((*first[:5], 0)))
    assert isinstance(found, Joinable)
    repeated = RepeatedRequest.of(memoryview(start), found)
    assert repeated is not None
    for shape in (first, *later):
        whole = request(shape)
        again = repeated.read(memoryview(whole))
        if again is not None:
            assert again == read(whole)
        like = (shape[0], *shape[3:5]) == (first[0], *first[3:5])
        assert again is None if not like else again is not None or shape[2] in range(55, 65) or shape[2] > 16_000
        damaged = bytearray(whole)
        at = data.draw(st.integers(4, len(damaged) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
        again = repeated.read(memoryview(damaged))
        if again is not None:
            assert again == read(bytes(damaged))
        shorter = whole[: data.draw(st.integers(12, len(whole) - 1))]
        assert repeated.read(memoryview(shorter)) in (None, WhyAlone.UNUSUAL)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_several_batches_is_no_model(version: int) -> None:
    data = frame(version, {(topic(version), 0): ONE, (topic(version), 1): ONE})
    assert RepeatedRequest.of(memoryview(data), joinable(data)) is None
