"""A TCP connection to a broker: every address of its name in turn.

The system's resolver runs in a thread, which costs as much CPU as the rest of a new connection. So an address that has
just accepted one is tried first, without the resolver. Where it fails, or was not the first of its name, the resolver
is asked, and its addresses are tried in turn: the same ones, in the same order, as without `RecentAddresses`.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from trio.lowlevel import wait_writable

from shoal.proxy.net.transport import tune

if TYPE_CHECKING:
    from shoal.proxy.config.settings import Address, Limits

__all__ = ["RECENT_SECONDS", "RecentAddresses", "connect", "require_host"]

RECENT_SECONDS: Final = 5.0  # after a change in DNS, new connections follow within this time; those of Java within 30 s
_MOST_RECENT: Final = 1000  # brokers of a large cluster, some 500 bytes each; they may advertise any number of names


class _SocketAddress(NamedTuple):
    family: int
    kind: int
    protocol: int
    sockaddr: object


class RecentAddresses:
    """The first address of each name, if it has accepted a connection and was resolved a short time ago."""

    def __init__(self, most: int = _MOST_RECENT) -> None:
        self._most = most
        self._found: dict[Address, tuple[float, _SocketAddress]] = {}  # with the end of its time; the oldest first

    def __len__(self) -> int:
        return len(self._found)

    def get(self, address: Address) -> _SocketAddress | None:
        until, found = self._found.get(address, (0.0, None))
        return found if trio.current_time() < until else None

    def add(self, address: Address, found: _SocketAddress, resolved_at: float) -> None:
        self.forget(address)
        if len(self._found) >= self._most:
            self.forget(next(iter(self._found)))
        self._found[address] = resolved_at + RECENT_SECONDS, found

    def forget(self, address: Address) -> None:
        self._found.pop(address, None)


async def connect(address: Address, limits: Limits, recent: RecentAddresses) -> socket.socket:
    """-> a connected, tuned socket. Tries the addresses of the name, in the resolver's order. Raises OSError."""
    last = OSError(errno.EADDRNOTAVAIL, "the name resolves to no address")
    known = recent.get(address)
    if known is not None:
        try:
            return await _connect_to(known, limits)
        except OSError as error:
            recent.forget(address)
            last = error
        except BaseException:  # no answer in time
            recent.forget(address)
            raise
    resolved_at, found = trio.current_time(), await _resolve(address)
    for socket_address in found:
        if socket_address == known:
            continue
        try:
            sock = await _connect_to(socket_address, limits)
        except OSError as error:
            last = error
        else:
            if socket_address is found[0]:
                recent.add(address, socket_address, resolved_at)
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


async def _resolve(address: Address) -> list[_SocketAddress]:
    """In the resolver's order. Raises OSError."""
    require_host(address.host)
    found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [_SocketAddress(family, kind, protocol, sockaddr) for family, kind, protocol, _, sockaddr in found]


async def _connect_to(address: _SocketAddress, limits: Limits) -> socket.socket:
    sock = socket.socket(address.family, address.kind, address.protocol)
    try:
        tune(sock, limits)
        code = sock.connect_ex(address.sockaddr)  # type: ignore[arg-type]
        if code == errno.EINPROGRESS:
            code = sock.connect_ex(address.sockaddr)  # type: ignore[arg-type]
        if code == errno.EALREADY:
            await wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock
