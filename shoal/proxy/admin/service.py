"""The admin listener of the time: a reload may open, move or close it. The rest of the folder loads when it is on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.proxy.events.logs import event
from shoal.proxy.lifecycle.tenure import ADMIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.proxy.admin.listener import AdminPort
    from shoal.proxy.config.settings import Settings
    from shoal.proxy.lifecycle.reload import Prepared
    from shoal.proxy.lifecycle.server import Server
    from shoal.proxy.listener.sockets import ListeningSockets

__all__ = ["AdminService"]

log = logging.getLogger("shoal.admin")


class AdminService:
    """`serve` answers at the port until it is cancelled; None: with the pages of this process."""

    def __init__(self, serve: Callable[[AdminPort, Server], Awaitable[None]] | None = None) -> None:
        self._serve = serve
        self._server: Server | None = None
        self._port: AdminPort | None = None
        self._served: AdminPort | None = None
        self._serving = trio.CancelScope()
        self._is_taken_over = False

    def prepare(self, settings: Settings, sockets: ListeningSockets | None = None) -> Prepared:
        """Open the port that the settings name, if it is another one. `sockets`: of the Shoal before.

        Raises OperatorError.
        """
        listen = settings.admin.listen
        if listen == (None if self._port is None else self._port.wanted):
            return _Move(self, self._port, self._port)
        if listen is None:
            return _Move(self, self._port, None)
        from shoal.proxy.admin.listener import AdminPort

        if self._serve is None:
            from shoal.proxy.admin.pages import serve_admin

            self._serve = serve_admin
        return _Move(self, self._port, AdminPort(listen, sockets))

    def use(self, port: AdminPort | None) -> None:
        if self._port is not None and self._port is not self._served:  # reloads were faster
            self._port.close()
        self._port = port
        if self._server is not None:
            self._announce(self._server)
        self._serving.cancel()

    async def run(self, server: Server, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until another Shoal takes over: then that one answers at this address."""
        self._server = server
        server.when_taken_over.append(self._taken_over)
        self._announce(server)
        task_status.started()
        while True:
            with trio.CancelScope() as self._serving:
                self._served = self._port
                await self._serve_at(self._port, server)
            if self._is_taken_over:
                return

    async def _serve_at(self, port: AdminPort | None, server: Server) -> None:
        """Until cancelled."""
        if port is None:
            await trio.sleep_forever()
        else:
            assert self._serve is not None  # it comes with the port
            await self._serve(port, server)

    def _announce(self, server: Server) -> None:
        port = self._port
        server.also_listens(ADMIN, None if port is None else port.sock)
        if port is None:
            return
        text = f"admin listener: http://{port.address}"
        log.info("admin-listening", extra=event(text, address=str(port.address)))

    def _taken_over(self) -> None:
        self._is_taken_over = True
        self._serving.cancel()


class _Move(NamedTuple):
    service: AdminService
    former: AdminPort | None
    port: AdminPort | None

    def apply(self) -> None:
        if self.port is not self.former:
            self.service.use(self.port)

    def undo(self) -> None:
        if self.port is not None and self.port is not self.former:
            self.port.close()
