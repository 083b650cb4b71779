"""The admin port: binds it, accepts clients, and answers each request by the table of pages.

At `MOST_CLIENTS` connections a new one takes the place of the one that is idle the longest, so that clients which only
occupy connections do not keep a scraper out. There is no login: docs/security.md says who may reach the port.
"""

from __future__ import annotations

import errno
import logging
import socket
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import trio

from shoal.proxy.admin.http import HttpConnection, Response, plain
from shoal.proxy.admin.share import LoopShare, Turn
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address
from shoal.proxy.events.logs import LogThrottle, event
from shoal.proxy.listener.sockets import ListeningSockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shoal.proxy.admin.http import Request

    Page = Callable[[Request], Awaitable[Response]]

__all__ = ["MOST_CLIENTS", "AdminPort"]

log = logging.getLogger("shoal.admin")

MOST_CLIENTS: Final = 32  # a scraper or two, probes, `shoal top`, a person; ~30 KiB each
_BACKLOG: Final = 64
_ACCEPT_SECONDS: Final = 0.000_3  # of the loop, for one connection from its start to its end
_PAUSE_SECONDS: Final = 0.5  # without descriptors
_COMPLAINT_SECONDS: Final = 60.0


class AdminPort:
    """Bound when created. `sockets`: of the Shoal before. Raises OperatorError."""

    def __init__(
        self,
        address: Address,
        sockets: ListeningSockets | None = None,
        *,
        share: LoopShare | None = None,
        most: int = MOST_CLIENTS,
    ) -> None:
        self.wanted = address
        self.sock = _bound(address, sockets or ListeningSockets())
        self._most = most
        self.share = share or LoopShare()
        self._throttle = LogThrottle()
        self._clients: dict[HttpConnection, trio.CancelScope] = {}  # the oldest first
        self.address = Address(address.host, self.sock.getsockname()[1])

    async def run(self, pages: Mapping[str, Page]) -> None:
        """Serve until cancelled."""
        answer = partial(self._answer, pages)
        with self.sock:
            listening = trio.socket.from_stdlib_socket(self.sock)
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        client, _ = await listening.accept()
                    except OSError as error:
                        await self._cannot_accept(error)
                        continue
                    await self.share.run(self._make_room, seconds=_ACCEPT_SECONDS, turn=Turn.ACCEPT)
                    nursery.start_soon(self._serve, trio.SocketStream(client), answer)

    def close(self) -> None:
        self.sock.close()

    async def _cannot_accept(self, error: OSError) -> None:
        if error.errno in (errno.ECONNABORTED, errno.EPROTO):  # the client has left
            return
        if self._throttle.is_news(error.errno, _COMPLAINT_SECONDS):
            what = f"the admin listener cannot accept a connection: {error.strerror}"
            log.error("admin-accept-failed", extra=event(what, error=error.strerror))
        await trio.sleep(_PAUSE_SECONDS)

    def _make_room(self) -> None:
        if len(self._clients) >= self._most:
            oldest = next((client for client in self._clients if client.is_idle), None) or next(iter(self._clients))
            self._clients.pop(oldest).cancel()

    async def _serve(self, stream: trio.SocketStream, answer: Page) -> None:
        connection = HttpConnection(stream, self.share, answer)
        with trio.CancelScope() as scope:
            self._clients[connection] = scope
            try:
                await connection.serve()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client has left
            except Exception:  # an error in a page must not end Shoal
                log.exception("admin-error", extra=event("an admin client's connection ended by an error in Shoal"))
            finally:
                self._clients.pop(connection, None)
                await trio.aclose_forcefully(stream)

    async def _answer(self, pages: Mapping[str, Page], request: Request) -> Response:
        page = pages.get(request.path)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, f"there is no such page; there are: {', '.join(pages)}")
        try:
            return await page(request)
        except Exception as error:
            if self._throttle.is_news(request.path, _COMPLAINT_SECONDS):
                log.exception("admin-error", extra=event(f"the admin page {request.path} failed", page=request.path))
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, f"an error in Shoal ({type(error).__name__}): see its log")


def _bound(address: Address, sockets: ListeningSockets) -> socket.socket:
    """Raises OperatorError."""
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        offered = sockets.offered(family, (str(where[0]), int(where[1])))
        if offered is not None:
            return offered
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(where)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        what = f"cannot listen on {address}: {error.strerror}: choose another with admin.listen (--admin)"
        raise OperatorError.of("admin.listen", what) from error
    return sock
