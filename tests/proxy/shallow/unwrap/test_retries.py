"""Errors, lost connections and several connections, at the unwrap listener: no loss, no duplicates, no reordering.

Losses are deliberate, at a place named by the test, so every run is the same.
"""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from shoal.protocol.records.batch import encode_batch
from shoal.proxy.statistics import CloseCause
from tests.support.rig import Peer, until
from tests.support.shallow.batches import (
    BATCHES,
    EARLIER,
    LATER,
    NONE,
    NOT_LEADER,
    OTHERS,
    envelope,
    of,
    outer,
    records,
)
from tests.support.shallow.brokers import ORDERS, Place, Script
from tests.support.shallow.rig import ShallowRig, shallow_rig
from tests.support.shallow.world import Seen, context, flat, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

pytestmark = pytest.mark.usefixtures("lane")

# Errors and retries


async def test_after_an_error_in_the_middle_the_retry_brings_only_the_rest() -> None:
    async with shallow_rig(scripts={1: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer()
        again = outer(*BATCHES)
        await client.produce(again, outer(*OTHERS))
        answer = await client.answer()
        parts = {
            partition_response.index: partition_response
            for topic in answer.responses
            for partition_response in topic.partition_responses
        }
        assert (parts[0].error_code, parts[0].error_message) == (NOT_LEADER, "the broker says not_leader_or_follower")
        assert (parts[1].error_code, parts[1].base_offset) == (NONE, 4)  # not delayed by its neighbour
        assert r.target.log() == records(BATCHES[0])
        await client.produce(again)
        assert await client.answers() == {0: (NONE, 14)}
        assert r.target.payloads() == of(BATCHES[0], BATCHES[1], BATCHES[1], BATCHES[2])
        assert r.target.log() == records(*BATCHES)
        assert r.unwrap.tally.retries_suppressed == 1
        assert r.unwrap.tally.partition_errors == 1


async def test_a_retry_knows_its_plain_records_and_its_base_offset_again() -> None:
    seen = [Seen(0, EARLIER), *envelope(*BATCHES), Seen(2, LATER)]
    async with shallow_rig(scripts={3: Script(errors={0: NOT_LEADER}), 4: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer()
        r.target.logs[ORDERS, 0].log = [LATER] * 20
        for answer in ((NOT_LEADER, -1), (NOT_LEADER, -1), (NONE, 20)):
            await client.produce(produced(seen))
            assert await client.answers() == {0: answer}
        assert r.target.log()[20:] == [EARLIER, *records(*BATCHES), LATER]


async def test_what_is_sent_anew_is_appended_anew() -> None:
    """The serial of another copy is not a retry: a consumer that rewinds gets the records again, as without Shoal."""
    source = BATCHES[0]
    copies = [wrap_record_set(source, 0, len(source), context(serials=lambda at=at: at)) for at in (1, 2)]
    async with shallow_rig() as r:
        client = await r.producer()
        for copy in copies:
            assert copy.parts
            await client.produce(produced(poll(flat(copy.parts))))
        assert [await client.answers() for _ in copies] == [{0: (NONE, 3)}, {0: (NONE, 7)}]


@pytest.mark.parametrize("go", [Peer.leave, Peer.reset])
@pytest.mark.parametrize("lost_at", range(3))
async def test_a_lost_client_s_retry_waits_for_what_is_in_flight(lost_at: int, go: object) -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={lost_at: Script(gate=gate)}) as r:
        first, second = await r.producer(), await r.producer()
        await first.produce(outer(*BATCHES))
        await r.arrived(lost_at + 1)
        await go(first)  # type: ignore[operator]
        await second.produce(outer(*BATCHES))
        await second.produce(encode_batch([LATER]))
        await until(lambda: sum(connection.handling for connection in r.server.connections()) == 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.target.requests) == lost_at + 1, "the retry did not wait"
        gate.set()
        assert [await second.answers() for _ in range(2)] == [{0: (NONE, 14)}, {0: (NONE, 15)}]
        assert r.target.log() == [*records(*BATCHES), LATER]
        assert r.target.payloads()[:3] == of(*BATCHES)
        assert await r.closed() in ({CloseCause.CLIENT_CLOSED: 1}, {CloseCause.CLIENT_LOST: 1})


async def test_an_error_that_nobody_hears_does_not_let_a_retry_overtake() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={1: Script(gate=gate, errors={0: NOT_LEADER})}) as r:
        first, second = await r.producer(), await r.producer()
        await first.produce(outer(*BATCHES))
        await r.arrived(2)
        await first.leave()
        await second.produce(outer(*BATCHES))
        gate.set()
        assert await second.answers() == {0: (NONE, 14)}
        assert r.target.log() == records(*BATCHES)


async def test_plain_records_wait_for_an_envelope_s_exchange_on_another_connection() -> None:
    """A mirror that lost its connection continues sending: order in the partition is kept across connections."""
    gate = trio.Event()
    async with shallow_rig(scripts={0: Script(gate=gate)}) as r:
        first, second = await r.producer(), await r.producer()
        await first.produce(outer(*BATCHES))
        await r.arrived(1)
        await first.leave()
        await second.produce(encode_batch([LATER]))
        await until(lambda: sum(connection.handling for connection in r.server.connections()) == 2)
        assert len(r.target.requests) == 1
        gate.set()
        assert await second.answers() == {0: (NONE, 15)}
        assert r.target.log() == [*records(*BATCHES), LATER]


async def test_an_answer_that_was_lost_is_given_again_without_asking_the_broker() -> None:
    async with shallow_rig() as r:
        first, second = await r.producer(), await r.producer()
        await first.produce(outer(*BATCHES), outer(*OTHERS))
        await r.arrived(3)
        await first.stream.aclose()  # never read
        await r.closed()
        await second.produce(outer(*BATCHES), outer(*OTHERS))
        assert await second.answers() == {0: (NONE, 14), 1: (NONE, 4)}
        assert len(r.target.requests) == 3
        assert r.target.log() == records(*BATCHES)
        assert r.unwrap.tally.retries_suppressed == 5


@pytest.mark.parametrize("appends", [False, True])
async def test_a_broker_that_is_lost_ends_the_connection_and_the_retry_brings_what_is_not_known(appends: bool) -> None:
    """A batch whose answer is lost is not known to be appended: it would be sent again without Shoal, too."""
    async with shallow_rig(scripts={1: Script(closes=True, appends=appends)}) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES))
        assert await client.at_end()
        again = await r.producer()
        await again.produce(outer(*BATCHES))
        assert await again.answers() == {0: (NONE, 20 if appends else 14)}
        wanted = [BATCHES[0], *([BATCHES[1]] if appends else []), *BATCHES[1:]]
        assert r.target.log() == records(*wanted)
        assert r.target.payloads() == of(BATCHES[0], BATCHES[1], BATCHES[1], BATCHES[2])
        await client.leave()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}


