"""Produce v0-v2 through a legacy listener, to a scripted broker that knows v3 only."""

from __future__ import annotations

import gc
import struct
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest
import trio

from shoal.protocol.legacy.message import Message
from shoal.protocol.legacy.produce.up_conversion import UpConverted
from shoal.protocol.messages.produce import encode_produce_response, read_produce_request
from shoal.protocol.wire.compression import Codec
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.legacy.produce import MAX_PLAIN
from shoal.proxy.statistics import CloseCause
from tests.support.batches import consumed, damaged
from tests.support.legacy.produce_frames import Said, produce_frame, said
from tests.support.legacy.sets import FIRST, numbered, singles, wrapped
from tests.support.rig import BrokerSide, api_key, correlation_id, echo, request, rig, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from shoal.protocol.wire.types import Topic
    from tests.support.rig import Peer, Rig

pytestmark = pytest.mark.usefixtures("lane")

OPEN = 12
STAMP = 1_600_000_000_000


@dataclass
class Broker:
    """Appends or refuses, and answers Produce v3; it echoes anything else."""

    most: int = 1 << 20  # bytes of a batch
    errors: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # of the next requests
    logs: dict[tuple[str, int], list[tuple[int, bytes | None]]] = field(default_factory=dict)
    gate: trio.Event | None = None
    throttle_ms: int = 17

    async def __call__(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame):
            return await echo(side, frame)
        produced = read_produce_request(frame, 3)
        rows: dict[Topic, list[bytes]] = {}
        for topic, index, start, end in produced.partitions:
            rows.setdefault(topic, []).append(self._append((str(topic), index), frame[start:end]))
        if produced.acks == 0:
            return
        if self.gate is not None:
            await self.gate.wait()
        answer = encode_produce_response(3, correlation_id(frame), [*rows.items()], throttle_ms=self.throttle_ms)
        await side.send(b"".join(answer))

    def _append(self, place: tuple[str, int], batch: bytes) -> bytes:
        log = self.logs.setdefault(place, [])
        code = (self.errors.get(place) or [0]).pop(0)
        if code or len(batch) > self.most:
            return struct.pack(">ihqq", place[1], code or 10, -1, -1)
        log += [(one.timestamp, None if one.value is None else bytes(one.value)) for one in consumed(batch)]
        return struct.pack(">ihqq", place[1], 0, len(log) - len(consumed(batch)), STAMP)


def legacy(broker: Broker, *, max_plain: int = MAX_PLAIN) -> AbstractAsyncContextManager[Rig]:
    return rig(broker, path=partial(LegacyPath, max_plain=max_plain))


def told(*values: bytes | None) -> list[Message]:
    return [Message(0, FIRST + at, False, b"k", value) for at, value in enumerate(values)]


def a_set(*values: bytes, codec: Codec = Codec.GZIP, magic: int = 1) -> bytes:
    return wrapped(magic, codec, numbered(told(*values), magic))


def values(broker: Broker, place: tuple[str, int] = ("t", 0)) -> list[bytes | None]:
    return [value for _, value in broker.logs.get(place, [])]


async def produced(
    client: Peer, version: int, topics: dict[str, Sequence[tuple[int, bytes]]]
) -> dict[tuple[str, int], Said]:
    await client.send(produce_frame(version, 5, topics))
    number, found, throttle = said(version, await client.frame())
    assert (number, throttle) == (5, 17 if version else None)
    return found


