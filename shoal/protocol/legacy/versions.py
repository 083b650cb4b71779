"""The versions that a legacy listener offers: ApiVersions responses whose minima include the versions that Shoal
translates.

Clients from 0.10.2 on choose from this response; older ones send what they know. A minimum is lowered only if the
broker supports the version that old requests become, so Shoal never offers a version that would be refused.
"""

from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import Buffer, read_int16

__all__ = ["UPSTREAM_VERSION", "lower_minima"]

UPSTREAM_VERSION: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 3,
        ApiKey.FETCH: 10,
        ApiKey.LIST_OFFSETS: 1,
        ApiKey.OFFSET_COMMIT: 2,
        ApiKey.OFFSET_FETCH: 2,
        ApiKey.CREATE_TOPICS: 2,
        ApiKey.DELETE_TOPICS: 1,
        ApiKey.DESCRIBE_CONFIGS: 1,
    }
)
"""API -> the version that Shoal sends to the broker for older requests. All versions below it are served, from 0 on."""

_INT16 = Struct(">h")
_RESPONSE = Walkers(
    MESSAGES["ApiVersionsResponse"], (), Rows("ApiKeys", ("ApiKey", "MinVersion", "MaxVersion", "at MinVersion"))
)


def lower_minima(frame: Buffer, version: int) -> Buffer:
    """The ApiVersions response frame with minima 0 for translated APIs; `frame` itself if nothing changes.

    Raises RemoteProtocolError.
    """
    body = response_body(frame, ApiKey.API_VERSIONS, version)
    error_code, _ = read_int16(frame, body, len(frame))
    walk = _RESPONSE[0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version]
    places = [at for key, oldest, newest, at in walk(frame, body, len(frame))[0] if _is_lowered(key, oldest, newest)]
    if not places:
        return frame
    patched = bytearray(frame)
    for at in places:
        _INT16.pack_into(patched, at, 0)
    return patched


def _is_lowered(key: int, oldest: int, newest: int) -> bool:
    return key in UPSTREAM_VERSION and 0 < oldest <= UPSTREAM_VERSION[key] <= newest
