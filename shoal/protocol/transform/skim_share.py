"""Hide the broker addresses in a ShareFetch response that is too large to hold, while it is streamed.

As `skim` does in a Fetch response; but here NodeEndpoints is a plain array (KIP-932), mostly empty. If it is not, the
rest of the frame, from its length on, is held, and replaced by as many bytes: an empty array, and a tagged field that
no client knows. The client finds leaders with a Metadata request.

    ShareFetchResponse v0-v2:  size, correlation id, tags | throttle int32, error int16, message, lock timeout int32
                               (v1+), topics, node endpoints, tags
    topic:                     id 16, partitions, tags
    partition:                 index 4, error 2, message, acknowledgement's error 2, message, leader (4, 4, tags),
                               records, acquired records (8, 8, 2, tags)*, tags
"""

from typing import Final

from shoal.protocol.transform.skim import HIDDEN_TAG, HOLD, FetchSkimmer, Walk
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["ShareFetchSkimmer"]

_NO_ENDPOINTS: Final = bytes([1, 1, HIDDEN_TAG])
"""An empty compact array, and the beginning of one tagged field: its size follows."""
_SIZE_BYTES: Final = 5


class ShareFetchSkimmer(FetchSkimmer):
    versions = range(3)

    def _hide(self, rest: bytes | bytearray) -> bytes:
        room = len(rest) - len(_NO_ENDPOINTS) - _SIZE_BYTES
        if room < 0:
            raise RemoteProtocolError(f"{len(rest)} bytes of a fetch response are too few for node endpoints")
        return _NO_ENDPOINTS + _size(room) + bytes(room)

    def _response(self) -> Walk:
        skip = (yield from self._tags(4 + 4)) + 4 + 2
        skip = yield from self._count(skip)
        skip = yield from self._topics(skip + (4 if self._version >= 1 else 0))
        endpoints = yield skip
        if endpoints > 1:
            yield HOLD
        return (yield from self._tags(0))

    def _partition(self, skip: int) -> Walk:
        skip = yield from self._count(skip + 4 + 2)
        skip = yield from self._count(skip + 2)
        skip = yield from self._tags(skip + 4 + 4)
        records = yield from self._count(skip)
        acquired = yield from self._count(records)
        skip = 0
        for _ in range(acquired):
            skip = yield from self._tags(skip + 8 + 8 + 2)
        return (yield from self._tags(skip))


def _size(size: int) -> bytes:
    """An unsigned varint of five bytes, which has room for any size."""
    return bytes([*(size >> shift & 0x7F | 0x80 for shift in range(0, 28, 7)), size >> 28])
