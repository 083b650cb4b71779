"""A client whose connection is ready for its first request, as the listener knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.proxy.config.settings import Address
    from shoal.proxy.net.transport import SocketTransport

__all__ = ["Client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    transport: SocketTransport
    peer: Address
    local_host: str  # the address that it connected to
    balancer: Address | None = None  # the load balancer that sent `peer` in a PROXY protocol header
    principal: str | None = None  # of its certificate
    server_name: str | None = None  # that it asked for in its TLS handshake
