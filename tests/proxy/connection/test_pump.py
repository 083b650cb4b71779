"""Pumps alone, over scripted sockets: input cut anywhere, output refused at any time."""

from __future__ import annotations

import struct
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.settings import Limits
from shoal.proxy.connection.pending import EditAnswer, Hold, OwnRequest, OwnRequests, PendingAnswer
from shoal.proxy.connection.pumps import pump as pump_module
from shoal.proxy.connection.pumps.request_pump import RequestPump
from shoal.proxy.connection.pumps.response_pump import ResponsePump
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.events.logs import LogThrottle
from shoal.proxy.net import transport as transport_module
from shoal.proxy.net.transport import BUFFER_SIZE, Buffer, SendSide
from tests.support.rig import request, response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

cuts = st.lists(st.integers(0, 90), min_size=1, max_size=30)


class Wire:
    """Both ends of a pump. A cut of 0 is a socket that would block."""

    def __init__(self, incoming: bytes, receives: list[int], sends: list[int]) -> None:
        self._incoming = memoryview(incoming)
        self._receives, self._sends = deque(receives), deque(sends)
        self.sent = bytearray()

    def fileno(self) -> int:
        return -1

    def _next(self, script: deque[int]) -> int:
        """The script, repeated; each repetition lets at least one byte through."""
        script.rotate(-1)
        if not script[-1] and any(script):
            raise BlockingIOError
        return script[-1] or 1

    def recv_into(self, buffer: memoryview) -> int:
        if not self._incoming:
            return 0
        size = min(self._next(self._receives), len(buffer), len(self._incoming))
        buffer[:size] = self._incoming[:size]
        self._incoming = self._incoming[size:]
        return size

    def send(self, data: Buffer) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        data = b"".join(buffers)[: self._next(self._sends)]
        self.sent += data
        return len(data)

    def shutdown(self, how: int) -> None: ...
    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def until(fd: int, step: Callable[[], bool]) -> None:
        while step():
            pass

    async def wait_writable(fd: int) -> None:
        """Immediately."""

    monkeypatch.setattr(pump_module, "until", until)
    monkeypatch.setattr(transport_module, "wait_writable", wait_writable)


def connection(**more: Any) -> Any:
    asker = SimpleNamespace(backlog=None, answered=lambda: False)
    return SimpleNamespace(
        backlog=None,
        in_flight=[],
        limits=Limits(),
        throttle=LogThrottle(),
        guest=SimpleNamespace(is_stranger=False),
        pace=None,
        requests=asker,
        first_use=lambda first: None,
        **more,
    )


def edit_in_place(connection: Any, entry: PendingAnswer, frame: Buffer) -> Buffer | Sequence[Buffer]:
    """Doubled, unchanged or empty, by version."""
    return [frame] * entry.api_version if entry.api_version != 1 else frame


async def edit_held(connection: Any, entry: PendingAnswer, frame: bytearray) -> Sequence[Buffer]:
    await trio.lowlevel.checkpoint()
    return [frame] * entry.api_version


answers = st.lists(
    st.tuples(st.sampled_from(("pass", "edit", "hold", "ask")), st.integers(0, 2), st.binary(max_size=120)), max_size=12
)


@settings(max_examples=400)
@given(answers=answers, receives=cuts, sends=cuts)
def test_answers_of_every_kind_come_out_whole_and_in_order(
    answers: list[tuple[str, int, bytes]], receives: list[int], sends: list[int]
) -> None:
    frames = [response(number, body) for number, (_, _, body) in enumerate(answers)]
    wire = Wire(b"".join(frames), receives, sends)
    link = connection()
    expected, asked = b"", {}
    for number, (kind, times, _) in enumerate(answers):
        if kind == "pass":
            link.in_flight.append(number)
            expected += frames[number]
        elif kind == "ask":
            asked[number] = OwnRequest()
            link.in_flight.append(PendingAnswer(number, 50, 1, asked[number]))
        else:
            link.in_flight.append(
                PendingAnswer(number, 3, times, EditAnswer(edit_in_place) if kind == "edit" else Hold(edit_held))
            )
            expected += frames[number] * times
    pump = ResponsePump(link, wire, SendSide(wire))
    trio.run(pump.run)
    assert bytes(wire.sent) == expected
    assert all(trio.run(one.frame) == frames[number] for number, one in asked.items())
    assert not link.in_flight
    assert (pump.received, pump.out.sent) == (sum(map(len, frames)), len(expected))


