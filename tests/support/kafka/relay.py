"""A TCP relay with faults on request: it cuts connections in the middle of a frame, or flips a bit.

It is between Shoal and a broker, or a client and Shoal: the server advertises 127.0.0.2, the relay listens there on the
same port and forwards to 127.0.0.1 (all of 127.0.0.0/8 is loopback on Linux).
"""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

RELAY_HOST = "127.0.0.2"
_CHUNK = 64 * 1024
_PRODUCE = 0


@dataclass(slots=True)
class Faults:
    """The next faults of the relay: how often each is to happen. Every one is counted."""

    cut_answers: int = 0  # answers larger than `cut_from` bytes that are cut in the middle
    end_answers: int = 0  # such answers that are delivered, after which the connection closes
    cut_requests: int = 0  # produce requests larger than `cut_from` bytes that are cut in the middle
    swallow_answers: int = 0  # produce answers that are lost: the connection closes instead
    cut_after: float = (
        0.0  # seconds during which requests still reach the broker, but no answers return, before the cut
    )
    flip_requests: int = 0  # produce requests larger than `cut_from` bytes with a bit flipped near their end
    cut_from: int = 2_000
    forge: Callable[[bytes], bytes] | None = None  # replaces every produce request that contains `marked`
    marked: bytes = b""  # only produce requests that contain these bytes, and their answers
    done: dict[str, int] = field(default_factory=dict)

    def take(self, what: str) -> bool:
        left: int = getattr(self, what)
        if not left:
            return False
        setattr(self, what, left - 1)
        self.done[what] = self.done.get(what, 0) + 1
        return True


class _Cut(Exception):
    pass


async def _frame(stream: trio.SocketStream, first: bytes) -> bytes:
    data = bytearray(first)
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        wanted = 4 - len(data) if len(data) < 4 else 4 + struct.unpack(">i", data[:4])[0] - len(data)
        part = await stream.receive_some(min(wanted, _CHUNK))
        if not part:
            raise _Cut
        data += part
    return bytes(data)


async def _pump(
    source: trio.SocketStream, sink: trio.SocketStream, edit: Callable[[bytes], tuple[bytes, bool]], faults: Faults
) -> None:
    """Frame by frame; `edit` returns what is forwarded, and whether the connection is cut after it."""
    while True:
        frame, cut = edit(await _frame(source, b""))
        await sink.send_all(frame)
        if cut:
            await trio.sleep(faults.cut_after)
            raise _Cut


class _Link:
    """One connection through the relay. Requests are remembered so that answers to Produce are known."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.produces: set[int] = set()

    def request(self, frame: bytes) -> tuple[bytes, bool]:
        key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if key != _PRODUCE or self.faults.marked not in frame:
            return frame, False
        self.produces.add(correlation_id)
        if self.faults.forge is not None:
            frame = self.faults.forge(frame)
        if len(frame) >= self.faults.cut_from:
            if self.faults.take("cut_requests"):
                return frame[: len(frame) // 2], True
            if self.faults.take("flip_requests"):
                at = len(frame) - 20
                return frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :], False
        return frame, False

    def answer(self, frame: bytes) -> tuple[bytes, bool]:
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        if correlation_id in self.produces:
            self.produces.discard(correlation_id)
            if self.faults.take("swallow_answers"):
                return b"", True
        elif len(frame) >= self.faults.cut_from and self.faults.take("cut_answers"):
            return frame[: len(frame) // 2], True
        elif len(frame) >= self.faults.cut_from and self.faults.take("end_answers"):
            return frame, True
        return frame, False


async def _serve(faults: Faults, port: int, address: str, client: trio.SocketStream) -> None:
    link = _Link(faults)
    try:
        upstream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
    except OSError:
        await client.aclose()
        return
    async with client, upstream:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pump, client, upstream, link.request, faults)
                nursery.start_soon(_pump, upstream, client, link.answer, faults)
        except* (_Cut, trio.BrokenResourceError, trio.ClosedResourceError):
            pass


@asynccontextmanager
async def relay(*ports: int, address: str = "127.0.0.1") -> AsyncIterator[Faults]:
    """Relays 127.0.0.2:port -> 127.0.0.1:port for each port during the block. `address`: source of its connections."""
    faults = Faults()
    async with trio.open_nursery() as nursery:
        for port in ports:
            await nursery.start(partial(trio.serve_tcp, partial(_serve, faults, port, address), port, host=RELAY_HOST))
        yield faults
        nursery.cancel_scope.cancel()
