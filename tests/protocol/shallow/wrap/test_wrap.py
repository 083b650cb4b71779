from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import CONTROL, TRANSACTIONAL, NewRecord, encode_batch, open_batch, read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, tag_headers
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.shallow.wrap.wrap import Wrapped, delivered
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer, crc32c
from tests.protocol.shallow.strategies import record_sets
from tests.support import kafka_python
from tests.support.batches import damaged
from tests.support.shallow.world import context, flat, poll, some_batch
from tests.support.shallow.wrapping import next_offset, wrap_record_set

LOG = b"".join(some_batch(base, 10) for base in range(100, 160, 10))


def wrapped(record_set: bytes, **changes: object) -> Wrapped:
    return wrap_record_set(record_set, 0, len(record_set), context(**changes))


def opened(parts: Sequence[Buffer]) -> list[tuple[EnvelopeKey | None, bytes]]:
    """What is in a wrapped record set: values of envelopes, and raw batches."""
    record_set, found = flat(parts), list[tuple[EnvelopeKey | None, bytes]]()
    for span in split(record_set, 0, len(record_set)).spans:
        raw = record_set[span.start : span.end]
        header, records = open_batch(raw, 0, len(raw), limit=1 << 30)
        first = next(iter(records), None)
        key = decode_key(first.key) if first and first.key is not None else None
        if key is None:
            found.append((None, raw))
        else:
            assert header.record_count == 1
            assert first is not None
            assert first.value is not None
            found.append((key, bytes(first.value)))
    return found


# For any log


@given(record_sets(), st.integers(0, 120), st.booleans(), st.sampled_from([2000, 1 << 19]), st.booleans())
def test_every_byte_stays_in_its_place(
    log: bytes, fetch_offset: int, read_committed: bool, run_limit: int, first_raw: bool
) -> None:
    result = wrapped(
        log, fetch_offset=fetch_offset, read_committed=read_committed, run_limit=run_limit, first_raw=first_raw
    )
    if result.parts is None:
        assert not result.envelopes
        return
    assert b"".join(value for _, value in opened(result.parts)) == log
    assert [key for key, _ in opened(result.parts) if key] == list(result.envelopes)


@given(record_sets(), st.integers(0, 120))
def test_positions_are_those_of_the_log(log: bytes, fetch_offset: int) -> None:
    result = wrapped(log, fetch_offset=fetch_offset)
    spans = split(log, 0, len(log)).spans
    ends = [read_batch_header(log, span.start, span.end).last_offset + 1 for span in spans]
    assert result.next_offset == max([fetch_offset, *ends])
    if result.parts:
        given_offsets = [seen.offset for seen in poll(flat(result.parts))]
        assert given_offsets == sorted(set(given_offsets))
        assert set(given_offsets) <= {seen.offset for seen in poll(log)}
        assert all(key.first_offset >= fetch_offset for key in result.envelopes)


@given(record_sets(), st.integers(0, 120))
def test_all_is_counted(log: bytes, fetch_offset: int) -> None:
    result = wrapped(log, fetch_offset=fetch_offset)
    spans = split(log, 0, len(log)).spans
    assert result.wrapped_batches + sum(result.raw.values()) == len(spans)
    assert result.wrapped_bytes == sum(key.payload for key in result.envelopes)
    assert result.wrapped_records == sum(key.records for key in result.envelopes)
    assert result.wrapped_batches == sum(key.batches for key in result.envelopes)


@given(record_sets(), st.integers(0, 120))
def test_raw_next_is_after_the_last_raw_record(log: bytes, fetch_offset: int) -> None:
    result = wrapped(log, fetch_offset=fetch_offset)
    raw = [value for key, value in opened(result.parts) if not key] if result.parts else [log]
    seen = poll(b"".join(raw))
    if seen:
        assert result.raw_next is not None
        assert result.raw_next > seen[-1].offset
        assert result.raw_next <= result.next_offset


