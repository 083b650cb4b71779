"""The tap gives the rows that an independent decoder gives for the same frames, however they are cut or damaged."""

from __future__ import annotations

import gzip
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.capture.index.columns import Direction, Handling, Kind
from shoal.protocol.capture.index.pending import BatchSource, FetchOutcome, RequestAnnotation, Treatment
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.stream import MAX_PIECE
from shoal.protocol.capture.index.tap import Tap
from shoal.protocol.messages.produce import (
    encode_partition_error,
    encode_produce_response,
    read_produce_request,
)
from shoal.protocol.mirror_topics.probe import PROBE_BATCH
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.wire.compression import Codec, stated_size
from tests.support.captures.readable import IDS, Kept, in_chunks, new_tap
from tests.support.kafka_python import memory_records
from tests.support.kio_messages import Case, for_any, request_frame, response_frame, topic_key

if TYPE_CHECKING:
    from collections.abc import Sequence


SIZE = Struct(">i")
CHUNKS = st.lists(st.integers(1, 20) | st.integers(1, 3000) | st.integers(3000, 100_000), max_size=30)


def a_batch(first: int, count: int, codec: Codec, *, size: int = 40) -> bytes:
    records = [NewRecord(1_700_000_000_000 + at, None, bytes([at % 251]) * size) for at in range(count)]
    return encode_batch(records, base_offset=first, codec=codec, producer_id=9, producer_epoch=1, base_sequence=first)


ONE_OF_EACH = b"".join(a_batch(100 + 10 * at, 3 + at, codec) for at, codec in enumerate(Codec))
LARGE = b"".join(a_batch(1000 * at, 900, codec, size=100) for at, codec in enumerate(Codec))
LEGACY = (7).to_bytes(8) + (22).to_bytes(4) + bytes(4) + b"\1\2" + bytes(16)
SETS = [
    None,
    b"",
    ONE_OF_EACH,
    LARGE,
    ONE_OF_EACH[:-1],
    ONE_OF_EACH[:70],
    bytes(11),
    b"?" * 30,
    ONE_OF_EACH + bytes(17),
]


def with_sets(entity: Any, field: str, data: st.DataObject) -> Any:
    """The same message with record sets that are valid batches, or nearly."""

    def filled(topic: Any) -> Any:
        parts = f"{field}s" if field == "partition" else field
        inside = (replace(one, records=data.draw(st.sampled_from(SETS))) for one in getattr(topic, parts))
        return replace(topic, **{parts: tuple(inside)})

    outer = "responses" if field == "partition" else "topic_data"
    return replace(entity, **{outer: tuple(map(filled, getattr(entity, outer)))})


def shown_topic(topic: str | bytes) -> str | None:
    return (IDS.get(topic) or topic.hex()) if isinstance(topic, bytes) else topic or None


def decoded(record_set: bytes | None) -> list[tuple[Any, ...]]:
    """The batches of a record set, according to kafka-python."""
    found, rest, pos = [], memory_records.MemoryRecords(record_set or b""), 0
    while record_set and (batch := next_batch(rest)) is not None:
        size = SIZE.unpack_from(record_set, pos + 8)[0] + 12
        raw = stated_size(Codec(batch.compression_type), record_set[pos + 61 : pos + size])
        found.append(
            (
                batch.base_offset,
                size,
                batch.compression_type,
                batch.first_timestamp,
                batch.max_timestamp,
                batch.producer_id,
                batch.base_sequence,
                batch.last_offset_delta + 1,
                -1 if raw is None else raw,
            )
        )
        pos += size
    return found


def next_batch(rest: Any) -> Any:
    try:
        batch = rest.next_batch()
    except Exception:  # it raises on any damage, which ends the record set for us, too
        return None
    return batch if batch is not None and batch.magic == 2 else None


def of_row(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["base_offset"],
        row["batch_length"] + 12,
        row["attributes"] & 7,
        row["base_timestamp"],
        row["max_timestamp"],
        row["producer_id"],
        row["base_sequence"],
        row["record_count"],
        row["raw_bytes"],
    )


def passed(sent: bytes, received: bytes, sent_in: Sequence[int] = (), received_in: Sequence[int] = ()) -> Kept:
    tap, kept = new_tap()
    for chunk in in_chunks(sent, sent_in):
        tap.sent(chunk, 1_000)
        assert len(tap._requests._carry) <= MAX_PIECE
    for chunk in in_chunks(received, received_in):
        tap.received(chunk, 1_500)
        assert len(tap._answers._carry) <= MAX_PIECE
    tap.close()
    assert not tap.lost
    return kept


