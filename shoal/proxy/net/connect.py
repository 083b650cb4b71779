"""Connecting to a broker: every given address in turn, each within the connect timeout."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import wait_writable

from shoal.proxy.net.transport import tune

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.proxy.config.settings import Address, Limits

__all__ = ["UpstreamUnreachable", "connect"]


class UpstreamUnreachable(Exception):
    """No address accepted a connection; the message has all addresses and their errors."""


async def connect(addresses: Sequence[Address], limits: Limits) -> socket.socket:
    """-> a connected, tuned socket. Raises UpstreamUnreachable."""
    failures = []
    for address in addresses:
        try:
            with trio.fail_after(limits.connect_timeout):
                return await _connect_any(address, limits)
        except trio.TooSlowError:
            failures.append(f"{address}: no answer within {limits.connect_timeout:g} s (limits.connect_timeout)")
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
    raise UpstreamUnreachable("cannot reach the broker: " + "; ".join(failures or ["no address is known"]))


async def _connect_any(address: Address, limits: Limits) -> socket.socket:
    """Try the addresses of the name, in the resolver's order."""
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


async def _connect_one(sock: socket.socket, sockaddr: object) -> None:
    code = sock.connect_ex(sockaddr)  # type: ignore[arg-type]
    if code == errno.EINPROGRESS:
        await wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
