"""Record sets that cannot be converted for an old client."""

import pytest

from shoal.protocol.legacy.fetch.failure import FailureKind
from shoal.protocol.legacy.message import Message
from shoal.protocol.records.batch import CONTROL, NewRecord, encode_batch
from shoal.protocol.records.record import Record, write_record
from shoal.protocol.wire.compression import Codec
from tests.fuzz.decoders.records import sealed
from tests.support.batches import damaged
from tests.support.legacy.conversions import NOW, batch_of, converting, given_messages, numbers, pieces
from tests.support.legacy.logs import Log


def body(count: int = 3) -> bytes:
    return b"".join(write_record(Record(index, 0, None, b"v%d" % index)) for index in range(count))


def ordered(*deltas: int) -> bytes:
    return b"".join(write_record(Record(delta, 0, None, b"v")) for delta in deltas)


def with_codec(number: int, batch: bytes) -> bytes:
    return sealed(batch[:22] + bytes([batch[22] & ~7 | number]) + batch[23:])


WHOLE = batch_of(body())
NEGATIVE_KEY, NEGATIVE_VALUE = bytes.fromhex("0c000002030100"), bytes.fromhex("0c000002010300")  # length -2
FAILURES: dict[str, tuple[bytes, FailureKind, int]] = {
    "CRC": (damaged(WHOLE, len(WHOLE) - 1), FailureKind.DAMAGE, 0),
    "zstd": (encode_batch(numbers(3), base_offset=10, codec=Codec.ZSTD), FailureKind.CODEC, 0),
    "unknown codec": (with_codec(6, WHOLE), FailureKind.CODEC, 0),
    "a codec that it is not": (with_codec(Codec.GZIP, WHOLE), FailureKind.DAMAGE, 0),
    "too few records": (batch_of(body(2)), FailureKind.DAMAGE, 2),
    "too many records": (batch_of(body(4), last=3), FailureKind.DAMAGE, 3),
    "too few in a compressed one": (batch_of(body(2), codec=Codec.LZ4), FailureKind.DAMAGE, 2),
    "too many in a compressed one": (batch_of(body(4), codec=Codec.SNAPPY, last=3), FailureKind.DAMAGE, 3),
    "a record cut": (batch_of(body()[:-2]), FailureKind.DAMAGE, 2),
    "offsets descend": (batch_of(ordered(0, 2, 1)), FailureKind.DAMAGE, 1),
    "offsets stand": (batch_of(ordered(0, 0, 1)), FailureKind.DAMAGE, 1),
    "an offset behind the batch": (batch_of(ordered(0, 1, 3)), FailureKind.DAMAGE, 2),
    "a negative offset": (batch_of(ordered(-1, 0, 1)), FailureKind.DAMAGE, 0),
    "a negative key": (batch_of(body(1) + NEGATIVE_KEY, 2), FailureKind.DAMAGE, 1),
    "a negative value": (batch_of(body(1) + NEGATIVE_VALUE, 2), FailureKind.DAMAGE, 1),
    "a negative record": (batch_of(body(1) + b"\3" + bytes(20), 2), FailureKind.DAMAGE, 1),
    "fields behind the record": (batch_of(b"\x0c\0\0\0\1\x0a\0" + bytes(9), 1), FailureKind.DAMAGE, 0),
    "fields before its end": (batch_of(b"\x14\0\0\0\1\1\0" + bytes(4), 1), FailureKind.DAMAGE, 0),
    "a varint without end": (batch_of(b"\x2c\0\0" + b"\xff" * 20, 1), FailureKind.DAMAGE, 0),
    "a length without end": (batch_of(b"\xff" * 20, 1), FailureKind.DAMAGE, 0),
    "headers without end": (batch_of(b"\x10\0\0\0\1\1\xff\x7f", 1), FailureKind.DAMAGE, 0),
    "a header without a key": (batch_of(b"\x10\0\0\0\1\1\2\1\1"[:1] + b"\0\0\0\1\1\2\1\1", 1), FailureKind.DAMAGE, 0),
    "a record larger than all": (
        batch_of(b"\xfe\xff\xff\xff\x0f" + bytes(9), 1, Codec.GZIP),
        FailureKind.INEXPRESSIBLE,
        0,
    ),
    "offsets out of order": (WHOLE[:7] + b"\0" + WHOLE[8:], FailureKind.DAMAGE, 0),
    "the largest offset": (b"\x7f" + b"\xff" * 7 + WHOLE[8:], FailureKind.DAMAGE, 0),
    "a magic that is none": (WHOLE[:16] + b"\3" + WHOLE[17:], FailureKind.DAMAGE, 0),
    "a length that is none": (WHOLE[:8] + bytes(4) + WHOLE[12:], FailureKind.DAMAGE, 0),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_given_is_a_failure_behind_what_can(name: str) -> None:
    """A fetch at the failure's offset returns no message and the same failure."""
    bad, kind, in_it = FAILURES[name]
    good = encode_batch(numbers(5))
    conversion = converting(good + bad)
    assert [message.offset for message in given_messages(conversion)] == [*range(5), *range(10, 10 + in_it)]
    failure = conversion.failure
    assert failure is not None
    assert (failure.kind, failure.offset) == (kind, 10 + in_it if in_it else 5)
    assert conversion.piece() is None
    assert conversion.left == 0
    if name == "offsets out of order":
        return  # alone, the batch is valid
    again = converting(bad, failure.offset)
    assert pieces(again) == []
    assert again.failure is not None
    assert (again.failure.kind, again.failure.offset) == (kind, failure.offset)


def test_a_failure_names_the_batch_and_the_reason() -> None:
    conversion = converting(FAILURES["zstd"][0], 12)
    assert conversion.piece() is None
    assert str(conversion.failure and conversion.failure.text) == (
        "entry at offset 10: zstd, which clients of Kafka before 2.1 cannot read"
    )


def test_a_damaged_marker_is_a_failure() -> None:
    marker = encode_batch([NewRecord(1, b"", b"")], base_offset=5, attributes=CONTROL, producer_id=9)
    conversion = converting(encode_batch(numbers(5)) + marker, aborted=[(9, 0)])
    assert len(given_messages(conversion)) == 5
    assert conversion.failure is not None


def test_old_entries_are_checked() -> None:
    log = Log()
    log.old(1, Codec.NONE, [Message(0, NOW, False, b"k", b"v")] * 2)
    record_set, _ = log.answer(0)
    for magic in (0, 1):
        conversion = converting(damaged(record_set, len(record_set) - 1), 0, magic)
        assert [message.offset for message in given_messages(conversion, magic)] == [0]
        assert conversion.failure is not None
        assert conversion.failure.offset == 1


def test_bytes_behind_the_last_record_that_come_with_the_next_step_are_damage_too() -> None:
    payload = body()
    conversion = converting(batch_of(payload + b"x", last=3), chunk=len(payload))
    assert [message.offset for message in given_messages(conversion)] == [10, 11, 12]
    assert conversion.failure is not None
    assert conversion.failure.offset == 13
