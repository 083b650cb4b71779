"""Writes Shoal's own messages from the schema tables: names and values in, bytes out; the counterpart of decomposer.py.

For occasional requests (a probe, a log-in). Messages on the data path have their own, faster writers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from shoal.protocol.schema.language import Field, Message
from shoal.protocol.wire.errors import LocalProtocolError
from shoal.protocol.wire.types import (
    write_compact_string,
    write_int8,
    write_int16,
    write_int32,
    write_int64,
    write_string,
    write_tagged_fields,
    write_uuid,
    write_uvarint,
)

__all__ = ["Values", "compose"]

Values = Mapping[str, Any]
"""Field name -> value: int, bool, str, bytes (records, bytes, a uuid), a list, or `Values` for a struct."""

_FIXED: Final[Mapping[str, tuple[Callable[[Any], bytes], Any]]] = {
    "bool": (write_int8, False),
    "int8": (write_int8, 0),
    "int16": (write_int16, 0),
    "int32": (write_int32, 0),
    "int64": (write_int64, 0),
    "uint16": (lambda value: int(value).to_bytes(2, "big"), 0),
    "uuid": (write_uuid, bytes(16)),
}
"""The writer of each fixed-size type, and its default value."""


def compose(message: Message, version: int, values: Values) -> bytes:
    """The body of a message. A missing field is 0, empty, or null where the table allows it; a missing tagged field is
    left out.

    Fields of other versions are left out, too. Raises LocalProtocolError for a field or version that is not in the
    table.
    """
    if version not in message.versions:
        raise LocalProtocolError(f"{message.name} v{version} is not in the table")
    return _Composer(message.name, version, flexible=version in message.flexible).struct(message.fields, values)


class _Composer:
    def __init__(self, name: str, version: int, *, flexible: bool) -> None:
        self._name = name
        self._version = version
        self._flexible = flexible

    def struct(self, fields: tuple[Field, ...], values: Values) -> bytes:
        if unknown := values.keys() - {field.name for field in fields}:
            raise LocalProtocolError(f"{self._name} has no {', '.join(sorted(unknown))}")
        present = [field for field in fields if self._version in field.versions]
        body = b"".join(self._value(field, values.get(field.name)) for field in present if field.tag is None)
        return body + (self._tags(present, values) if self._flexible else b"")

    def _tags(self, fields: Sequence[Field], values: Values) -> bytes:
        tagged = [(field.tag, field) for field in fields if field.tag is not None and field.name in values]
        return write_tagged_fields((tag, [self._value(field, values[field.name])]) for tag, field in sorted(tagged))

    def _value(self, field: Field, value: Any) -> bytes:
        if field.is_array:
            return self._array(field, value)
        return self._single(field, value)

    def _array(self, field: Field, value: Sequence[Any] | None) -> bytes:
        if value is None and self._version in field.nullable:
            return self._count(-1)
        elements = value or ()
        return self._count(len(elements)) + b"".join(self._single(field, element) for element in elements)

    def _single(self, field: Field, value: Any) -> bytes:
        if field.type in _FIXED:
            write, default = _FIXED[field.type]
            return write(default if value is None else value)
        if field.type == "struct":
            return self.struct(field.fields, value or {})
        if value is None and (field.is_array or self._version not in field.nullable):
            value = "" if field.type == "string" else b""
        return self._string(value) if field.type == "string" else self._bytes(value)

    def _string(self, value: str | None) -> bytes:
        return write_compact_string(value) if self._flexible else write_string(value)

    def _bytes(self, value: bytes | None) -> bytes:
        return self._count(-1) if value is None else self._count(len(value)) + value

    def _count(self, count: int) -> bytes:
        """The length of an array or of bytes, which are encoded alike."""
        return write_uvarint(count + 1) if self._flexible else write_int32(count)
