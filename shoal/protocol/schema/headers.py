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
    "RequestHeader",
    "read_request_header",
    "response_body",
    "write_request_header",
    "write_response_header",
]

SIZE_BYTES: Final = 4

_FIXED = Struct(
    ">"
    "h"  # RequestApiKey
    "h"  # RequestApiVersion
    "i"  # CorrelationId
)
_AFTER_FIXED = SIZE_BYTES + _FIXED.size
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
    if end < _AFTER_FIXED:
        raise RemoteProtocolError(f"a request of {end} bytes is too short for its header")
    key, version, correlation_id = _FIXED.unpack_from(frame, SIZE_BYTES)
    try:
        client_id, body = read_string(frame, _AFTER_FIXED, end)
    except RemoteProtocolError:
        client_id, body = _read_odd_client_id(frame, _AFTER_FIXED, end)
    if request_header_version(key, version) == 2:
        body = _skip_tags(frame, body, end)
    return RequestHeader(key, version, correlation_id, client_id, body)


def _read_odd_client_id(frame: Buffer, pos: int, end: int) -> tuple[str, int]:
    size, start = read_int16(frame, pos, end)
    stop = start + size
    client_id = str(frame[start:stop], "utf-8", "replace")
    if size < 0 or stop > end or len(client_id.encode()) > _LARGEST_STRING:
        raise RemoteProtocolError(
            f"a client id of {size} bytes: only {end - start} are left, or most of it is not UTF-8"
        )
    return client_id, stop


def write_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A header, without the frame's size."""
    tags = write_tagged_fields() if request_header_version(api_key, api_version) == 2 else b""
    return _FIXED.pack(api_key, api_version, correlation_id) + write_string(client_id) + tags


def response_body(frame: Buffer, api_key: int, api_version: int) -> int:
    """The position of the body in a response frame. Raises RemoteProtocolError."""
    body = SIZE_BYTES + 4
    if response_header_version(api_key, api_version) == 1:
        return _skip_tags(frame, body, len(frame))
    return body


def write_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """A header, without the frame's size."""
    tags = write_tagged_fields() if response_header_version(api_key, api_version) == 1 else b""
    return write_int32(correlation_id) + tags


def _skip_tags(frame: Buffer, pos: int, end: int) -> int:
    if pos < end and not frame[pos]:
        return pos + 1
    return skip_tagged_fields(frame, pos, end)
