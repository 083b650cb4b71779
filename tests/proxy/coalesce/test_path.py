"""Many producers through a coalescing listener, with a strict broker: what is joined, and that clients do not
notice."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from shoal.proxy.statistics import CloseCause
from tests.support.coalesce_rig import ORDERS, batch, coalesce_rig
from tests.support.rig import request, until
from tests.support.shallow.brokers import ORDERS_ID, Script

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none


@pytest.mark.parametrize("version", range(3, 14))
async def test_requests_of_many_clients_become_one(version: int) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    async with coalesce_rig() as r:
        gate = await r.hold(version)
        clients = await r.producers(20)
        for number, client in enumerate(clients):
            client.version = version
            await client.send_only({number: batch(f"v{number}")}, topic=topic)
        await r.taken(21)
        gate.set()
        for number, client in enumerate(clients):
            assert await client.answers() == {number: (NONE, 0)}
            assert r.broker.log(number) == [f"v{number}"]
        alone, joined = r.broker.places()
        assert (alone, sorted(joined)) == ([99], list(range(20)))  # in the order in which clients' sockets are read


async def test_a_lone_request_leaves_at_once_and_is_answered() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        for number in range(3):
            await client.send_only({0: batch(f"v{number}")})
            assert await client.answers() == {0: (NONE, number)}
        assert r.broker.log() == ["v0", "v1", "v2"]
        assert r.path.held_bytes == 0


async def test_a_partition_stands_once_in_a_request_and_its_order_is_kept() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        one, other = await r.producers(2)
        await one.send_only({0: batch("a1")})
        await one.send_only({0: batch("a2"), 1: batch("x")})
        await r.taken(3)
        await other.send_only({0: batch("b1", "b2")})
        await r.taken(4)
        gate.set()
        assert await one.answers() == {0: (NONE, 0)}
        assert await one.answers() == {0: (NONE, 1), 1: (NONE, 0)}
        assert await other.answers() == {0: (NONE, 2)}
        assert r.broker.log() == ["a1", "a2", "b1", "b2"]
        assert r.broker.places() == [[99], [0, 1], [0], [0]]


async def test_only_requests_that_are_alike_are_joined() -> None:
    """Equal acks, timeout, version and client id."""
    async with coalesce_rig() as r:
        gate = await r.hold()
        like, other_acks, other_timeout, other_version, other_client = await r.producers(5)
        other_version.version, other_client.client_id = 9, "another"
        await like.send_only({0: batch("a")})
        await r.taken(2)
        await other_acks.send_only({1: batch("b")}, acks=1)
        other_timeout.timeout = timedelta(seconds=2)
        await other_timeout.send_only({4: batch("e")})
        await other_version.send_only({2: batch("c")})
        await other_client.send_only({3: batch("d")})
        for client in (other_acks, other_timeout, other_version, other_client):
            await client.answers()
        assert r.broker.places()[0] == [99]
        assert sorted(r.broker.places()[1:]) == [[1], [2], [3], [4]]
        gate.set()
        await like.answers()
        assert {header.client_id for header in r.broker.headers} == {"the producer", "another"}


async def test_client_ids_may_be_declared_unimportant() -> None:
    async with coalesce_rig(ignore_client_ids=True) as r:
        gate = await r.hold()
        clients = await r.producers(5)
        for number, client in enumerate(clients):
            client.client_id = f"client-{number}" if number else None
            await client.send_only({number: batch("v")})
        await r.taken(6)
        gate.set()
        for number, client in enumerate(clients):
            assert await client.answers() == {number: (NONE, 0)}
        assert len(r.broker.requests) == 2
        assert {header.client_id for header in r.broker.headers} == {"shoal"}


async def test_a_client_may_change_its_requests_at_any_time() -> None:
    """Each kind of request in turn, twice, over one connection: what the broker gets says what the client said."""
    kinds = list(product(("a", "b"), (9, 11), (-1, 1)))
    async with coalesce_rig() as r:
        (client,) = await r.producers(1)
        for client.client_id, client.version, acks in kinds * 2:
            for partition in (0, 1):
                await client.send_only({partition: batch("v")}, acks=acks)
                assert (await client.answers()).keys() == {partition}
        got = [
            (header.client_id, entity.__version__, entity.acks)
            for header, entity in zip(r.broker.headers, r.broker.entities, strict=True)
        ]
        assert got == [kind for kind in kinds * 2 for _ in (0, 1)]
        assert r.path.tally.taken == len(got)


async def test_client_ids_may_be_declared_unimportant_later() -> None:
    async with coalesce_rig() as r:
        (client,) = await r.producers(1)
        listener = r.server.listeners["test"]
        for ignore in (False, True, False):
            coalescing = replace(listener.settings.coalescing, ignore_client_ids=ignore)
            listener.path.use(replace(listener.settings, coalescing=coalescing))
            for _ in range(2):
                await client.send_only({0: batch("v")})
                await client.answers()
        assert [header.client_id for header in r.broker.headers] == [
            *["the producer"] * 2,
            *["shoal"] * 2,
            *["the producer"] * 2,
        ]


async def test_each_owner_hears_of_its_own_error_and_of_the_throttling() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        r.broker.scripts[1] = Script(errors={1: ErrorCode.not_leader_or_follower}, throttle_ms=70, log_start=4)
        clients = await r.producers(3)
        for number, client in enumerate(clients):
            await client.send_only({number: batch("v")})
        await r.taken(4)
        gate.set()
        for number, client in enumerate(clients):
            answer = await client.answer()
            ((one,),) = (topic.partition_responses for topic in answer.responses)
            assert one.error_code is (ErrorCode.not_leader_or_follower if number == 1 else NONE)
            assert one.error_message == ("the broker says not_leader_or_follower" if number == 1 else None)
            assert (one.index, one.log_start_offset) == (number, 4)
            assert answer.throttle_time.total_seconds() == 0.07


@pytest.mark.parametrize(("version", "waits"), [(9, True), (6, True), (5, False)])
async def test_a_throttled_lane_waits_as_a_client_does(version: int, waits: bool, mock_clock: MockClock) -> None:
    """The broker reads nothing from this connection meanwhile: what its client gives up must be withdrawn, not sent."""
    async with coalesce_rig(scripts={0: Script(throttle_ms=100_000)}) as r:
        one, patient, impatient = await r.producers(3)
        one.version = patient.version = impatient.version = version
        await one.send_only({0: batch("throttled")})
        assert await one.answers() == {0: (NONE, 0)}
        await patient.send_only({0: batch("patient")})
        await impatient.send_only({1: batch("lost")})
        await r.taken(3)
        await wait_all_tasks_blocked(0.01)
        assert (len(r.broker.requests) == 1) is waits
        if waits:
            await impatient.reset()
            await until(lambda: r.path.tally.taken == 3 and len(r.server.listeners["test"].connections) == 2)
        mock_clock.jump(100)
        assert await patient.answers() == {0: (NONE, 1)}
        assert (r.broker.log(1) == []) is waits


async def test_a_batch_that_is_broken_hurts_only_its_owner() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        good, bad = await r.producers(2)
        await good.send_only({0: batch("good")})
        broken = bytearray(batch("bad"))
        broken[-3] ^= 1
        await bad.send_only({1: bytes(broken)})
        await r.taken(3)
        gate.set()
        assert await good.answers() == {0: (NONE, 0)}
        assert await bad.answers() == {1: (ErrorCode.corrupt_message, -1)}


async def test_brokers_named_in_an_answer_are_shoals_own() -> None:
    async with coalesce_rig() as r:
        leader = r.server.listeners["test"].ports.bound[7].port
        host, port = r.fake.address
        r.broker.scripts[0] = Script(errors={0: ErrorCode.not_leader_or_follower}, leader=(7, host, port))
        client = await r.producer()
        client.version = 12
        await client.send_only({0: batch("v")})
        (endpoint,) = (await client.answer()).node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (7, "127.0.0.1", leader)


# acks=0


async def test_nobody_asked_for_an_answer() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        client, other = await r.producers(2)
        await client.send_only({0: batch("a")}, acks=0)
        await client.send_only({0: batch("b")}, acks=0)
        await other.send_only({1: batch("c")}, acks=0)
        await r.taken(4)
        gate.set()
        await until(lambda: (r.broker.log(), r.broker.log(1)) == (["a", "b"], ["c"]))
        assert {entity.acks for entity in r.broker.entities[1:]} == {1}
        await client.send(request(300, 0, 5, b"next"))
        assert (await client.frame()).endswith(b"next"), "nothing came before that"


async def test_an_error_with_acks_0_closes_its_clients_connection_and_no_other() -> None:
    async with coalesce_rig(scripts={0: Script()}) as r:
        warm = await r.producer()
        await warm.send_only({5: batch("v")}, acks=0)
        await until(lambda: r.broker.log(5) == ["v"])
        r.broker.scripts[1] = Script(errors={0: ErrorCode.not_leader_or_follower})
        bad = await r.producer()
        await bad.send_only({0: batch("v")}, acks=0)
        assert await bad.at_end()
        await bad.stream.aclose()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}
        await warm.send_only({5: batch("w")}, acks=0)
        await until(lambda: r.broker.log(5) == ["v", "w"])


async def test_what_a_client_sent_with_acks_0_arrives_though_it_has_gone() -> None:
    async with coalesce_rig() as r:
        first = await r.producer()
        gate = trio.Event()
        r.broker.scripts[0] = Script(gate=gate)
        await first.send_only({9: batch("held")}, acks=0)
        await until(lambda: len(r.broker.requests) == 1)
        client = await r.producer()
        await client.send_only({0: batch("a")}, acks=0)
        await client.send_only({0: batch("b")}, acks=0)
        await client.stream.aclose()
        await r.taken(3)
        gate.set()
        await until(lambda: r.broker.log() == ["a", "b"])


async def test_behind_a_request_with_acks_0_that_went_alone_nothing_is_joined() -> None:
    """Without an answer it is unknown when the broker has processed it: only its own connection keeps the order."""
    async with coalesce_rig() as r:
        client = await r.producer()
        large = "x" * 100_000
        for value in (large, "b", "c"):
            await client.send_only({0: batch(value)}, acks=0)
        await until(lambda: r.broker.log() == [large, "b", "c"])
        assert r.path.tally.taken == 0
        assert r.path.tally.alone == {"large": 1, "acks=0 behind one that went alone": 2}


# Order in a connection


async def test_answers_come_in_the_order_of_the_requests() -> None:
    """Other requests wait for those taken before them, and later ones do not overtake them."""
    async with coalesce_rig() as r:
        gate = await r.hold()
        client = await r.producer()
        await client.send(
            client.request({(ORDERS, 0): batch("a")})
            + request(300, 0, 77, b"other")
            + client.request({(ORDERS, 0): batch("b")})
            + client.request({(ORDERS, 1): batch("c")})
        )
        await r.taken(2)
        assert not r.broker.others
        gate.set()
        assert await client.answers() == {0: (NONE, 0)}
        assert (await client.frame()).endswith(b"other")
        assert await client.answers() == {0: (NONE, 1)}
        assert await client.answers() == {1: (NONE, 0)}
        assert r.broker.log() == ["a", "b"]


async def test_requests_that_travel_alone_keep_their_place() -> None:
    """A large one goes over the client's own connection, between joined requests."""
    async with coalesce_rig() as r:
        gate = await r.hold()
        client = await r.producer()
        large = "x" * 100_000
        frames = [client.request({(ORDERS, 0): batch(value)}) for value in ("a", large, "b", large + "!", large, "c")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_in_chunks, b"".join(frames), random.Random(1))
            await r.taken(2)
            gate.set()
            assert [await client.answers() for _ in frames] == [{0: (NONE, number)} for number in range(6)]
        assert r.broker.log() == ["a", large, "b", large + "!", large, "c"]
        assert r.path.tally.taken == 4
        assert r.path.tally.alone == {"large": 3}


