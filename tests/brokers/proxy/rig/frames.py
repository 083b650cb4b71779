"""Requests and answers as raw frames, encoded and decoded by kio: an oracle independent of Shoal's protocol code.

A body is written as plain dicts and lists: `{"topics": [{"name": "a", "topic_id": id, "partitions": [0]}]}`. Fields
Fields that the version lacks are left out, missing fields get the schema's default or the empty value, so one body
serves all versions of an API.
"""

from __future__ import annotations

import io
import socket
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

KEYS: Mapping[str, int] = {name: key for key, name in api_key_map.items()}
CLIENT_ID = "frames"
CORRELATION_ID = 7_012_345
Body = Mapping[str, object]
Entity = Any  # a dataclass of kio.schema

_EMPTY: tuple[tuple[type, object], ...] = (  # bool before int: the first base class decides
    (bool, False),
    (int, 0),
    (float, 0.0),
    (str, ""),
    (bytes, b""),
    (timedelta, timedelta(0)),
    (datetime, datetime.fromtimestamp(0, UTC)),
    (uuid.UUID, None),
)


class Closed(NamedTuple):
    """The peer closed the connection instead of answering."""


class Wire:
    """One TCP connection with one request at a time; only the length prefix is interpreted."""

    def __init__(self, host: str, port: int, timeout: float = 30) -> None:
        self.address = (host, port)
        self._socket = socket.create_connection(self.address, timeout=timeout)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes | Closed:
        """A whole frame with its length prefix. TimeoutError if none arrives in time."""
        prefix = self._exactly(4)
        if len(prefix) < 4:
            return Closed()
        (size,) = struct.unpack(">i", prefix)
        body = self._exactly(size)
        return prefix + body if len(body) == size else Closed()

    def ask(self, frame: bytes) -> bytes | Closed:
        try:
            self.send(frame)
            return self.receive()
        except (ConnectionResetError, BrokenPipeError):
            return Closed()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self._socket.recv(size - len(received))
            except ConnectionResetError:
                break
            if not chunk:
                break
            received += chunk
        return bytes(received)


def encode(entity: Entity) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(
    api: str, version: int, body: Body, *, correlation_id: int = CORRELATION_ID, seen: set[str] | None = None
) -> bytes:
    """The frame of a request. `seen` collects the dotted names of the fields of `body` that this version has."""
    schema = load_request_schema(KEYS[api], version)
    entity: Entity = build(schema, body, path=api, seen=set() if seen is None else seen)
    header: Entity = schema.__header_schema__
    head = header(
        request_api_key=KEYS[api], request_api_version=version, correlation_id=correlation_id, client_id=CLIENT_ID
    )
    return framed(encode(head) + encode(entity))


def response(api: str, version: int, frame: bytes) -> Entity:
    """The decoded answer. AssertionError if bytes are left over or the correlation id differs."""
    schema = load_response_schema(KEYS[api], version)
    payload = frame[4:]
    header, header_size = entity_reader(schema.__header_schema__)(payload, 0)
    assert header.correlation_id == CORRELATION_ID
    entity, size = entity_reader(schema)(payload, header_size)
    assert header_size + size == len(payload), f"{api} v{version}: {len(payload) - header_size - size} bytes left over"
    return entity


def build(schema: type, body: Body, *, path: str, seen: set[str]) -> Entity:
    """A kio dataclass from nested mappings."""
    values = {}
    for field in fields(schema):
        if field.name in body:
            name = f"{path}.{field.name}"
            seen.add(name)
            values[field.name] = _given(field.type, body[field.name], path=name, seen=seen)
        else:
            values[field.name] = _default(field)
    return schema(**values)


def dotted_names(body: object, path: str) -> set[str]:
    """The dotted names of all fields in a body, as `request` reports the used ones."""
    if isinstance(body, Mapping):
        return {
            name for key, value in body.items() for name in {f"{path}.{key}"} | dotted_names(value, f"{path}.{key}")
        }
    if isinstance(body, Sequence) and not isinstance(body, str | bytes):
        return {name for item in body for name in dotted_names(item, path)}
    return set()


def _given(annotation: Any, value: object, *, path: str, seen: set[str]) -> object:
    if value is None:
        return None
    inner = _inner(annotation)
    if get_origin(inner) is tuple:
        assert isinstance(value, Sequence)
        (item, _) = get_args(inner)
        return tuple(_given(item, element, path=path, seen=seen) for element in value)
    if is_dataclass(inner):
        assert isinstance(value, Mapping)
        assert isinstance(inner, type)
        return build(inner, value, path=path, seen=seen)
    return value


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return _empty(field.type)


def _empty(annotation: Any) -> object:
    if isinstance(annotation, UnionType):
        return None
    if get_origin(annotation) is tuple:
        return ()
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return build(annotation, {}, path="", seen=set())
    return next(value for kind, value in _EMPTY if issubclass(annotation, kind))


def _inner(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if isinstance(annotation, UnionType):
        (inner,) = (arm for arm in get_args(annotation) if arm is not NoneType)
        return inner
    return annotation
