"""The HTTP side: what clients of the admin listener may send, and what they get for it."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import h11
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.proxy.admin.http import HEADER_BYTES, HttpConnection, Request, Response
from shoal.proxy.admin.listener import AdminPort
from shoal.proxy.admin.share import LoopShare, Turn
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY = b"x" * 1000


async def answer(request: Request) -> Response:
    if request.path == "/late":
        await trio.sleep(100)
    return Response(request.path.encode() + b" " + request.accept.encode() + BODY)


async def talk(*pieces: bytes, closes: bool = True) -> bytes:
    """All that a server sends to a client that sends these pieces."""
    client, server = trio.testing.memory_stream_pair()
    received = bytearray()

    async def read() -> None:
        async for piece in client:
            received.extend(piece)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(serve, server)
        for piece in pieces:
            await client.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        if closes:
            await client.send_eof()
    return bytes(received)


async def serve(stream: trio.abc.HalfCloseableStream) -> None:
    connection = HttpConnection(stream, LoopShare(), answer, request_seconds=10, idle_seconds=100)
    await connection.serve()
    await stream.aclose()


def statuses(received: bytes) -> list[int]:
    """Checked by h11's client, which raises for what is not HTTP."""
    found: list[int] = []
    client = h11.Connection(h11.CLIENT)
    client.receive_data(received)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    while received:
        event = client.next_event()
        if isinstance(event, h11.Response):
            found.append(event.status_code)
        elif isinstance(event, h11.EndOfMessage):
            if client.our_state is not h11.DONE or not client.trailing_data[0]:
                break
            client.start_next_cycle()
            client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
            client.send(h11.EndOfMessage())
        elif event in (h11.NEED_DATA, h11.PAUSED):
            break
    return found


GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_request_is_answered(clock: trio.testing.MockClock) -> None:
    received = await talk(b"GET /metrics?a=b HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\nAccept: */*\r\n\r\n")
    assert statuses(received) == [200]
    assert b"\r\n\r\n/metrics text/plain, */*x" in received


async def test_pipelined_requests_are_answered_in_order(clock: trio.testing.MockClock) -> None:
    received = await talk(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(50)))
    assert statuses(received) == [200] * 50
    places = [received.index(b"\r\n\r\n/%d " % number) for number in range(50)]
    assert places == sorted(places)


async def test_a_request_may_come_byte_by_byte(clock: trio.testing.MockClock) -> None:
    received = await talk(*(bytes([byte]) for byte in GET + GET))
    assert statuses(received) == [200, 200]


async def test_head_has_the_length_and_no_body(clock: trio.testing.MockClock) -> None:
    received = await talk(b"HEAD /livez HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"Content-Length: 1007\r\n" in received
    assert received.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        (b"DELETE /livez HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 413),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /livez\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (b"GET /" + b"a" * 2 * HEADER_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * HEADER_BYTES, 431),
    ],
)
async def test_what_is_refused(sent: bytes, status: int, clock: trio.testing.MockClock) -> None:
    received = await talk(sent + GET)
    assert statuses(received) == [status]
    assert b"Connection: close" in received


async def test_a_client_that_never_finishes_its_request_is_cut_off(clock: trio.testing.MockClock) -> None:
    begin = trio.current_time()
    assert await talk(b"GET / HTTP/1.1\r\n", closes=False) == b""
    assert 10 <= trio.current_time() - begin < 12


async def test_a_client_without_a_request_is_cut_off(clock: trio.testing.MockClock) -> None:
    begin = trio.current_time()
    assert await talk(closes=False) == b""
    assert 100 <= trio.current_time() - begin < 102


async def test_a_client_that_does_not_read_is_cut_off(clock: trio.testing.MockClock) -> None:
    sender, receiver = trio.testing.lockstep_stream_pair()
    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, receiver)
        await sender.send_all(GET)
    assert 10 <= trio.current_time() - begin < 12


async def test_a_page_that_is_not_ready_in_time_is_said(clock: trio.testing.MockClock) -> None:
    begin = trio.current_time()
    late = GET.replace(b"/livez", b"/late")
    received = await talk(late + late.replace(b"GET", b"HEAD") + GET)
    assert trio.current_time() - begin == pytest.approx(18, abs=1)
    assert received.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert received.count(b"the page was not ready in time") == 1
    assert received.endswith(BODY)