def fetch_request(version: int, correlation_id: int) -> bytes:
    """Only its header is read."""
    head = (1).to_bytes(2) + version.to_bytes(2) + correlation_id.to_bytes(4) + b"\0\6reader" + bytes(20)
    return SIZE.pack(len(head)) + head


@for_any("FetchResponse", oldest=4, examples=20)
def test_fetch_answers(case: Case, entity: Any, data: st.DataObject) -> None:
    entity = with_sets(entity, "partition", data)
    frame = response_frame(entity)
    request = fetch_request(case.version, int.from_bytes(frame[4:8]))
    kept = passed(request, frame, received_in=data.draw(CHUNKS))
    expected = [
        (shown_topic(topic_key(topic)), partition.partition_index, int(partition.error_code), batch)
        for topic in entity.responses
        for partition in topic.partitions
        for batch in decoded(partition.records)
    ]
    rows = kept.rows
    batches = [row for row in rows if row["kind"] is Kind.BATCH]
    assert [(r["topic"], r["partition"], r["error"], of_row(r)) for r in batches] == expected
    assert len(rows) == max(len(expected), 1)
    for row in rows:
        assert (row["client"], row["api_key"], row["api_version"]) == ("reader", 1, case.version)
        assert (row["direction"], row["latency_ns"], row["time_ns"]) == (Direction.FETCHED, 500, 1_500)
        assert (row["request_bytes"], row["response_bytes"]) == (len(request), len(frame))
        assert (row["connection"], row["listener"], row["cluster"], row["node"]) == (7, "here", "there", 3)
        assert row["log_offset"] == (row["base_offset"] if row["kind"] is Kind.BATCH else -1)
    assert kept.raw == passed(request, frame).raw


def produced_answer(frame: bytes, version: int, offset: int) -> bytes:
    """All of it was appended, each partition's at `offset`."""
    topics: dict[str | bytes, list[bytearray]] = {}
    for partition in read_produce_request(frame, version).partitions:
        part = bytearray(encode_partition_error(version, partition.partition, 0))
        part[6:14] = offset.to_bytes(8)
        topics.setdefault(partition.topic, []).append(part)
    return b"".join(encode_produce_response(version, int.from_bytes(frame[8:12]), list(topics.items()), throttle_ms=11))


@for_any("ProduceRequest", oldest=3, examples=20)
def test_produce_requests(case: Case, entity: Any, data: st.DataObject) -> None:
    entity = with_sets(entity, "partition_data", data)
    frame = request_frame(entity, client_id="maker")
    answer = produced_answer(frame, case.version, 5000) if entity.acks else b""
    kept = passed(frame, answer, data.draw(CHUNKS), data.draw(CHUNKS))
    expected = [
        (shown_topic(topic_key(topic)), one.index, batch)
        for topic in entity.topic_data
        for one in topic.partition_data
        for batch in decoded(one.records)
    ]
    rows = kept.rows
    batches = [row for row in rows if row["kind"] is Kind.BATCH]
    assert [(row["topic"], row["partition"], of_row(row)) for row in batches] == expected
    assert len(rows) == max(len(expected), 1)
    for row in rows:
        assert (row["client"], row["acks"], row["direction"]) == ("maker", entity.acks, Direction.PRODUCED)
        assert (row["time_ns"], row["latency_ns"]) == (1_000, 500 if entity.acks else -1)
    if entity.acks:
        assert all((row["error"], row["throttle_ms"]) == (0, 11) for row in batches)
        assert {row["log_offset"] for row in batches} <= set(range(5000, 20_000))
    else:
        assert all((row["error"], row["log_offset"]) == (-32768, -1) for row in batches)
    assert kept.raw == passed(frame, answer).raw


def simple_answer(correlation_id: int, body: bytes = b"") -> bytes:
    return SIZE.pack(4 + len(body)) + correlation_id.to_bytes(4) + body


def simple_request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    head = key.to_bytes(2) + version.to_bytes(2) + correlation_id.to_bytes(4) + b"\0\4name"
    return SIZE.pack(len(head) + len(body)) + head + body


