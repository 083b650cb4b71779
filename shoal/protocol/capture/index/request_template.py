"""Repeated requests without records: of one API and client, whose rows differ only in times, numbers and sizes.

    size  api  correlation id  [client id]  ...
    size  correlation id  ...

The walkers read nothing else of them. The answer to a Fetch has records, so only the request is read here.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from shoal.protocol.capture.index.columns import HEADER_SIZE, Direction, Kind
from shoal.protocol.capture.index.pending import NO_ACKS, NO_NOTE, Request
from shoal.protocol.capture.index.stream import MAX_NAME
from shoal.protocol.capture.index.template import ALWAYS, API, NOT_LOOKED, Frame, RowTemplate, Sent, Treated, shared
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import REQUEST_PREFIX, RESPONSE_PREFIX, SIZE_BYTES, read_response_prefix

__all__ = ["RequestTemplate", "template_of"]

_READ_BY_WALKERS: Final = {int(key) for key in (ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.CONTROLLED_SHUTDOWN)}
_FETCH: Final = int(ApiKey.FETCH)
_LENGTH: Final = 2  # bytes of the client id's length
_UNKNOWN_ERROR: Final = -32768
_NO_OFFSET: Final = -1
_NO_HEADER: Final = bytes(HEADER_SIZE)


class RequestTemplate(RowTemplate):
    kind_and_direction = Kind.REQUEST, Direction.OTHER
    __slots__ = ("_api", "_client", "_is_fetch", "_key", "_row_api", "_size", "_unpack", "_version")

    def __init__(self, frame: Frame, request: Request) -> None:
        super().__init__(request.client, "", -1, 0)
        self._key, self._version = request.api_key, request.api_version
        self._size = REQUEST_PREFIX + _LENGTH + len(request.client)
        self._api, self._client = bytes(frame[4:8]), shared(bytes(frame[REQUEST_PREFIX : self._size]))
        self._unpack = _layout(len(self._client))
        self._is_fetch = request.api_key == _FETCH
        self._row_api = API.pack(request.api_key, request.api_version, NO_ACKS)

    def read(self, frame: Frame, now_ns: int, number: int) -> Sent | None:
        """None: another kind of request."""
        size = len(frame)
        if size < self._size:
            return None
        length, api, correlation_id, client = self._unpack(frame)
        if length + SIZE_BYTES != size or api != self._api or client != self._client:
            return None
        return self, correlation_id, now_ns, number, size, NOT_LOOKED, _NO_HEADER, NO_NOTE

    def row(self, sent: Sent, frame: Frame, now_ns: int, treated: Treated | None) -> bytes | None:
        if len(frame) < RESPONSE_PREFIX or self._is_fetch:
            return None
        length, answered = read_response_prefix(frame)
        size = length + SIZE_BYTES
        if answered != sent[1] or size != len(frame):
            return None
        always = ALWAYS.pack(size, self._row_api, _UNKNOWN_ERROR)
        return self._row(sent, now_ns, always, _NO_OFFSET, treated)

    def as_request(self, sent: Sent) -> Request:
        _, correlation_id, sent_ns, number, size, _, _, note = sent
        request = Request(self._key, self._version, correlation_id, size, number)
        request.client, request.sent_ns, request.note = self.client, sent_ns, note
        return request


@lru_cache(maxsize=256)
def _layout(client: int) -> Callable[[Frame], tuple[int, bytes, int, bytes]]:
    """Size, API, correlation id, the client id with its length."""
    return Struct(f">i4si{client}s").unpack_from


def template_of(frame: Frame, request: Request) -> RequestTemplate | None:
    """`frame`: a whole request. None: not possible."""
    length = int.from_bytes(frame[REQUEST_PREFIX : REQUEST_PREFIX + _LENGTH], "big", signed=True)
    has_client = len(frame) >= REQUEST_PREFIX + _LENGTH and max(length, 0) == len(request.client) <= MAX_NAME
    if request.is_token or request.api_key in _READ_BY_WALKERS or not has_client:
        return None
    return RequestTemplate(frame, request)
