"""Addresses of clients: which network holds one, and which of them count together."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.proxy.config.security import Network

__all__ = ["Group", "Networks", "group_of", "plain_host"]

Group = str | bytes

_MAPPED = bytes(10) + b"\xff\xff"  # ::ffff:0:0/96, an IPv4 address
_HOST_BYTES = 8  # of an IPv6 address: one host has a whole /64


def plain_host(host: str) -> str:
    """One name for each address: sockets of both families and some load balancers write IPv4 ones as ::ffff:a.b.c.d."""
    if not host.startswith("::ffff:"):
        return host
    packed = _packed(host)
    return host if len(packed) == 16 else socket.inet_ntop(socket.AF_INET, packed)


def group_of(host: str) -> Group:
    """The key under which connections of an address are counted: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in host:
        return host
    packed = _packed(host)
    return packed[:_HOST_BYTES] if len(packed) == 16 else socket.inet_ntop(socket.AF_INET, packed)


def _packed(host: str) -> bytes:
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return packed[len(_MAPPED) :] if packed.startswith(_MAPPED) else packed


class Networks:
    """A set of networks. A lookup takes one step per prefix length in use, however many networks there are."""

    __slots__ = ("_by_mask",)

    def __init__(self, networks: Iterable[Network]) -> None:
        self._by_mask: dict[tuple[int, int], set[int]] = {}  # (bytes of an address, mask) -> network addresses
        for network in networks:
            size = 4 if isinstance(network, IPv4Network) else 16
            self._by_mask.setdefault((size, int(network.netmask)), set()).add(int(network.network_address))

    def __bool__(self) -> bool:
        return bool(self._by_mask)

    def __contains__(self, host: str) -> bool:
        packed = _packed(host)
        number = int.from_bytes(packed, "big")
        return any(size == len(packed) and number & mask in found for (size, mask), found in self._by_mask.items())
