"""A link forwards bytes; cut, it resets; frozen, it is silent and then continues, or drops its bytes."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.scenarios.kafka.ports import free_port

from .links import Link, relaying
from .pool import RELAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LONG = 3600.0


async def echo(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        async for data in stream:
            await stream.send_all(data)


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[Link, int, trio.Nursery]]:
    link, port = Link("test"), free_port()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(trio.serve_tcp, echo, port, host="127.0.0.1"))
        async with relaying([(link, RELAY, [port])]):
            yield link, port, nursery
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


async def ask(stream: trio.SocketStream, text: bytes) -> bytes:
    await stream.send_all(text)
    answer = b""
    while len(answer) < len(text):
        data = await stream.receive_some()
        assert data
        answer += bytes(data)
    return answer


async def test_bytes_pass() -> None:
    async with relayed() as (link, port, _), await trio.open_tcp_stream(RELAY, port) as stream:
        assert await ask(stream, b"x" * 100_000) == b"x" * 100_000
        assert link.forwarded == 200_000


async def test_a_cut_link_resets_and_refuses_until_it_is_over() -> None:
    async with relayed() as (link, port, nursery):
        cutting = trio.CancelScope()
        async with await trio.open_tcp_stream(RELAY, port) as stream:
            assert await ask(stream, b"before") == b"before"
            nursery.start_soon(_within, cutting, partial(link.cut, LONG))
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        async with await trio.open_tcp_stream(RELAY, port) as refused:
            with pytest.raises(trio.BrokenResourceError):
                await refused.receive_some()
        cutting.cancel()
        await until(lambda: link.cuts == 0)
        async with await trio.open_tcp_stream(RELAY, port) as again:
            assert await ask(again, b"after") == b"after"


async def test_a_flapping_link_resets_again_and_again() -> None:
    async with relayed() as (link, port, nursery):
        flapping = trio.CancelScope()
        nursery.start_soon(_within, flapping, partial(link.flap, LONG, 0.01, 1e9))
        for _ in range(3):
            async with await trio.open_tcp_stream(RELAY, port) as stream:
                with pytest.raises(trio.BrokenResourceError):
                    await stream.receive_some()
        flapping.cancel()
        await until(lambda: not link.rates)
        async with await trio.open_tcp_stream(RELAY, port) as again:
            assert await ask(again, b"after") == b"after"


@pytest.mark.parametrize("drop", [False, True])
async def test_a_frozen_link_is_quiet_and_then_goes_on_or_drops(drop: bool) -> None:
    async with relayed() as (link, port, nursery), await trio.open_tcp_stream(RELAY, port) as stream:
        assert await ask(stream, b"before") == b"before"
        freezing = trio.CancelScope()
        nursery.start_soon(_within, freezing, partial(link.freeze, LONG, drop=drop))
        await until(lambda: link.freezes == 1)
        await stream.send_all(b"later")
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
        assert link.forwarded == len(b"before") * 2
        freezing.cancel()
        if drop:
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        else:
            assert await stream.receive_some() == b"later"


async def _within(scope: trio.CancelScope, call: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await call()
