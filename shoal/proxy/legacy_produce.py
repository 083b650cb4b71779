"""Produce v0-v2 of clients that write messages of magic 0 and 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from shoal.protocol.headers import RequestHeader
    from shoal.proxy.connection import Connection

__all__ = ["handle"]


async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    raise RemoteProtocolError(f"Produce v{header.api_version} cannot be served yet")
