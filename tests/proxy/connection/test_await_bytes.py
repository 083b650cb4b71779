"""A pump that waits for several answers is not stepped for the first ones, and never waits for what does not come."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.proxy.capture.index import Capture
from shoal.proxy.config.settings import CaptureSettings
from shoal.proxy.connection.pending import PendingAnswer
from shoal.proxy.connection.pumps.response_pump import ResponsePump
from shoal.proxy.net.fast_lane import FastLane
from shoal.proxy.net.transport import PeerLost, SendSide, make_reset, round_trip
from tests.proxy.connection.test_pump import Burst, Wire, connection
from tests.proxy.connection.test_splice import tcp_pair
from tests.support.rig import response, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")
FRAMES = [response(7, b"%07d" % at) for at in range(3)]
ALL = len(b"".join(FRAMES))


class Rig:
    """A pump to which a broker owes three answers."""

    def __init__(self, stack: ExitStack) -> None:
        self.broker, self.source = tcp_pair(stack)
        sink, self.client = tcp_pair(stack)
        self.burst = Burst()
        link = connection()
        link.in_flight.extend([PendingAnswer(7, 0, 9, self.burst)] * 3)
        self.pump = ResponsePump(link, self.source, SendSide(sink))
        self.lost = False

    @property
    def awaited(self) -> int:
        return self.source.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    async def run(self) -> None:
        with FastLane.open():
            try:
                await self.pump.run()
            except PeerLost:
                self.lost = True
            self.pump.close()

    async def seen(self, *numbers: int) -> None:
        await until(lambda: self.burst.seen == list(numbers))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


async def test_answers_that_are_of_use_together_take_one_step(rig: Rig) -> None:
    rig.pump.await_bytes(ALL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        for frame in FRAMES[:2]:
            rig.broker.send(frame)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert rig.burst.seen == []
        rig.broker.send(FRAMES[2])
        await rig.seen(3)
        nursery.cancel_scope.cancel()


async def test_advice_that_was_wrong_is_taken_back(rig: Rig) -> None:
    rig.pump.await_bytes(ALL + 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        rig.broker.send(b"".join(FRAMES))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert rig.burst.seen == []
        rig.pump.await_bytes(1)
        await rig.seen(3)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("resets", [False, True])
async def test_a_broker_that_leaves_is_not_awaited(rig: Rig, resets: bool) -> None:
    rig.pump.await_bytes(ALL)
    rig.broker.send(FRAMES[0])
    if resets:
        make_reset(rig.broker)
    rig.broker.close()
    with trio.fail_after(5):
        await rig.run()
    assert rig.lost == resets
    assert rig.burst.seen == [1]


async def test_the_rest_of_a_frame_is_not_awaited_together_with_others(rig: Rig) -> None:
    """Some of its bytes are no longer in the socket, so there may never be as many."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        rig.broker.send(FRAMES[0] + FRAMES[1][:3])
        await rig.seen(1)
        rig.pump.await_bytes(ALL - len(FRAMES[0]))
        assert rig.awaited == 1
        rig.broker.send(FRAMES[1][3:])
        await rig.seen(1, 2)
        rig.pump.await_bytes(len(FRAMES[2]))
        assert rig.awaited == len(FRAMES[2])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("there", [3, 12])
async def test_the_rest_of_an_answer_that_is_longer_than_all_that_were_awaited_is_taken_at_once(
    rig: Rig, there: int
) -> None:
    long = response(7, bytes(there + 5))
    rig.pump.await_bytes(there)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        rig.broker.send(long[:there])
        await until(lambda: rig.pump.mid_frame)
        assert rig.awaited == 1
        rig.broker.send(long[there:])
        await rig.seen(1)
        nursery.cancel_scope.cancel()


async def test_only_a_plain_socket_is_told() -> None:
    wire = Wire(b"".join(FRAMES), [1000], [])
    link, burst = connection(), Burst()
    link.in_flight.extend([PendingAnswer(7, 0, 9, burst)] * 3)
    pump = ResponsePump(link, wire, SendSide(wire))
    pump.await_bytes(10 * ALL)
    assert pump.step(), "all has been read"
    assert burst.seen == [3]


async def test_a_socket_that_the_index_reads_is_told(rig: Rig, tmp_path: Path) -> None:
    capture = Capture(CaptureSettings(directory=tmp_path), {}, lambda _, __: None)
    _, tapped = capture.tap(rig.source, ConnectionInfo(connection=7, listener="here", cluster="there", node=3))
    pump = ResponsePump(connection(), tapped, SendSide(rig.client))
    pump.await_bytes(ALL)
    assert rig.awaited == ALL


async def test_a_closed_socket_needs_no_advice(rig: Rig) -> None:
    rig.pump.await_bytes(ALL)
    rig.source.close()
    rig.pump.await_bytes(1)
    with suppress(PeerLost):
        rig.pump.step()
    assert rig.burst.seen == []


async def test_the_kernel_knows_the_way_to_a_peer(rig: Rig) -> None:
    assert 0 < round_trip(rig.source) < 1
