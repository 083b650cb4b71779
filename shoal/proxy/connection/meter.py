"""Requests of clients by API: how many, how large, and how long they took, at the broker and in Shoal apart.

    client ── read ─┬─ sent ── broker ── answer begins ─┬─ answer sent ── client
                    │  Shoal  │         broker          │  Shoal       │

Counts are exact. Times are those of a sample: all requests of an API while there are few, and one of 2, 4, 8 ... when
they are more than `SAMPLES_PER_SECOND`; it then stands for as many. (Two looks at the clock for every small request
would cost 4 % of the proxy's CPU.) Only a sampled request swaps a pump's `out` for a `SampledSends`, for one send.

A request that arrives in pieces counts as read when its last piece is; an answer begins with its first piece, and of a
longer one Shoal's part is that of the first piece: the rest passes at the speed of the slower peer. Of a request that a
handler holds, all of the handler's time is Shoal's, less the time in which the broker had requests of Shoal's own. A
held answer counts as read when it is complete.

Without the admin listener there is no meter.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from shoal.protocol.schema.api import API
from shoal.protocol.schema.headers import read_request_prefix
from shoal.proxy.connection.pending import Hold, OwnRequest
from shoal.proxy.statistics import ApiCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.connection.pending import PendingAnswer

__all__ = ["SAMPLES_PER_SECOND", "ApiTable", "Meter", "Sample", "Sends"]

SAMPLES_PER_SECOND: Final = 100  # of one API and listener; ~3 us each
_MOST_SAMPLES: Final = 64  # without an answer, of one connection


class ApiTable(dict[int, ApiCounters]):
    """The counters of one listener by API key. Keys that no API has share one entry."""

    def __missing__(self, key: int) -> ApiCounters:
        known = key if key in API else -1
        counters = self.get(known)
        if counters is None:
            counters = self[known] = ApiCounters()
        return counters

    def named(self) -> dict[str, ApiCounters]:
        return {API[key].name if key in API else "unknown": counters for key, counters in self.items()}

    def tick(self) -> None:
        """Called every second."""
        for counters in self.values():
            number, counters.seen = counters.requests - counters.seen, counters.requests
            counters.mask = (1 << max(number // SAMPLES_PER_SECOND, 0).bit_length()) - 1


class Sends(Protocol):
    """A pump's `out`."""

    @property
    def sent(self) -> int:
        """Bytes."""

    def send_now(self, data: Buffer, /) -> int: ...
    def gather_now(self, buffers: Sequence[Buffer], /) -> bytes: ...
    async def send_all(self, buffers: Sequence[Buffer], /) -> None: ...


class MeteredPump(Protocol):
    out: Sends

    @property
    def remaining(self) -> int: ...


class Sample:
    """One request. `weight`: how many it stands for. `own_seconds`: the broker had requests of Shoal's own for it."""

    __slots__ = ("answer_at", "counters", "is_incomplete", "own_seconds", "read_at", "sent_at", "weight")

    def __init__(self, counters: ApiCounters, weight: int, read_at: float, *, is_incomplete: bool = False) -> None:
        self.counters = counters
        self.weight = weight
        self.read_at = self.sent_at = self.answer_at = read_at
        self.own_seconds = 0.0
        self.is_incomplete = is_incomplete  # more pieces of the request follow

    def answered(self, now: float) -> None:
        """The answer is sent."""
        self.observe(
            self.answer_at - self.sent_at + self.own_seconds,
            self.sent_at - self.read_at - self.own_seconds + now - self.answer_at,
        )

    def observe(self, broker: float, shoal: float) -> None:
        self.counters.broker.observe(broker, self.weight)
        self.counters.shoal.observe(shoal, self.weight)


class SampledSends:
    """Notes when the bytes of samples are sent; then the pump has its own `out` again."""

    def __init__(self, pump: MeteredPump, out: Sends, now: Callable[[], float]) -> None:
        self._pump = pump
        self._out = out
        self._now = now
        self.requests: list[Sample] = []
        self.answers: list[Sample] = []

    @property
    def sent(self) -> int:
        return self._out.sent

    @classmethod
    def of(cls, pump: MeteredPump, now: Callable[[], float]) -> SampledSends:
        out = pump.out
        if not isinstance(out, SampledSends):
            pump.out = out = cls(pump, out, now)
        return out

    def send_now(self, data: Buffer) -> int:
        begin = self._now()
        sent = self._out.send_now(data)
        self._note(begin)
        return sent

    def gather_now(self, buffers: Sequence[Buffer]) -> bytes:
        begin = self._now()
        unsent = self._out.gather_now(buffers)
        self._note(begin)
        return unsent

    async def send_all(self, buffers: Sequence[Buffer]) -> None:
        begin = self._now()
        await self._out.send_all(buffers)
        self._note(begin)

    def _note(self, begin: float) -> None:
        now = self._now()
        for sample in self.requests:
            if sample.sent_at != sample.read_at:  # a further piece
                sample.read_at = begin
            sample.sent_at = now
        for sample in self.answers:
            sample.answered(now)
        self.answers.clear()
        self.requests = [sample for sample in self.requests if sample.is_incomplete and self._pump.remaining]
        if not self.requests and self._pump.out is self:
            self._pump.out = self._out


