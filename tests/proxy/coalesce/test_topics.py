"""A coalescing listener identifies a partition by name, also if the client uses the topic's id (Produce v13): a
producer whose broker is upgraded resends the same batch in another version."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import ApiKey
from tests.support.coalesce_rig import batch, coalesce_rig
from tests.support.rig import until
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Script, topic_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.coalesce_rig import CoalesceRig
    from tests.support.shallow.rig import Producer

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none
BY_NAME, BY_ID = 12, 13
GONE_ID = UUID(int=0x9999)
both_ways = pytest.mark.parametrize(("before", "after"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])


async def producer(r: CoalesceRig, version: int) -> Producer:
    made = await r.producer()
    made.version = version
    return made


async def send(client: Producer, sets: Mapping[int, bytes]) -> None:
    await client.send_only(sets, topic=ORDERS_ID if client.version == BY_ID else ORDERS)


@both_ways
async def test_a_retry_under_another_version_is_known_as_one(before: int, after: int) -> None:
    """As far as Shoal can see, its first connection has its answer: only the sequence shows that it was sent before."""
    async with coalesce_rig() as r:
        client = await producer(r, before)
        one = batch("a", "b", producer=5, sequence=0)
        await send(client, {0: one})
        assert await client.answers() == {0: (NONE, 0)}
        await client.stream.aclose()
        await r.closed()
        again = await producer(r, after)
        await send(again, {0: one})
        await send(again, {0: batch("c", producer=5, sequence=2)})
        assert [await again.answers() for _ in range(2)] == [{0: (NONE, 0)}, {0: (NONE, 2)}]
        assert r.broker.log() == ["a", "b", "c"]
        assert (r.path.tally.taken, r.path.tally.alone) == (2, {"possible retry": 1})


@both_ways
async def test_a_retry_under_another_version_waits_for_what_is_on_its_way(before: int, after: int) -> None:
    async with coalesce_rig() as r:
        gate = trio.Event()
        r.broker.scripts[0] = Script(gate=gate)
        client = await producer(r, before)
        one = batch("a")
        await send(client, {0: one})
        await until(lambda: len(r.broker.requests) == 1)
        await client.reset()
        await r.closed()
        again = await producer(r, after)
        await send(again, {0: one})
        await until(lambda: r.server.statistics().listeners[0].traffic.from_client >= 2 * len(one))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.broker.requests) == 1, "it waits for the first"
        gate.set()
        assert await again.answers() == {0: (NONE, 1)}
        assert r.path.tally.alone == {"possible retry": 1}


async def test_a_partition_by_name_and_by_id_never_stands_twice_in_a_request() -> None:
    """The rig's broker would fail. Only clients of the same version share a request."""
    async with coalesce_rig() as r:
        gates = [await r.hold(version) for version in (BY_NAME, BY_ID)]
        clients = [await producer(r, version) for version in (BY_NAME, BY_ID) * 3]
        for number, client in enumerate(clients):
            await send(client, {0: batch(str(number)), 10 + number: batch("own")})
        await r.taken(2 + len(clients))
        for gate in gates:
            gate.set()
        answers = [await client.answers() for client in clients]
        assert all(error is NONE for answer in answers for error, _ in answer.values())
        assert sorted(r.broker.log()) == list("012345")
        assert not r.path.tally.alone
        together = [request for request in r.broker.requests if len(request) > 2]
        assert {type(topic_of(topic)) for request in r.broker.entities for topic in request.topic_data} == {str, UUID}
        assert together, "requests of one version were joined"


async def test_an_id_that_is_not_known_is_asked_for_once() -> None:
    async with coalesce_rig() as r:
        client = await producer(r, BY_ID)
        for sequence in range(3):
            await send(client, {0: batch(str(sequence), producer=5, sequence=sequence)})
        assert [await client.answers() for _ in range(3)] == [{0: (NONE, at)} for at in range(3)]
        assert r.broker.others == [ApiKey.METADATA]
        assert r.path.tally.taken == 3


async def test_an_id_that_the_broker_does_not_know_either_travels_alone() -> None:
    async with coalesce_rig() as r:
        client = await producer(r, BY_ID)
        await client.send_only({0: batch("a", producer=5, sequence=0)}, topic=GONE_ID)
        assert await client.answers() == {0: (ErrorCode.unknown_topic_id, -1)}
        r.broker.topics[GONE_ID] = "late"
        await client.send_only({0: batch("a", producer=5, sequence=0)}, topic=GONE_ID)
        assert await client.answers() == {0: (NONE, 0)}
        assert r.broker.others == [ApiKey.METADATA] * 2
        assert r.path.tally.alone == {"unknown topic id": 1, "possible retry": 1}
