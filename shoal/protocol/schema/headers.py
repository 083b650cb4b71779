"""Request and response headers: the bytes between a frame's size and its body.

    request   size int32, api key int16, api version int16, correlation id int32, client id NULLABLE_STRING,
              [tagged fields]
    response  size int32, correlation id int32, [tagged fields]

The tagged fields belong to header versions 2 and 1 (KIP-482). The client id keeps its int16 length in every version, so
that a broker can read it from a version that it does not know (`RequestHeader.json`). A client id need not be UTF-8:
brokers replace invalid bytes with U+FFFD, and so does Shoal, so that a quota finds the same name.
"""

from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.schema.api import request_header_version, response_header_version
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import (
    Buffer,
    read_int16,
    read_string,
    skip_tagged_fields,
    write_int32,
    write_string,
    write_tagged_fields,
)

__all__ = [
    "REQUEST_PREFIX",
    "RESPONSE_PREFIX",
    "SIZE_BYTES",
    "RequestHeader",
    "has_client_id",
    "peek_client_id",
    "peek_correlation_id",
    "read_request_api",
    "read_request_header",
    "read_request_prefix",
    "read_response_prefix",
    "read_size",
    "response_body",
    "write_request_header",
    "write_response_header",
]

_SIZE = Struct(">i")
_REQUEST = Struct(
    ">"
    "i"  # size of what follows
    "h"  # RequestApiKey
    "h"  # RequestApiVersion
    "i"  # CorrelationId
)
_REQUEST_API = Struct(
    ">"
    "i"  # size of what follows
    "I"  # RequestApiKey and RequestApiVersion
    "i"  # CorrelationId
)
_RESPONSE = Struct(
    ">"
    "i"  # size of what follows
    "i"  # CorrelationId
)
_LENGTH = Struct(">h")  # of a client id
SIZE_BYTES: Final = _SIZE.size
REQUEST_PREFIX: Final = _REQUEST.size
RESPONSE_PREFIX: Final = _RESPONSE.size

read_size = _SIZE.unpack_from
"""`(buf, pos) -> (size,)`. Like those below: for callers that know that so many bytes are there."""
read_request_prefix = _REQUEST.unpack_from
"""`(buf, pos) -> (size, API key, API version, correlation id)`, the first `REQUEST_PREFIX` bytes of a frame."""
read_request_api = _REQUEST_API.unpack_from
"""The same prefix with key and version as one number: `(buf, pos) -> (size, key << 16 | version, correlation id)`."""
read_response_prefix = _RESPONSE.unpack_from
"""`(buf, pos) -> (size, correlation id)`, the first `RESPONSE_PREFIX` bytes of a frame."""

_FIXED = Struct(">hhi")  # of a request header, without the size
_LARGEST_STRING: Final = 0x7FFF


class RequestHeader(NamedTuple):
    """`body` is the position in the frame where the request's own fields begin."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a whole request frame. Raises RemoteProtocolError."""
    end = len(frame)
    if end < REQUEST_PREFIX:
        raise RemoteProtocolError(f"a request of {end} bytes is too short for its header")
    _, key, version, correlation_id = read_request_prefix(frame)
    client_id, body = _read_client_id(frame, end)
    if request_header_version(key, version) == 2:
        body = _skip_tags(frame, body, end)
    return RequestHeader(key, version, correlation_id, client_id, body)


def _read_client_id(frame: Buffer, end: int) -> tuple[str | None, int]:
    try:
        return read_string(frame, REQUEST_PREFIX, end)
    except RemoteProtocolError:
        return _read_odd_client_id(frame, REQUEST_PREFIX, end)


def _read_odd_client_id(frame: Buffer, pos: int, end: int) -> tuple[str, int]:
    size, start = read_int16(frame, pos, end)
    stop = start + size
    client_id = str(frame[start:stop], "utf-8", "replace")
    if size < 0 or stop > end or len(client_id.encode()) > _LARGEST_STRING:
        raise RemoteProtocolError(
            f"a client id of {size} bytes: only {end - start} are left, or most of it is not UTF-8"
        )
    return client_id, stop


def has_client_id(first: Buffer) -> bool:
    """Its bytes have arrived, or the request ends before it (ControlledShutdown v0). At least the prefix has."""
    start = REQUEST_PREFIX + _LENGTH.size
    if len(first) < start:
        return len(first) >= SIZE_BYTES + int(read_size(first)[0])
    (length,) = _LENGTH.unpack_from(first, REQUEST_PREFIX)
    return len(first) >= start + int(length)


def peek_client_id(first: Buffer) -> str | None:
    """From the first bytes of a request frame. None: null, not complete, or invalid (`read_request_header`)."""
    try:
        return _read_client_id(first, len(first))[0]
    except RemoteProtocolError:
        return None


def write_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A header, without the frame's size."""
    tags = write_tagged_fields() if request_header_version(api_key, api_version) == 2 else b""
    return _FIXED.pack(api_key, api_version, correlation_id) + write_string(client_id) + tags


def response_body(frame: Buffer, api_key: int, api_version: int) -> int:
    """The position of the body in a response frame. Raises RemoteProtocolError."""
    if response_header_version(api_key, api_version) == 1:
        return _skip_tags(frame, RESPONSE_PREFIX, len(frame))
    return RESPONSE_PREFIX


def peek_correlation_id(frame: Buffer) -> int | None:
    """The correlation id of a response frame; None if it is too short for one, as a SASL token may be."""
    return read_response_prefix(frame)[1] if len(frame) >= RESPONSE_PREFIX else None


def write_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """A header, without the frame's size."""
    tags = write_tagged_fields() if response_header_version(api_key, api_version) == 1 else b""
    return write_int32(correlation_id) + tags


def _skip_tags(frame: Buffer, pos: int, end: int) -> int:
    if pos < end and not frame[pos]:
        return pos + 1
    return skip_tagged_fields(frame, pos, end)
