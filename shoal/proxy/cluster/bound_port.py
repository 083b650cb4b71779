"""A bound port of a listener: it accepts clients, and connects them to the port's broker."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import wait_readable

from shoal.proxy.net.connect import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.settings import Limits

__all__ = ["BoundPort"]

# Out of descriptors or memory: waiting connections are accepted when others have ended.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE = 0.1


class BoundPort:
    """One bound port: the bootstrap port (`node_id` None), or that of one broker."""

    __slots__ = ("_ask_for_brokers", "_complain", "cluster", "limits", "node_id", "port", "sock")

    def __init__(
        self,
        node_id: int | None,
        sock: socket.socket,
        cluster: Cluster,
        limits: Limits,
        *,
        ask_for_brokers: Callable[[], Awaitable[None]],
        complain: Callable[[str], None],
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.limits = limits
        self._ask_for_brokers = ask_for_brokers
        self._complain = complain
        self.sock = sock
        self.port: int = sock.getsockname()[1]

    def __str__(self) -> str:
        which = "a bootstrap broker" if self.node_id is None else f"broker {self.node_id}"
        return f"{which} of cluster {self.cluster.name!r}"

    @property
    def leads_nowhere(self) -> bool:
        """True if the address of this port's broker is unknown, as right after a start with mapped ports."""
        return self.node_id is not None and self.node_id not in self.cluster.brokers

    async def connect(self) -> tuple[socket.socket, bool]:
        """-> the connection, and whether it is provisional: to a bootstrap broker, because the right one is unknown.

        Raises UpstreamUnreachable.
        """
        if self.leads_nowhere:
            await self._ask_for_brokers()
        provisional = self.leads_nowhere
        return await connect(self.cluster.addresses(self.node_id), self.limits), provisional

    async def accept(self, welcome: Callable[[BoundPort, socket.socket], None]) -> None:
        """Runs until cancelled."""
        while True:
            await wait_readable(self.sock)
            try:
                client, _ = self.sock.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._complain(f"cannot accept a connection: {error.strerror}: raise the limit of open files")
                    await trio.sleep(_EXHAUSTED_PAUSE)
            else:
                welcome(self, client)
