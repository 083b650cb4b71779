import pytest

from shoal.protocol.schema.language import Field, Message, parse_message
from shoal.protocol.schema.tables import MESSAGES
from tests.support.kafka.schemas import KAFKA_VERSIONS, Row, all_schemas, in_version, rows


def our_rows(fields: tuple[Field, ...], version: int, prefix: str = "") -> list[Row]:
    found = []
    for field in fields:
        if version in field.versions:
            path = prefix + field.name
            kind = f"[]{field.type}" if field.is_array else field.type
            found.append(Row(path, kind, version in field.nullable, field.tag, field.never_flexible))
            found += our_rows(field.fields, version, f"{path}.")
    return found


def versions_of(kafka: str, message: Message) -> list[int]:
    return [version for version in range(100) if in_version(all_schemas(kafka)[message.name]["validVersions"], version)]


@pytest.mark.parametrize("kafka", KAFKA_VERSIONS)
@pytest.mark.parametrize("name", MESSAGES)
def test_every_field_of_every_version_is_that_of_kafka(name: str, kafka: str) -> None:
    message = MESSAGES[name]
    schema = all_schemas(kafka)[name]
    compared = versions_of(kafka, message)
    assert compared
    for version in compared:
        assert version in message.versions
        assert our_rows(message.fields, version) == rows(schema, version)
        assert (version in message.flexible) == in_version(schema["flexibleVersions"], version)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_newest_version_is_that_of_kafka_4_3(name: str) -> None:
    assert MESSAGES[name].versions.high == max(versions_of("4.3.0", MESSAGES[name]))


def test_every_version_of_a_table_was_compared_with_some_kafka() -> None:
    for message in MESSAGES.values():
        compared = {version for kafka in KAFKA_VERSIONS for version in versions_of(kafka, message)}
        assert compared == set(range(message.versions.low, message.versions.high + 1))


def test_attributes_of_a_field() -> None:
    message = parse_message("""\
M: versions 0-9, flexible 2+
A: []struct, versions 1-8
  B: string, nullable 3+, tag 4
  C: []int32, versions 0+
""")
    outer = message.fields[0]
    inner, array = outer.fields
    assert (outer.name, outer.type, outer.is_array, outer.versions) == ("A", "struct", True, (1, 8))
    assert (inner.versions, inner.nullable, inner.tag) == ((1, 8), (3, 8), 4)
    assert (array.type, array.is_array, array.versions, array.tag) == ("int32", True, (1, 8), None)
    assert message.flexible == (2, 9)


def test_a_wrong_indent_is_an_error() -> None:
    with pytest.raises(ValueError, match="wrong indent at B"):
        parse_message("M: versions 0, flexible none\nA: int8\n    B: int8\n")