def fetch_answer(correlation_id: int, *sets: bytes) -> bytes:
    """v4: one topic, a partition for each record set."""
    parts = b"".join(
        at.to_bytes(4) + bytes(2) + bytes(16) + bytes(4) + len(one).to_bytes(4) + one for at, one in enumerate(sets)
    )
    return simple_answer(correlation_id, bytes(4) + b"\0\0\0\1\0\1t" + len(sets).to_bytes(4) + parts)


@given(data=st.data(), version=st.integers(0, 19), key=st.sampled_from([0, 1, 3]))
@settings(deadline=None)
def test_hostile_bytes_are_passed_over(data: st.DataObject, version: int, key: int) -> None:
    tap, _ = new_tap()
    good = fetch_answer(5, ONE_OF_EACH, LARGE[:3000])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(good) - 1))
        good = good[:at] + data.draw(st.binary(max_size=6)) + good[at + data.draw(st.integers(0, 6)) :]
    sent = simple_request(key, version, 5, data.draw(st.binary(max_size=60) | st.just(good[20:])))
    for chunk in in_chunks(sent + data.draw(st.binary(max_size=50)), data.draw(CHUNKS)):
        tap.sent(chunk, 1)
        assert len(tap._requests._carry) <= MAX_PIECE
    for chunk in in_chunks(good + data.draw(st.binary(max_size=50)), data.draw(CHUNKS)):
        tap.received(chunk, 1)
        assert len(tap._answers._carry) <= MAX_PIECE
    tap.close()


def test_requests_without_records_make_one_row_with_their_answer() -> None:
    api_versions = simple_request(18, 3, 1, b"\0\7client\0041.2\0")
    kept = passed(
        api_versions + simple_request(3, 12, 2) + simple_request(99, 0, 3), simple_answer(1, b"x") + simple_answer(2)
    )
    rows = kept.rows
    assert [(row["request"], row["api_key"], row["latency_ns"], row["response_bytes"]) for row in rows] == [
        (1, 18, 500, 9),
        (2, 3, 500, 8),
        (3, 99, -1, -1),
    ]
    assert {row["software"] for row in rows} == {"client/1.2"}
    assert all((row["kind"], row["direction"]) == (Kind.REQUEST, Direction.OTHER) for row in rows)


def test_tokens_of_an_old_handshake_are_no_requests() -> None:
    tap, kept = new_tap()
    tap.sent(memoryview(simple_request(17, 0, 1)), 1)
    tap.received(memoryview(simple_answer(1)), 2)
    tap.expect_tokens(1)
    tap.sent(memoryview(SIZE.pack(3) + b"abc"), 3)
    tap.received(memoryview(SIZE.pack(0)), 4)
    tap.sent(memoryview(simple_request(3, 12, 2)), 5)
    tap.received(memoryview(simple_answer(2)), 7)
    assert [(row["api_key"], row["latency_ns"]) for row in kept.rows] == [(17, 1), (3, 2)]
    assert not tap.lost


def test_old_messages_of_one_record_set_make_one_row() -> None:
    kept = passed(simple_request(1, 4, 1), fetch_answer(1, LEGACY + LEGACY + ONE_OF_EACH[:80]))
    (row,) = kept.rows
    assert (row["magic"], row["attributes"], row["batch_length"], row["log_offset"]) == (1, 2, 2 * 34 - 12, 7)
    assert (row["record_count"], row["raw_bytes"], row["max_timestamp"], row["producer_id"]) == (0, -1, -1, -1)


def test_a_judged_answer_waits_for_its_verdict() -> None:
    tap, kept = new_tap()
    tap.note(1, RequestAnnotation(judged=True))
    tap.sent(memoryview(simple_request(1, 4, 1)), 1)
    three = b"".join(a_batch(first, 10, Codec.NONE) for first in (0, 10, 20))
    tap.received(memoryview(fetch_answer(1, three, ONE_OF_EACH, ONE_OF_EACH)), 2)
    assert not kept.raw
    verdicts: dict[tuple[str | bytes, int], FetchOutcome] = {
        ("t", 0): FetchOutcome(wrapped=[(0, 19)], reason="small"),
        ("t", 1): FetchOutcome(given_below=0),
    }
    tap.judge(1, verdicts, FetchOutcome(reason="unknown"))
    rows = kept.rows
    assert [(row["partition"], row["log_offset"], row["handling"], row["reason"]) for row in rows[:3]] == [
        (0, 0, Handling.WRAPPED, None),
        (0, 10, Handling.WRAPPED, None),
        (0, 20, Handling.RAW, "small"),
    ]
    assert {(row["partition"], row["handling"], row["reason"]) for row in rows[3:]} == {(2, Handling.RAW, "unknown")}
    tap.judge(1, {})
    assert len(kept.raw) == len(rows)


