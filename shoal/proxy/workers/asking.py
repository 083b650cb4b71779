"""A worker's listening sockets: duplicates of the supervisor's, which it asks for.

Ports are bound synchronously, before an answer with a broker's address is sent (`listener.broker_ports`). So a question
blocks the worker until the supervisor answers, which is a fraction of a millisecond; there is one for each port and
start, and one for each new broker.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.listener.sockets import ListeningSockets

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.cluster.ports import SavedPorts
    from shoal.proxy.config.settings import Address, Mode
    from shoal.proxy.listener.sockets import BindAddress
    from shoal.proxy.net.turns import Turns, TurnTable

__all__ = ["MOST_BYTES", "Broker", "Open", "Refused", "Saved", "SharedSockets"]

MOST_BYTES: Final = 256 * 1024  # of an answer: the ports of a cluster of 1,000 brokers are a fifth of it
_SECONDS: Final = 3.0  # the clients of the worker wait, too


class Open(NamedTuple):
    """-> a descriptor of the socket at this place."""

    place: BindAddress


class Broker(NamedTuple):
    """-> the port of a broker, which is open."""

    listener: str
    node_id: int
    address: Address


class Saved(NamedTuple):
    """-> SavedPorts of the listener."""

    listener: str


class Refused(NamedTuple):
    why: str


class SharedSockets(ListeningSockets):
    """`asked`: this end of the questions."""

    opens_ports = False

    def __init__(
        self,
        asked: socket.socket,
        table: TurnTable,
        worker: int,
        changed: Callable[[str, int, int, Address], None],
    ) -> None:
        super().__init__(changed)
        self._asked = asked
        self._asked.settimeout(_SECONDS)
        self._table = table
        self._worker = worker

    def open(self, family: int, place: BindAddress, mode: Mode) -> socket.socket:
        """Raises OSError."""
        offered = self.offered(family, place)
        if offered is not None:
            return offered
        answer, descriptors = self._ask(Open(place))
        if isinstance(answer, Refused):
            raise OSError(errno.EADDRINUSE, answer.why)
        if not descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        sock = socket.socket(fileno=descriptors[0])
        sock.setblocking(False)
        return sock

    def saved(self, listener: str) -> SavedPorts | None:
        answer, _ = self._ask(Saved(listener))
        found: SavedPorts = answer  # type: ignore[assignment]
        return found

    def assigned(self, listener: str, node_id: int, address: Address) -> int | None:
        """Raises NoPort."""
        try:
            answer, _ = self._ask(Broker(listener, node_id, address))
        except OSError as error:
            raise NoPort(f"the supervisor of the workers does not answer: {error.strerror or error}") from error
        if isinstance(answer, Refused):
            raise NoPort(answer.why)
        assert isinstance(answer, int)
        return answer

    def turns(self, port: int) -> Turns | None:
        return self._table.of(port, self._worker)

    def _ask(self, question: object) -> tuple[object, list[int]]:
        """Raises OSError. Without an answer the socket is closed: a late one would be that of the next question."""
        try:
            self._asked.sendall(pickle.dumps(question))
            data, descriptors, _, _ = socket.recv_fds(self._asked, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            self._asked.close()
            raise
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "it has ended")
        return pickle.loads(data), descriptors
