"""SIGHUP before the proxy receives signals: it does not end Shoal, and is obeyed once Shoal serves."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["noted_hang_ups"]


@contextmanager
def noted_hang_ups() -> Iterator[Callable[[], bool]]:
    """-> whether SIGHUP has come. Without effect in a thread."""
    seen: list[int] = []
    try:
        former = signal.signal(signal.SIGHUP, lambda number, frame: seen.append(number))
    except ValueError:
        yield lambda: False
        return
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGHUP, former)
