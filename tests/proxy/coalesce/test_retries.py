"""A coalescing listener never joins possible retries, and joins sets of one partition only if the broker is proven."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.cluster.multi_batch import MultiBatchProofs
from tests.support.coalesce_rig import NODE, ORDERS, batch, coalesce_rig
from tests.support.rig import until
from tests.support.shallow.brokers import Script

if TYPE_CHECKING:
    from shoal.proxy.cluster.multi_batch import ProbeConnection

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none


class Proven(MultiBatchProofs):
    """Every broker is proven immediately to take several batches of a partition."""

    async def ensure(self, connection: ProbeConnection) -> bool:
        self.vouch(connection)
        return True

    async def still_holds(self, node_id: int, exchange: object) -> bool:
        return True


# Retries


async def test_a_sequence_that_was_seen_travels_alone_and_is_not_appended_twice() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        first, second, third = (batch("a", "b", producer=5, sequence=number) for number in (0, 2, 4))
        for one in (first, second, first, second, third):
            await client.send_only({0: one})
        answers = [await client.answers() for _ in range(5)]
        assert answers == [{0: (NONE, offset)} for offset in (0, 2, 0, 2, 4)]
        assert r.broker.log() == ["a", "b"] * 3
        assert r.path.tally.taken == 3
        assert r.path.tally.alone == {"possible retry": 2}


async def test_the_first_batch_of_a_producer_that_is_not_known_travels_alone() -> None:
    """After a restart of Shoal it may be a retry. Later batches are not."""
    async with coalesce_rig() as r:
        r.broker.logs[ORDERS, 0].producers[5] = [(0, 9, 0)]
        client = await r.producer()
        for sequence in (10, 11, 12):
            await client.send_only({0: batch(str(sequence), producer=5, sequence=sequence)})
        assert [await client.answers() for _ in range(3)] == [{0: (NONE, at)} for at in range(3)]
        assert (r.path.tally.taken, r.path.tally.alone) == (2, {"possible retry": 1})


async def test_a_client_that_comes_back_sends_again_alone_and_behind_what_is_still_on_its_way() -> None:
    """Its first connection was lost with a request unanswered: the same batch, sent over a new one, is not appended
    twice."""
    async with coalesce_rig() as r:
        gate = trio.Event()
        r.broker.scripts[0] = Script(gate=gate)
        client = await r.producer()
        one = batch("a", producer=5, sequence=0)
        await client.send_only({0: one})
        await until(lambda: len(r.broker.requests) == 1)
        await client.reset()
        await r.closed()
        again = await r.producer()
        await again.send_only({0: one})
        await until(lambda: r.server.statistics().listeners[0].traffic.from_client >= 2 * len(one))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.broker.requests) == 1, "it waits for the first"
        gate.set()
        assert await again.answers() == {0: (NONE, 0)}
        assert r.broker.log() == ["a"]
        await again.send_only({1: batch("x")})
        assert await again.answers() == {1: (NONE, 0)}
        assert r.path.tally.alone == {"possible retry": 2}


async def test_after_an_error_a_clients_requests_travel_alone() -> None:
    async with coalesce_rig(scripts={0: Script(errors={0: ErrorCode.not_enough_replicas})}) as r:
        client, other = await r.producers(2)
        other.client_id = "other"
        await client.send_only({0: batch("v"), 1: batch("v")})
        assert await client.answers() == {0: (ErrorCode.not_enough_replicas, -1), 1: (NONE, 0)}
        await client.send_only({0: batch("v")})
        assert await client.answers() == {0: (NONE, 0)}
        await other.send_only({0: batch("v")})
        assert await other.answers() == {0: (NONE, 1)}
        assert (r.path.tally.taken, r.path.tally.alone) == (2, {"possible retry": 1})


async def test_five_idempotent_requests_of_one_partition_keep_their_order() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        client = await r.producer()
        for sequence in range(5):
            await client.send_only({0: batch(str(sequence), producer=5, sequence=sequence)})
        await r.taken(6)
        gate.set()
        assert [await client.answers() for _ in range(5)] == [{0: (NONE, number)} for number in range(5)]
        assert r.broker.log() == list("01234")


async def test_a_possible_retry_waits_only_for_what_its_client_id_sent_before() -> None:
    """Otherwise it would never get past a partition that another producer with its client id constantly writes to."""
    async with coalesce_rig(scripts={0: Script(errors={1: ErrorCode.not_enough_replicas})}) as r:
        client, other = await r.producers(2)
        await client.send_only({1: batch("a")})
        await client.answers()
        before, after = trio.Event(), trio.Event()
        r.broker.scripts |= {1: Script(gate=before), 2: Script(gate=after)}
        await other.send_only({0: batch("b")})
        await r.taken(2)
        await client.send_only({0: batch("c")})
        await trio.testing.wait_all_tasks_blocked(0.01)
        await other.send_only({0: batch("d")})
        await r.taken(3)
        before.set()
        assert await client.answers() == {0: (NONE, 1)}
        after.set()
        assert [await other.answers() for _ in range(2)] == [{0: (NONE, 0)}, {0: (NONE, 2)}]


async def test_what_a_possible_retry_waits_for_is_found_without_a_look_at_the_batches_of_others() -> None:
    """Each client that waits looks again at every answer."""
    async with coalesce_rig(ignore_client_ids=True) as r:
        gate = await r.hold()
        client, other = await r.producers(2)
        client.client_id, other.client_id = "client", "other"
        await other.send(b"".join(other.request({(ORDERS, 0): batch("v")}) for _ in range(300)))
        await r.taken(301)
        await client.send_only({0: batch("v")})
        await r.taken(302)
        (member,) = (one for one in r.path._members.values() if one.client[1] == "client")
        calls: list[str] = []
        sys.setprofile(lambda frame, kind, _: calls.append(kind))
        assert r.path._holds(member, [PartitionRef(ORDERS, 0)], trio.current_time())
        sys.setprofile(None)
        assert len(calls) < 50
        gate.set()
        assert await client.answers() == {0: (NONE, 300)}
        assert not r.path._held


# Sets


async def test_batches_of_one_partition_stand_in_a_set_where_that_is_proven() -> None:
    async with coalesce_rig(proofs=Proven, takes_sets=True) as r:
        gate = await r.hold()
        clients = await r.producers(4)
        for number, client in enumerate(clients):
            await client.send_only({0: batch(*["v"] * (number + 1))})
            await r.taken(number + 2)
        gate.set()
        assert [await client.answers() for client in clients] == [{0: (NONE, offset)} for offset in (0, 1, 3, 6)]
        assert len(r.broker.requests) == 2


async def test_batches_with_producer_ids_do_not_stand_in_sets() -> None:
    async with coalesce_rig(proofs=Proven, takes_sets=True) as r:
        gate = await r.hold()
        clients = await r.producers(3)
        for number, client in enumerate(clients):
            await client.send_only({0: batch("v", producer=number, sequence=0)})
            await r.taken(number + 2)
        gate.set()
        assert [await client.answers() for client in clients] == [{0: (NONE, offset)} for offset in range(3)]
        assert r.broker.places() == [[99], [0], [0], [0]]


@pytest.mark.parametrize("takes_sets", [True, False], ids=["one batch is bad", "sets are refused after all"])
async def test_a_set_that_is_refused_is_sent_again_batch_by_batch(takes_sets: bool) -> None:
    async with coalesce_rig(proofs=Proven, takes_sets=takes_sets) as r:
        gate = await r.hold()
        clients = await r.producers(3)
        bad = bytearray(batch("bad"))
        bad[-3] ^= takes_sets
        for number, one in enumerate((batch("a"), bytes(bad), batch("c"))):
            await clients[number].send_only({0: one})
            await r.taken(number + 2)
        gate.set()
        middle = (ErrorCode.corrupt_message, -1) if takes_sets else (NONE, 1)
        answers = [await client.answers() for client in clients]
        assert answers == [{0: (NONE, 0)}, {0: middle}, {0: (NONE, 1 if takes_sets else 2)}]
        assert r.broker.log() == (["a", "c"] if takes_sets else ["a", "bad", "c"])
        assert r.path.tally.split_sets == 1
        assert r.path.sets.allowed(r.server.listeners["test"].ports.bound[7]) is takes_sets
        assert r.path.held_bytes == 0


async def test_a_batch_of_a_refused_set_whose_client_has_left_proves_nothing() -> None:
    async with coalesce_rig(proofs=Proven, takes_sets=True, ignore_client_ids=True) as r:
        gate = await r.hold()
        prover, good, bad = await r.producers(3)
        await prover.send_only({0: batch("p")})
        await r.taken(2)
        await good.send_only({0: batch("g")})
        await r.taken(3)
        damaged = bytearray(batch("b"))
        damaged[-3] ^= 1
        await bad.send_only({0: bytes(damaged)})
        await r.taken(4)
        r.broker.scripts[2] = Script(gate=(first := trio.Event()))
        gate.set()
        await until(lambda: len(r.broker.requests) == 3)
        await bad.reset()
        await r.closed()
        first.set()
        assert await prover.answers() == {0: (NONE, 0)}
        assert await good.answers() == {0: (NONE, 1)}
        await prover.send_only({0: batch("q")})
        assert await prover.answers() == {0: (NONE, 2)}
        assert r.path.sets.allowed(r.server.listeners["test"].ports.bound[NODE])
