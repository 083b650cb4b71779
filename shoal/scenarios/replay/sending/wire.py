"""One connection of a replay: frames out in order, answers in order; more can be in flight than in Kafka's clients."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import trio

from shoal.protocol.multibatch.dialogue import DialogueEnded
from shoal.scenarios.kafka.errors import TrafficFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.protocol.multibatch.dialogue import Ask, Talk

__all__ = ["Address", "Wire", "converse", "open_wire"]

T = TypeVar("T")
Address = tuple[str, int]
_SIZE = 4
_LARGEST = 256 * 1024 * 1024  # bytes of an answer
_CONNECT_S = 20.0
_CHUNK = 64 * 1024


class Wire:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def send(self, frame: bytes) -> None:
        """Raises trio.BrokenResourceError."""
        await self._stream.send_all(frame)

    async def receive(self) -> bytes:
        """The next whole frame. Raises trio.BrokenResourceError at the end of the connection, or for an impossible
        size."""
        size = int.from_bytes(await self._peek(_SIZE), "big", signed=True)
        if not 4 <= size <= _LARGEST:
            raise trio.BrokenResourceError(f"an answer of {size} bytes")
        frame = bytes(await self._peek(_SIZE + size))
        del self._received[: _SIZE + size]
        return frame

    async def exchange(self, frame: bytes) -> bytes:
        await self.send(frame)
        return await self.receive()

    async def _peek(self, size: int) -> bytes:
        """The first `size` bytes of the unread input."""
        while len(self._received) < size:
            chunk = await self._stream.receive_some(_CHUNK)
            if not chunk:
                raise trio.BrokenResourceError("the connection was closed")
            self._received += chunk
        return bytes(self._received[:size])


@asynccontextmanager
async def open_wire(address: Address) -> AsyncIterator[Wire]:
    """Connected, without TLS and login: Shoal has both. Raises OSError, TrafficFailed."""
    stream = None
    with trio.move_on_after(_CONNECT_S):
        stream = await trio.open_tcp_stream(*address)
    if stream is None:
        raise TrafficFailed(f"no connection to {address[0]}:{address[1]} within {_CONNECT_S:g} s")
    async with stream:
        yield Wire(stream)


async def converse(wire: Wire, talk: Talk[T]) -> T:
    """Run a dialogue of `protocol/`. Raises TrafficFailed with the broker's error message."""
    try:
        ask: Ask = next(talk)
        while True:
            await trio.sleep(ask.pause)
            ask = talk.send(await wire.exchange(ask.frame))
    except StopIteration as done:
        result: T = done.value
        return result
    except (DialogueEnded, trio.BrokenResourceError) as error:
        raise TrafficFailed(str(error)) from error
