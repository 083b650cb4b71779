"""The token itself: its changes in a batch, and its complete removal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    NewRecord,
    encode_batch,
    open_batch,
    read_batch_header,
)
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.fingerprint import produced_fingerprints
from shoal.protocol.shallow.token import Tokened, put_token, take_token, token_header
from shoal.protocol.shallow.unwrap.plan import Plan, Refused, Stripped
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.error_codes import ErrorCode
from tests.support.batches import consumed
from tests.support.shallow.world import context, flat, plain, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

TOKEN = bytes(range(16))
SALT = b"salt" * 4


def put(log: bytes, fetch_offset: int = 0, **how: object) -> Tokened | None:
    how |= {"salt": SALT, "partition": 3, "fetch_offset": fetch_offset}
    return put_token(log, scan(log, 0, len(log)), TOKEN, **how)  # type: ignore[arg-type]


def tokened(log: bytes, fetch_offset: int = 0) -> Tokened:
    found = put(log, fetch_offset)
    assert found is not None
    return found


@given(st.sampled_from(Codec), st.sampled_from([Codec.NONE, Codec.LZ4]), st.integers(10, 14))
def test_it_comes_off_without_a_trace(codec: Codec, outer_codec: Codec, fetch_offset: int) -> None:
    log = some_batch(10, 5, codec) + some_batch(15, 5, codec)
    found = tokened(log, fetch_offset)
    assert (found.offset, found.next_offset) == (fetch_offset, 15)
    seen = poll(flat(found.record_set), fetch_offset)
    assert [one.offset for one in seen] == list(range(fetch_offset, 15))
    assert seen[0].record.headers == (token_header(TOKEN),)
    outer = produced(seen, outer_codec)
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Stripped)
    assert plan.record_set == produced([one for one in poll(log) if fetch_offset <= one.offset < 15], outer_codec)
    (returned,) = plan.tokens
    assert returned.token == TOKEN
    assert next(produced_fingerprints(plan.record_set, 0, len(plan.record_set), salt=SALT, partition=3)) == found.mark
    assert isinstance(plan_record_set(plan.record_set, 0, len(plan.record_set)), BatchHeader)


def test_all_else_in_the_batch_stays() -> None:
    stamps = {"attributes": TRANSACTIONAL, "producer_id": 5, "producer_epoch": 2, "base_sequence": 9, "leader_epoch": 8}
    log = encode_batch(
        [NewRecord(70 + n, None, None, [(b"h", None)]) for n in range(3)], base_offset=4, codec=Codec.ZSTD, **stamps
    )
    (batch,) = tokened(log).record_set
    before, after = read_batch_header(log, 0, len(log)), read_batch_header(batch, 0, len(batch))
    changed = {"batch_length", "crc", "attributes"}
    assert {name for name in before._fields if getattr(before, name) != getattr(after, name)} == changed
    assert after.attributes == TRANSACTIONAL
    records = [record._replace(offset_delta=None) for record in consumed(bytes(batch))]
    assert records[0].headers == ((b"h", None), token_header(TOKEN))
    assert plain(records[1:]) == plain(consumed(log))[1:]


def test_what_cannot_carry_one_is_passed_over() -> None:
    control = some_batch(0, 1, Codec.NONE, attributes=CONTROL | TRANSACTIONAL, producer_id=5)
    unseen = some_batch(1, 2, attributes=TRANSACTIONAL, producer_id=5)
    found = put(control + unseen + some_batch(3, 2), unseen=[5])
    assert found is not None
    assert (found.offset, found.next_offset) == (3, 5)
    assert flat(found.record_set).startswith(control + unseen)
    assert put(control + unseen, unseen=[5]) is None


def test_a_large_record_stays_as_it_is() -> None:
    """With a token it might not fit in a request of the mirror, which would fail, or leave it out."""
    records = [
        NewRecord(1, b"k", bytes(1_000_000)),
        NewRecord(1, None, b"", [(b"h", bytes(300_000))]),
        NewRecord(2, b"k", b"v"),
    ]
    found = tokened(encode_batch(records, codec=Codec.ZSTD))
    assert found.offset == 2
    assert put(encode_batch(records[:2], codec=Codec.ZSTD)) is None


def test_one_that_has_strayed_into_the_topic_gets_no_other() -> None:
    """Both would be removed on the produce side, and the record without them differs from the one that was sent."""
    stray = NewRecord(1, b"k", b"v", [token_header(b"another Shoal's.")])
    assert tokened(encode_batch([stray, NewRecord(2, b"k", b"v")])).offset == 1
    assert put(encode_batch([stray])) is None


@pytest.mark.parametrize("log", [b"", bytes(80), some_batch(0)[:70], some_batch(0)[:-1] + b"!"])
def test_nor_can_damage(log: bytes) -> None:
    assert put(log) is None


def test_beside_an_envelope_it_comes_off_too() -> None:
    first, rest = some_batch(0), some_batch(3)
    wrapped = wrap_record_set(rest, 0, len(rest), context(fetch_offset=3))
    assert wrapped.parts is not None
    outer = produced([*poll(flat(tokened(first).record_set)), *poll(flat(wrapped.parts))])
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    assert [one.token for one in plan.tokens] == [TOKEN]
    (batch,) = plan.items[0].batches
    assert plain(consumed(flat(batch.buffers))) == plain(consumed(first))


def test_a_damaged_batch_with_one_comes_again() -> None:
    outer = bytearray(produced(poll(flat(tokened(some_batch(0)).record_set))))
    outer[-1] ^= 1
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Refused)
    assert plan.error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("name", [b"shoal.interlock/" + b"0" * 41, b"shoal.interlock/", token_header(TOKEN)[0] + b"0"])
def test_a_look_alike_is_a_header(name: bytes) -> None:
    headers = ((b"a", b"b"), (name, b""))
    assert take_token(headers) == (headers, None)
    outer = encode_batch([NewRecord(1, b"k", b"v", headers)])
    assert isinstance(plan_record_set(outer, 0, len(outer)), BatchHeader)


def test_a_stamped_batch_keeps_its_stamps() -> None:
    """A batch of an idempotent or exactly-once mirror: for the broker it is the same batch."""
    records = [one.record for one in poll(flat(tokened(some_batch(0)).record_set))]
    outer = encode_batch(records, producer_id=7, producer_epoch=1, base_sequence=40, attributes=TRANSACTIONAL)
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Stripped)
    header, _ = open_batch(plan.record_set, 0, len(plan.record_set), limit=1 << 20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 1, 40, 3)
    assert header.is_transactional
