"""The limit of open files, which child processes inherit. A proxy has two descriptors per connection."""

from __future__ import annotations

import resource
from contextlib import suppress

__all__ = ["connections_within", "raise_limit"]

SPARE = 500  # logs, listeners, jars, a broker's segments


def raise_limit(wanted: int) -> int:
    """-> how many of the `wanted` connections a proxy that is started from now on can hold."""
    needed = 2 * wanted + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a higher hard limit needs a privilege
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), max(hard, needed)))
        return wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return connections_within(wanted, hard)


def connections_within(wanted: int, limit: int) -> int:
    return max(0, min(wanted, (limit - SPARE) // 2))