@given(st.lists(st.one_of(st.binary(max_size=200), st.sampled_from([GET, b"GET ", b"\r\n", b"HTTP/1.1", b":"]))))
@example([GET, b"\x00", GET])
def test_hostile_bytes_end_the_connection_and_nothing_else(pieces: list[bytes]) -> None:
    """What is sent back is HTTP: h11's client reads it."""

    async def main() -> None:
        received = await talk(b"".join(pieces))
        assert all(status in (200, 400, 405, 413, 431) for status in statuses(received))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# -- the port ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(most: int = 4) -> AsyncIterator[AdminPort]:
    port = AdminPort(Address("127.0.0.1", 0), most=most)

    async def fails(request: Request) -> Response:
        raise ZeroDivisionError(request.path)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(port.run, {"/livez": answer, "/fails": fails})
        yield port
        nursery.cancel_scope.cancel()


async def ask(port: AdminPort, path: str) -> bytes:
    async with await trio.open_tcp_stream(*port.address) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return b"".join([bytes(piece) async for piece in stream])


async def test_unknown_pages_and_errors_have_answers_too() -> None:
    async with running() as port:
        assert statuses(await ask(port, "/nothing")) == [404]
        assert statuses(await ask(port, "/fails")) == [500]
        assert statuses(await ask(port, "/livez")) == [200]


async def test_clients_that_only_occupy_connections_do_not_keep_others_out() -> None:
    async with running(most=4) as port:
        idle = [await trio.open_tcp_stream(*port.address) for _ in range(20)]
        with trio.fail_after(10):
            assert statuses(await ask(port, "/livez")) == [200]
            for stream in idle[:16]:
                assert await stream.receive_some() == b""
        for stream in idle:
            await stream.aclose()


def test_a_taken_port_is_an_error_that_names_the_setting() -> None:
    first = AdminPort(Address("127.0.0.1", 0))
    try:
        with pytest.raises(OperatorError, match=r"admin.listen: cannot listen on .*: Address already in use"):
            AdminPort(first.address)
    finally:
        first.close()


async def test_the_loops_time_for_admin_clients_is_limited(clock: trio.testing.MockClock) -> None:
    now = 0.0

    def measured() -> float:
        return now

    def work() -> None:
        nonlocal now
        now += 0.01

    share = LoopShare(share=0.05, clock=measured)
    begin = trio.current_time()
    for _ in range(110):
        await share.run(work, seconds=0.0)
    # 1.1 s of work, of which 5 % of the two quiet seconds before were free
    assert trio.current_time() - begin == pytest.approx((1.1 - 0.01) / 0.05 - 2.0)
    assert share.longest == pytest.approx(0.01)


def test_time_in_which_other_processes_have_the_cores_is_not_the_admin_clients() -> None:
    share = LoopShare()
    trio.run(partial(share.run, partial(threading.Event().wait, 0.5), seconds=0.0))
    assert share.longest < 0.1


async def test_short_requests_do_not_wait_for_long_pages(clock: trio.testing.MockClock) -> None:
    """30 scrapes that never end, and a flood of connections; a probe needs some turns."""
    now = 0.0

    def measured() -> float:
        return now

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    share = LoopShare(share=0.05, clock=measured)

    async def go_on(turn: Turn, seconds: float) -> None:
        while True:
            await share.run(partial(work, seconds), seconds=0.0, turn=turn)

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(go_on, Turn.PAGE, 0.001)
        nursery.start_soon(go_on, Turn.ACCEPT, 0.0003)
        await trio.sleep(10)  # what was saved up is used
        begin, before = trio.current_time(), now
        for _ in range(4):
            await share.run(partial(work, 0.0001), seconds=0.0)
        assert trio.current_time() - begin < 4 * (0.001 + 0.0003 + 0.0001) / 0.05 + 0.001 / 0.05
        assert now - before < 0.05 * (trio.current_time() - begin) + 0.002
        nursery.cancel_scope.cancel()


async def test_a_client_that_leaves_while_it_waits_keeps_no_turn(clock: trio.testing.MockClock) -> None:
    share = LoopShare(share=0.05, clock=lambda: 0.0)
    order: list[str] = []

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await share.run(partial(order.append, name), seconds=1.0)

    scopes = {name: trio.CancelScope() for name in ("first", "left", "cut", "last")}
    async with trio.open_nursery() as nursery:
        for name, scope in scopes.items():
            nursery.start_soon(wait, name, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes["left"].cancel()  # parked
        await trio.sleep(5)
        scopes["cut"].cancel()  # it has the turn, and waits for its time
    assert order == ["first", "last"]
