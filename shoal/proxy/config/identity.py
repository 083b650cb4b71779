"""Version and host name of this Shoal, for envelopes and captures."""

from __future__ import annotations

import socket
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.protocol.shallow.envelope import Header
    from shoal.proxy.config.settings import ListenerSettings

__all__ = ["envelope_headers", "host_name", "shoal_version"]


def shoal_version() -> str:
    try:
        return version("shoal")
    except PackageNotFoundError:
        return "unknown (not installed)"


def host_name() -> str:
    return socket.gethostname()


def envelope_headers(listener: ListenerSettings) -> tuple[Header, ...]:
    """Headers of all envelopes of a listener: provenance and tags. Raises LocalProtocolError if they are too large."""
    from shoal.protocol.shallow.envelope import tag_headers
    from shoal.protocol.shallow.facts import provenance

    own = provenance(cluster=listener.cluster, listener=listener.name, version=shoal_version(), host=host_name())
    return (own, *tag_headers(listener.shallow.tags))
