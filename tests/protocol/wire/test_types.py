from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers

from shoal.protocol.wire import types as wire
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError

Read = Callable[[wire.Buffer, int, int], tuple[Any, int]]
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


PAIRS: dict[str, tuple[Read, Callable[[Any], bytes], Callable[[Any, Any], None], st.SearchStrategy[Any]]] = {
    "int8": (wire.read_int8, wire.write_int8, writers.write_int8, signed(8)),
    "int16": (wire.read_int16, wire.write_int16, writers.write_int16, signed(16)),
    "int32": (wire.read_int32, wire.write_int32, writers.write_int32, signed(32)),
    "int64": (wire.read_int64, wire.write_int64, writers.write_int64, signed(64)),
    "uvarint": (wire.read_uvarint, wire.write_uvarint, writers.write_unsigned_varint, st.integers(0, (1 << 32) - 1)),
    "varint": (wire.read_varint, wire.write_varint, writers.write_signed_varint, st.integers(0, (1 << 31) - 1)),
    "varlong": (wire.read_varlong, wire.write_varlong, writers.write_signed_varlong, st.integers(0, (1 << 63) - 1)),
    "string": (wire.read_string, wire.write_string, writers.write_nullable_legacy_string, TEXT),
    "compact": (wire.read_compact_string, wire.write_compact_string, writers.write_nullable_compact_string, TEXT),
}


@pytest.mark.parametrize("kind", PAIRS)
@given(st.data())
def test_pairs_agree_with_each_other_and_with_kio(kind: str, data: st.DataObject) -> None:
    read, write, kio_write, values = PAIRS[kind]
    value = data.draw(values)
    written = write(value)
    buffer = BytesIO()
    kio_write(buffer, value)
    assert written == buffer.getvalue()
    for make in (bytes, bytearray, memoryview):
        assert read(make(b"##" + written + b"\xff"), 2, 2 + len(written)) == (value, 2 + len(written))
    for cut in range(len(written)):
        with pytest.raises(RemoteProtocolError):
            read(written, 0, cut)


@given(signed(32), signed(64))
def test_negative_varints(small: int, large: int) -> None:
    written = wire.write_varint(small) + wire.write_varlong(large)
    value, pos = wire.read_varint(written, 0, len(written))
    assert value == small
    assert wire.read_varlong(written, pos, len(written)) == (large, len(written))


@pytest.mark.parametrize(("value", "zigzag"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (-65, "8101")])
def test_zigzag_as_in_the_protocol_guide(value: int, zigzag: str) -> None:
    assert wire.write_varint(value).hex() == wire.write_varlong(value).hex() == zigzag


@pytest.mark.parametrize("data", [b"\xff" * 5 + b"\0", b"\x80" * 6])
def test_a_varint_of_more_than_five_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="does not end within 5 bytes"):
        wire.read_uvarint(data, 0, len(data))


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\x80\0", b"\0\5abc", b"\0\1\xff"])
def test_strings_that_are_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.read_string(data, 0, len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x0f", b"\x06abc", b"\2\xff"])
def test_compact_strings_that_are_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.read_compact_string(data, 0, len(data))


def test_uuids() -> None:
    topic_id = bytes(range(16))
    assert wire.read_uuid(memoryview(b"#" + wire.write_uuid(topic_id)), 1, 17) == (topic_id, 17)
    with pytest.raises(RemoteProtocolError):
        wire.read_uuid(bytes(20), 5, 20)
    with pytest.raises(LocalProtocolError):
        wire.write_uuid(bytes(15))


@given(st.dictionaries(st.integers(0, 1 << 31), st.lists(st.binary(max_size=150), max_size=2), max_size=4))
def test_tagged_fields(values: dict[int, list[bytes]]) -> None:
    written = wire.write_tagged_fields(sorted(values.items()))
    fields, end = wire.read_tagged_fields(b"#" + written + b"#", 1, 1 + len(written))
    assert end == 1 + len(written) == wire.skip_tagged_fields(b"#" + written, 1, end)
    assert {tag: (b"#" + written)[start:stop] for tag, start, stop in fields} == {
        tag: b"".join(pieces) for tag, pieces in values.items()
    }


@pytest.mark.parametrize("data", [b"\1\0\2a", b"\2\1\0\1\0", b"\2\1\0\0\0", b"\1\0", b"\1"])
def test_damaged_tagged_fields(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.read_tagged_fields(data, 0, len(data))


@pytest.mark.parametrize("data", [b"\1\0\2a", b"\2\1\0\1", b"\1\0", b"\1"])
def test_damaged_tagged_fields_are_not_skipped(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.skip_tagged_fields(data + b"beyond", 0, len(data))


def test_what_does_not_fit_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        wire.write_string("x" * 0x8000)
    with pytest.raises(LocalProtocolError):
        wire.write_uvarint(-1)
    with pytest.raises(LocalProtocolError):
        wire.write_uvarint(1 << 32)
