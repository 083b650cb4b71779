"""What a peer's TLS agrees to. What is measured with it is that of `make bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.proxies.placements import CIPHER
from bench.stage import CLIENT
from tests.support import frames

if TYPE_CHECKING:
    from ssl import SSLSession

    from bench.proxies.peer import Peer

__all__ = ["check_cipher", "session_of"]


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
