"""Produce v0-v2 of clients that write messages of magic 0 and 1 (KIP-896 took these versions from brokers, KIP-724 the
formats).

    hold the request -- convert each partition's set --+-- forward as v3; rewrite the answer when it passes
                                                       +-- a large batch: ask, and split what the broker finds too large
                                                       +-- nothing to send: answer in the broker's place

Conversion takes about 4 us per message: small requests are converted at once, others in a thread, one at a time per
process. So at most two sets are open at once, of at most MAX_PLAIN bytes, regardless of the sizes that wrappers state.

A message set may exceed a topic's max.message.bytes, which applied per message; as one batch it counts as a whole.
Kafka's own up-conversion fails then (RecordTooLargeException). Shoal splits a batch that the broker finds too large
into halves and sends them one by one, with nothing of the connection in between. If a later half fails, the client gets
an error although the first half was appended: it retries everything, as after a lost answer. With acks = 0 there is no
answer, so nothing is split.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, TypeVar

import trio
from trio.lowlevel import checkpoint

from shoal.protocol.legacy.errors import downgrade_error
from shoal.protocol.legacy.produce.produce import (
    Produced,
    Refused,
    convert,
    encode_for_broker,
    encode_for_client,
    read_legacy_answer,
    read_legacy_produce,
)
from shoal.protocol.records.rebatch import MAX_DECOMPRESSED, split_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.connection.pending import EditAnswer, blaming_the_broker
from shoal.proxy.connection.routes import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.protocol.legacy.errors import Release
    from shoal.protocol.legacy.produce.up_conversion import UpConverted
    from shoal.protocol.messages.produce import ProduceRequest
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import PendingAnswer
    from shoal.proxy.legacy.counters import LegacyTally
    from shoal.proxy.net.transport import Buffer

    Conversion = Mapping[TopicPartition, UpConverted | Refused]
    Sets = Mapping[TopicPartition, Sequence[Buffer]]

__all__ = ["MAX_PLAIN", "LegacyProduces"]

MAX_PLAIN = MAX_DECOMPRESSED  # bytes of a set
_BYTES_HERE = 32 * 1024  # limit of a request that is converted at once: about 2 ms of small messages
_PLAIN_HERE = 64 * 1024  # limit per set
_LARGE = 256 * 1024  # a batch that may exceed a topic's max.message.bytes (default 1 MiB)

_NO_ACKS = 0  # acks

_thread = trio.CapacityLimiter(1)
T = TypeVar("T")


class LegacyProduces:
    """Produce requests of one listener. `shown`: a connection's oldest possible release, for error codes."""

    def __init__(self, tally: LegacyTally, shown: Callable[[Connection], Release], *, max_plain: int) -> None:
        self._tally = tally
        self._shown = shown
        self._max_plain = max_plain

    async def handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        request = read_legacy_produce(frame, header)
        conversion = await self._converted(frame, request)
        self._count(request, conversion)
        _log_refused(connection, header, conversion)
        sets = {
            place: converted.parts
            for place, converted in conversion.items()
            if not isinstance(converted, Refused) and converted.records
        }
        own = {place: _result_of_shoal(converted) for place, converted in conversion.items()}
        await _Request(connection, header, request, own, self._shown(connection), self._max_plain).run(sets)

    async def _converted(self, frame: bytearray, request: ProduceRequest) -> Conversion:
        if len(frame) <= _BYTES_HERE:
            here, seconds = _timed(frame, request, _PLAIN_HERE)
            self._tally.up_seconds += seconds
            await checkpoint()  # there may be hundreds of requests in the receive buffer
            if not any(
                isinstance(converted, Refused) and converted.error_code == ErrorCode.MESSAGE_TOO_LARGE
                for converted in here.values()
            ):
                return here
        there, seconds = await _in_thread(partial(_timed, frame, request, self._max_plain))
        self._tally.up_seconds += seconds
        return there

    def _count(self, request: ProduceRequest, conversion: Conversion) -> None:
        tally = self._tally
        tally.produces += 1
        for converted, (_, _, start, end) in zip(conversion.values(), request.partitions, strict=True):
            if isinstance(converted, Refused):
                tally.up_errors += 1
            elif converted.records:
                tally.up_conversions += 1
                tally.up_records += converted.records
                tally.up_source_bytes += end - start
                tally.up_converted_bytes += sum(map(len, converted.parts))


def _timed(frame: bytearray, request: ProduceRequest, limit: int) -> tuple[Conversion, float]:
    start = thread_time()
    return convert(frame, request, limit=limit), thread_time() - start


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work, limiter=_thread)


def _log_refused(connection: Connection, header: RequestHeader, conversion: Conversion) -> None:
    """Log one line, regardless of their number."""
    refused = [(place, converted.reason) for place, converted in conversion.items() if isinstance(converted, Refused)]
    if refused:
        (topic, partition), reason = refused[0]
        more = f" (and {len(refused) - 1} more of this request)" if len(refused) > 1 else ""
        what = f"produced by client {header.client_id!r} to {topic!r}-{partition}, refused: {reason}{more}"
        connection.listener.complain(
            "legacy-messages-refused",
            f"message set {what}",
            client_id=header.client_id,
            topic=topic,
            partition=partition,
            error=reason,
            partitions=len(refused),
        )