@given(st.binary(max_size=300) | record_sets().map(lambda log: log[7:]), st.integers(0, 120))
def test_rubbish_stays_raw_or_is_cut_at_its_tail(log: bytes, fetch_offset: int) -> None:
    result = wrapped(log, fetch_offset=fetch_offset)
    if result.parts is not None:
        assert log.startswith(b"".join(value for _, value in opened(result.parts)))


@given(record_sets(kinds=("dense",)).filter(bool), st.data())
def test_damaged_batches_are_never_wrapped(log: bytes, data: st.DataObject) -> None:
    spans = split(log, 0, len(log)).spans
    hit = data.draw(st.sampled_from(spans))
    broken = damaged(log, data.draw(st.integers(hit.start + 21, hit.end - 1)))
    result = wrapped(broken)
    assert all(not key.first_offset <= hit.base_offset <= key.last_offset for key in result.envelopes)


# One run


def test_a_run_becomes_one_record() -> None:
    result = wrapped(LOG, fetch_offset=100)
    ((key, value),) = opened(result.parts or [])
    assert value == LOG
    assert key == EnvelopeKey(
        cluster="source-cluster",
        topic="orders",
        partition=3,
        first_offset=100,
        last_offset=159,
        batches=6,
        records=60,
        payload=len(LOG),
        payload_crc=crc32c(LOG),
        flow=0xF10F,
        serial=1000,
    )


def test_the_payload_is_not_copied() -> None:
    result = wrapped(LOG)
    views = [part for part in result.parts or [] if isinstance(part, memoryview)]
    assert [view.obj is LOG and len(view) for view in views] == [len(LOG)]


