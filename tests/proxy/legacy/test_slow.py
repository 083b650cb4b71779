"""Legacy clients that do not read: what is held for them, what is evicted, and that they get the same records
anyway."""

from __future__ import annotations

import random
import weakref
from functools import partial

import pytest
import trio

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import KIB, Limits
from shoal.proxy.statistics import CloseCause
from tests.support.legacy.rig import PLACE, LegacyRig, Message, OldConsumer, as_messages, legacy_rig, records
from tests.support.rig import until

CHUNK = 16 * KIB
HASTY = Limits(linger_seconds=0.05, drain_seconds=0.5, close_seconds=0.05)


def filled(r: LegacyRig, codec: Codec = Codec.GZIP, *, batches: int = 2) -> list[Message]:
    """The log has this many batches of about 300 KiB each."""
    log, sent = r.broker.log(), []
    for number in range(batches):
        made = records(number * 700, 700, 400, seed=7)
        sent += as_messages(log.end, made)
        log.append(made, codec)
    return sent


async def read_on(consumer: OldConsumer) -> list[Message]:
    """The answer in progress."""
    return (await consumer.answer())[PLACE].messages


async def test_for_a_client_that_does_not_read_one_portion_is_made_ahead() -> None:
    async with legacy_rig(chunk_bytes=CHUNK) as r:
        sent = filled(r)
        slow = await r.slow_consumer()
        await slow.ask({PLACE: 0})
        connection = await r.blocked(slow)
        made = r.path.tally.converted_bytes
        assert made - connection.client_out.sent <= CHUNK
        assert made < 300 * KIB  # the kernel's buffers are bounded, too
        assert r.budget.leased > 500 * KIB
        assert await read_on(slow) == sent[:1400]


async def test_who_asks_for_nothing_and_does_not_read_the_answers_keeps_nothing_from_others() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, limits=HASTY) as r:
        slow = await r.slow_consumer()
        await slow.ask({})
        await until(lambda: bool(r.inner.listener.connections) and r.path.tally.fetches == 1)
        connection = r.connection_of(slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ask_for_nothing, slow)
            await until(lambda: connection.client_out.blocked)
            assert r.budget.leased == 0
            nursery.cancel_scope.cancel()


async def _ask_for_nothing(consumer: OldConsumer) -> None:
    while True:
        await consumer.send(consumer.question({}) * 100)


async def test_a_source_is_taken_from_who_does_not_read_and_the_answer_goes_on_later() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=900 * KIB) as r:
        sent = filled(r)
        slow, other = await r.slow_consumer(), await r.consumer()
        await slow.ask({PLACE: 0})
        connection = await r.blocked(slow)
        held = weakref.ref(r.path.fetches._readers[connection].held.sources[PLACE]._conversion)
        assert (await other.consume({PLACE: 0}, {PLACE: 1400}))[PLACE] == sent
        assert held() is None
        assert r.budget.evictions == 1
        assert await read_on(slow) == sent
        assert r.path.tally.resumed == 1
        assert r.broker.fetches[-1][PLACE] not in (0, 1400)  # from where it stopped


async def test_newcomers_in_a_crowd_get_something_each_before_anybody_gets_much() -> None:
    """The budget has room for one of them, and a portion is about thirty pieces."""
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=100 * KIB) as r:
        r.broker.log().append([NewRecord(1, None, bytes(400))] * 20_000, Codec.GZIP)
        r.broker.rest = trio.Event()
        made: list[int] = []

        async def first_byte(consumer: OldConsumer) -> None:
            assert await consumer.stream.receive_some(1)
            made.append(r.path.tally.chunks)

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                consumer = await r.slow_consumer()
                await consumer.ask({PLACE: 0})
                nursery.start_soon(first_byte, consumer)
            await until(lambda: r.budget.waiting == 5)
            r.broker.rest.set()
        assert max(made) < 60


