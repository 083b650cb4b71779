"""Produce v0-v2 of clients that write messages of magic 0 and 1 (KIP-896 took these versions from brokers, KIP-724 the formats).

    hold the request -- convert each partition's set --+-- forward as v3; the answer is written anew when it passes
                                                       +-- a large batch: ask, and cut what the broker finds too large
                                                       +-- nothing to send: answer in the broker's place

Converting costs some 4 us per message: small requests on the spot, others in a thread, one at a time in the whole process. So at
most two sets are open at once, of at most MAX_PLAIN bytes, whatever wrappers say of themselves.

A message set could be larger than a topic's max.message.bytes, which counted for each message; as one batch it counts as a whole.
Kafka's own up-conversion fails there (RecordTooLargeException). Here a large batch that the broker finds too large is cut in halves,
sent one after the other, and nothing of the connection is sent in between. Where a later half fails, the client is told of an
error though the first was appended: it sends all again, as it does after a lost answer. With acks = 0 nobody answers, so nothing
is cut.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from shoal.protocol.api import ApiKey
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.headers import write_request_header
from shoal.protocol.legacy.produce import (
    Produced,
    Refused,
    convert,
    encode_for_broker,
    encode_for_client,
    read_legacy_answer,
    read_legacy_produce,
)
from shoal.protocol.records.rebatch import MAX_DECOMPRESSED, split_batch
from shoal.protocol.wire import write_int32
from shoal.proxy.in_flight import Edit, blaming_the_broker
from shoal.proxy.routes import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.protocol.headers import RequestHeader
    from shoal.protocol.legacy.produce import Place
    from shoal.protocol.legacy.up import UpConverted
    from shoal.protocol.messages.produce import ProduceRequest
    from shoal.proxy.connection import Connection
    from shoal.proxy.in_flight import InFlight
    from shoal.proxy.transport import Buffer

    Conversion = Mapping[Place, UpConverted | Refused]

__all__ = ["handle"]

log = logging.getLogger("shoal.legacy")

MAX_PLAIN = MAX_DECOMPRESSED
_BYTES_HERE = 32 * 1024  # of a request that is converted on the spot: some 2 ms of small messages
_PLAIN_HERE = 64 * 1024  # of each of its sets
_LARGE = 256 * 1024  # a batch that may be above a topic's max.message.bytes (by default 1 MiB)

_NOBODY_ASKED = 0  # acks
_NONE, _UNKNOWN, _MESSAGE_TOO_LARGE = 0, -1, 10

_thread = trio.CapacityLimiter(1)
T = TypeVar("T")


async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    request = read_legacy_produce(frame, header)
    conversion = await _converted(frame, request)
    _tell_refused(connection, header, conversion)
    sets = {place: one.parts for place, one in conversion.items() if not isinstance(one, Refused) and one.records}
    if request.acks == _NOBODY_ASKED:
        await _send_unanswered(connection, header, request, conversion, sets)
    elif not sets and conversion:
        await connection.reply([_answer(header, conversion, {})])
    elif any(sum(map(len, parts)) > _LARGE for parts in sets.values()):
        await _Large(connection, header, request, sets).run(conversion)
    else:
        upstream = encode_for_broker(header, request, sets)
        await connection.forward([upstream], Edit(partial(_answered, header, conversion)))


async def _converted(frame: bytearray, request: ProduceRequest) -> Conversion:
    if len(frame) <= _BYTES_HERE:
        here = convert(frame, request, limit=_PLAIN_HERE)
        if not any(isinstance(one, Refused) and one.error_code == _MESSAGE_TOO_LARGE for one in here.values()):
            return here
    return await _in_thread(partial(convert, frame, request, limit=MAX_PLAIN))


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work, limiter=_thread)


def _tell_refused(connection: Connection, header: RequestHeader, conversion: Conversion) -> None:
    for place, one in conversion.items():
        if isinstance(one, Refused):
            what = f"produced by client {header.client_id!r} to {place.topic}-{place.partition}, refused: {one.reason}"
            connection.listener.complain(f"message set {what}")


def _answer(
    header: RequestHeader, conversion: Conversion, said: Mapping[Place, Produced], throttle_ms: int = 0
) -> bytes:
    """`said` by the broker, of what was sent to it."""
    places = [(place, _outcome(one, said.get(place))) for place, one in conversion.items()]
    return encode_for_client(header.api_version, header.correlation_id, places, throttle_ms=throttle_ms)


def _outcome(one: UpConverted | Refused, said: Produced | None) -> Produced:
    if isinstance(one, Refused):
        return Produced(one.error_code)
    return said or Produced(_UNKNOWN if one.records else _NONE)


def _answered(
    header: RequestHeader, conversion: Conversion, connection: Connection, _: InFlight, frame: Buffer
) -> Buffer:
    answer = read_legacy_answer(frame)
    return _answer(header, conversion, answer.places, answer.throttle_ms)


async def _send_unanswered(
    connection: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    conversion: Conversion,
    sets: Mapping[Place, list[Buffer]],
) -> None:
    """acks = 0. Where a set is refused, the connection ends, as a broker ends it: nothing else tells the client. Before that the
    broker answers something else, so that what was sent to it has arrived."""
    if sets:
        await connection.forward([encode_for_broker(header, request, sets)], Verdict.SILENT)
    if any(isinstance(one, Refused) for one in conversion.values()):
        question = write_request_header(ApiKey.API_VERSIONS, 0, header.correlation_id, header.client_id)
        await connection.ask([write_int32(len(question)) + question])
        raise RemoteProtocolError("a message set that cannot be appended, produced with acks = 0")


class _Large:
    """One request with a batch that may have to be cut."""

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        request: ProduceRequest,
        sets: Mapping[Place, list[Buffer]],
    ) -> None:
        self._connection = connection
        self._header = header
        self._request = request
        self._left = {place: deque(bytes(part) for part in parts) for place, parts in sets.items()}
        self._said: dict[Place, Produced] = {}
        self._throttle_ms = 0

    async def run(self, conversion: Conversion) -> None:
        while self._left:
            sets = {place: [batches[0]] for place, batches in self._left.items()}
            frame = await self._connection.ask([encode_for_broker(self._header, self._request, sets)])
            with blaming_the_broker():
                answer = read_legacy_answer(frame)
            self._throttle_ms = max(self._throttle_ms, answer.throttle_ms)
            for place in sets:
                await self._take(place, answer.places.get(place, Produced(_UNKNOWN)))
        await self._connection.reply([_answer(self._header, conversion, self._said, self._throttle_ms)])

    async def _take(self, place: Place, said: Produced) -> None:
        batches = self._left[place]
        if said.error_code == _MESSAGE_TOO_LARGE and (halves := await _halves(batches[0])):
            batches.popleft()
            batches.extendleft(reversed(halves))
            return
        if said.error_code == _NONE:
            self._said.setdefault(place, said)
            batches.popleft()
        else:
            self._said[place] = said
            batches.clear()
        if not batches:
            del self._left[place]


async def _halves(batch: bytes) -> list[bytes]:
    """Nothing where it is one record."""
    cut = partial(split_batch, batch, 0, len(batch), limit=len(batch), max_decompressed=2 * MAX_PLAIN)
    try:
        halves = await _in_thread(cut)
    except RemoteProtocolError:
        return []
    return halves if len(halves) > 1 else []