BAD = damaged(a_set(b"bad"), 40)
BAD_SAID = Said(2, -1, -1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_what_is_produced_is_appended_and_answered_in_the_old_form(version: int, codec: Codec) -> None:
    broker, magic = Broker(), version // 2
    async with legacy(broker) as r:
        client = await r.client()
        stamp = STAMP if version == 2 else None
        for base in (0, 2):
            found = await produced(client, version, {"t": [(0, a_set(b"one", b"two", codec=codec, magic=magic))]})
            assert found == {("t", 0): Said(0, base, stamp)}
    once = [(FIRST if magic else -1, b"one"), (FIRST + 1 if magic else -1, b"two")]
    assert broker.logs == {("t", 0): once * 2}


async def test_requests_are_sent_before_earlier_ones_are_answered() -> None:
    broker = Broker(gate=trio.Event())
    async with legacy(broker) as r:
        client = await r.client()
        for number in range(3):
            await client.send(produce_frame(2, number, {"t": [(0, a_set(b"%d" % number))]}))
        while len(r.broker.received) < 1:
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert r.connection.unanswered == 3
        broker.gate.set()  # type: ignore[union-attr]
        assert [said(2, await client.frame())[0] for _ in range(3)] == [0, 1, 2]
    assert values(broker) == [b"0", b"1", b"2"]


async def test_one_bad_set_does_not_keep_the_others_from_being_appended(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    async with legacy(broker) as r:
        client = await r.client()
        found = await produced(client, 2, {"t": [(0, a_set(b"a")), (1, BAD)], "u": [(0, a_set(b"b")), (1, b"")]})
        tally = cast("LegacyPath", r.listener.path).tally
    assert list(found.items()) == [
        (("t", 0), Said(0, 0, STAMP)),
        (("t", 1), Said(2, -1, -1)),
        (("u", 0), Said(0, 0, STAMP)),
        (("u", 1), Said(0, -1, -1)),
    ]
    assert broker.logs == {("t", 0): [(FIRST, b"a")], ("u", 0): [(FIRST, b"b")]}
    assert (tally.produces, tally.up_conversions, tally.up_records, tally.up_errors) == (1, 2, 2, 1)
    assert tally.up_source_bytes == len(a_set(b"a")) + len(a_set(b"b"))
    assert tally.up_converted_bytes > 2 * 61
    assert tally.up_seconds > 0
    assert "client 'old' to 't'-1, refused: message at offset 0: CRC mismatch" in caplog.text


async def test_a_request_of_bad_sets_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with legacy(Broker()) as r:
        client = await r.client()
        await client.send(produce_frame(0, 1, {"t": [(index, BAD) for index in range(500)]}))
        assert len(said(0, await client.frame())[1]) == 500
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "to 't'-0, refused" in line
    assert "(and 499 more of this request)" in line


async def test_sets_that_were_sent_are_not_held_until_they_are_answered() -> None:
    broker = Broker(gate=trio.Event())
    async with legacy(broker) as r:
        client = await r.client()
        before = _conversions()
        for number in range(5):
            await client.send(produce_frame(2, number, {"t": [(0, a_set(b"one")), (1, BAD)]}))
        await until(lambda: r.connection.unanswered == 5)
        assert _conversions() == before
        broker.gate.set()  # type: ignore[union-attr]
        for number in range(5):
            assert said(2, await client.frame())[:2] == (number, {("t", 0): Said(0, number, STAMP), ("t", 1): BAD_SAID})


def _conversions() -> int:
    gc.collect()
    return sum(isinstance(one, UpConverted) for one in gc.get_objects())


async def test_where_all_is_bad_shoal_answers_in_its_turn() -> None:
    async with legacy(Broker()) as r:
        client = await r.client()
        await client.send(request(OPEN, 0, 1) + produce_frame(1, 2, {"t": [(0, BAD)]}) + request(OPEN, 0, 3))
        assert correlation_id(b"____" + (await client.frame())) == 1
        assert said(1, await client.frame()) == (2, {("t", 0): Said(2, -1, None)}, 0)
        await client.frame()
        assert [api_key(frame) for frame in r.broker.received] == [OPEN, OPEN]


async def test_error_of_the_broker_reaches_the_client() -> None:
    async with legacy(Broker(errors={("t", 1): [6]})) as r:
        found = await produced(await r.client(), 2, {"t": [(1, a_set(b"a")), (0, a_set(b"b"))]})
    assert found == {("t", 1): Said(6, -1, -1), ("t", 0): Said(0, 0, STAMP)}


@pytest.mark.parametrize(("version", "code", "told_as"), [(0, 87, 2), (2, 87, 2), (2, 56, 6), (2, 32, 32), (1, 32, -1)])
async def test_error_that_the_client_does_not_know_becomes_one_that_it_does(
    version: int, code: int, told_as: int
) -> None:
    async with legacy(Broker(errors={("t", 0): [code]})) as r:
        found = await produced(await r.client(), version, {"t": [(0, a_set(b"a"))]})
    assert found["t", 0].error_code == told_as


# acks = 0


async def test_what_nobody_asks_for_is_appended_and_not_answered() -> None:
    broker = Broker()
    async with legacy(broker) as r:
        client = await r.client()
        await client.send(produce_frame(0, 1, {"t": [(0, a_set(b"a"))]}, acks=0) + request(OPEN, 0, 2))
        assert correlation_id(b"____" + (await client.frame())) == 2
    assert values(broker) == [b"a"]


async def test_a_bad_set_with_acks_0_ends_the_connection_when_the_good_ones_have_arrived() -> None:
    broker = Broker()
    async with legacy(broker) as r:
        client = await r.client()
        await client.send(produce_frame(1, 1, {"t": [(0, a_set(b"a")), (1, BAD)]}, acks=0))
        assert await client.at_end()
        assert values(broker) == [b"a"]
        assert [api_key(frame) for frame in r.broker.received] == [0, 18]
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}


async def test_partition_that_stands_twice_ends_the_connection() -> None:
    broker = Broker()
    async with legacy(broker) as r:
        client = await r.client()
        await client.send(produce_frame(1, 1, {"t": [(0, a_set(b"a")), (0, a_set(b"b"))]}))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
    assert not broker.logs


# Large ones

LARGE = [bytes([at]) * 40_000 for at in range(9)]


async def test_a_set_above_the_brokers_limit_is_cut_and_keeps_its_order() -> None:
    """As single messages each was below it."""
    broker = Broker(most=100_000)
    async with legacy(broker) as r:
        client = await r.client()
        plain = singles(1, numbered(told(*LARGE), 1))
        found = await produced(client, 2, {"t": [(0, plain), (1, a_set(b"small"))]})
        await produced(client, 2, {"t": [(0, a_set(b"behind"))]})
    assert found == {("t", 0): Said(0, 0, STAMP), ("t", 1): Said(0, 0, STAMP)}
    assert values(broker) == [*LARGE, b"behind"]
    assert values(broker, ("t", 1)) == [b"small"]


async def test_a_single_message_above_the_brokers_limit_is_too_large() -> None:
    broker = Broker(most=100_000)
    async with legacy(broker) as r:
        found = await produced(await r.client(), 2, {"t": [(0, singles(1, told(b"x" * 300_000)))]})
    assert found == {("t", 0): Said(10, -1, -1)}
    assert not values(broker)


async def test_an_error_after_the_first_half_is_what_the_client_is_told() -> None:
    broker = Broker(most=250_000, errors={("t", 0): [0, 0, 6]})
    async with legacy(broker) as r:
        found = await produced(await r.client(), 2, {"t": [(0, singles(1, numbered(told(*LARGE), 1)))]})
    assert found == {("t", 0): Said(6, -1, -1)}
    assert values(broker) == LARGE[: len(values(broker))]
    assert 0 < len(values(broker)) < len(LARGE)


async def test_nothing_is_sent_behind_a_half_that_failed() -> None:
    """It would be ahead of the client's retry."""
    broker = Broker(most=250_000, errors={("t", 0): [0, 6]})
    async with legacy(broker) as r:
        found = await produced(await r.client(), 2, {"t": [(0, singles(1, numbered(told(*LARGE), 1)))]})
    assert found == {("t", 0): Said(6, -1, -1)}
    assert not values(broker)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_many_messages_are_converted_in_a_thread(codec: Codec) -> None:
    broker, many = Broker(), [b"%06d" % at for at in range(20_000)]
    async with legacy(broker) as r:
        found = await produced(await r.client(), 2, {"t": [(0, a_set(*many, codec=codec))]})
    assert found == {("t", 0): Said(0, 0, STAMP)}
    assert values(broker) == many


async def test_a_bomb_is_refused() -> None:
    bomb = a_set(bytes(2 << 20))
    assert len(bomb) < 32 * 1024
    broker = Broker()
    async with legacy(broker, max_plain=1 << 20) as r:
        found = await produced(await r.client(), 2, {"t": [(0, bomb), (1, a_set(b"a"))]})
    assert found == {("t", 0): Said(10, -1, -1), ("t", 1): Said(0, 0, STAMP)}
