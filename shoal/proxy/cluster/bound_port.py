"""A bound port of a listener: clients come in, and are connected to the broker that it stands for."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import wait_readable

from shoal.proxy.net.connect import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from shoal.proxy.listeners import Listener

__all__ = ["BoundPort"]

# Out of descriptors or memory: connections that wait are accepted when others have ended.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE = 0.1


class BoundPort:
    """One bound port: the bootstrap port (`node_id` None), or that of one broker."""

    __slots__ = ("listener", "node_id", "port", "sock")

    def __init__(self, listener: Listener, node_id: int | None, sock: socket.socket) -> None:
        self.listener = listener
        self.node_id = node_id
        self.sock = sock
        self.port: int = sock.getsockname()[1]

    def __str__(self) -> str:
        which = "a bootstrap broker" if self.node_id is None else f"broker {self.node_id}"
        return f"{which} of cluster {self.listener.cluster.name!r}"

    @property
    def leads_nowhere(self) -> bool:
        """Nobody has said yet where this port's broker is: right after a start with mapped ports."""
        return self.node_id is not None and self.node_id not in self.listener.cluster.brokers

    async def connect(self) -> tuple[socket.socket, bool]:
        """-> the connection, and whether it is provisional: to a bootstrap broker, for want of knowing the right one.

        Raises UpstreamUnreachable.
        """
        listener = self.listener
        if self.leads_nowhere:
            await listener.ask_for_brokers()
        provisional = self.leads_nowhere
        return await connect(listener.cluster.addresses(self.node_id), listener.limits), provisional

    async def accept(self, welcome: Callable[[BoundPort, socket.socket], None]) -> None:
        """Until cancelled."""
        while True:
            await wait_readable(self.sock)
            try:
                client, _ = self.sock.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self.listener.complain(
                        f"cannot accept a connection: {error.strerror}: raise the limit of open files"
                    )
                    await trio.sleep(_EXHAUSTED_PAUSE)
            else:
                welcome(self, client)