def test_the_synthetic_batch_looks_like_the_end_of_the_run() -> None:
    log = some_batch(0, leader_epoch=4) + some_batch(5000, leader_epoch=7, producer_id=1, producer_epoch=1)
    batch = flat(wrapped(log).parts or [])
    header = read_batch_header(batch, 0, len(batch))
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (5002, 0, 1)
    assert header.base_timestamp == header.max_timestamp == 6002
    assert (header.partition_leader_epoch, header.attributes) == (7, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_another_client_reads_the_synthetic_batch() -> None:
    batch = flat(wrapped(LOG, tags=tag_headers({"site": "A"})).parts or [])
    outer = kafka_python.memory_records.MemoryRecords(batch).next_batch()
    assert outer.validate_crc()
    (record,) = list(outer)
    assert (record.offset, record.timestamp, record.value) == (159, 1159, LOG)
    assert dict(record.headers) == {
        "shoal.batches": b"6",
        "shoal.records": b"60",
        "shoal.compressed-bytes": str(len(LOG) - 6 * 61).encode(),
        "shoal.raw-bytes": dict(record.headers)["shoal.raw-bytes"],
        "shoal.codec": b"zstd",
        "shoal.min-timestamp": b"1100",
        "shoal.max-timestamp": b"1159",
        "shoal.tag.site": b"A",
    }


@pytest.mark.parametrize(("codec", "stated"), [(Codec.NONE, True), (Codec.SNAPPY, True), (Codec.LZ4, False)])
def test_raw_bytes_are_stated_where_the_codec_states_them(codec: Codec, stated: bool) -> None:
    log = some_batch(0, 10, codec) + some_batch(10, 10, codec)
    plain = some_batch(0, 10, Codec.NONE) + some_batch(10, 10, Codec.NONE)
    _, records = open_batch(flat(wrapped(log).parts or []), 0, len(flat(wrapped(log).parts or [])), limit=1 << 20)
    described = {bytes(name): value for name, value in next(records).headers}
    assert described.get(b"shoal.raw-bytes") == (str(len(plain) - 2 * 61).encode() if stated else None)


# Runs end


@pytest.mark.parametrize("run_limit", [2000, 4000, 6000])
def test_no_synthetic_batch_exceeds_the_run_limit(run_limit: int) -> None:
    log = b"".join(some_batch(base, 20, Codec.NONE) for base in range(0, 400, 20))
    result = wrapped(log, run_limit=run_limit, topic="t" * 200, tags=tag_headers({"a": "b" * 200}))
    record_set = flat(result.parts or [log])
    sizes = [span.end - span.start for span in split(record_set, 0, len(record_set)).spans]
    if result.parts:
        assert max(sizes) <= run_limit
        assert len(result.envelopes) < 20
    else:
        assert result.raw == {Reason.TOO_LARGE: 20}


def test_raw_batches_split_runs() -> None:
    holes = encode_batch([NewRecord(1, b"k", b"v", (), 0), NewRecord(1, b"k", b"v", (), 5)], base_offset=20)
    log = some_batch(0, 10) + some_batch(10, 10) + holes + some_batch(30, 10)
    assert [key and (key.first_offset, key.last_offset) for key, _ in opened(wrapped(log).parts or [])] == [
        (0, 19),
        None,
        (30, 39),
    ]


def test_the_batch_in_which_the_fetch_starts_stays_raw() -> None:
    result = wrapped(LOG, fetch_offset=105)
    assert result.raw == {Reason.INSIDE: 1}
    assert result.envelopes[0].first_offset == 110
    assert result.raw_next == 110


def test_the_first_batch_after_a_seek_stays_raw() -> None:
    result = wrapped(LOG, fetch_offset=100, first_raw=True)
    assert result.raw == {Reason.FIRST: 1}
    assert result.envelopes[0].first_offset == 110


def test_a_batch_that_is_raw_anyway_is_the_first() -> None:
    result = wrapped(LOG, fetch_offset=105, first_raw=True)
    assert result.raw == {Reason.INSIDE: 1}


def test_a_control_batch_is_not_the_first() -> None:
    marker = encode_batch([NewRecord(5, b"\0" * 4, b"\0" * 6)], base_offset=99, attributes=CONTROL | TRANSACTIONAL)
    result = wrapped(marker + LOG, first_raw=True)
    assert result.raw == {Reason.CONTROL: 1, Reason.FIRST: 1}


def test_small_batches_are_left_to_the_mirror() -> None:
    size = len(LOG) // 6
    assert wrapped(LOG, min_batch_bytes=size).envelopes
    result = wrapped(LOG, min_batch_bytes=size + 2)
    assert result.parts is None
    assert result.raw == {Reason.SMALL: 6}
    assert result.raw_next == result.next_offset == 160


def test_a_bad_crc_is_left_to_the_mirror() -> None:
    result = wrapped(damaged(LOG, len(LOG) - 1))
    assert result.raw == {Reason.BAD_CRC: 1}
    assert result.envelopes[0].last_offset == 149


def test_a_truncated_tail_is_dropped_since_the_consumer_would() -> None:
    log = LOG + some_batch(160)[:-1]
    result = wrapped(log)
    assert opened(result.parts or []) == opened(wrapped(LOG).parts or [])
    assert result.next_offset == 160


def test_a_set_that_is_only_a_tail_stays() -> None:
    tail = some_batch(0)[:-1]
    assert wrapped(tail, fetch_offset=7).parts is None
    assert wrapped(tail, fetch_offset=7).next_offset == 7


def test_old_messages_stay_raw() -> None:
    message = bytes.fromhex("00000000000000630000000e") + bytes(14)
    result = wrapped(message + LOG)
    assert result.raw == {Reason.OLD_MAGIC: 1}
    assert result.envelopes


def test_offsets_that_go_back_are_damage() -> None:
    result = wrapped(some_batch(10) + some_batch(5))
    assert result.raw == {Reason.DAMAGED: 1}
    assert (result.parts, result.next_offset, result.raw_next) == (None, -1, None)


# Transactions


def runs(log: bytes, **changes: object) -> list[tuple[int, int]]:
    return [(key.first_offset, key.last_offset) for key in wrapped(log, **changes).envelopes]


def of(base: int, producer_id: int, *, transactional: bool = True, epoch: int = 0) -> bytes:
    bits = TRANSACTIONAL if transactional else 0
    return some_batch(base, attributes=bits, producer_id=producer_id, producer_epoch=epoch, base_sequence=base)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (of(0, 1) + of(3, 1), [(0, 5)]),
        (of(0, 1) + of(3, 2), [(0, 2), (3, 5)]),
        (of(0, 1) + of(3, 1, epoch=1), [(0, 2), (3, 5)]),
        (of(0, 1) + of(3, 1, transactional=False), [(0, 2), (3, 5)]),
        (of(0, 1) + of(4, 1), [(0, 2), (4, 6)]),  # a marker may have been there
        (of(0, 1, transactional=False) + of(4, 2, transactional=False), [(0, 6)]),
    ],
)
def test_a_reader_of_committed_data_gets_no_mixed_runs(log: bytes, expected: list[tuple[int, int]]) -> None:
    assert runs(log, read_committed=True) == expected
    assert runs(log, read_committed=False) == [(expected[0][0], expected[-1][1])]


