"""Old and new producers on one listener with `legacy = true` and `coalesce = true`: only new ones' requests are
joined."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from kio.schema.errors import ErrorCode

from shoal.protocol.legacy.message import Message
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.legacy.path import LegacyPath
from tests.support.coalesce_rig import ORDERS, CoalesceRig, batch, coalesce_rig
from tests.support.legacy.produce_frames import produce_frame, said
from tests.support.legacy.sets import singles
from tests.support.rig import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.proxy.listener.listener import Listener

pytestmark = pytest.mark.usefixtures("lane")


def old_set(magic: int, *values: str) -> bytes:
    stamp = 1_600_000_000_000 if magic else -1
    return singles(magic, [Message(at, stamp, False, b"k", value.encode()) for at, value in enumerate(values)])


def both(listener: Listener) -> LegacyPath:
    return LegacyPath(listener, CoalescePath(listener))


@asynccontextmanager
async def mixed() -> AsyncIterator[CoalesceRig]:
    async with coalesce_rig(path=both) as r:
        yield r


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_requests_travel_alone(version: int) -> None:
    async with mixed() as r:
        gate = await r.hold()
        old, *new = await r.producers(3)
        await old.send(produce_frame(version, 5, {ORDERS: [(4, old_set(min(version, 1), "a", "b", "c"))]}))
        correlation_id, answers, _ = said(version, await old.frame())
        assert correlation_id == 5
        assert answers[ORDERS, 4].error_code == ErrorCode.none.value
        for number, producer in enumerate(new):
            await producer.send_only({number: batch(f"new {number}")})
            await r.taken(2 + number)
        gate.set()
        await until(lambda: len(r.broker.requests) == 3)
        assert r.broker.places() == [[99], [4], [0, 1]]
        assert r.broker.log(4) == ["a", "b", "c"]
        for producer in new:
            await producer.frame()


async def test_an_old_request_waits_for_what_was_taken_from_its_client() -> None:
    """A client that uses both: its answers keep their order."""
    async with mixed() as r:
        (client,) = await r.producers(1)
        gate = await r.hold()
        await client.send_only({0: batch("first")})
        await r.taken(2)
        await client.send(produce_frame(2, 6, {ORDERS: [(0, old_set(1, "old"))]}))
        gate.set()
        await client.frame()
        correlation_id, answers, _ = said(2, await client.frame())
        assert (correlation_id, answers[ORDERS, 0].base_offset) == (6, 1)
        assert r.broker.log(0) == ["first", "old"]