class Burst(OwnRequests):
    """`seen`: how many answers there were at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytearray | None] = []
        self.seen: list[int] = []

    def deliver(self, frame: bytearray | None) -> None:
        self.frames.append(frame)

    def flush(self) -> None:
        self.seen.append(len(self.frames))


@pytest.mark.parametrize(("receives", "seen"), [([1000], [3]), ([20, 1000], [1, 3]), ([30, 1000], [2, 3])])
def test_answers_to_many_requests_are_flushed_once_per_read(receives: list[int], seen: list[int]) -> None:
    frames = [response(7, b"%07d" % at) for at in range(3)]
    wire = Wire(b"".join(frames), receives, [])
    link, burst = connection(), Burst()
    link.in_flight.extend([PendingAnswer(7, 0, 9, burst)] * 3)
    trio.run(ResponsePump(link, wire, SendSide(wire)).run)
    assert [bytes(frame or b"") for frame in burst.frames] == frames
    assert burst.seen == seen
    assert not wire.sent


class Noting(Wire):
    """`asked`: how many bytes each read could take."""

    def __init__(self, incoming: bytes, receives: list[int]) -> None:
        super().__init__(incoming, receives, [])
        self.asked: list[int] = []

    def recv_into(self, buffer: memoryview) -> int:
        self.asked.append(len(buffer))
        return super().recv_into(buffer)


def test_little_is_read_behind_an_answer_that_was_filled() -> None:
    """What is read of an answer that is not complete yet is copied, and the next one may be as long."""
    frames = [response(7, bytes(200_000)) for _ in range(2)]
    wire = Noting(b"".join(frames), [100, BUFFER_SIZE])
    link, burst = connection(), Burst()
    link.in_flight.extend([PendingAnswer(7, 0, 9, burst)] * 2)
    trio.run(ResponsePump(link, wire, SendSide(wire)).run)
    assert [bytes(frame or b"") for frame in burst.frames] == frames
    rest = len(frames[0]) - 100
    assert wire.asked[:4] == [BUFFER_SIZE, rest, 64 * 1024, rest]


def test_answers_before_damage_are_flushed() -> None:
    wire = Wire(response(7, b"good") + response(8, b"to nothing"), [1000], [])
    link, burst = connection(), Burst()
    link.in_flight.append(PendingAnswer(7, 0, 9, burst))
    pump = ResponsePump(link, wire, SendSide(wire))
    with pytest.raises(RemoteProtocolError):
        trio.run(pump.run)
    pump.fail_asked()
    assert burst.seen == [1]


requests = st.lists(st.tuples(st.sampled_from((12, 13, 14, 300)), st.binary(max_size=120)), max_size=12)


@settings(max_examples=400)
@given(requests=requests, receives=cuts, sends=cuts)
def test_requests_of_every_kind_come_out_whole_and_in_order(
    requests: list[tuple[int, bytes]], receives: list[int], sends: list[int]
) -> None:
    """Key 12 is held, and its handler sends it twice; 13 is held and swallowed; 14 passes once its last byte has
    arrived."""
    frames = [request(key, 0, number, body) for number, (key, body) in enumerate(requests)]
    wire = Wire(b"".join(frames), receives, sends)
    out = SendSide(wire)

    async def handle(connection: Any, frame: bytearray, header: Any) -> None:
        await out.send_all([frame] * (2 if header.api_key == 12 else 0))

    def decide(connection: Any, first: memoryview) -> Any:
        from shoal.proxy.connection.routes import Decision

        return Decision.MORE if len(first) < 4 + struct.unpack_from(">i", first)[0] else None

    class Handling:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    routes = table({12: Route(handle=handle), 13: Route(handle=handle), 14: Route(decide=decide)})
    link = connection(routes=routes, handling_request=Handling)
    pump = RequestPump(link, wire, out)
    trio.run(pump.run)
    times = {12: 2, 13: 0}
    assert bytes(wire.sent) == b"".join(
        frame * times.get(key, 1) for (key, _), frame in zip(requests, frames, strict=True)
    )
    assert list(link.in_flight) == [number for number, (key, _) in enumerate(requests) if key not in times]
    assert pump.requests == len(requests)
