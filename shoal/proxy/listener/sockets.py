"""The sockets that listen. In a reload, a listener takes over those of another one, or of its own former self.

    offer      the ports of listeners that end or change
    open       a duplicate of the offered socket of this address, or a new one
    withdraw   the reload is over: the former listeners close theirs, or the new ones do

The duplicates are of one queue in the kernel: no port is closed in between, and a client that connects meanwhile waits
in it. A mirror may still bring envelopes to a port that an unwrapping listener had: no other kind gets it, as long as
Shoal runs.

With several workers (shoal/proxy/workers) the supervisor has these sockets, and says which broker gets which port.
`opens_ports` is False in a worker, which asks it.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.net.transport import make_reset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.proxy.cluster.ports import SavedPorts
    from shoal.proxy.net.turns import Turns

__all__ = ["BindAddress", "ListeningSockets", "PortOfMirrors"]

_BACKLOG = 4096  # the kernel's own limit (net.core.somaxconn): a flood fills a shorter queue, and good clients wait

BindAddress = tuple[str, int]
"""Numeric host, and port as it is configured (0: any)."""


class PortOfMirrors(OSError):
    """The port was that of an unwrapping listener."""

    def __init__(self) -> None:
        super().__init__(errno.EADDRINUSE, _OF_MIRRORS)


_OF_MIRRORS = (
    'a listener with mode = "unwrap" had it, and mirrors may still bring envelopes to it; only a restart frees it'
)


class ListeningSockets:
    """For all listeners of a server. `changed` gets a listener's name, and the id, port and address of a broker."""

    opens_ports = True

    def __init__(self, changed: Callable[[str, int, int, Address], None] = lambda *_: None) -> None:
        self.changed = changed
        self._offered: dict[BindAddress, tuple[socket.socket, Mode]] = {}
        self._of_mirrors: set[int] = set()

    def open(self, family: int, place: BindAddress, mode: Mode) -> socket.socket:
        """Raises OSError."""
        _, former = self._offered.get(place, (None, mode))
        if mode is not Mode.UNWRAP and (former is Mode.UNWRAP or place[1] in self._of_mirrors):
            raise PortOfMirrors
        return self.offered(family, place) or _listen(family, place)

    def offered(self, family: int, place: BindAddress) -> socket.socket | None:
        """A duplicate of the offered socket of this address."""
        sock, _ = self._offered.get(place, (None, None))
        return sock.dup() if sock is not None and sock.family == family else None

    def offer(self, places: Iterable[tuple[BindAddress, socket.socket]], mode: Mode) -> None:
        for place, sock in places:
            self._offered[place] = sock, mode

    def withdraw(self) -> None:
        self._offered.clear()

    def saved(self, listener: str) -> SavedPorts | None:
        """The ports of this listener's brokers; None: see its state file."""
        return None

    def assigned(self, listener: str, node_id: int, address: Address) -> int | None:
        """The port of a new broker, which is open; None: the listener chooses one. Raises NoPort."""
        return None

    def turns(self, port: int) -> Turns | None:
        """With several workers: whose turn it is to accept at this port."""
        return None

    def gave_up(self, port: int, mode: Mode) -> None:
        """A listener of this mode no longer has the port."""
        if mode is Mode.UNWRAP:
            self._of_mirrors.add(port)


def _listen(family: int, place: BindAddress) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(place)
        make_reset(sock)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
