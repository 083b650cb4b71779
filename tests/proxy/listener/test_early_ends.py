"""A broker that closes connections instead of serving them is a warning, which says what to check."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.support.rig import BrokerSide, Rig, Tls, correlation_id, echo, request, response, rig

if TYPE_CHECKING:
    from collections.abc import Callable

API_VERSIONS, METADATA = 18, 3


async def close(side: BrokerSide, _: bytes) -> None:
    """As for a connection above a limit."""
    await side.stream.aclose()


async def reset(side: BrokerSide, _: bytes) -> None:
    with suppress(OSError):  # it has a second request
        await side.reset()


async def demand_login(side: BrokerSide, frame: bytes) -> None:
    """As a broker's port with SASL."""
    if frame[5] != API_VERSIONS:
        await side.stream.aclose()
        return
    await side.send(response(correlation_id(frame), bytes(6)))


async def talk(r: Rig) -> None:
    """As a client that knows nothing of a login."""
    client = await r.client()
    before = sum(r.listener.tally.closed.values())
    await client.send(request(API_VERSIONS, 0, 1) + request(METADATA, 1, 2, bytes(4)))
    while not await client.at_end():
        client._buffer.clear()
    await client.leave()
    await r.closed(before + 1)


@pytest.mark.parametrize(
    ("answer", "seen", "advice"),
    [
        (close, "closes connections before it answers anything", "Check the broker's log and its max.connections"),
        (reset, "closes connections before it answers anything", "If it is a TLS port, add [cluster.tls]"),
        (
            demand_login,
            "answers ApiVersions and closes connections at the next request",
            "If it wants a login (a SASL port), set the client's security.protocol to SASL_SSL",
        ),
    ],
)
async def test_one_warning(
    answer: Callable[[BrokerSide, bytes], None], seen: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(answer, tls=Tls(0)) as r:  # type: ignore[arg-type]
        for _ in range(2):
            await talk(r)
        assert "connections in a row" not in caplog.text
        for _ in range(3):
            await talk(r)
    (line,) = (record.getMessage() for record in caplog.records if "in a row" in record.getMessage())
    assert line.startswith(
        f"cluster 'c': a bootstrap broker (127.0.0.1:{r.broker.port}) {seen}: 3 connections in a row"
    )
    assert advice in line


async def test_connections_that_are_served_begin_the_count_anew(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tls=Tls(0)) as r:
        for answer in (close, close, echo, close, close):
            r.broker.answer = answer
            if answer is not echo:
                await talk(r)
                continue
            client = await r.client()
            await client.send(request(99, 0, 1))
            await client.frame()
            await client.leave()
            await r.closed(3)
    assert "in a row" not in caplog.text


async def test_a_broker_that_has_answered_all_may_close(caplog: pytest.LogCaptureFixture) -> None:
    """As after a refused login, which the client knows of."""

    async def answer(side: BrokerSide, frame: bytes) -> None:
        await echo(side, frame)
        await side.stream.aclose()

    async with rig(answer, tls=Tls(0)) as r:
        for number in range(4):
            client = await r.client()
            await client.send(request(99, 0, 1))
            await client.frame()
            assert await client.at_end()
            await client.leave()
            await r.closed(number + 1)
    assert "in a row" not in caplog.text
