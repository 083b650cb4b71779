from collections.abc import Sequence
from dataclasses import replace
from struct import pack_into

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    NewRecord,
    encode_batch,
    producible_header,
)
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.envelope import MAGIC, decode_key, encode_key
from shoal.protocol.shallow.token import TOKEN_BYTES, token_header
from shoal.protocol.shallow.unwrap.plan import Missing, OutgoingBatch, Plan, Refused, Stripped
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.error_codes import ErrorCode
from tests.protocol.shallow.strategies import log_records, record_sets
from tests.support.batches import consumed, damaged
from tests.support.shallow.world import Broker, Seen, context, flat, plain, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set
from tests.support.strategies import codecs

LOG = some_batch(100, 4) + some_batch(104, 6, producer_id=9, producer_epoch=1, base_sequence=3)
PLAIN = NewRecord(77, b"plain", None, ((b"h", None), (b"h", b"")))
LOOK_ALIKE = NewRecord(78, MAGIC + b"not ours", b"x")


def mirrored(log: bytes, **changes: object) -> list[Seen]:
    """The records that the application in the mirror gets."""
    result = wrap_record_set(log, 0, len(log), context(**changes))
    return poll(flat(result.parts) if result.parts else log)


def planned(outer: bytes | bytearray, plain_codec: Codec | None = None) -> Plan | Stripped | Refused | None:
    plan = plan_record_set(outer, 0, len(outer), plain_codec=plain_codec)
    assert not isinstance(plan, Missing)
    return None if isinstance(plan, BatchHeader) else plan


def plan_of(outer: bytes | bytearray, plain_codec: Codec | None = None) -> Plan:
    plan = planned(outer, plain_codec)
    assert isinstance(plan, Plan)
    return plan


def refused(outer: bytes) -> Refused:
    plan = planned(outer)
    assert isinstance(plan, Refused)
    return plan


def batches(plan: Plan) -> list[OutgoingBatch]:
    return [batch for item in plan.items for batch in item.batches]


def appended(plan: Plan) -> list[NewRecord]:
    broker = Broker()
    for batch in batches(plan):
        assert broker.produce(batch)[0] == 0
    return broker.log


def spans(log: bytes) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in split(log, 0, len(log)).spans]


def envelope(log: bytes = LOG) -> NewRecord:
    (seen,) = mirrored(log)
    return seen.record


def outer_of(*records: NewRecord, **options: int) -> bytes:
    return encode_batch(records, **options)  # type: ignore[arg-type]


# Through a mirror


@given(record_sets(kinds=("dense", "dense", "transactional")), codecs, st.integers(1, 4))
def test_every_record_comes_out_as_it_went_in(log: bytes, codec: Codec, per_batch: int) -> None:
    seen = mirrored(log, run_limit=1500)
    broker = Broker()
    for at in range(0, len(seen), per_batch):
        outer = produced(seen[at : at + per_batch], codec)
        plan = planned(outer)
        if plan is None:
            broker.log += plain(consumed(outer))
            continue
        assert isinstance(plan, Plan)
        assert plan.outer_records == len(seen[at : at + per_batch])
        broker.log += appended(plan)
    assert broker.log == plain([item.record for item in poll(log)])


@given(record_sets(kinds=("dense",)).filter(bool))
def test_payloads_are_equal(log: bytes) -> None:
    (seen,) = mirrored(log, run_limit=1 << 30)
    sent = batches(plan_of(produced([seen])))
    payloads = [log[at + HEADER_SIZE : end] for at, end in spans(log)]
    assert [flat(batch.buffers)[HEADER_SIZE:] for batch in sent] == payloads


def test_payloads_of_large_batches_are_not_copied() -> None:
    large = [NewRecord(5, None, bytes(20_000))]
    (seen,) = mirrored(encode_batch(large) + encode_batch(large, base_offset=1))
    outer = produced([seen])
    sent = batches(plan_of(outer))
    assert all(isinstance(batch.buffers[1], memoryview) and batch.buffers[1].obj is outer for batch in sent)


