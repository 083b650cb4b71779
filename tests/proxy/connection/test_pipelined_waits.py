"""Requests of all kinds in one packet through a coalescing listener: each waits for those before it, none forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.connection.routes import Route, Wait, table
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.listener.plain import PlainPath
from tests.support.coalesce_rig import ORDERS, batch, coalesce_rig
from tests.support.rig import request, response, rig, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener

pytestmark = pytest.mark.usefixtures("lane")

HEARTBEAT = 12  # an API that passes undecoded


def legacy(listener: Listener) -> Path[Connection]:
    return LegacyPath(listener, CoalescePath(listener))


@pytest.mark.parametrize("path", [CoalescePath, legacy])
async def test_a_produce_between_two_other_requests(path: Callable[[Listener], Path[Connection]]) -> None:
    """The third waits for the answer to the second, not for what the second waited for."""
    first, last = request(HEARTBEAT, 3, 901), request(HEARTBEAT, 3, 902)
    async with coalesce_rig(path=path) as r:
        client = await r.producer()
        await client.send(first + client.request({(ORDERS, 0): batch("v")}) + last)
        assert await client.frame() == response(901, first[12:])
        assert await client.answers() == {0: (ErrorCode.none, 0)}
        assert await client.frame() == response(902, last[12:])
        assert r.broker.log() == ["v"]
        assert r.path.tally.taken == 1


async def test_a_wait_for_what_is_there_costs_its_own_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A route that always asks to wait for it is a bug in Shoal, which the pump bounds."""
    waits, enough = [0], trio.Event()

    async def nothing() -> None:
        waits[0] += 1

    def decide(connection: Connection, first: memoryview) -> Wait | None:
        return None if enough.is_set() else Wait(nothing)

    def path(listener: Listener) -> Path[Connection]:
        made = PlainPath(listener)
        made.routes = table({HEARTBEAT: Route(decide=decide)})
        return made

    stuck, other = request(HEARTBEAT, 3, 1), request(HEARTBEAT + 1, 3, 2)
    async with rig(path=path) as r:
        victim, bystander = await r.client(), await r.client()
        await victim.send(stuck)
        for number in range(20):
            await bystander.send(other)
            assert await bystander.frame() == response(2, other[12:]), number
        await until(lambda: waits[0] > 5)
        enough.set()
        assert await victim.frame() == response(1, stuck[12:])
    (complaint,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert "a connection waits for what is there" in complaint
    assert "nothing" in complaint
