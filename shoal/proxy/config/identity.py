"""Version, host name and extras of this Shoal."""

from __future__ import annotations

import re
import socket
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.protocol.shallow.envelope import Header
    from shoal.proxy.config.settings import ListenerSettings

__all__ = ["envelope_headers", "host_name", "install_extra", "shoal_version"]

_REQUIRED = re.compile(r"""(?P<what>[^;]+?) *; *extra == ["'](?P<extra>[^"']+)["']""")
_EXTRA = re.compile(r"shoal\[(?P<extras>[^]]+)\]")


@cache  # read at the start: later no file may be left to open
def shoal_version() -> str:
    try:
        return version("shoal")
    except PackageNotFoundError:
        return "unknown (not installed)"


def host_name() -> str:
    return socket.gethostname()


def install_extra(extra: str) -> str:
    """The command that installs what an extra of pyproject.toml needs, also where no index has Shoal itself."""
    try:
        return f"pip install {' '.join(_packages(extra))}"
    except PackageNotFoundError:
        return f"pip install '.[{extra}]' in Shoal's source tree"


def _packages(extra: str) -> list[str]:
    found = []
    for required in filter(None, map(_REQUIRED.fullmatch, requires("shoal") or ())):
        if required["extra"] != extra:
            continue
        if own := _EXTRA.fullmatch(required["what"]):
            found += [package for other in own["extras"].split(",") for package in _packages(other)]
        else:
            found.append(f"'{required['what']}'")
    return found


def envelope_headers(listener: ListenerSettings) -> tuple[Header, ...]:
    """Headers of all envelopes of a listener: provenance and tags. Raises LocalProtocolError if they are too large."""
    from shoal.protocol.shallow.envelope import tag_headers
    from shoal.protocol.shallow.facts import provenance

    own = provenance(cluster=listener.cluster, listener=listener.name, version=shoal_version(), host=host_name())
    return (own, *tag_headers(listener.shallow.tags))
