import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.schema.language import parse_message
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import MAX_ROWS, Rows, Walkers
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import Buffer, write_tagged_fields, write_uvarint
from tests.support.kio_messages import Case, cases, encode, entities


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case.name}-{case.version}")
def test_any_message_is_walked_to_its_exact_end(case: Case) -> None:
    walk = Walkers(MESSAGES[case.name])[case.version]

    @settings(max_examples=10, deadline=None)
    @given(entities(case))
    def check(entity: object) -> None:
        data = encode(entity)
        assert walk(data, 0, len(data)) == ()
        assert walk(b"xx" + data + b"yyy", 2, 2 + len(data)) == ()
        with pytest.raises(RemoteProtocolError):
            walk(data + b"\0", 0, len(data) + 1)
        with pytest.raises(RemoteProtocolError):
            walk(data, 0, len(data) - 1)

    check()


LAYOUT = parse_message("""\
Sample: versions 0-2, flexible 1+
Number: int32
Name: string, nullable 1+
Ids: []uuid
Groups: []struct
  Label: string
  Values: []int32
  Blob: bytes, versions 1+, nullable
Late: int16, versions 1+
Extra: []struct, versions 1+, tag 3
  Key: int16
""")

ITEMS = (
    "Number",
    "at Number",
    "Name",
    "at Name",
    "start Name",
    "end Name",
    "count Ids",
    "start Ids",
    "end Ids",
    "Late = -7",
    "start Extra = None",
    "at Extra = None",
    "end *",
)
ROWS = (
    Rows("Groups", ("start *", "Label", "count Values", "start Blob = None", "end Blob = None", "end *")),
    Rows("Groups.Values", ("Label", "*", "Number")),
    Rows("Extra", ("Key",)),
)
WALKERS = Walkers(LAYOUT, ITEMS, *ROWS)

V0 = (
    bytes([0, 0, 0, 9])
    + b"\0\3abc"
    + bytes([0, 0, 0, 1]) + bytes(16)
    + bytes([0, 0, 0, 1]) + b"\0\1g" + bytes([0, 0, 0, 2, 0, 0, 0, 5, 255, 255, 255, 255])
)  # fmt: skip
V1 = (
    bytes([0, 0, 0, 9])
    + b"\0"
    + b"\1"
    + b"\2" + b"\2g" + b"\3" + bytes([0, 0, 0, 5, 255, 255, 255, 255]) + b"\3zz" + b"\1\5\2??"
    + b"\0\4"
    + write_tagged_fields([(1, [b"unknown"]), (3, [b"\3\0\6\0\0\7\0"]), (90, [b""])])
)  # fmt: skip

BUFFERS = [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]


@pytest.mark.parametrize("make", BUFFERS)
def test_captures_of_the_old_encoding(make: type[Buffer]) -> None:
    assert WALKERS[0](make(V0), 0, len(V0)) == (
        9, 0, "abc", 4, 6, 9, 1, 13, 29, -7, None, None, len(V0),
        [(33, "g", 2, None, None, 48)],
        [("g", 5, 9), ("g", -1, 9)],
        [],
    )  # fmt: skip


@pytest.mark.parametrize("make", BUFFERS)
def test_captures_of_the_flexible_encoding(make: type[Buffer]) -> None:
    walk = WALKERS[1]
    shifted = b"####" + V1 + b"#"
    tag = V1.index(b"\3\7\3") + 1
    blob = V1.index(b"zz")
    expected = [
        9, 0, None, 4, 5, 5, 0, 6, 6, 4, tag + 1, tag, len(V1),
        [(7, "g", 2, blob, blob + 2, blob + 7)],
        [("g", 5, 9), ("g", -1, 9)],
        [(6,), (7,)],
    ]  # fmt: skip
    assert list(walk(make(V1), 0, len(V1))) == expected
    moved = walk(make(shifted), 4, 4 + len(V1))
    assert moved[1] == 4
    assert moved[-1] == [(6,), (7,)]


