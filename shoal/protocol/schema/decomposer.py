"""Reads whole messages with the schema tables: bytes in, names and values out; the counterpart of composer.py.

For small, rare messages that are needed as a whole (the offsets of legacy clients). The data path uses walkers
(walker.py), which skip fields that are not captured.

Refused in hostile bytes: a length below -1, a null that is not allowed, a field that runs past the end, trailing bytes,
and more than `MAX_ELEMENTS` array elements in total. Unknown tagged fields are skipped and not written again.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal.protocol.schema.language import Field, Message
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import (
    Buffer,
    read_compact_string,
    read_int8,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    read_tagged_fields,
    read_uuid,
    read_uvarint,
)

__all__ = ["MAX_ELEMENTS", "decompose"]

MAX_ELEMENTS: Final = 50_000
"""Array elements per message: each takes some 400 bytes here, and as little as one in the frame."""

Values = dict[str, Any]


def _read_bool(buf: Buffer, pos: int, end: int) -> tuple[bool, int]:
    value, pos = read_int8(buf, pos, end)
    return value != 0, pos


def _read_uint16(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    value, pos = read_int16(buf, pos, end)
    return value & 0xFFFF, pos


_FIXED: Final[Mapping[str, Callable[[Buffer, int, int], tuple[Any, int]]]] = {
    "bool": _read_bool,
    "int8": read_int8,
    "int16": read_int16,
    "int32": read_int32,
    "int64": read_int64,
    "uint16": _read_uint16,
    "uuid": read_uuid,
}


def decompose(message: Message, version: int, buf: Buffer, pos: int, end: int) -> Values:
    """The message body `buf[pos:end]`: field name -> int, bool, str, bytes, None, a list, or a mapping for a struct.

    Contains only the version's fields; a tagged field only if it was sent. Raises RemoteProtocolError, or
    UnsupportedVersion for a version that is not in the table.
    """
    if version not in message.versions:
        low, high = message.versions
        raise UnsupportedVersion(f"{message.name} version {version}: only {low}-{high} can be read")
    reader = _Decomposer(message.name, version, buf, end, flexible=version in message.flexible)
    values, pos = reader.struct(message.fields, pos)
    if pos != end:
        raise RemoteProtocolError(f"{message.name} v{version} does not end where the frame ends (at {pos} of {end})")
    return values


class _Decomposer:
    def __init__(self, name: str, version: int, buf: Buffer, end: int, *, flexible: bool) -> None:
        self._name = name
        self._version = version
        self._buf = buf
        self._end = end
        self._flexible = flexible
        self._elements = 0

    def struct(self, fields: tuple[Field, ...], pos: int) -> tuple[Values, int]:
        values: Values = {}
        present = [field for field in fields if self._version in field.versions]
        for field in present:
            if field.tag is None:
                values[field.name], pos = self._value(field, pos)
        return (values, self._tags(present, values, pos)) if self._flexible else (values, pos)

    def _tags(self, fields: list[Field], values: Values, pos: int) -> int:
        known = {field.tag: field for field in fields if field.tag is not None}
        sent, pos = read_tagged_fields(self._buf, pos, self._end)
        for tag, start, stop in sent:
            if field := known.get(tag):
                values[field.name], after = self._value(field, start)
                if after != stop:
                    raise self._bad(field, "does not fill its tagged field")
        return pos

    def _value(self, field: Field, pos: int) -> tuple[Any, int]:
        return self._array(field, pos) if field.is_array else self._single(field, pos)

    def _array(self, field: Field, pos: int) -> tuple[list[Any] | None, int]:
        count, pos = self._count(field, pos)
        if count is None:
            return None, pos
        self._elements += count
        if count > self._end - pos or self._elements > MAX_ELEMENTS:
            raise self._bad(field, f"has too many elements ({count})")
        elements = []
        for _ in range(count):
            element, pos = self._single(field, pos)
            elements.append(element)
        return elements, pos

    def _single(self, field: Field, pos: int) -> tuple[Any, int]:
        if read := _FIXED.get(field.type):
            return read(self._buf, pos, self._end)
        if field.type == "struct":
            return self.struct(field.fields, pos)
        return self._string(field, pos) if field.type == "string" else self._bytes(field, pos)

    def _string(self, field: Field, pos: int) -> tuple[str | None, int]:
        read = read_compact_string if self._flexible and not field.never_flexible else read_string
        value, pos = read(self._buf, pos, self._end)
        if value is None and (field.is_array or self._version not in field.nullable):
            raise self._bad(field, "may not be null")
        return value, pos

    def _bytes(self, field: Field, pos: int) -> tuple[bytes | None, int]:
        size, pos = self._count(field, pos)
        if size is None:
            return None, pos
        if size > self._end - pos:
            raise self._bad(field, "runs past the end")
        return bytes(self._buf[pos : pos + size]), pos + size

    def _count(self, field: Field, pos: int) -> tuple[int | None, int]:
        """The length of an array or of bytes; None = null."""
        if self._flexible:
            raw, pos = read_uvarint(self._buf, pos, self._end)
            count = raw - 1
        else:
            count, pos = read_int32(self._buf, pos, self._end)
        if count >= 0:
            return count, pos
        if count < -1 or self._version not in field.nullable:
            raise self._bad(field, "may not be null" if count == -1 else "has a negative length")
        return None, pos

    def _bad(self, field: Field, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"{self._name} v{self._version}: {field.name} {what}")