def test_tiny_batches_go_out_in_one_piece() -> None:
    log = b"".join(some_batch(base, 3, producer_id=9, base_sequence=base) for base in range(100, 400, 3))
    outer = bytearray(produced(mirrored(log)))
    before = bytes(outer)
    (item,) = plan_of(outer).items
    (piece,) = item.batches.buffers
    assert len(piece) == len(log)
    assert bytes(piece) == b"".join(
        producible_header(log, at, end) + log[at + HEADER_SIZE : end] for at, end in spans(log)
    )
    assert outer == before


@given(st.lists(log_records, max_size=3), st.lists(log_records, max_size=3), codecs, codecs)
def test_plain_records_keep_their_place_and_their_form(
    before: Sequence[NewRecord], after: Sequence[NewRecord], codec: Codec, plain_codec: Codec
) -> None:
    outer = encode_batch([*before, envelope(), *after], codec=codec)
    plan = plan_of(outer, plain_codec=plain_codec)
    assert appended(plan) == [*plain(before), *plain([seen.record for seen in poll(LOG)]), *plain(after)]
    expected = codec or plain_codec
    assert {item.batches[0].codec for item in plan.items if item.key is None} <= {expected}


def test_consecutive_plain_records_are_one_batch() -> None:
    plan = plan_of(outer_of(PLAIN, LOOK_ALIKE, envelope(), PLAIN, envelope(), PLAIN))
    assert [(item.key is None, len(item.batches)) for item in plan.items] == [
        (True, 1),
        (False, 2),
        (True, 1),
        (False, 2),
        (True, 1),
    ]
    assert [batch.records for batch in plan.items[0].batches] == [2]
    assert plan.outer_records == 6


def test_a_sub_batch_says_what_it_is() -> None:
    plan = plan_of(outer_of(envelope()))
    assert str(batches(plan)[1]) == (
        f"source-cluster/orders-3 offsets 104..109, 6 records, zstd, {batches(plan)[1].size} bytes"
    )
    assert [key.last_offset for key in plan.envelopes] == [109]


# Nothing of ours


