"""Shoal's own connection to a broker: answers in pieces, invalid answers, and brokers that disconnect."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.settings import Limits
from shoal.proxy.net.broker_client import BrokerClient, open_client
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import Upstream, UpstreamUnreachable
from tests.support.rig import DEADLINE, Answer, FakeBroker, echo, request, response, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig import BrokerSide

LIMITS = Limits(held_response_bytes=1 << 20)


@asynccontextmanager
async def client_of(answer: Answer = echo) -> AsyncIterator[tuple[BrokerClient, FakeBroker]]:
    broker = FakeBroker(answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        with open_client(Upstream(LIMITS), [broker.address]) as client, trio.fail_after(DEADLINE):
            yield client, broker
        nursery.cancel_scope.cancel()


def sends(frame: bytes) -> Answer:
    async def answer(side: BrokerSide, _: bytes) -> None:
        await side.send(frame)

    return answer


async def test_each_request_gets_its_answer_over_one_connection() -> None:
    async with client_of() as (client, broker):
        for number, body in enumerate((b"", b"a", b"b" * 300_000)):
            assert await client.exchange(request(3, 0, number, body)) == response(number, b"\0\4test" + body)
        assert len(broker.sides) == 1


async def test_an_answer_may_arrive_byte_by_byte() -> None:
    async def bytewise(side: BrokerSide, frame: bytes) -> None:
        for byte in response(7, b"answer"):
            await side.send(bytes((byte,)))
            await trio.testing.wait_all_tasks_blocked(0.001)

    async with client_of(bytewise) as (client, _):
        assert await client.exchange(request(3, 0, 7)) == response(7, b"answer")


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (response(6), "an answer of 4 bytes to 6 where 7 was due"),
        (response(7) + b"more", "4 bytes after an answer"),
        (b"HTTP", "web server"),
        (bytes.fromhex("15030300020250"), "the broker answers with a TLS alert"),
        (b"\0\0\0\3abc", "an answer of 3 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (((1 << 20) + 1).to_bytes(4, "big"), "a frame of 1048577 bytes"),
    ],
)
async def test_what_is_not_its_answer_is_refused(frame: bytes, why: str) -> None:
    async with client_of(sends(frame)) as (client, _):
        with pytest.raises(RemoteProtocolError, match=why):
            await client.exchange(request(3, 0, 7))


@pytest.mark.parametrize("said", [b"", b"\0\0", response(7, b"whole")[:-1]])
async def test_a_broker_that_leaves_before_the_end_of_its_answer_is_lost(said: bytes) -> None:
    async def leaves(side: BrokerSide, _: bytes) -> None:
        await side.send(said)
        await side.stream.aclose()

    async with client_of(leaves) as (client, _):
        with pytest.raises(PeerLost, match="the broker closed the connection"):
            await client.exchange(request(3, 0, 7))


async def test_a_lost_connection_is_not_replaced_until_it_is_closed() -> None:
    """A new one would not be authenticated."""
    async with client_of() as (client, broker):
        assert not client.is_lost
        await client.exchange(request(3, 0, 1))
        assert not client.is_lost
        await broker.sides[0].stream.aclose()
        await until(lambda: client.is_lost)
        with pytest.raises(PeerLost):
            await client.exchange(request(3, 0, 2))
        client.close()
        assert not client.is_lost
        assert await client.exchange(request(3, 0, 3)) == response(3, b"\0\4test")
        assert len(broker.sides) == 2


async def test_without_a_broker_it_is_unreachable() -> None:
    async with client_of() as (_, broker):
        gone = broker.address
    with open_client(Upstream(LIMITS), [gone]) as client, pytest.raises(UpstreamUnreachable):
        await client.exchange(request(3, 0, 1))