def damaged(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("version", "data", "message"),
    [
        (0, damaged(V0, 4, b"\xff\xfe"), "Name has a negative length"),
        (0, damaged(V0, 4, b"\xff\xff"), "Name may not be null"),
        (0, damaged(V0, 4, b"\x7f\xff"), "Name runs past the end"),
        (0, damaged(V0, 6, b"\xff"), "cut short or damaged"),
        (0, damaged(V0, 9, b"\x7f\xff\xff\xff"), "Ids has more elements than bytes are left"),
        (0, damaged(V0, 9, b"\xff\xff\xff\xfe"), "Ids has a negative length"),
        (0, damaged(V0, 29, b"\0\0\0\x10"), "Groups has more elements than bytes are left"),
        (0, damaged(V0, 9, b"\0\0\0\5"), "Ids runs past the end"),
        (0, V0[:-1], "cut short or damaged"),
        (1, damaged(V1, 5, b"\xff\xff\xff\xff\x7f"), "Ids has more elements than bytes are left"),
        (1, damaged(V1, 5, b"\xff\xff\xff\xff\xff\x01"), "does not end within 5 bytes"),
        (1, V1[:-2] + b"\3\0", "tags do not ascend"),
        (1, V1[:-1] + b"\1", "a tagged field runs past the end"),
        (1, V1.replace(b"\3\0\6\0", b"\2\0\6\0"), "does not fill its tagged field"),
        (1, V1[:3], "cut short or damaged"),
    ],
)
def test_damage_is_named(version: int, data: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        WALKERS[version](data, 0, len(data))
    with pytest.raises(RemoteProtocolError):
        WALKERS[version](data + bytes(100), 0, len(data))


@given(st.integers(0, 300), st.integers(0, 5))
def test_lengths_of_one_to_five_bytes(length: int, padding: int) -> None:
    layout = parse_message("M: versions 0, flexible 0+\nSet: records\nName: string\n")
    walk = Walkers(layout, ("start Set", "end Set", "start Name", "end Name"))[0]
    size = write_uvarint(length + 1)
    while len(size) < min(padding, 5):
        size = size[:-1] + bytes([size[-1] | 0x80, 0])
    data = size + bytes(length) + size + bytes(length) + b"\0"
    start = len(size)
    assert walk(data, 0, len(data)) == (start, start + length, 2 * start + length, 2 * (start + length))


@pytest.mark.parametrize("length", [0, 126, 127, 16_382, 16_383, 2_097_150, 2_097_151, 2_097_152, 2_500_000])
def test_the_length_of_a_large_record_set(length: int) -> None:
    walk = Walkers(parse_message("M: versions 0, flexible 0+\nSet: records\n"), ("start Set", "end Set"))[0]
    data = write_uvarint(length + 1) + bytes(length) + b"\0"
    assert walk(data, 0, len(data)) == (len(data) - length - 1, len(data) - 1)


def test_without_to_end_the_walk_stops_after_the_last_captured_field() -> None:
    walk = Walkers(LAYOUT, ("Name",), to_end=False)[0]
    assert walk(V0[:9], 0, 9) == ("abc",)
    with pytest.raises(RemoteProtocolError):
        walk(V0[:9], 0, 8)


def test_versions_outside_the_table_are_refused() -> None:
    walkers = Walkers(LAYOUT, oldest=1)
    for version in (-1, 0, 3):
        with pytest.raises(UnsupportedVersion, match=f"Sample version {version}: only 1-2"):
            walkers[version]
    assert walkers[1] is walkers[1]


def test_an_item_that_a_version_lacks_needs_a_default() -> None:
    with pytest.raises(LookupError, match="Sample v0 has no Late"):
        Walkers(LAYOUT, ("Late",))[0]


def test_rows_are_bounded_however_they_are_split_over_their_parents() -> None:
    layout = parse_message("M: versions 0, flexible none\nOuter: []struct\n  Inner: []int8\n")
    walk = Walkers(layout, (), Rows("Outer.Inner", ("*",)))[0]
    half = MAX_ROWS // 2

    def frame(*counts: int) -> bytes:
        return len(counts).to_bytes(4) + b"".join(count.to_bytes(4) + bytes(count) for count in counts)

    allowed, refused = frame(half, half), frame(half, half, 1)
    assert walk(allowed, 0, len(allowed)) == ([(0,)] * MAX_ROWS,)
    with pytest.raises(RemoteProtocolError, match=f"Inner has more than {MAX_ROWS} elements"):
        walk(refused, 0, len(refused))
