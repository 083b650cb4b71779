"""The load client: one blocking socket that sends prebuilt frames and discards the answers.

It decodes only the size of an answer, so that it costs the same for every proxy, and less than a proxy does. The frames
of a run are sent in whole rounds, so that the caller knows what the broker must have.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Address", "Volume", "Wire", "forward", "round_trips", "steady"]

Address = tuple[str, int]

TIMEOUT_S = 20.0  # for any single send or receive: a hung proxy must not hang the benchmark
BUFFER_BYTES = 1024 * 1024  # a larger buffer gains nothing on loopback
_WASTE = memoryview(bytearray(BUFFER_BYTES))
"""All connections drop what they receive into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    rounds: int  # number of complete rounds
    sent: int  # bytes
    received: int  # bytes
    seconds: float


class Wire:
    """A connection to a broker or to a proxy in front of it, over TLS if there is a context."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None
    ) -> None:
        """`session`: the TLS session to resume. Raises ssl.SSLError, which is an OSError."""
        plain = socket.create_connection(address, timeout=TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket = plain
        if tls is not None:
            self._socket = tls.wrap_socket(plain, server_hostname=address[0], session=session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def tls(self) -> ssl.SSLSocket:
        """Raises ValueError if the connection is plaintext."""
        if not isinstance(self._socket, ssl.SSLSocket):
            raise ValueError("a plaintext connection")
        return self._socket

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def drain(self) -> int:
        """Drop one answer; its size in bytes. Raises ConnectionError if the peer hangs up, TimeoutError if it hangs."""
        size = self._size()
        left = size
        while left:
            left -= self._receive(_WASTE[: min(left, BUFFER_BYTES)])
        return 4 + size

    def answer(self) -> bytes:
        """One answer, kept: the whole frame."""
        size = self._size()
        frame = memoryview(bytearray(4 + size))
        frame[:4] = struct.pack(">i", size)
        at = 4
        while at < len(frame):
            at += self._receive(frame[at:])
        return bytes(frame)

    def _size(self) -> int:
        head = memoryview(bytearray(4))
        at = 0
        while at < 4:
            at += self._receive(head[at:])
        size: int
        (size,) = struct.unpack(">i", head)
        return size

    def _receive(self, into: memoryview) -> int:
        count = self._socket.recv_into(into)
        if not count:
            raise ConnectionError(f"{self._socket.getpeername()} closed the connection")
        return count


def forward(wire: Wire, frames: Sequence[bytes], *, in_flight: int, seconds: float, least: int = 1) -> Volume:
    """Send `frames` repeatedly with at most `in_flight` unanswered.

    At least `least` rounds; no new one after `seconds`.
    """
    rounds = received = unanswered = 0
    start = time.perf_counter()
    while rounds < least or time.perf_counter() - start < seconds:
        for frame in frames:
            if unanswered == in_flight:
                received += wire.drain()
                unanswered -= 1
            wire.send(frame)
            unanswered += 1
        rounds += 1
    received += sum(wire.drain() for _ in range(unanswered))
    sent = rounds * sum(map(len, frames))
    return Volume(rounds=rounds, sent=sent, received=received, seconds=time.perf_counter() - start)


def steady(wires: Sequence[Wire], frames: Sequence[bytes], *, rate: float, least: int) -> Volume:
    """Send `frames` in turn over the connections in turn, so many a second, with at most one unanswered on each."""
    rounds = -(-least // len(frames))
    count, received, start = rounds * len(frames), 0, time.perf_counter()
    for at in range(count):
        wire = wires[at % len(wires)]
        if at >= len(wires):
            received += wire.drain()
        if (early := start + at / rate - time.perf_counter()) > 0:
            time.sleep(early)
        wire.send(frames[at % len(frames)])
    received += sum(wire.drain() for wire in wires[:count])
    sent = rounds * sum(map(len, frames))
    return Volume(rounds=rounds, sent=sent, received=received, seconds=time.perf_counter() - start)


def round_trips(wire: Wire, frame: bytes, count: int) -> list[int]:
    """Nanoseconds of each of `count` requests, one at a time."""
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        wire.send(frame)
        wire.drain()
        times.append(time.perf_counter_ns() - start)
    return times