async def test_many_slow_readers_share_a_budget_for_two() -> None:
    rng = random.Random(6)
    async with legacy_rig(grace=0.005, chunk_bytes=CHUNK, budget_bytes=1500 * KIB) as r:
        sent = filled(r, batches=4)
        done: list[bool] = []

        async def read(codec_version: int) -> None:
            consumer = await (r.slow_consumer if rng.random() < 0.7 else r.consumer)(codec_version)
            got = await consumer.consume({PLACE: 0}, {PLACE: len(sent)}, most=rng.choice((50_000, 300_000, 1 << 20)))
            done.append(got[PLACE] == sent)

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(read, rng.choice((2, 3)))
        assert done == [True] * 16
        assert r.budget.waits > 0
        assert r.budget.leased <= 1500 * KIB


@pytest.mark.parametrize("trouble", ["the leader has moved", "the log is cut", "the broker has gone"])
async def test_what_cannot_be_gone_on_with_is_padded_to_the_promised_size(trouble: str) -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=900 * KIB) as r:
        sent = filled(r)
        slow, other = await r.slow_consumer(), await r.consumer()
        await slow.ask({PLACE: 0})
        connection = await r.blocked(slow)
        await other.fetch({PLACE: 0})
        assert r.budget.evictions == 1
        log = r.broker.log()
        if trouble == "the leader has moved":
            log.error = 6
        elif trouble == "the log is cut":
            log.batches = []
        else:
            for side in r.broker.sides:
                await side.stream.aclose()
            await until(lambda: connection.requests.without_answers)
        given = (await slow.answer())[PLACE]
        got = given.messages
        assert got == sent[: len(got)]
        assert 0 < len(got) < len(sent)
        assert given.padding > CHUNK
        assert r.path.tally.padding_bytes >= given.padding
        if trouble == "the leader has moved":
            assert (await slow.fetch({PLACE: len(got)}))[PLACE].error == 6
        elif trouble == "the broker has gone":
            assert await slow.at_end()


async def test_a_drained_proxy_ends_the_answer_that_it_has_begun() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, limits=Limits(close_seconds=0.05)) as r:
        sent = filled(r)
        slow = await r.slow_consumer()
        await slow.ask({PLACE: 0})
        await r.blocked(slow)
        r.inner.server.drain()
        assert await read_on(slow) == sent
        assert await slow.at_end()
        assert await r.inner.closed() == {CloseCause.DRAINED: 1}
        assert r.budget.leased == 0


async def test_a_drained_proxy_does_not_ask_on_for_who_waits() -> None:
    async with legacy_rig() as r:
        consumer = await r.consumer()
        await consumer.ask({PLACE: 0}, max_wait_ms=60_000)
        await until(lambda: len(r.broker.fetches) == 1)
        r.inner.server.drain()
        r.broker.log().append_marker(5, abort=False)
        assert (await consumer.answer())[PLACE].messages == []
        assert await consumer.at_end()
        assert len(r.broker.fetches) == 1


def mixed(r: LegacyRig, rng: random.Random) -> list[Message]:
    """Everything that a log may have: every codec, batches of all sizes, gaps, markers, aborted transactions; -> the
    records to be read."""
    log, sent = r.broker.log(), []
    for number in range(25):
        made = records(number * 500, rng.choice((1, 5, 60, 400)), rng.choice((8, 100, 1000)))
        made = [one for one in _with_holes(made, rng) if rng.random() < 0.9] or made[:1]
        codec = rng.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
        first, aborted = log.end, rng.random() < 0.3
        log.append(made, codec, attributes=0x10 * aborted, producer_id=7 if aborted else -1)
        if aborted:
            log.append_marker(7, abort=True)
            log.aborted.append((7, first, log.end - 1))
        else:
            sent += as_messages(first, made)
    log.append(records(log.end, 1))
    return [*sent, *as_messages(log.end - 1, records(log.end - 1, 1))]


