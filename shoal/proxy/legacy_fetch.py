"""Fetch v0-v3 for clients that read messages of magic 0 and 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from shoal.protocol.headers import RequestHeader
    from shoal.proxy.connection import Connection

__all__ = ["closed", "handle", "opened"]


def opened(connection: Connection) -> None:
    """The client's connection to its broker is there."""


def closed(connection: Connection) -> None:
    """It is no more: what is held for it may go."""


async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    raise RemoteProtocolError(f"Fetch v{header.api_version} cannot be served yet")
