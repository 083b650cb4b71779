"""The middle of long frames goes through a pipe, over real sockets: nothing changes, and nothing stays in the pipe."""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
import sys
from contextlib import ExitStack
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.transform.skim import HIDDEN_TAG, FetchSkimmer
from shoal.protocol.wire.types import write_tagged_fields
from shoal.proxy.connection.pending import EditAnswer, PendingAnswer
from shoal.proxy.connection.pumps.response_pump import ResponsePump
from shoal.proxy.net.splice import PIPE_BYTES, SplicePipe, shared_pipe
from shoal.proxy.net.transport import BUFFER_SIZE, PeerLost, SendSide
from tests.protocol.transform.test_skim import ENDPOINTS
from tests.protocol.transform.test_skim import response as fetch_response
from tests.proxy.connection.test_pump import connection
from tests.support.rig import response

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not hasattr(os, "splice"), reason="no Linux: nothing is spliced")
SIZES = st.lists(st.sampled_from((0, 100, 70_000, 140_000, BUFFER_SIZE, 1_000_000, 3_000_000)), min_size=1, max_size=6)


class Noted(SplicePipe):
    """Notes how many bytes went through it."""

    through = 0

    def take(self, fd: int, size: int) -> int:
        taken = super().take(fd, size)
        self.through += taken
        return taken


@pytest.fixture(scope="module")
def pipe() -> Iterator[Noted]:
    noted = Noted()
    yield noted
    noted.close()


def tcp_pair(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = stack.enter_context(socket.create_connection(server.getsockname()))
        other, _ = server.accept()
    stack.enter_context(other)
    for end in (one, other):
        end.setblocking(False)
    return one, other


def pump_of(pipe: Noted, stack: ExitStack) -> tuple[ResponsePump, Any, socket.socket, socket.socket]:
    """A pump with its connection, the broker's socket, and the client's."""
    broker, source = tcp_pair(stack)
    sink, client = tcp_pair(stack)
    link = connection()
    pump = ResponsePump(link, source, SendSide(sink))
    assert pump._pipe is not None, "this kernel has splice(2)"
    pump._pipe = pipe
    return pump, link, broker, client


async def write(sock: socket.socket, data: bytes) -> None:
    async with trio.SocketStream(trio.socket.from_stdlib_socket(sock.dup())) as stream:
        await stream.send_all(data)
        await stream.send_eof()


async def read(sock: socket.socket, into: bytearray, *, pause: bool) -> None:
    async with trio.SocketStream(trio.socket.from_stdlib_socket(sock.dup())) as stream:
        async for piece in stream:
            into += piece
            if pause:  # so the kernel's buffers are often full
                for _ in range(20):
                    await trio.lowlevel.checkpoint()


async def pumped(pump: ResponsePump, broker: socket.socket, client: socket.socket, sent: bytes, *, slow: bool) -> bytes:
    got = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: read(client, got, pause=slow))
        nursery.start_soon(write, broker, sent)
        await pump.run()
        assert isinstance(pump.out, SendSide)
        pump.out.transport.shutdown(socket.SHUT_WR)
        pump.close()
    return bytes(got)


@settings(max_examples=25, deadline=None)
@given(sizes=SIZES, slow=st.booleans(), seed=st.integers(0, 1 << 32))
def test_answers_of_any_length_come_out_unchanged(pipe: Noted, sizes: list[int], slow: bool, seed: int) -> None:
    frames = [response(number, random.Random(seed).randbytes(size)) for number, size in enumerate(sizes)]
    with ExitStack() as stack:
        pump, link, broker, client = pump_of(pipe, stack)
        link.in_flight.extend(range(len(frames)))
        got = trio.run(lambda: pumped(pump, broker, client, b"".join(frames), slow=slow))
    assert got == b"".join(frames)
    assert (pump.received, pump.out.sent, pipe.held) == (len(got), len(got), 0)


def test_most_of_a_long_answer_goes_through_the_pipe(pipe: Noted) -> None:
    before, frames = pipe.through, b"".join(response(number, bytes(4_000_000)) for number in range(5))
    with ExitStack() as stack:
        pump, link, broker, client = pump_of(pipe, stack)
        link.in_flight.extend(range(5))
        assert trio.run(lambda: pumped(pump, broker, client, frames, slow=False)) == frames
    assert pipe.through - before > len(frames) * 3 // 4


