"""The brokers' addresses in an answer, as `rewrite_endpoints` looks them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.transform.addresses import Endpoint, rewrite_endpoints

if TYPE_CHECKING:
    from shoal.protocol.wire.types import Buffer

__all__ = ["read_endpoints"]


def read_endpoints(api_key: int, version: int, frame: Buffer) -> list[Endpoint]:
    """In order. What is not changed stays the same object."""
    found: list[Endpoint] = []

    def unchanged(node_id: int, host: str, port: int) -> tuple[str, int]:
        found.append(Endpoint(node_id, host, port))
        return host, port

    assert rewrite_endpoints(api_key, version, frame, unchanged) is frame
    return found
