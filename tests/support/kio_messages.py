"""kio as an oracle: any message of any version, and its bytes as kio writes them.

kio only ever encodes here, or decodes what Shoal made out of its bytes; it is not safe on anything else.
"""

import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from shoal.protocol.schema.api import API, response_header_version
from shoal.protocol.schema.tables import MESSAGES

__all__ = [
    "Case",
    "cases",
    "decode_request",
    "decode_response",
    "encode",
    "entities",
    "entity_type",
    "for_any",
    "request_frame",
    "response_frame",
    "topic_key",
]

Entity = Any


class Case(NamedTuple):
    """A message and version that both our tables and kio have."""

    name: str
    version: int

    @property
    def api_key(self) -> int:
        return next(key for key, api in API.items() if api.name == re.sub("(Request|Response)$", "", self.name))


def cases(*names: str) -> Iterator[Case]:
    for name in names or MESSAGES:
        api, _, _ = re.sub("(Request|Response)$", " ", name).partition(" ")
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
        for version in schema_name_map.get(snake, ()) if not name.endswith("Header") else ():
            yield Case(name, version)


@cache
def entity_type(case: Case) -> type[Entity]:
    load = load_request_schema if case.name.endswith("Request") else load_response_schema
    return load(case.api_key, case.version)


def _bits(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("long" * 60)
_MILLISECONDS = st.integers(-1 << 31, (1 << 31) - 1).map(lambda value: timedelta(milliseconds=value))
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _bits(8),
    "int16": _bits(16),
    "int32": _bits(32),
    "int64": _bits(64),
    "uint16": st.integers(0, 0xFFFF),
    "string": _TEXT,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40) | st.integers(120, 70_000).map(bytes),
    "uuid": st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _MILLISECONDS,
    "timedelta_i64": _MILLISECONDS,
    "datetime_i64": st.datetimes(min_value=datetime(1970, 1, 2)).map(lambda at: at.replace(microsecond=0, tzinfo=UTC)),
}


@cache
def entities(case: Case) -> st.SearchStrategy[Entity]:
    """Any message of this kind: small arrays, nulls, all tagged fields."""
    return _entities(entity_type(case))


def _entities(entity: type[Entity]) -> st.SearchStrategy[Entity]:
    hints = typing.get_type_hints(entity)
    return st.builds(entity, **{field.name: _value(field, hints[field.name]) for field in fields(entity)})


def _value(field: Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    optional = isinstance(hint, types.UnionType)
    if optional:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    is_array = typing.get_origin(hint) is tuple
    element = typing.get_args(hint)[0] if is_array else hint
    values = _SCALARS[field.metadata["kafka_type"]] if "kafka_type" in field.metadata else _entities(element)
    if is_array:
        values = st.lists(values, max_size=3).map(tuple)
    return st.none() | values if optional else values


def encode(entity: Entity) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request_frame(entity: Entity, correlation_id: int = 7, client_id: str | None = "a client") -> bytes:
    header_type = type(entity).__header_schema__
    header = header_type(
        request_api_key=type(entity).__api_key__,
        request_api_version=type(entity).__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _framed(encode(header) + encode(entity))


def response_frame(entity: Entity, correlation_id: int = 7) -> bytes:
    return _framed(encode(type(entity).__header_schema__(correlation_id=correlation_id)) + encode(entity))


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


def decode_request(frame: bytes, entity: type[Entity]) -> tuple[Entity, Entity]:
    """The header and the entity in a frame that Shoal made; the whole frame, and its size, must be right."""
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, header_size = entity_reader(entity.__header_schema__)(frame, 4)
    decoded, size = entity_reader(entity)(frame, 4 + header_size)
    assert 4 + header_size + size == len(frame)
    return header, decoded


def decode_response(frame: bytes, entity: type[Entity]) -> Entity:
    """The entity in a frame that Shoal made; the whole frame, and its size, must be right."""
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    start = 8 + response_header_version(entity.__api_key__, entity.__version__)
    decoded, size = entity_reader(entity)(frame, start)
    assert start + size == len(frame)
    return decoded


def topic_key(topic: Entity) -> str | bytes:
    """How Shoal names the topic that kio has as `topic`, `name` or `topic_id`."""
    if hasattr(topic, "topic_id"):
        return topic.topic_id.bytes if topic.topic_id else bytes(16)
    return str(topic.topic if hasattr(topic, "topic") else topic.name)


Test = Callable[[Case, Entity, st.DataObject], None]


def for_any(*names: str, oldest: int = 0, examples: int = 15) -> Callable[[Test], Callable[[Case], None]]:
    """Decorator: run a test with any message of each named kind, for each version, as `test(case, entity)`."""

    def decorate(test: Test) -> Callable[[Case], None]:
        wanted = [case for case in cases(*names) if case.version >= oldest]

        @pytest.mark.parametrize("case", wanted, ids=lambda case: f"{case.name}-v{case.version}")
        def run(case: Case) -> None:
            @settings(max_examples=examples, deadline=None)
            @given(st.data())
            def check(data: st.DataObject) -> None:
                test(case, data.draw(entities(case)), data)

            check()

        run.__name__ = test.__name__
        checked: Callable[[Case], None] = run
        return checked

    return decorate
