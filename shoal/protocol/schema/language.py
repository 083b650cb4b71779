"""The language of our schema tables: one field per line, with only what the wire format needs.

    FetchResponse: versions 0-18, flexible 12+
    ThrottleTimeMs: int32, versions 1+
    Responses: []struct
      Topic: string, versions 0-12
      Partitions: []struct
        DivergingEpoch: struct, versions 12+, tag 0

The first line has the message name, the versions in the table and the flexible ones (KIP-482; `flexible none`). Two
spaces of indent are one level of struct. `versions` defaults to those of the enclosing struct. `nullable` means in
every version, `nullable 12+` from version 12. `tag N` makes a tagged field. `never flexible` keeps the old encoding in
every version (the client id of the request header). Source of every table: `common/message/*.json` of Apache Kafka;
tests compare them field by field.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["FIXED_SIZES", "Field", "Message", "Versions", "parse_message"]

FIXED_SIZES: Final = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "uuid": 16}
"""Bytes of each fixed-size type."""

NEWEST: Final = 0x7FFF


class Versions(NamedTuple):
    """`low <= version <= high`; empty when low > high."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def within(self, outer: "Versions") -> "Versions":
        return Versions(max(self.low, outer.low), min(self.high, outer.high))


NO_VERSION: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a struct. `type` is the element's type when `is_array`; `fields` is empty unless it is `struct`."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    never_flexible: bool
    fields: "tuple[Field, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The table of a request, response or header."""

    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


def _versions(text: str) -> Versions:
    if text == "none":
        return NO_VERSION
    low, dash, high = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return Versions(int(low), NEWEST)
    return Versions(int(low), int(high if dash else low))


def _attributes(text: str) -> dict[str, str]:
    words = (part.strip().partition(" ") for part in text.split(","))
    return {name: value for name, _, value in words}


class _Line(NamedTuple):
    depth: int
    name: str
    type: str
    attributes: dict[str, str]


def _line(text: str) -> _Line:
    name, _, rest = text.partition(":")
    kind, _, attributes = rest.strip().partition(",")
    return _Line((len(name) - len(name.lstrip())) // 2, name.strip(), kind, _attributes(attributes))


def _fields(lines: list[_Line], depth: int, outer: Versions) -> tuple[Field, ...]:
    """Removes the lines of one struct from the front of `lines`, and parses them."""
    fields = []
    while lines and lines[0].depth == depth:
        line = lines.pop(0)
        versions = _versions(line.attributes.get("versions", "0+")).within(outer)
        nullable = _versions((line.attributes["nullable"] or "0+") if "nullable" in line.attributes else "none")
        fields.append(
            Field(
                name=line.name,
                type=line.type.removeprefix("[]"),
                is_array=line.type.startswith("[]"),
                versions=versions,
                nullable=nullable.within(versions),
                tag=int(line.attributes["tag"]) if "tag" in line.attributes else None,
                never_flexible="never" in line.attributes,
                fields=_fields(lines, depth + 1, versions),
            )
        )
    return tuple(fields)


def parse_message(text: str) -> Message:
    """The table in `text`. A mistake in it raises an ordinary exception: tables are ours, not network input."""
    head, *lines = (line for line in text.splitlines() if line.strip())
    name, _, rest = head.partition(":")
    attributes = _attributes(rest)
    versions = _versions(attributes["versions"])
    rows = [_line(line) for line in lines]
    fields = _fields(rows, 0, versions)
    if rows:
        raise ValueError(f"{name}: wrong indent at {rows[0].name}")
    return Message(
        name=name, versions=versions, flexible=_versions(attributes["flexible"]).within(versions), fields=fields
    )