async def test_a_broker_that_says_nothing_about_a_partition_broke_the_protocol(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it did report is kept. Its answer is shorter than the one that is awaited: that takes a second at most."""
    async with shallow_rig(scripts={1: Script(omits=frozenset({0}), appends=True)}) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES), outer(*OTHERS))
        with trio.fail_after(30):
            assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
        assert "nothing about" in caplog.text
        again = await r.producer()
        await again.produce(outer(*BATCHES), outer(*OTHERS))
        assert await again.answers() == {0: (NONE, 20), 1: (NONE, 4)}
        assert r.target.payloads(1) == of(*OTHERS)
        assert r.target.log() == records(BATCHES[0], BATCHES[1], *BATCHES[1:])
        assert r.target.log(1) == records(*OTHERS)


# Several connections


async def test_connections_that_share_a_partition_take_turns() -> None:
    """One request's batches stay together."""
    async with shallow_rig() as r:
        clients = [await r.producer() for _ in range(4)]
        logs = [[some_batch(1000 * number + 3 * index) for index in range(5)] for number in range(4)]
        async with trio.open_nursery() as nursery:
            for client, log in zip(clients, logs, strict=True):
                nursery.start_soon(client.produce, outer(*log))
        answers = [await client.answers() for client in clients]
        assert sorted(answer[0] for answer in answers) == [(NONE, 15 * number + 14) for number in range(4)]
        order = sorted(range(4), key=lambda number: answers[number][0][1])
        assert r.target.log() == [record for number in order for record in records(*logs[number])]


def handled(r: ShallowRig, requests: int) -> bool:
    return sum(connection.handling for connection in r.server.connections()) == requests


async def test_requests_that_want_the_same_partitions_never_wait_for_each_other() -> None:
    """Two want both, in opposite orders: neither may get one and wait for the other's."""
    gate = trio.Event()
    async with shallow_rig(scripts={0: Script(gate=gate)}) as r:
        clients = [await r.producer() for _ in range(3)]
        for number, (client, order) in enumerate(zip(clients, [(0, 1), (0, 1), (1, 0)], strict=True)):
            log = some_batch(1000 * number, 5)
            sets: dict[Place, bytes] = {(ORDERS, index): outer(log) for index in order}
            await client.send(client.request(sets))
            await until(partial(handled, r, number + 1))
        gate.set()
        answers = [await client.answers() for client in clients]
        assert answers[0] == {0: (NONE, 4), 1: (NONE, 4)}
        assert sorted(answer[0] for answer in answers) == [(NONE, 4), (NONE, 9), (NONE, 14)]
        assert all(answer[0] == answer[1] for answer in answers)


async def test_partitions_of_different_connections_go_in_parallel() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={0: Script(gate=gate)}) as r:
        first, second = await r.producer(), await r.producer()
        await first.produce(outer(*BATCHES))
        await r.arrived(1)
        await second.send(second.request({(ORDERS, 1): outer(*OTHERS)}))
        assert await second.answers() == {1: (NONE, 4)}
        gate.set()
        assert await first.answers() == {0: (NONE, 14)}