@given(st.lists(log_records, min_size=1, max_size=5), codecs)
def test_plain_batches_are_untouched(records: list[NewRecord], codec: Codec) -> None:
    assert planned(encode_batch(records, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_look_alikes_are_untouched(codec: Codec) -> None:
    record = NewRecord(5, MAGIC + b"?", MAGIC, ((MAGIC, MAGIC),))
    swapped = NewRecord(5, b"k", envelope().key)
    assert planned(encode_batch([record, swapped], codec=codec)) is None


@pytest.mark.parametrize("rubbish", [b"", b"x", bytes(100), b"\xff" * 100, some_batch(0)[:-1]])
def test_rubbish_without_envelopes_is_the_brokers_business(rubbish: bytes) -> None:
    assert planned(rubbish) is None


# Refused


def test_an_envelope_of_a_newer_shoal_is_refused() -> None:
    stem = bytearray(envelope().key or b"")[:-4]
    stem[16] = 4
    key = bytes(stem) + crc32c.crc32c(bytes(stem)).to_bytes(4, "big")
    answer = refused(outer_of(PLAIN, envelope()._replace(key=key)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "newer Shoal" in answer.message


@pytest.mark.parametrize(
    "stamps",
    [
        {"attributes": TRANSACTIONAL},
        {"attributes": CONTROL},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "last_offset_delta": 7},
    ],
)
def test_an_outer_batch_that_no_producer_makes_is_refused(stamps: dict[str, int]) -> None:
    assert refused(outer_of(envelope(), **stamps)).error_code == ErrorCode.INVALID_RECORD


def test_the_plan_says_whose_stamps_its_batches_must_get() -> None:
    outer = outer_of(envelope(), PLAIN, producer_id=5, producer_epoch=3, base_sequence=9, attributes=TRANSACTIONAL)
    plan = planned(outer)
    assert isinstance(plan, Plan)
    stamp = plan.stamp
    assert stamp
    assert stamp[:5] == (5, 3, 9, 2, True)
    assert stamp.identity[0] == int.from_bytes(outer[17:21], "big")


def test_a_second_batch_beside_an_envelope_is_refused() -> None:
    assert refused(outer_of(envelope()) + outer_of(PLAIN)).error_code == ErrorCode.INVALID_RECORD
    assert refused(outer_of(PLAIN) + outer_of(envelope())).error_code == ErrorCode.INVALID_RECORD
    assert planned(outer_of(PLAIN) + outer_of(PLAIN)) is None


def test_a_cut_off_record_set_with_an_envelope_is_refused() -> None:
    assert refused(outer_of(envelope())[:-1]).error_code == ErrorCode.INVALID_RECORD
    assert refused(outer_of(PLAIN) + outer_of(envelope())[:-1]).error_code == ErrorCode.INVALID_RECORD
    assert refused(outer_of(envelope()) + b"tail").error_code == ErrorCode.INVALID_RECORD


def test_an_envelope_in_an_old_message_is_refused() -> None:
    body = bytes(10) + (envelope().key or b"")
    assert refused(bytes(8) + len(body).to_bytes(4, "big") + body).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_is_too_large_to_be_searched_is_refused(codec: Codec) -> None:
    outer = encode_batch([envelope(), NewRecord(1, b"k", b"\0" * 5000)], codec=codec)
    assert isinstance(plan_record_set(outer, 0, len(outer), limit=10_000), Plan)
    answer = plan_record_set(outer, 0, len(outer), limit=4000)
    assert isinstance(answer, Refused)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("decoy", [envelope().key, token_header(bytes(TOKEN_BYTES))[0]], ids=["envelope", "token"])
def test_no_more_records_are_searched_than_the_limit(decoy: bytes) -> None:
    """Some bytes on the wire may be millions of records, with what looks like an envelope or a token in one value."""
    outer = encode_batch([*[NewRecord(1, None, b"")] * 50, NewRecord(1, None, decoy)], codec=Codec.ZSTD)
    assert isinstance(plan_record_set(outer, 0, len(outer), most_records=51), BatchHeader)
    answer = plan_record_set(outer, 0, len(outer), most_records=50)
    assert isinstance(answer, Refused)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, 5])
def test_what_its_producer_made_wrong_is_refused_for_good(codec: int) -> None:
    """Its checksum is right: no retry and no splitting would help."""
    assert refused(encode_batch([envelope()], attributes=codec)).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_was_damaged_on_its_way_is_asked_for_again(codec: Codec) -> None:
    whole = outer_of(envelope(), PLAIN, codec=codec)
    answers = [planned(damaged(whole, at)) for at in range(61, len(whole))]
    assert {answer.error_code for answer in answers if isinstance(answer, Refused)} == {ErrorCode.CORRUPT_MESSAGE}
    assert not any(
        isinstance(answer, Plan) for answer in answers
    )  # None: the magic itself is damaged, the broker will see it


@pytest.mark.parametrize("value", [None, b"", LOG[:-1], LOG + b"x", damaged(LOG, 100)])
def test_a_changed_value_is_told_by_its_source(value: bytes | None) -> None:
    answer = refused(outer_of(PLAIN, envelope()._replace(value=value)))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert "source-cluster/orders-3 offsets 100..109" in answer.message


@pytest.mark.parametrize("changes", [{"records": 11}, {"batches": 1}, {"last_offset": 110}, {"first_offset": 99}])
def test_a_key_that_states_other_batches_is_refused(changes: dict[str, int]) -> None:
    record = envelope()
    key = decode_key(record.key or b"")
    assert key
    answer = refused(outer_of(record._replace(key=encode_key(replace(key, **changes)))))  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("at", [0, len(some_batch(100, 4))])
@pytest.mark.parametrize(
    ("place", "code", "wrong"),
    [
        *(("21", "h", codec) for codec in (5, 6, 7)),
        *(("21", "h", bits) for bits in (LOG_APPEND_TIME, CONTROL, DELETE_HORIZON)),
        *(("16", "b", magic) for magic in (0, 1, 3)),
        *(("57", "i", count) for count in (0, -1, 5, 7)),
        *(("23", "i", delta) for delta in (-1, 9)),
        *(("8", "i", length) for length in (-(1 << 31), -12, 0, 48, (1 << 31) - 1)),
        ("0", "q", -1),
    ],
)
def test_a_batch_that_is_never_wrapped_is_refused(at: int, place: str, code: str, wrong: int) -> None:
    """For any envelope: its checksums are right."""
    forged = bytearray(LOG)
    pack_into(f">{code}", forged, at + int(place), wrong)
    record = envelope()
    key = decode_key(record.key or b"")
    assert key
    key = replace(key, payload_crc=crc32c.crc32c(forged))
    answer = refused(outer_of(record._replace(key=encode_key(key), value=bytes(forged))))
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("base", "delta", "count"), [(-1, 5, 6), (104, -1, 0), (104, -3, -2)])
def test_such_a_batch_is_refused_among_others_where_the_key_agrees(base: int, delta: int, count: int) -> None:
    forged, at = bytearray(LOG + some_batch(110)), len(some_batch(100, 4))
    for place, code, wrong in ((0, "q", base), (23, "i", delta), (57, "i", count)):
        pack_into(f">{code}", forged, at + place, wrong)
    record = envelope(LOG + some_batch(110))
    key = decode_key(record.key or b"")
    assert key
    key = replace(key, payload_crc=crc32c.crc32c(forged), records=key.records - 6 + count)
    answer = refused(outer_of(record._replace(key=encode_key(key), value=bytes(forged))))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "should never have been wrapped" in answer.message


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    "key", [None, b"", b"a customer", b"eu:" + (envelope().key or b""), (envelope().key or b"")[:20]]
)
def test_an_envelope_without_its_key_is_never_passed_on(key: bytes | None, codec: Codec) -> None:
    """A transform that changes keys: records without keys have proven that the mirror changes nothing."""
    record = envelope()
    added = NewRecord(record.timestamp, key, record.value, (*record.headers[::-1], (b"zone", b"eu")))
    for changed in (record._replace(key=key), added):
        answer = refused(outer_of(PLAIN, changed, codec=codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "deep-topics" in answer.message


def test_a_record_with_some_of_an_envelopes_headers_is_an_ordinary_one() -> None:
    headers = ((b"shoal.records", b"1"), (b"shoal.compressed-bytes", b"1"))
    assert planned(outer_of(PLAIN, NewRecord(5, b"shoal.batches", b"shoal.batches", headers))) is None


@given(st.data(), st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_whatever_byte_is_damaged_no_envelope_is_passed_on(data: st.DataObject, codec: Codec) -> None:
    whole = encode_batch([PLAIN, envelope(), PLAIN], codec=codec)
    broken = damaged(whole, data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255)))
    plan = planned(broken)
    if plan is None:  # the broker sees it as it is: as damage
        assert Broker().produce(OutgoingBatch((broken,), 3, codec, ""))[0] != 0
    elif isinstance(plan, Plan):  # only what is outside the CRC may differ
        assert appended(plan) == appended(plan_of(whole))


@given(st.binary(max_size=200))
def test_rubbish_with_the_magic_is_never_passed_on(rubbish: bytes) -> None:
    assert isinstance(planned(rubbish + MAGIC), Refused)


@given(st.binary(max_size=100), st.sampled_from(Codec), st.integers(0, 5))
def test_rubbish_in_a_whole_batch_raises_nothing(body: bytes, codec: Codec, count: int) -> None:
    batch = bytearray(encode_batch([NewRecord(1, None, None)] * max(count, 1), codec=codec)[:61] + MAGIC + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    planned(bytes(batch))