@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(0, 2_000_000), min_size=1, max_size=3), slow=st.booleans())
def test_only_record_sets_of_a_streamed_fetch_go_through_the_pipe(pipe: Noted, sizes: list[int], slow: bool) -> None:
    """The skimmer sees all other bytes: it hides the addresses at the end, as if it had seen everything."""
    frames, expected = (
        [
            fetch_response(random.Random(size).randbytes(size), write_tagged_fields([(tag, [ENDPOINTS])]))
            for size in sizes
        ]
        for tag in (0, HIDDEN_TAG)
    )
    before = pipe.through
    with ExitStack() as stack:
        pump, link, broker, client = pump_of(pipe, stack)
        skim = EditAnswer(_hide, lambda entry, size: FetchSkimmer(entry.api_version, size))
        link.in_flight.extend(PendingAnswer(0, 1, 17, skim) for _ in frames)
        got = trio.run(lambda: pumped(pump, broker, client, b"".join(frames), slow=slow))
    assert got == b"".join(expected)
    assert pipe.through > before or max(sizes) < BUFFER_SIZE + PIPE_BYTES


def _hide(_: Any, entry: PendingAnswer, frame: Any) -> Any:
    FetchSkimmer(entry.api_version, len(frame)).feed(frame)
    return frame


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_client_that_is_lost_leaves_nothing_in_the_pipe(pipe: Noted, tolerant: bool) -> None:
    async def main() -> None:
        with ExitStack() as stack:
            pump, link, broker, client = pump_of(pipe, stack)
            link.in_flight.extend(range(3))
            frame = response(0, bytes(3_000_000))
            assert isinstance(pump.out, SendSide)
            pump.out.tolerate_loss(tolerant)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            client.close()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, broker, frame)
                if tolerant:
                    await pump.run()
                    assert pump.received == len(frame)
                else:
                    with pytest.raises(PeerLost):
                        await pump.run()
                    nursery.cancel_scope.cancel()

    trio.run(main)
    assert pipe.held == 0


def test_bytes_of_one_connection_never_reach_another(pipe: Noted) -> None:
    with ExitStack() as stack:
        (one, other), (sink, client) = tcp_pair(stack), tcp_pair(stack)
        one.send(b"secret")
        assert pipe.take(other.fileno(), 100) == 6  # and then something unforeseen ends the step
        one.send(b"public")
        assert pipe.take(other.fileno(), 100) == 6
        assert SendSide(sink).splice_now(pipe) == b""
        assert client.recv(100) == b"public"


def test_what_a_full_socket_does_not_take_is_handed_back(pipe: Noted) -> None:
    with ExitStack() as stack:
        (one, other), (sink, client) = tcp_pair(stack), tcp_pair(stack)
        side, sent, unsent = SendSide(sink), bytearray(), b""
        numbers = random.Random(1)
        while not unsent:
            sent += (data := numbers.randbytes(100_000))
            one.setblocking(True)
            one.sendall(data)
            left = len(data)
            while left and not unsent:
                left -= pipe.take(other.fileno(), left)
                unsent = side.splice_now(pipe)
        assert pipe.held == 0
        got = bytearray()
        client.setblocking(True)
        while len(got) < side.sent:
            got += client.recv(1 << 20)
        assert got + unsent == sent[: len(got) + len(unsent)]
        assert len(got) == side.sent


def test_urgent_data_in_a_long_frame_stops_nothing(pipe: Noted) -> None:
    """TCP's urgent byte is not in the stream. recv(2) passes over it, splice(2) never does."""
    frame = response(0, random.Random(2).randbytes(4_000_000))

    async def send(broker: socket.socket) -> None:
        sock = trio.socket.from_stdlib_socket(broker.dup())
        async with trio.SocketStream(sock) as stream:
            await stream.send_all(frame[:2_000_000])
            await sock.send(b"!", socket.MSG_OOB)
            await stream.send_all(frame[2_000_000:])
            await stream.send_eof()

    async def main() -> bytes:
        got = bytearray()
        with trio.fail_after(20), ExitStack() as stack:
            pump, link, broker, client = pump_of(pipe, stack)
            link.in_flight.append(0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: read(client, got, pause=False))
                nursery.start_soon(send, broker)
                await pump.run()
                assert isinstance(pump.out, SendSide)
                pump.out.transport.shutdown(socket.SHUT_WR)
        return bytes(got)

    assert trio.run(main) == frame


def test_no_pipe_where_splice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a seccomp filter."""

    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "splice", refuse)
    before = set(os.listdir("/proc/self/fd"))
    assert shared_pipe.__wrapped__() is None
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_forked_process_has_its_own_pipe() -> None:
    """Else bytes of its clients and of the parent's would mix."""
    code = (
        "import os; from shoal.proxy.net.splice import shared_pipe; ours = shared_pipe(); child = os.fork();"
        "is_ours = ours is shared_pipe(); child or os._exit(is_ours);"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]); assert is_ours and not status"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