def _result_of_shoal(one: UpConverted | Refused) -> Produced | None:
    """None: the broker answers."""
    if isinstance(one, Refused):
        return Produced(one.error_code)
    return None if one.records else Produced(ErrorCode.NONE)


class _Request:
    """One request. `own`: its partitions in order, with Shoal's own result for each. The sets are not kept: a client
    may have thousands of requests in flight.
    """

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        request: ProduceRequest,
        own: Mapping[TopicPartition, Produced | None],
        at_least: Release,
        max_plain: int,
    ) -> None:
        self._connection = connection
        self._header = header
        self._request = request
        self._own = own
        self._at_least = at_least
        self._max_plain = max_plain
        self._is_refused = any(result is not None and result.error_code for result in own.values())

    async def run(self, sets: Sets) -> None:
        if self._request.acks == _NO_ACKS:
            await self._run_unanswered(sets)
        elif not sets:
            await self._connection.reply([self._answer({})])
        elif any(sum(map(len, parts)) > _LARGE for parts in sets.values()):
            await self._run_cutting(sets)
        else:
            await self._connection.broker.forward([self._encode(sets)], EditAnswer(self._answered))

    def _encode(self, sets: Sets) -> bytes:
        return encode_for_broker(self._header, self._request, sets)

    async def _run_unanswered(self, sets: Sets) -> None:
        """acks = 0. If a set is refused, the connection is closed, as a broker does: the client has no other way to
        notice. A request to the broker before that ensures that earlier requests have arrived.
        """
        if sets:
            await self._connection.broker.forward([self._encode(sets)], Decision.SILENT)
        if self._is_refused:
            header = self._header
            question = request_frame(ApiKey.API_VERSIONS, 0, header.correlation_id, header.client_id, {})
            await self._connection.broker.ask([question])
            raise RemoteProtocolError("a message set that cannot be appended, produced with acks = 0")

    async def _run_cutting(self, sets: Sets) -> None:
        left = _Left(sets, self._max_plain)
        throttle_ms = 0
        while turn := left.next_sets():
            frame = await self._connection.broker.ask([self._encode(turn)])
            with blaming_the_broker():
                answer = read_legacy_answer(frame)
            throttle_ms = max(throttle_ms, answer.throttle_ms)
            for place in turn:
                await left.take(place, answer.places.get(place, Produced(ErrorCode.UNKNOWN_SERVER_ERROR)))
        await self._connection.reply([self._answer(left.said, throttle_ms)])

    def _answered(self, connection: Connection, _: PendingAnswer, frame: Buffer) -> Buffer:
        answer = read_legacy_answer(frame)
        return self._answer(answer.places, answer.throttle_ms)

    def _answer(self, said: Mapping[TopicPartition, Produced], throttle_ms: int = 0) -> bytes:
        """`said`: the broker's results for the partitions that were sent."""
        header = self._header
        places = [(place, own or self._result_for_client(said.get(place))) for place, own in self._own.items()]
        return encode_for_client(header.api_version, header.correlation_id, places, throttle_ms=throttle_ms)

    def _result_for_client(self, said: Produced | None) -> Produced:
        """Results for the partitions that were sent to the broker."""
        if said is None:
            return Produced(ErrorCode.UNKNOWN_SERVER_ERROR)
        code = downgrade_error(ApiKey.PRODUCE, self._header.api_version, said.error_code, self._at_least)
        return said._replace(error_code=code)


class _Left:
    """The unsent batches of a request, per partition in order, and the results of the sent ones."""

    def __init__(self, sets: Sets, max_plain: int) -> None:
        self._max_plain = max_plain
        self._batches = {place: deque(bytes(part) for part in parts) for place, parts in sets.items()}
        self.said: dict[TopicPartition, Produced] = {}

    def next_sets(self) -> dict[TopicPartition, list[Buffer]]:
        return {place: [batches[0]] for place, batches in self._batches.items()}

    async def take(self, place: TopicPartition, said: Produced) -> None:
        """The broker's answer for the first batch of a partition."""
        batches = self._batches[place]
        if said.error_code == ErrorCode.MESSAGE_TOO_LARGE and (halves := await _halves(batches[0], self._max_plain)):
            batches.popleft()
            batches.extendleft(reversed(halves))
            return
        if said.error_code == ErrorCode.NONE:
            self.said.setdefault(place, said)
            batches.popleft()
        else:
            self.said[place] = said
            batches.clear()
        if not batches:
            del self._batches[place]


async def _halves(batch: bytes, max_plain: int) -> list[bytes]:
    """Empty if it is one record."""
    cut = partial(split_batch, batch, 0, len(batch), limit=len(batch), max_decompressed=2 * max_plain)
    try:
        halves = await _in_thread(cut)
    except RemoteProtocolError:
        return []
    return halves if len(halves) > 1 else []