def _with_holes(made: list[NewRecord], rng: random.Random) -> list[NewRecord]:
    return [one._replace(offset_delta=at * 2 + rng.randrange(2)) for at, one in enumerate(made)]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_taken_whenever_the_records_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    async with legacy_rig(grace=0.0, chunk_bytes=CHUNK, fetch_bytes=rng.choice((32, 128, 500)) * KIB) as r:
        sent = mixed(r, rng)
        budget = r.path.fetches.budget

        async def take_all_again_and_again() -> None:
            while True:
                (await budget.lease(budget.size, lambda: None)).release()
                await trio.sleep(rng.random() / 1000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_all_again_and_again)
            for version in (2, 3):
                slow = await r.slow_consumer(version)
                most = rng.choice((20_000, 100_000, 1 << 20))
                got = await slow.consume({PLACE: 0}, {PLACE: r.broker.log().end}, most=most)
                assert got[PLACE] == sent
            nursery.cancel_scope.cancel()
        assert r.path.tally.resumed > 20


STATES = ["long poll", "filled", "waits for the budget", "blocked", "blocked and taken", "idle", "idle and taken"]


async def brought_into(r: LegacyRig, state: str) -> OldConsumer:
    """A client in this state; only the connections are left of the clients needed to get there."""
    filled(r)
    slow = await (r.consumer() if "idle" in state else r.slow_consumer())
    if state == "long poll":
        await slow.ask({PLACE: 1400}, max_wait_ms=60_000)
        await until(lambda: len(r.broker.fetches) == 1)
    elif state == "filled":
        r.broker.rest = trio.Event()
        await slow.ask({PLACE: 0})
        await until(lambda: r.budget.leased > 0)
    elif state == "waits for the budget":
        r.broker.rest = trio.Event()
        await (await r.consumer()).ask({PLACE: 0})
        await until(lambda: r.budget.leased > 0)
        await slow.ask({PLACE: 0})
        await until(lambda: r.budget.waiting == 1)
    elif "blocked" in state:
        await slow.ask({PLACE: 0})
        await r.blocked(slow)
    else:
        await slow.fetch({PLACE: 0}, most=100_000)
        await until(lambda: r.budget.idle == 1)
    if "taken" in state:
        other = await r.consumer()
        await other.fetch({PLACE: 0}, most=1 << 20)
        await until(lambda: r.budget.evictions == 1)
        await other.stream.aclose()
        await until(lambda: r.budget.leased == 0)
    return slow


@pytest.mark.parametrize("who", ["client", "broker", "drain"])
@pytest.mark.parametrize("state", STATES)
async def test_a_connection_may_end_in_every_state_and_nothing_stays_leased(state: str, who: str) -> None:
    async with legacy_rig(check_seconds=0.02, chunk_bytes=CHUNK, budget_bytes=900 * KIB, limits=HASTY) as r:
        client = await brought_into(r, state)
        if who == "client":
            await client.stream.aclose()
            await until(lambda: all(connection.peer.port != client.port for connection in r.inner.listener.connections))
        else:
            if who == "drain":
                r.inner.server.drain()
            for side in r.broker.sides if who == "broker" else ():
                await side.stream.aclose()
            await until(lambda: not r.inner.listener.connections)
        still_filled = who == "client" and state == "waits for the budget"  # the one it waited for
        assert (r.budget.leased > 0) == still_filled
        assert (r.budget.waiting, r.budget.idle) == (0, 0)


async def test_random_clients_that_come_read_and_go_leave_nothing() -> None:
    rng = random.Random(11)
    async with legacy_rig(grace=0.001, chunk_bytes=CHUNK, budget_bytes=1000 * KIB, limits=HASTY) as r:
        sent = filled(r)
        checked = []

        async def come_and_go(number: int) -> None:
            consumer = await r.slow_consumer(2)
            at = rng.randrange(1300)
            await consumer.ask({PLACE: at}, most=rng.choice((20_000, 1 << 20)))
            if number % 3 == 0:
                await consumer.stream.receive_some(rng.randrange(1, 20_000))
                await consumer.stream.aclose()
            else:
                got = await read_on(consumer)
                fresh = [message for message in got if message.offset >= at]
                checked.append(fresh == sent[at : at + len(fresh)] and len(fresh) > 0)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(partial(come_and_go, number))
        assert checked == [True] * 20
        await until(lambda: r.budget.waiting == 0)
