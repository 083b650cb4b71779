"""Responses that pass to legacy clients unchanged, except for error codes that such clients do not know.

The versions are those that brokers still support and old clients use (`errors.CLIENT_VERSIONS`). In most of them the
code directly follows the correlation id; in the others a walker finds it. A response is copied only if a code changes.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.types import Buffer, read_int16

__all__ = ["CHECKED", "say_known"]

_INT16 = Struct(">h")

_FIRST: Final = frozenset(
    {
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LIST_GROUPS,
    }
)


def _walkers(name: str, *arrays: str) -> Walkers:
    return Walkers(MESSAGES[name], (), *(Rows(array, ("ErrorCode", "at ErrorCode")) for array in arrays))


_WALKED: Final[Mapping[int, Walkers]] = MappingProxyType(
    {
        ApiKey.METADATA: _walkers("MetadataResponse", "Topics", "Topics.Partitions"),
        ApiKey.LIST_OFFSETS: _walkers("ListOffsetsResponse", "Topics.Partitions"),
        ApiKey.OFFSET_COMMIT: _walkers("OffsetCommitResponse", "Topics.Partitions"),
        ApiKey.OFFSET_FETCH: Walkers(
            MESSAGES["OffsetFetchResponse"],
            ("ErrorCode", "at ErrorCode"),
            Rows("Topics.Partitions", ("ErrorCode", "at ErrorCode")),
        ),
    }
)
_TOP: Final = frozenset({ApiKey.OFFSET_FETCH})  # have a top-level code, too

CHECKED: Final = _FIRST | _WALKED.keys()


def say_known(frame: Buffer, api_key: int, version: int, say: Callable[[int], int]) -> Buffer:
    """The response with each error code replaced by `say(code)`; `frame` itself if no code changes.

    Raises RemoteProtocolError.
    """
    changes = [(at, new) for code, at in _codes(frame, api_key, version) if (new := say(code)) != code]
    if not changes:
        return frame
    patched = bytearray(frame)
    for at, code in changes:
        _INT16.pack_into(patched, at, code)
    return patched


def _codes(frame: Buffer, api_key: int, version: int) -> list[tuple[int, int]]:
    """(code, position) of each error code."""
    body, end = response_body(frame, api_key, version), len(frame)
    if api_key in _FIRST:
        return [(read_int16(frame, body, end)[0], body)]
    found = _WALKED[api_key][version](frame, body, end)
    top, rows = ([(found[0], found[1])], found[2:]) if api_key in _TOP else ([], found)
    return top + [code for row in rows for code in row]
