"""ApiVersions v0-v4: offer a client only the versions that Shoal can edit, and read what software it is.

Version notes:
    v0      error code, keys      v1  throttle time      v3  flexible; features as tagged fields      v4  same layout
    The response header is v0 in every version, and the body of an UNSUPPORTED_VERSION response is v0 (KIP-511), so that
    a client can read the response to a version that the broker does not know.

Only maxima of `EDITED` keys are lowered, not minima: librdkafka turns compression off when Produce does not start at
0. If a broker's minimum is above our maximum, the range becomes empty and the client reports the API as unsupported.

A broker sends the same bytes to every client, and a walk over them costs as much as all other work on a small response.
So the edits for the last few responses are cached.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.headers import RESPONSE_PREFIX, read_request_header, response_body, write_response_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer, read_int16, write_int16, write_int32

__all__ = ["EDITED", "Software", "intersect", "offered", "read_software", "unsupported"]

EDITED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""API keys with a message that Shoal reads or edits."""

_NEWEST: Final[dict[int, int]] = {int(key): newest for key in EDITED if (newest := API[key].newest) is not None}
_INT16 = Struct(">h")
# Enough for a handful of brokers and client versions; a response of a 4.3 broker takes 650 bytes.
_ANSWERS_REMEMBERED = 32
_MEMORABLE_BYTES = 8192
_REQUEST = Walkers(MESSAGES["ApiVersionsRequest"], ("ClientSoftwareName", "ClientSoftwareVersion"), oldest=3)
_RESPONSE = Walkers(MESSAGES["ApiVersionsResponse"], (), Rows("ApiKeys", ("ApiKey", "MaxVersion", "at MaxVersion")))


def intersect(frame: Buffer, version: int) -> Buffer:
    """The response frame with the maxima of `EDITED` keys lowered to those of our tables; `frame` itself if none is
    above.

    Raises RemoteProtocolError, or UnsupportedVersion above v4.
    """
    rest = bytes(frame[RESPONSE_PREFIX:])
    lowered = (_remembered if len(rest) <= _MEMORABLE_BYTES else _too_new)(rest, version)
    if not lowered:
        return frame
    patched = bytearray(frame)
    for at, newest in lowered:
        _INT16.pack_into(patched, at, newest)
    return patched


def _too_new(rest: bytes, version: int) -> tuple[tuple[int, int], ...]:
    """(position in the frame, maximum to write) of each edit; `rest` is the frame after its correlation id."""
    keys = _keys(bytes(RESPONSE_PREFIX) + rest, version)
    return tuple((at, _NEWEST[key]) for key, newest, at in keys if newest > _NEWEST.get(key, newest))


_remembered = lru_cache(_ANSWERS_REMEMBERED)(_too_new)


def offered(frame: Buffer, version: int) -> dict[int, int]:
    """API key -> the broker's newest version. Raises as `intersect` does."""
    return {key: newest for key, newest, _ in _keys(frame, version)}


def _keys(frame: Buffer, version: int) -> list[tuple[int, int, int]]:
    """(key, newest version, position of that version in the frame) of each API."""
    body = response_body(frame, ApiKey.API_VERSIONS, version)
    error_code, _ = read_int16(frame, body, len(frame))
    walk = _RESPONSE[0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version]
    keys: list[tuple[int, int, int]] = walk(frame, body, len(frame))[0]
    return keys


class Software(NamedTuple):
    """What a client says it is (KIP-511), such as `apache-kafka-java 4.3.0`. It may say anything."""

    name: str
    version: str


def read_software(frame: Buffer) -> Software | None:
    """From a whole ApiVersions request. None: before v3, newer than our table, or damaged."""
    try:
        header = read_request_header(frame)
        return Software(*_REQUEST[header.api_version](frame, header.body, len(frame)))
    except RemoteProtocolError:
        return None


def unsupported(correlation_id: int) -> bytes:
    """The response to an ApiVersions request newer than our table: error 35 and the range of versions to retry with."""
    body = write_response_header(ApiKey.API_VERSIONS, 0, correlation_id)
    body += write_int16(ErrorCode.UNSUPPORTED_VERSION) + write_int32(1)
    body += write_int16(ApiKey.API_VERSIONS) + write_int16(0) + write_int16(_NEWEST[ApiKey.API_VERSIONS])
    return write_int32(len(body)) + body
