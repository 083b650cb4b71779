"""New connections, and memory. Forwarding and lone requests are measured as `make bench` does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bench.load import Wire
from bench.runs import cpu_s
from bench.stage import CLIENT
from bench.tls.placements import CIPHER
from tests.support import frames

if TYPE_CHECKING:
    from ssl import SSLSession

    from bench.peers import Peer

__all__ = ["Connections", "check_cipher", "connections", "session_of"]

_SETTLE_S = 0.1  # after the last close, until the proxy has seen it


class Connections(NamedTuple):
    """Connections with one answered request each."""

    made: int
    cpu_s: float  # of the proxy
    seconds: float

    @property
    def per_cpu_s(self) -> float:
        return self.made / self.cpu_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.made * 1e6


def connections(peer: Peer, seconds: float, session: SSLSession | None = None) -> Connections:
    """One after the other. With a session each handshake resumes it; raises RuntimeError if one does not."""
    hello, count = frames.api_versions(CLIENT), 0
    cpu, start = cpu_s(peer) or 0.0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        with Wire(peer.address, peer.tls, session) as wire:
            wire.send(hello)
            wire.drain()
            if session is not None and not wire.tls.session_reused:
                raise RuntimeError(f"{peer.name} does not resume TLS sessions")
        count += 1
    time.sleep(_SETTLE_S)
    return Connections(count, (cpu_s(peer) or 0.0) - cpu, elapsed)


def session_of(peer: Peer) -> SSLSession | None:
    """A session that can be resumed; None: the peer gives none. With TLS 1.3 it comes after the handshake."""
    with peer.connect() as wire:
        wire.send(frames.api_versions(CLIENT))
        wire.drain()
        session = wire.tls.session
    return session if session is not None and session.has_ticket else None


def check_cipher(peer: Peer) -> None:
    """Raises RuntimeError if the load client and this peer agree on another cipher than the one that is compared."""
    with peer.connect() as wire:
        found = wire.tls.cipher()
    if found is None or found[0] != CIPHER:
        raise RuntimeError(f"{peer.name} chose {found}, not {CIPHER}")