async def test_a_request_that_comes_byte_by_byte_is_taken() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        frame = client.request({(ORDERS, 0): batch("a")})
        for at in range(len(frame)):
            await client.send(frame[at : at + 1])
        assert await client.answers() == {0: (NONE, 0)}
        assert r.path.tally.taken == 1


async def test_transactional_and_odd_requests_go_their_own_way() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        client.transactional_id = "x"
        await client.send_only({0: batch("t")})
        assert await client.answers() == {0: (NONE, 0)}
        client.transactional_id = None
        await client.send_only({0: batch("a") + batch("b")})
        assert await client.answers() == {0: (ErrorCode.invalid_record, -1)}
        assert r.broker.entities[0].transactional_id == "x"
        assert r.path.tally.taken == 0
        assert r.path.tally.alone == {"transactional": 1, "not one ordinary batch for each partition": 1}


async def test_clients_that_authenticate_and_bootstrap_connections_are_not_joined() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        await client.send(request(17, 1, 5, b"\0\5PLAIN"))
        await client.frame()
        await client.send_only({0: batch("v")})
        assert await client.answers() == {0: (NONE, 0)}
        other = await r.producer(bootstrap=True)
        await other.send_only({0: batch("v")})
        assert await other.answers() == {0: (NONE, 1)}
        assert r.path.tally.alone == {"authenticated client": 1, "over a bootstrap port": 1}
        assert r.path.tally.taken == 0
