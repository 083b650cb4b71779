"""New connections, and memory with idle ones."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from bench.load import Wire
from bench.runs import cpu_s, introduce
from bench.stage import CLIENT
from shoal.scenarios import memory
from tests.support import frames

if TYPE_CHECKING:
    from ssl import SSLSession

    from bench.proxies.peer import Peer

__all__ = ["Connections", "connections", "idle_peaks"]

_SETTLE_S = 0.1  # after the last close, until the proxy has seen it


class Connections(NamedTuple):
    """Connections with one answered request each."""

    made: int
    cpu_s: float  # of the proxy
    seconds: float

    def plus(self, more: Connections) -> Connections:
        return Connections(self.made + more.made, self.cpu_s + more.cpu_s, self.seconds + more.seconds)

    @property
    def per_cpu_s(self) -> float:
        return self.made / self.cpu_s

    @property
    def per_s(self) -> float:
        return self.made / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.made * 1e6


def connections(peer: Peer, seconds: float, session: SSLSession | None = None, at_once: int = 1) -> Connections:
    """So many at once. With a session each handshake resumes it; raises RuntimeError if one does not."""
    hello, count = frames.api_versions(CLIENT), 0
    cpu, start = cpu_s(peer) or 0.0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(peer.address, peer.tls, session)) for _ in range(at_once)]
            for wire in wires:
                wire.send(hello)
            for wire in wires:
                wire.drain()
                if session is not None and not wire.tls.session_reused:
                    raise RuntimeError(f"{peer.name} does not resume TLS sessions")
        count += at_once
    time.sleep(_SETTLE_S)
    return Connections(count, (cpu_s(peer) or 0.0) - cpu, elapsed)


def idle_peaks(peer: Peer, *counts: int) -> dict[int, float]:
    """Peak MiB with each number of connections, in ascending order. Each has sent a client's first requests."""
    peaks, made = {}, 0
    with ExitStack() as open_wires:
        for count in counts:
            for _ in range(made, count):
                introduce(open_wires.enter_context(peer.connect()))
            made = count
            peaks[count] = memory.peak_mib(peer.pid)
    return peaks