def test_aborted_batches_are_named_also_within_an_envelope() -> None:
    tap, kept = new_tap()
    tap.note(1, RequestAnnotation(judged=True))
    tap.sent(memoryview(simple_request(1, 4, 1)), 1)
    four = b"".join(a_batch(first, 10, Codec.NONE) for first in (0, 10, 20, 30))
    tap.received(memoryview(fetch_answer(1, four)), 2)
    tap.judge(1, {("t", 0): FetchOutcome(wrapped=[(0, 29)], aborted={10, 30}, reason="known")})
    assert {row["log_offset"]: row["handling"] for row in kept.rows} == {
        0: Handling.WRAPPED,
        10: Handling.ABORTED,
        20: Handling.WRAPPED,
        30: Handling.ABORTED,
    }
    assert {row["reason"] for row in kept.rows} == {None}


def test_what_is_behind_the_last_batch_that_was_given_makes_no_row() -> None:
    """It is fetched again, and would be counted twice."""
    tap, kept = new_tap()
    tap.note(1, RequestAnnotation(judged=True))
    tap.sent(memoryview(simple_request(1, 4, 1)), 1)
    three = b"".join(a_batch(first, 10, Codec.NONE) for first in (0, 10, 20))
    tap.received(memoryview(fetch_answer(1, three)), 2)
    tap.judge(1, {("t", 0): FetchOutcome(reason="evidence", given_below=20)})
    assert [row["log_offset"] for row in kept.rows] == [0, 10]


def test_a_verdict_may_come_before_the_end_of_a_long_answer() -> None:
    tap, kept = new_tap()
    tap.note(1, RequestAnnotation(judged=True))
    tap.sent(memoryview(simple_request(1, 4, 1)), 1)
    answer = memoryview(fetch_answer(1, LARGE))
    tap.received(answer[:5000], 2)
    tap.judge(1, {}, FetchOutcome(reason="large"))
    tap.received(answer[5000:], 2)
    assert {(row["handling"], row["reason"]) for row in kept.rows} == {(Handling.RAW, "large")}
    assert len(kept.raw) == len(Codec)


def produced(tap: Tap, record_set: bytes, base_offset: int, error: int = 0) -> None:
    """A request 8 with acks -1 for partition 0 of topic t, and its answer."""
    body = b"\xff\xff" + (-1).to_bytes(2, signed=True) + bytes(4) + b"\0\0\0\1\0\1t\0\0\0\1" + bytes(4)
    tap.sent(memoryview(simple_request(0, 3, 8, body + len(record_set).to_bytes(4) + record_set)), 1)
    part = bytearray(encode_partition_error(3, 0, error))
    part[6:14] = base_offset.to_bytes(8, signed=True)
    tap.received(memoryview(b"".join(encode_produce_response(3, 8, [("t", [part])], throttle_ms=0))), 3)


def fenced(first: int, count: int, gap: int = 0) -> bytes:
    batch = bytearray(a_batch(first, count, Codec.NONE))
    batch[12:16] = (-2 - gap).to_bytes(4, signed=True)
    return bytes(batch)


@pytest.mark.parametrize("moved", [0, 7])
def test_batches_of_a_mirror_topic_have_their_gaps_at_the_target(moved: int) -> None:
    """The broker says where the first one is. A set may have gaps, and empty batches over them."""
    tap, kept = new_tap()
    offsets = [(100, 109), None, (130, 139), (145, 154)]
    made = [one and BatchSource("from", 0, *one, handling=Handling.FENCED) for one in offsets]
    tap.note(8, RequestAnnotation(sources={("t", 0): made}))
    empty = encode_batch((), base_offset=110, leader_epoch=-2, last_offset_delta=19)
    produced(tap, fenced(100, 10) + empty + fenced(130, 10) + fenced(145, 10, gap=5), 100 + moved)
    rows = [row for row in kept.rows if row["handling"] is Handling.FENCED]
    assert [row["log_offset"] - moved for row in rows] == [row["source_first"] for row in rows] == [100, 130, 145]
    assert [row["record_count"] for row in kept.rows if row["handling"] is not Handling.FENCED] == [0]


