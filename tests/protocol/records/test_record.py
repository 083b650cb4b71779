import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.record import (
    Record,
    Slice,
    read_records,
    write_record,
)
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.strategies import headers

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
nullable = st.none() | st.binary(max_size=200)
records = st.builds(Record, int32s, int64s, nullable, nullable, headers)
SMALLEST = write_record(Record(0, 0, None, None))


def test_the_layout_of_kip_98() -> None:
    record = Record(offset_delta=3, timestamp_delta=-2, key=b"k", value=None, headers=((b"h", b""),))
    assert write_record(record) == bytes([2 * 10, 0, 3, 6, 2, ord("k"), 1, 2, 2, ord("h"), 0])


@given(st.lists(records, max_size=10), st.booleans())
def test_round_trip(written: list[Record], viewed: bool) -> None:
    payload: Slice = b"".join(map(write_record, written))
    kind: type[Slice] = bytes
    if viewed:
        payload, kind = memoryview(payload), memoryview
    read = list(read_records(payload, len(written)))
    assert read == written
    assert {type(record.key) for record in read} <= {kind, type(None)}


@pytest.mark.parametrize("count", [-1, 2, 3, (1 << 31) - 1])
def test_an_impossible_count_is_refused_before_iterating(count: int) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be in 7 bytes"):
        read_records(SMALLEST, count)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("trailing bytes", SMALLEST + b"\0"),
        ("another record", SMALLEST * 2),
        ("length too small", bytes([10, 0, 0, 0, 1, 1, 0])),
        ("length too large", bytes([14, 0, 0, 0, 1, 1, 0])),
        ("negative length", bytes([13, 0, 0, 0, 1, 1, 0])),
        ("record ends early", bytes([14, 0, 0, 0, 1, 1, 0, 0])),
        ("key longer than the record", bytes([12, 0, 0, 0, 8, 1, 0])),
        ("value longer than the record", bytes([12, 0, 0, 0, 1, 2, 0])),
        ("key length -2", bytes([12, 0, 0, 0, 3, 1, 0])),
        ("negative header count", bytes([12, 0, 0, 0, 1, 1, 1])),
        ("more headers than bytes", bytes([16, 0, 0, 0, 1, 1, 4, 0, 1])),
        ("null header key", bytes([16, 0, 0, 0, 1, 1, 2, 1, 1])),
        ("header value too long", bytes([16, 0, 0, 0, 1, 1, 2, 0, 2])),
        ("offset delta of six bytes", bytes([22, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0])),
        ("timestamp delta of eleven bytes", bytes([32, 0, *[0xFF] * 10, 0, 0, 1, 1, 0])),
        ("length without end", bytes([0xFF] * 7)),
    ],
)
def test_damage_is_refused(name: str, payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(read_records(payload, 1))


@given(records, st.data())
def test_every_truncation_is_refused(record: Record, data: st.DataObject) -> None:
    whole = write_record(record)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RemoteProtocolError):
        list(read_records(whole[:cut], 1))


def test_records_before_the_damage_are_given() -> None:
    reading = read_records(SMALLEST + bytes(7), 2)
    assert next(reading) == Record(0, 0, None, None)
    with pytest.raises(RemoteProtocolError):
        next(reading)