class Meter:
    """The meter of one connection. `now`: seconds of any clock that only advances."""

    __slots__ = ("_asked_since", "_gated", "_own", "_own_seconds", "_replied", "apis", "handled", "now", "samples")

    def __init__(self, apis: ApiTable, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.apis = apis
        self.samples: dict[int, Sample] = {}  # by correlation id
        self.handled: Sample | None = None  # the request that a handler holds and has not forwarded
        self._replied = 0  # bytes that the handler has answered with
        self._own = 0  # requests of Shoal's own without an answer
        self._own_seconds = 0.0  # the broker had such requests, since the handler began
        self._asked_since = 0.0
        self._gated: OwnRequest | None = None

    # -- requests ----------------------------------------------------------------------------------------------------

    def sample(self, pump: MeteredPump, counters: ApiCounters, correlation_id: int, *, is_incomplete: bool) -> None:
        """A request was read that passes, and will have an answer."""
        if len(self.samples) < _MOST_SAMPLES:
            sample = Sample(counters, counters.mask + 1, self.now(), is_incomplete=is_incomplete)
            self.samples[correlation_id] = sample
            SampledSends.of(pump, self.now).requests.append(sample)

    def take(self, counters: ApiCounters, correlation_id: int) -> None:
        """A request was read that the path answers."""
        if len(self.samples) < _MOST_SAMPLES:
            self.samples[correlation_id] = Sample(counters, counters.mask + 1, self.now())

    def handler_begins(self, frame: Buffer) -> Sample:
        """A request is complete, and a handler gets it."""
        self.handled = handled = Sample(self.apis[read_request_prefix(frame)[1]], 1, self.now())
        self._own_seconds, self._replied = 0.0, 0
        return handled

    def forwarded(self, correlation_id: int) -> None:
        """The handler has sent its request to the broker."""
        sample, self.handled = self.handled, None
        if sample is not None and len(self.samples) < _MOST_SAMPLES:
            sample.sent_at = self.now()
            sample.own_seconds = self._own_seconds
            self.samples[correlation_id] = sample

    def replied(self, size: int) -> None:
        """The handler has answered, or will when earlier requests are answered."""
        self._replied += size

    def handler_ends(self, handled: Sample, sent: int) -> None:
        """`sent`: bytes to the client meanwhile. A request without a byte of answer has acks=0."""
        if handled is self.handled:
            self.handled = None
            size = self._replied or sent
            handled.counters.answers += bool(size)
            handled.counters.answer_bytes += size
            handled.observe(self._own_seconds, self.now() - handled.read_at - self._own_seconds)

    def own_sent(self) -> None:
        """A request of Shoal's own is about to be sent."""
        if not self._own:
            self._asked_since = self.now()
        self._own += 1

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer_begins(self, pump: MeteredPump, correlation_id: int) -> None:
        """Where `samples` has the id: the answer passes."""
        sample = self.samples.pop(correlation_id)
        sample.answer_at = self.now()
        SampledSends.of(pump, self.now).answers.append(sample)

    def special(self, pump: MeteredPump, entry: PendingAnswer, size: int) -> None:
        """An answer begins that does not pass unread."""
        if isinstance(entry.answer, OwnRequest):
            return self._own_answered(entry.answer)
        counters = self.apis[entry.api_key]
        counters.answers += 1
        counters.answer_bytes += size
        if entry.correlation_id in self.samples and not isinstance(entry.answer, Hold):
            self.answer_begins(pump, entry.correlation_id)
        return None

    def is_complete(self, pump: MeteredPump, entry: PendingAnswer) -> None:
        """A held answer is about to be processed, or is too large to hold and passes."""
        if entry.correlation_id in self.samples and isinstance(entry.answer, Hold):
            self.answer_begins(pump, entry.correlation_id)

    def made(self, api_key: int, correlation_id: int, size: int, broker_seconds: float) -> None:
        """The path has answered a request that it took."""
        counters = self.apis[api_key]
        counters.answers += bool(size)
        counters.answer_bytes += size
        sample = self.samples.pop(correlation_id, None)
        if sample is not None:
            sample.observe(broker_seconds, self.now() - sample.read_at - broker_seconds)

    def _own_answered(self, own: OwnRequest) -> None:
        """Only the prefix of an answer with a gate is there; it is seen again."""
        if own is self._gated:
            self._gated = None
            return
        self._gated = own if own.gate is not None else None
        if self._own:
            self._own -= 1
            if not self._own:
                self._own_seconds += self.now() - self._asked_since