def test_refused_batches_of_a_mirror_topic_are_nowhere() -> None:
    tap, kept = new_tap()
    made = [BatchSource("from", 0, first, first + 9, handling=Handling.FENCED) for first in (0, 10)]
    tap.note(8, RequestAnnotation(sources={("t", 0): made}))
    produced(tap, fenced(0, 10) + fenced(10, 10), -1, error=45)
    assert [(row["log_offset"], row["error"]) for row in kept.rows] == [(-1, 45)] * 2


def test_a_probe_names_the_source_of_its_mirror_topic() -> None:
    tap, kept = new_tap()
    sources: dict[tuple[str | bytes, int], list[BatchSource | None]] = {
        ("t", 0): [BatchSource("from", 3, -1, -1, handling=Handling.OWN)]
    }
    tap.note(8, RequestAnnotation(treatment=Treatment(handling=Handling.OWN), sources=sources))
    produced(tap, PROBE_BATCH, 640)
    (row,) = kept.rows
    assert (row["handling"], row["source_topic"], row["source_partition"]) == (Handling.OWN, "from", 3)
    assert (row["log_offset"], row["record_count"], row["source_first"]) == (640, 0, -1)


def test_unwrapped_batches_have_their_source() -> None:
    tap, kept = new_tap()
    sources: dict[tuple[str | bytes, int], list[BatchSource | None]] = {
        ("t", 0): [BatchSource("from", 4, 70, 79), None, BatchSource("from", 4, 80, 89, "what is wrong with it")]
    }
    tap.note(8, RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason="plain"), sources=sources))
    produced(tap, b"".join(a_batch(0, 10, Codec.NONE) for _ in range(3)), 500)
    found = [
        (
            row["log_offset"],
            row["handling"],
            row["reason"],
            row["source_topic"],
            row["source_first"],
            row["source_last"],
        )
        for row in kept.rows
    ]
    assert found == [
        (500, Handling.UNWRAPPED, None, "from", 70, 79),
        (510, Handling.RAW, "plain", None, -1, -1),
        (520, Handling.UNWRAPPED, "what is wrong with it", "from", 80, 89),
    ]


def test_what_waits_for_answers_is_bounded() -> None:
    tap, kept = new_tap(most_waiting=6)
    for correlation_id in (1, 2):
        tap.note(correlation_id, RequestAnnotation(judged=True))
        tap.sent(memoryview(simple_request(1, 4, correlation_id)), 1)
        tap.received(memoryview(fetch_answer(correlation_id, ONE_OF_EACH)), 1)
    assert kept.dropped == len(Codec)
    tap.judge(1, {})
    tap.judge(2, {})
    assert sum(row["kind"] is Kind.BATCH for row in kept.rows) == len(Codec)


def test_a_gzip_batch_says_its_size_at_its_end_only() -> None:
    batch = a_batch(0, 100, Codec.GZIP)
    (row,) = passed(simple_request(1, 4, 1), fetch_answer(1, batch)).rows
    assert row["raw_bytes"] == len(gzip.decompress(batch[61:]))


@pytest.mark.parametrize("codec", Codec)
def test_a_sample_of_batches_is_looked_into_for_keys(codec: Codec) -> None:
    kept = Kept()
    tap = Tap(ConnectionInfo(connection=1, listener="l", cluster="c"), kept, KeySampler(1))
    with_keys = encode_batch([NewRecord(5, b"key", b"value")] * 20, codec=codec)
    without = encode_batch([NewRecord(5, None, b"value")] * 20, codec=codec)
    tap.sent(memoryview(simple_request(1, 4, 1)), 1)
    tap.received(memoryview(fetch_answer(1, with_keys + without + with_keys, without)), 1)
    assert [row["has_keys"] for row in kept.rows] == [1, 0, 1, 0]


@pytest.mark.parametrize("size", [-5, -(1 << 31), 3])
def test_an_answer_of_no_possible_size_ends_the_look_at_it(size: int) -> None:
    tap, kept = new_tap()
    tap.sent(memoryview(simple_request(0xFFFF, 0, 1)), 1)
    tap.received(memoryview(SIZE.pack(size) + (1).to_bytes(4) + bytes(300)), 1)
    tap.received(memoryview(bytes(300)), 1)
    assert (tap.lost, tap.unread) == (True, 1)
    tap.close()
    assert not kept.raw
