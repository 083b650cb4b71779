"""A TCP connection to a broker: every address of its name in turn."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import wait_writable

from shoal.proxy.net.transport import tune

if TYPE_CHECKING:
    from shoal.proxy.config.settings import Address, Limits

__all__ = ["connect", "require_host"]


async def connect(address: Address, limits: Limits) -> socket.socket:
    """-> a connected, tuned socket. Tries the addresses of the name, in the resolver's order. Raises OSError."""
    require_host(address.host)
    last = OSError(errno.EADDRNOTAVAIL, "the name resolves to no address")
    for family, kind, protocol, _, sockaddr in await trio.socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            tune(sock, limits)
            await _connect_one(sock, sockaddr)
        except OSError as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise last


def require_host(host: str) -> None:
    """A broker may advertise anything, and `socket` and `ssl` have several errors for it. Raises OSError."""
    try:
        is_host = bool(host.encode("idna")) and "\0" not in host
    except UnicodeError:
        is_host = False
    if not is_host:
        raise OSError(errno.EINVAL, f"{host!r} is not the name of a host")


async def _connect_one(sock: socket.socket, sockaddr: object) -> None:
    code = sock.connect_ex(sockaddr)  # type: ignore[arg-type]
    if code == errno.EINPROGRESS:
        await wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
