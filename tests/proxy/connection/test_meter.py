"""Requests by API: counts, bytes and times, with a clock that a test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.config.settings import Limits
from shoal.proxy.connection.meter import SAMPLES_PER_SECOND, ApiTable, Meter
from shoal.proxy.connection.pending import EditAnswer, Hold, OwnRequest, PendingAnswer
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.listener.plain import PlainPath
from tests.support.rig import echo, free_range, request, rig, silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.meter import Sends
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.statistics import ApiCounters


class Pump:
    """Sends everything at once, in `sends_for` seconds."""

    def __init__(self, timed: Timed) -> None:
        self.out: Sends = self
        self.remaining = 0
        self.sends_for = 0.0
        self.sent = 0
        self._timed = timed

    def send_now(self, data: Buffer) -> int:
        self._timed.seconds += self.sends_for
        return len(data)

    def gather_now(self, buffers: Sequence[Buffer]) -> bytes:
        self._timed.seconds += self.sends_for
        return b""

    async def send_all(self, buffers: Sequence[Buffer]) -> None:
        self._timed.seconds += self.sends_for


class Timed:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.table = ApiTable()
        self.meter = Meter(self.table, lambda: self.seconds)
        self.asking, self.answering = Pump(self), Pump(self)

    @property
    def metadata(self) -> ApiCounters:
        return self.table[int(ApiKey.METADATA)]

    def read(self, correlation_id: int, *, sent_after: float = 0.0) -> None:
        self.meter.sample(self.asking, self.metadata, correlation_id, is_incomplete=False)
        self.asking.sends_for = sent_after
        self.asking.out.send_now(b"request")
        assert self.asking.out is self.asking

    def answer(self, correlation_id: int, sent_after: float = 0.0) -> None:
        self.meter.answer_begins(self.answering, correlation_id)
        self.answering.sends_for = sent_after
        self.answering.out.send_now(b"answer")
        assert self.answering.out is self.answering


def test_the_times_of_the_broker_and_of_shoal_are_apart() -> None:
    timed = Timed()
    timed.read(1, sent_after=0.001)
    timed.seconds += 0.2
    timed.answer(1, sent_after=0.003)
    assert timed.metadata.broker.sum == pytest.approx(0.2)
    assert timed.metadata.shoal.sum == pytest.approx(0.004)


def test_pipelined_requests_are_matched() -> None:
    timed = Timed()
    for number in range(5):
        timed.read(number)
        timed.seconds += 1
    for number in range(5):
        timed.answer(number)
    assert timed.metadata.broker.sum == pytest.approx(5 + 4 + 3 + 2 + 1)


def test_a_request_in_pieces_is_read_when_its_last_piece_is() -> None:
    timed = Timed()
    timed.meter.sample(timed.asking, timed.metadata, 1, is_incomplete=True)
    timed.asking.remaining, timed.asking.sends_for = 200, 0.001
    timed.asking.out.send_now(b"first")
    timed.seconds += 60  # the client is slow
    timed.asking.remaining = 0
    timed.asking.out.send_now(b"last")
    assert timed.asking.out is timed.asking
    timed.seconds += 2
    timed.answer(1)
    assert timed.metadata.broker.sum == pytest.approx(2)
    assert timed.metadata.shoal.sum == pytest.approx(0.001)


def test_of_many_requests_a_sample_stands_for_all() -> None:
    timed = Timed()
    for _ in range(5):
        timed.metadata.requests += 10 * SAMPLES_PER_SECOND
        timed.table.tick()
    assert timed.metadata.mask == 15
    timed.read(16)
    timed.answer(16)
    assert timed.metadata.broker.cumulative()[-1] == 16
    timed.table.tick()
    assert timed.metadata.mask == 0


def test_requests_that_are_never_answered_take_little_memory() -> None:
    timed = Timed()
    for number in range(10_000):
        timed.read(number)
    assert len(timed.meter.samples) == 64


def frame(correlation_id: int) -> bytes:
    return request(ApiKey.METADATA, 1, correlation_id)


def test_a_handlers_time_is_shoals_less_the_brokers() -> None:
    timed = Timed()
    handled = timed.meter.handler_begins(frame(1))
    timed.seconds += 0.1
    for _ in range(2):  # both are at the broker at the same time
        timed.meter.own_sent()
    own: Any = OwnRequest()
    for _ in range(2):
        timed.seconds += 2
        timed.meter.special(timed.answering, PendingAnswer(9, 3, 1, own), 10)
    timed.seconds += 0.2
    timed.meter.replied(500)
    timed.meter.handler_ends(handled, 500)
    assert timed.metadata.broker.sum == pytest.approx(4)
    assert timed.metadata.shoal.sum == pytest.approx(0.3)
    assert (timed.metadata.answers, timed.metadata.answer_bytes) == (1, 500)


def test_a_forwarded_request_is_answered_by_the_broker() -> None:
    timed = Timed()
    handled = timed.meter.handler_begins(frame(1))
    timed.seconds += 0.5
    timed.meter.forwarded(1)
    timed.meter.handler_ends(handled, 0)
    timed.seconds += 3
    timed.answer(1, sent_after=0.25)
    assert timed.metadata.broker.sum == pytest.approx(3)
    assert timed.metadata.shoal.sum == pytest.approx(0.75)


def test_keys_that_no_api_has_share_one_entry() -> None:
    table = ApiTable()
    for key in range(20_000, 30_000):
        table[key].requests += 1
    assert {name: counters.requests for name, counters in table.named().items()} == {"unknown": 10_000}


async def test_pumps_measure_every_request(lane: None) -> None:
    async with rig(echo, nodes=free_range(), counts_apis=True) as r:
        client = await r.client()
        for number in range(3):
            await client.send(request(300, 0, number, b"x" * 100) + request(301, 0, number + 100, b"y" * 1_000_000))
        for _ in range(6):
            await client.frame()
        await client.leave()
        await r.closed()
        assert r.listener.apis is not None
        (counters,) = r.listener.apis.named().values()
        traffic = r.listener.statistics().traffic
        assert counters.requests == counters.answers == traffic.requests == 6
        assert counters.request_bytes == traffic.from_client
        assert counters.answer_bytes == traffic.to_client
        assert sum(counters.broker.counts) == sum(counters.shoal.counts) == 6
        assert counters.broker.sum >= 0
        assert counters.shoal.sum >= 0


async def test_an_answer_that_is_too_large_to_hold_is_measured_too() -> None:
    async def same(connection: Connection, entry: PendingAnswer, frame: bytearray) -> list[bytearray]:
        return [frame]

    def unchanged(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer:
        return frame

    class Held(PlainPath):
        def __init__(self, listener: Listener) -> None:
            super().__init__(listener)
            self.routes = table({300: Route(answer=Hold(same, EditAnswer(unchanged)))})

    limits = Limits(held_response_bytes=100)
    async with rig(echo, nodes=free_range(), counts_apis=True, path=Held, limits=limits) as r:
        client = await r.client()
        for number, size in enumerate((10, 1000, 10, 1000)):
            await client.send(request(300, 0, number, bytes(size)))
            await client.frame()
        assert r.connection.meter is not None
        assert not r.connection.meter.samples
        assert r.listener.apis is not None
        (counters,) = r.listener.apis.named().values()
        assert sum(counters.broker.counts) == counters.answers == 4


async def test_unanswered_requests_are_counted() -> None:
    async with rig(silent, nodes=free_range(), counts_apis=True) as r:
        client = await r.client()
        await client.send(request(300, 0, 1) + request(300, 0, 2))
        await client.leave()
        await r.closed()
        assert r.listener.apis is not None
        (counters,) = r.listener.apis.named().values()
        assert (counters.requests, counters.answers) == (2, 0)
