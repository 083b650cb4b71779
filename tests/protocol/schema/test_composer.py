"""kio reads every message of the tables, composed from values, as those values."""

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.language import Field, parse_message
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.errors import LocalProtocolError
from tests.support.kio_messages import Case, for_any

MILLISECOND = timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """Values of kio's own types, as on the wire."""
    match value:
        case ErrorCode():
            return value.value
        case timedelta():
            return value // MILLISECOND
        case datetime():
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // MILLISECOND
        case uuid.UUID():
            return value.bytes
    return value


def values_of(entity: Any, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """kio has the fields of a version in the order of the schema."""
    present = [field for field in fields if version in field.versions]
    attributes = [getattr(entity, each.name) for each in dataclasses.fields(entity)]
    return {
        field.name: value_of(field, value, version)
        for field, value in zip(present, attributes, strict=True)
        if field.tag is None or value is not None
    }


def value_of(field: Field, value: Any, version: int) -> Any:
    if value is None and field.type == "int64":
        return -1  # an absent time
    if value is None or field.type != "struct":
        return [plain(each) for each in value] if isinstance(value, tuple) else plain(value)
    if field.is_array:
        return [values_of(each, field.fields, version) for each in value]
    return values_of(value, field.fields, version)


@for_any(examples=5)
def test_what_is_composed_is_read_by_kio(case: Case, entity: Any, data: st.DataObject) -> None:
    message = MESSAGES[case.name]
    body = compose(message, case.version, values_of(entity, message.fields, case.version))
    decoded, size = entity_reader(type(entity))(body, 0)
    assert size == len(body)
    assert decoded == entity


SAMPLE = parse_message("""\
Sample: versions 0-2, flexible 1+
Number: int32
Name: string, nullable 2+
Places: []struct
  Port: int16
  Tag: int32, versions 2+, tag 0
Later: int8, versions 2+
""")


def test_what_is_not_given_is_zero_or_empty_or_null() -> None:
    assert compose(SAMPLE, 0, {}) == bytes(4) + b"\0\0" + bytes(4)
    assert compose(SAMPLE, 1, {}) == bytes(4) + b"\1\1\0"
    assert compose(SAMPLE, 2, {}) == bytes(4) + b"\0\1\0\0"


def test_a_field_of_other_versions_is_left_out() -> None:
    assert compose(SAMPLE, 0, {"Later": 7}) == compose(SAMPLE, 0, {})
    assert compose(SAMPLE, 2, {"Later": 7}) == bytes(4) + b"\0\1\7\0"


def test_a_tagged_field_stands_in_its_struct() -> None:
    body = compose(SAMPLE, 2, {"Places": [{"Port": 5, "Tag": 6}, {"Port": 7}]})
    assert body == bytes(4) + b"\0" + b"\3" + b"\0\5\1\0\4\0\0\0\6" + b"\0\7\0" + b"\0\0"


@pytest.mark.parametrize("values", [{"Nmae": "x"}, {"Places": [{"Prt": 1}]}])
def test_a_wrong_name_is_our_own_mistake(values: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match=r"Sample has no (Nmae|Prt)"):
        compose(SAMPLE, 1, values)


def test_a_version_outside_the_table_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="v3 is not in the table"):
        compose(SAMPLE, 3, {})
