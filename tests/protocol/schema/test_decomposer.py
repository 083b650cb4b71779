"""Every message of the tables is read as kio wrote it; damage is refused, in bounded time and memory."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.decomposer import MAX_ELEMENTS, decompose
from shoal.protocol.schema.language import Field, parse_message
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from tests.protocol.schema.test_composer import plain
from tests.support.kio_messages import Case, cases, encode, entities, for_any


def agrees(found: Any, entity: Any, field: Field, version: int) -> bool:
    """True if a value equals kio's. (An absent time is -1 on the wire.)"""
    if entity is None:
        return found is None or found == -1 or found == bytes(16)
    if isinstance(entity, tuple):
        return len(found) == len(entity) and all(
            agrees(*pair, field, version) for pair in zip(found, entity, strict=True)
        )
    if field.type == "struct":
        return all_agree(found, entity, field.fields, version)
    return bool(found == plain(entity))


def all_agree(found: dict[str, Any], entity: Any, fields: tuple[Field, ...], version: int) -> bool:
    present = [field for field in fields if version in field.versions]
    values = [getattr(entity, each.name) for each in dataclasses.fields(entity)]
    pairs = list(zip(present, values, strict=True))
    assert found.keys() <= {field.name for field in present}
    return all(
        agrees(found[field.name], value, field, version) if field.name in found else field.tag is not None
        for field, value in pairs
    )


@for_any(examples=4)
def test_what_kio_wrote_is_read_and_written_again(case: Case, entity: Any, data: st.DataObject) -> None:
    message, body = MESSAGES[case.name], encode(entity)
    before, after = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))

    values = decompose(message, case.version, before + body + after, len(before), len(before) + len(body))

    assert all_agree(values, entity, message.fields, case.version)
    again, size = entity_reader(type(entity))(compose(message, case.version, values), 0)
    assert again == entity
    assert size == len(compose(message, case.version, values))


@pytest.mark.parametrize("case", [case for case in cases() if case.version in (0, 1, 2, 9)], ids=str)
def test_damage_is_refused_or_read_as_something_else(case: Case) -> None:
    @settings(max_examples=8, deadline=None)
    @given(entities(case), st.data())
    def check(entity: Any, data: st.DataObject) -> None:
        body = bytearray(encode(entity))
        cut = data.draw(st.integers(0, len(body)))
        for _ in range(data.draw(st.integers(0, 4))):
            if body:
                body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
        for damaged in (body, body[:cut], body + b"\0"):
            try:
                values = decompose(MESSAGES[case.name], case.version, damaged, 0, len(damaged))
            except RemoteProtocolError:
                continue
            compose(MESSAGES[case.name], case.version, values)

    check()


@settings(max_examples=200)
@given(st.binary(max_size=200), st.sampled_from([case for case in cases()]))
def test_any_bytes_are_refused_or_read(data: bytes, case: Case) -> None:
    try:
        values = decompose(MESSAGES[case.name], case.version, data, 0, len(data))
    except RemoteProtocolError:
        return
    assert isinstance(values, dict)


SAMPLE = parse_message("""\
Sample: versions 0-2, flexible 1+
Name: string, nullable 2+
Places: []struct
  Port: int16
  Tag: int32, versions 2+, tag 0
Data: bytes, versions 2+, nullable
""")


def test_only_what_was_sent_of_tagged_fields_is_there() -> None:
    body = b"\0" + b"\3" + b"\0\5\1\0\4\0\0\0\6" + b"\0\7\0" + b"\0" + b"\0"
    expected = {"Name": None, "Places": [{"Port": 5, "Tag": 6}, {"Port": 7}], "Data": None}
    assert decompose(SAMPLE, 2, body, 0, len(body)) == expected


def test_an_unknown_tag_is_stepped_over() -> None:
    body = b"\2a" + b"\1" + b"\3xy" + b"\1\7\2zz"
    assert decompose(SAMPLE, 2, body, 0, len(body)) == {"Name": "a", "Places": [], "Data": b"xy"}


@pytest.mark.parametrize(
    ("version", "body", "what"),
    [
        (0, b"\xff\xff" + bytes(4), "Name may not be null"),
        (1, b"\0\1\0", "Name may not be null"),
        (0, b"\0\0\xff\xff\xff\xff", "Places may not be null"),
        (0, b"\0\0\xff\xff\xff\xfe", "Places has a negative length"),
        (0, b"\0\0\0\0\0\2\0\1", "runs past the end"),
        (0, b"\0\0\x7f\xff\xff\xff\0\1", "Places has too many elements"),
        (0, b"\0\0\0\0\0\3\0\1", r"Places has too many elements \(3\)"),
        (0, b"\0\0\0\0\0\0\0", "does not end where the frame ends"),
        (2, b"\0\2\0\5\1\0\5\0\0\0\6\0\0\0", "does not fill its tagged field"),
        (2, b"\0\1\7a\0", "Data runs past the end"),
    ],
)
def test_damage_is_named(version: int, body: bytes, what: str) -> None:
    with pytest.raises(RemoteProtocolError, match=what):
        decompose(SAMPLE, version, body, 0, len(body))


def test_elements_are_counted_over_the_whole_message() -> None:
    nested = parse_message("N: versions 0, flexible none\nA: []struct\n  B: []int8\n")
    count = MAX_ELEMENTS // 10
    inner = count.to_bytes(4, "big") + bytes(count)
    body = (10).to_bytes(4, "big") + inner * 10
    with pytest.raises(RemoteProtocolError, match="too many elements"):
        decompose(nested, 0, body, 0, len(body))


def test_a_version_outside_the_table_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="Sample version 3: only 0-2"):
        decompose(SAMPLE, 3, b"", 0, 0)
