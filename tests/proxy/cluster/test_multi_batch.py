"""Proofs in the running proxy: made over a client's own connection, bound to connections, dropped when one is lost."""

from __future__ import annotations

import logging
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cluster.multi_batch import MultiBatchProofs
from shoal.proxy.config.settings import ClusterSettings, Limits, MultiBatch
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.listener.plain import PLAIN_ROUTES, PlainPath
from shoal.proxy.statistics import CloseCause
from tests.support.multibatch.broker import BatchBroker, Habits
from tests.support.multibatch.brokers import Behind
from tests.support.rig import FakeBroker, Peer, Rig, correlation_id, request, response, rig, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener

ASK = ApiKey.OFFSET_COMMIT  # `ProvingPath` answers these with the result of `ensure`
LOOK = ApiKey.OFFSET_FETCH  # ... with the result of `may_send_sets`
REFUSE = ApiKey.LEAVE_GROUP  # withdraws
WHO = (ApiKey.API_VERSIONS, ApiKey.METADATA)


class ProvingPath(PlainPath):
    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        handles = {ASK: self._ask, LOOK: self._look, REFUSE: self._refuse}
        own = {int(key): Route(handle=handle) for key, handle in handles.items()}
        self.routes = table({**PLAIN_ROUTES, **own})
        self.proofs = listener.cluster.proofs

    async def _ask(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        may = await self.proofs.ensure(connection)
        assert may == self.proofs.may_send_sets(connection)
        await connection.reply([response(header.correlation_id, b"%d" % may)])

    async def _look(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.reply([response(header.correlation_id, b"%d" % self.proofs.may_send_sets(connection))])

    async def _refuse(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        self.proofs.withdraw(connection, "error 87 to a set of 12 batches for t1-0")
        await connection.reply([response(header.correlation_id, b"-")])


@dataclass
class Stage:
    rig: Rig
    behind: Behind
    port: int
    now: list[float]

    @property
    def broker(self) -> BatchBroker:
        return self.behind.broker

    async def client(self) -> Peer:
        return await self.rig.client(self.port)

    def forget_what_was_asked(self) -> None:
        self.broker.asked.clear()


async def say(client: Peer, key: int = ASK) -> bool:
    await client.send(request(key, 0, 1))
    return (await client.frame())[8:] == b"1"


@asynccontextmanager
async def stage(
    *, sasl: bool = False, settings: dict[str, Any] | None = None, seconds: float = math.inf, **habits: Any
) -> AsyncIterator[Stage]:
    """`settings` of the cluster; `habits` of its broker. The test sets the time of `Known`."""
    behind = Behind(BatchBroker(Habits(**habits)), sasl)
    fake = FakeBroker(behind.answer)
    now = [0.0]
    async with rig(
        broker=fake, limits=Limits(close_seconds=0), path=partial(_path, settings or {}, seconds, now)
    ) as one:
        _, port = one.listener.advertise(fake.address, 1, "127.0.0.1")
        behind.broker.address = fake.address
        yield Stage(one, behind, port, now)


def _path(settings: dict[str, Any], seconds: float, now: list[float], listener: Listener) -> ProvingPath:
    cluster = listener.cluster
    made = ClusterSettings(name=cluster.name, bootstrap=tuple(cluster.bootstrap), **settings)
    cluster.proofs = MultiBatchProofs(made, seconds=seconds, clock=lambda: now[0])
    return ProvingPath(listener)


async def test_a_broker_that_stores_sets_is_proven_over_the_client_s_connection() -> None:
    async with stage() as here:
        client = await here.client()
        assert await say(client, LOOK) is False
        assert await say(client) is True
        assert await say(client, LOOK) is True
        assert len(here.rig.broker.sides) == 1
        assert here.broker.topics == {}
        here.forget_what_was_asked()
        assert await say(client) is True
        assert here.broker.asked == []


@pytest.mark.parametrize(("stamps", "known"), [("agent", True), ("ignored", False)])
async def test_whether_stamps_are_known_is_known_of_the_same_connections(stamps: str, known: bool) -> None:
    async with stage(stamps=stamps) as here:
        first = await here.client()
        assert await say(first)
        (connection,) = here.rig.listener.connections
        assert connection.cluster.proofs.stamps_are_known(connection) is known
        second = await here.client()
        assert await say(second)
        proofs = connection.cluster.proofs
        assert [proofs.stamps_are_known(one) for one in here.rig.listener.connections] == [known, known]
        await say(second, REFUSE)
        assert [proofs.stamps_are_known(one) for one in here.rig.listener.connections] == [False, False]


async def test_another_connection_asks_only_who_the_broker_is() -> None:
    async with stage() as here:
        assert await say(await here.client())
        here.forget_what_was_asked()
        second = await here.client()
        assert await say(second, LOOK) is False
        assert await say(second) is True
        assert here.broker.asked == [*WHO]


async def test_a_refusal_is_told_once_and_not_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shoal.multi_batch")
    async with stage(refuses=ErrorCode.invalid_record) as here:
        for client in (await here.client(), await here.client()):
            assert await say(client) is False
            assert await say(client) is False
        assert here.broker.asked.count(ApiKey.METADATA) == 1
        (told,) = caplog.messages
        assert told == (
            "cluster 'c': broker 1 gets one batch per partition and request: refused: the broker answers 2 batches "
            "(uncompressed) with error 87 (INVALID_RECORD)"
        )


async def test_a_broker_that_loses_records_gets_no_sets(caplog: pytest.LogCaptureFixture) -> None:
    async with stage(keeps=1) as here:
        assert await say(await here.client()) is False
        assert "unsafe: the broker took 2 batches (uncompressed) with success, but the log ends at 4" in caplog.text
        assert caplog.records[0].levelno == logging.WARNING


async def test_missing_rights_are_told_with_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    async with stage(create_error=ErrorCode.topic_authorization_failed) as here:
        client = await here.client()
        assert await say(client) is False
        assert await say(client) is False
        (told,) = caplog.messages
        assert "unknown: cannot create the scratch topic __shoal-probe-" in told
        assert "name it with probe-topic" in told


async def test_a_named_topic_needs_no_rights_to_create() -> None:
    denied = ErrorCode.topic_authorization_failed
    async with stage(create_error=denied, settings={"probe_topic": "shoal-probe"}) as here:
        here.broker.with_topic("shoal-probe")
        assert await say(await here.client()) is True


async def test_the_client_s_own_authentication_is_enough() -> None:
    async with stage(sasl=True) as here:
        client = await here.client()
        await client.send(request(ApiKey.SASL_AUTHENTICATE, 0, 1))
        await client.frame()
        assert await say(client) is True
        assert len(here.rig.broker.sides) == 1


async def test_a_broker_that_closes_on_sets_costs_one_connection_only() -> None:
    async with stage(closes=True) as here:
        client = await here.client()
        await client.send(request(ASK, 0, 1))
        assert await client.at_end()
        assert await here.rig.closed() == {CloseCause.UPSTREAM_CLOSED: 1}
        left = list(here.broker.topics)
        assert len(left) == 1
        second = await here.client()
        assert await say(second) is False
        assert here.broker.sets.total() == 1
        here.now[0] += 600
        here.behind.broker.habits = Habits()
        assert await say(second) is True
        assert here.broker.topics == {}
        assert left[0] in here.broker.deleted


async def test_a_lost_connection_takes_the_proof_of_all_connections_with_it() -> None:
    """The broker was restarted, perhaps without its agent: another connection to it may be half open."""
    async with stage() as here:
        first, second = await here.client(), await here.client()
        assert await say(first)
        assert await say(second)
        await here.rig.broker.sides[0].stream.aclose()
        assert await first.at_end()
        await here.rig.closed()
        assert await say(second, LOOK) is False
        here.forget_what_was_asked()
        here.behind.broker.habits = Habits(refuses=ErrorCode.invalid_record)
        assert await say(await here.client()) is False
        assert ApiKey.PRODUCE in here.broker.asked
        assert await say(second) is False


async def test_a_client_that_leaves_takes_nothing_with_it() -> None:
    async with stage() as here:
        first, second = await here.client(), await here.client()
        assert await say(first)
        assert await say(second)
        await first.stream.aclose()
        await here.rig.closed()
        assert await say(second, LOOK) is True


async def test_another_broker_at_the_same_address_is_proven_anew() -> None:
    async with stage() as here:
        assert await say(await here.client())
        here.behind.broker.habits = Habits(cluster_id="another", keeps=1)
        assert await say(await here.client()) is False


async def test_a_broker_that_does_not_answer_is_left_alone_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async with stage(seconds=1) as here:
        here.behind.waits_on = ApiKey.LIST_OFFSETS
        client = await here.client()
        await client.send(request(ASK, 0, 1))
        await until(lambda: bool(caplog.records))
        here.behind.gate.set()
        assert (await client.frame())[8:] == b"0"
        assert "no answer to ListOffsets of 2 batches (uncompressed) within 1 s" in caplog.text


async def test_while_one_connection_proves_the_others_do_not_wait() -> None:
    async with stage(mute_on=frozenset({ApiKey.API_VERSIONS})) as here:
        first, second = await here.client(), await here.client()
        await first.send(request(ASK, 0, 1))
        await until(lambda: bool(here.broker.asked))
        assert await say(second) is False
        assert here.broker.asked == [ApiKey.API_VERSIONS]


async def test_a_withdrawn_proof_is_withdrawn_for_every_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as here:
        first, second = await here.client(), await here.client()
        assert await say(first)
        assert await say(second)
        await say(first, REFUSE)
        await say(second, REFUSE)
        assert not await say(first)
        assert not await say(second)
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert warnings == [
            "cluster 'c': broker 1 no longer takes several batches per request: error 87 to a set of 12 batches for "
            "t1-0; one by one again"
        ]
        here.now[0] += 600
        assert await say(second)


async def test_never_means_that_nothing_is_asked() -> None:
    async with stage(settings={"multi_batch": MultiBatch.NEVER}) as here:
        assert await say(await here.client()) is False
        assert here.broker.asked == []


async def test_the_bootstrap_port_is_no_broker_to_prove() -> None:
    async with stage() as here:
        assert await say(await here.rig.client()) is False
        assert here.broker.asked == []


async def test_the_client_s_answers_stay_in_order_around_a_probe() -> None:
    async with stage() as here:
        client = await here.client()
        frames = [request(ApiKey.HEARTBEAT if number % 3 else ASK, 0, number) for number in range(30)]
        await client.send(b"".join(frames))
        assert [correlation_id(b"1234" + await client.frame()) for _ in frames] == list(range(30))