def test_it_can_still_tell_aborted_data() -> None:
    batch = flat(wrapped(of(0, 7, epoch=3) + of(3, 7, epoch=3), read_committed=True).parts or [])
    header = read_batch_header(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.attributes) == (7, 3, TRANSACTIONAL)
    batch = flat(wrapped(of(0, 7)).parts or [])
    header = read_batch_header(batch, 0, len(batch))
    assert (header.producer_id, header.attributes) == (-1, 0)


def test_non_transactional_runs_have_no_producer() -> None:
    batch = flat(wrapped(of(0, 7, transactional=False), read_committed=True).parts or [])
    assert read_batch_header(batch, 0, len(batch)).producer_id == -1


# Mirrors that hash keys


def test_the_key_chooses_the_source_partition() -> None:
    batch = flat(wrapped(LOG, partitions=12).parts or [])
    _, records = open_batch(batch, 0, len(batch), limit=1 << 20)
    key = next(records).key
    assert key is not None
    assert (kafka_python.murmur2(bytes(key)) & 0x7FFFFFFF) % 12 == 3


# Unwrapped


@given(record_sets(), st.integers(0, 120))
def test_next_offset_of_an_unchanged_set(log: bytes, fetch_offset: int) -> None:
    assert (
        max(fetch_offset, next_offset(log, 0, len(log), fetch_offset))
        == wrapped(log, fetch_offset=fetch_offset).next_offset
    )


def test_next_offset_of_an_unreadable_set() -> None:
    assert next_offset(bytes(40), 0, 40, 5) == -1


# Readers of committed data


def committed(producer: int, base: int) -> bytes:
    return some_batch(base, 2, producer_id=producer, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)


def marker(producer: int, base: int) -> bytes:
    """An abort marker."""
    record = NewRecord(1, b"\0\0\0\0", b"\0" * 6)
    return encode_batch(
        [record], base_offset=base, producer_id=producer, producer_epoch=0, attributes=TRANSACTIONAL | CONTROL
    )


def test_envelopes_that_the_consumer_drops_are_not_waited_for() -> None:
    """An aborted transaction is dropped up to its marker; the same producer's next transaction, and others, are
    delivered."""
    log = committed(5, 0) + committed(6, 2) + marker(5, 4) + committed(5, 5) + some_batch(7)
    result = wrapped(log, read_committed=True)
    assert [key.first_offset for key in result.envelopes] == [0, 2, 5, 7]
    waited = delivered(log, scan(log, 0, len(log)), result.envelopes, [(5, 0)])
    assert [key.first_offset for key in waited] == [2, 5, 7]
    assert delivered(log, scan(log, 0, len(log)), result.envelopes, ()) == result.envelopes
    later = delivered(log, scan(log, 0, len(log)), result.envelopes, [(6, 0), (5, 5)])
    assert [key.first_offset for key in later] == [0, 7]


def test_of_what_cannot_be_read_all_is_waited_for() -> None:
    result = wrapped(committed(5, 0), read_committed=True)
    assert tuple(delivered(bytes(100), scan(bytes(100), 0, 100), result.envelopes, [(9, 0)])) == result.envelopes
