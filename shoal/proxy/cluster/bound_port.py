"""A bound port of a listener: it accepts clients, and connects them to the port's broker."""

from __future__ import annotations

import errno
import math
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.proxy.net.fast_lane import Watch, until

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.events.logs import Complain
    from shoal.proxy.net.turns import Turns
    from shoal.proxy.net.upstream import BrokerConnection, Upstream

__all__ = ["BoundPort"]

# Out of descriptors or memory: waiting connections are accepted when others have ended.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE = 0.1
_TURN_PAUSE = 0.05  # for the worker whose turn it is to accept a client
_BEGIN_PAUSE = 0.02  # until the other workers have begun
_LATE_SECONDS = 1.0  # in which turns do not count, after no worker has accepted one
_BATCH = 4  # clients accepted in one step, while requests of the others wait


class _Accepted(Enum):
    YES = auto()  # or the client has left already
    NOBODY = auto()  # no client waits
    CANNOT = auto()


class BoundPort:
    """One bound port: the bootstrap port (`node_id` None), or that of one broker.

    With routing by SNI the brokers share the socket of the bootstrap port (`accepts` False): it accepts their clients.
    `turns`: other workers accept at this port, too.
    """

    __slots__ = (
        "_accepting",
        "_accepts_all_until",
        "_ask_for_brokers",
        "_complain",
        "_others",
        "_pause",
        "_watch",
        "cluster",
        "node_id",
        "port",
        "sock",
        "turns",
    )

    def __init__(
        self,
        node_id: int | None,
        sock: socket.socket,
        port: int,
        cluster: Cluster,
        *,
        ask_for_brokers: Callable[[], Awaitable[None]],
        complain: Complain,
        accepts: bool = True,
        turns: Turns | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self._ask_for_brokers = ask_for_brokers
        self._complain = complain
        self.sock = sock
        self.turns = turns
        self._pause = 0.0  # before the next look at the queue
        self._accepts_all_until = -math.inf
        self._others: list[int] = []  # their clients then
        self._accepting = trio.CancelScope()
        self._watch = Watch(sock.fileno()) if accepts else None
        self.port = port

    def __str__(self) -> str:
        which = "a bootstrap broker" if self.node_id is None else f"broker {self.node_id}"
        return f"{which} of cluster {self.cluster.name!r}"

    @property
    def accepts(self) -> bool:
        """It has a socket of its own."""
        return self._watch is not None

    @property
    def is_closed(self) -> bool:
        return self._accepting.cancel_called

    @property
    def leads_nowhere(self) -> bool:
        """True if the address of this port's broker is unknown, as right after a start with mapped ports."""
        return self.node_id is not None and self.node_id not in self.cluster.brokers

    async def connect(self, upstream: Upstream) -> tuple[BrokerConnection, bool]:
        """-> the connection, and whether it is provisional: to a bootstrap broker, because the right one is unknown.

        `upstream`: of this cluster. Raises UpstreamUnreachable.
        """
        if self.leads_nowhere:
            await self._ask_for_brokers()
        provisional = self.leads_nowhere
        return await upstream.connect(self.cluster.addresses(self.node_id)), provisional

    async def accept(self, welcome: Callable[[BoundPort, int, str], None]) -> None:
        """Runs until it is closed. `welcome` gets each client's descriptor and host."""
        with self._accepting:
            while self.turns is not None and not self.turns.have_begun:  # noqa: ASYNC110 (another process says so)
                await trio.sleep(_BEGIN_PAUSE)
            while self._watch is not None and not self._accepting.cancel_called:
                await until(self._watch, partial(self._accept_some, welcome))
                before = None if self.turns is None else self.turns.row()
                await trio.sleep(self._pause)
                if self.turns is not None and self.turns.row() == before:
                    self._accept_late(welcome)

    def _accept_some(self, welcome: Callable[[BoundPort, int, str], None]) -> bool:
        """A step, so that a refused client wakes no task and makes no socket object. False: it must pause."""
        for _ in range(_BATCH):
            if self.turns is not None and not self._is_our_turn(self.turns):
                self._pause = _TURN_PAUSE
                return False
            if (found := self._accept_one(welcome)) is not _Accepted.YES:
                return found is _Accepted.NOBODY
        return True

    def _accept_one(self, welcome: Callable[[BoundPort, int, str], None]) -> _Accepted:
        try:
            descriptor, address = self.sock._accept()  # type: ignore[attr-defined]
        except BlockingIOError:
            return _Accepted.NOBODY
        except OSError as error:
            if error.errno in _EXHAUSTED:
                text = f"cannot accept a connection: {error.strerror}: raise the limit of open files"
                self._complain("accept-failed", text, error=error.strerror)
                self._pause = _EXHAUSTED_PAUSE
                return _Accepted.CANNOT
        else:
            welcome(self, descriptor, address[0])
        return _Accepted.YES

    def _is_our_turn(self, turns: Turns) -> bool:
        if turns.is_ours():
            return True
        return trio.current_time() < self._accepts_all_until and turns.others() == self._others

    def _accept_late(self, welcome: Callable[[BoundPort, int, str], None]) -> None:
        """A client that no worker has accepted meanwhile: the one whose turn it is may be blocked."""
        if self._accept_one(welcome) is _Accepted.YES and self.turns is not None:
            self._others = self.turns.others()
            self._accepts_all_until = trio.current_time() + _LATE_SECONDS

    def close(self) -> None:
        self._accepting.cancel()
        if self._watch is not None:
            self._watch.close()
            self.sock.close()
