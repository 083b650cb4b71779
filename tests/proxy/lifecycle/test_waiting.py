"""drain = "until-clients-gone": serving after SIGTERM, the bound, and what the log says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.proxy.config.settings import Drain, Limits
from shoal.proxy.lifecycle.clients import GONE_SECONDS, QUIET_SECONDS
from shoal.proxy.lifecycle.state import ServerState
from tests.support.rig import Rig, request, rig, silent, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig import Answer

WAIT = 15.0


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.02)


@asynccontextmanager
async def waiting_rig(answer: Answer | None = None) -> AsyncIterator[Rig]:
    limits = Limits(drain=Drain.UNTIL_CLIENTS_GONE, drain_wait_seconds=WAIT, drain_seconds=10)
    async with rig(limits=limits) if answer is None else rig(answer, limits=limits) as r:
        yield r


async def reached(r: Rig, state: ServerState) -> None:
    while r.server.state is not state:  # noqa: ASYNC110 (the state is no event)
        await trio.sleep(0.25)


async def test_after_sigterm_clients_go_on_and_new_ones_connect(
    clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with waiting_rig() as r:
        old = await r.client()
        await old.send(request(300, 0, 0))
        await old.frame()
        began = trio.current_time()
        r.server.stop("SIGTERM")
        for number in range(1, 11):
            await trio.sleep(0.5)
            new = await r.client()
            for client in (old, new):
                await client.send(request(300, 0, number, b"on"))
                assert (await client.frame()).endswith(b"on")
            await new.leave()
            assert r.server.state is ServerState.WAITING_FOR_CLIENTS
        await old.leave()
        await reached(r, ServerState.ENDED)
        assert trio.current_time() - began == pytest.approx(5 + GONE_SECONDS, abs=1)
    texts = [getattr(record, "shoal_text", record.message) for record in caplog.records]
    waiting = "serving until the clients have gone, for at most 15 s more: 1 client: 'test' at 127.0.0.1 (1 connection)"
    assert waiting in texts
    assert any(text.startswith("the clients have gone, after ") for text in texts)


async def test_a_client_that_stays_open_but_silent_has_gone(clock: trio.testing.MockClock) -> None:
    async with waiting_rig() as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await client.frame()
        began = trio.current_time()
        r.server.stop("SIGTERM")
        assert await client.at_end()
        assert trio.current_time() - began == pytest.approx(QUIET_SECONDS + GONE_SECONDS, abs=1.5)


async def test_clients_that_stay_have_the_bound_and_then_the_drain(
    clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting_rig(silent) as r:
        client = await r.client()
        await client.send(request(3, 9, 1, client_id=b"stays"))
        await until(lambda: len(r.broker.received) == 1)
        began = trio.current_time()
        r.server.stop("SIGTERM")
        await reached(r, ServerState.DRAINING)
        assert trio.current_time() - began == pytest.approx(WAIT, abs=1)
        assert await client.at_end()
        assert trio.current_time() - began == pytest.approx(WAIT + 10, abs=2.5)
    text = "1 client still there after 15 s (limits.drain-wait-seconds): 'stays' at 127.0.0.1 (1 connection)"
    assert text in [getattr(record, "shoal_text", "") for record in caplog.records]


async def test_a_second_signal_ends_at_once(clock: trio.testing.MockClock) -> None:
    async with waiting_rig(silent) as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        began = trio.current_time()
        r.server.stop("SIGTERM")
        assert r.server.state is ServerState.WAITING_FOR_CLIENTS
        r.server.stop("SIGTERM")
        assert await client.at_end()
        assert trio.current_time() - began < 1


async def test_nobody_there_is_nobody_to_wait_for(clock: trio.testing.MockClock) -> None:
    async with waiting_rig() as r:
        began = trio.current_time()
        r.server.stop("SIGTERM")
        await reached(r, ServerState.ENDED)
        assert trio.current_time() - began == pytest.approx(GONE_SECONDS, abs=0.5)
