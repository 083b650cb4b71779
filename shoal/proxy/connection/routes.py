"""What happens to the requests of each API: one table per listener, by API key. An absent key passes undecoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import Answer

__all__ = ["Decide", "Decision", "Handle", "Route", "RouteTable", "Wait", "table"]


class Decision(Enum):
    """What a route's `decide` may say instead of naming what to do with the answer."""

    MORE = auto()  # these first bytes do not tell: ask again with more
    HOLD = auto()  # hold the request whole and hand it to the route's `handle`
    SILENT = auto()  # passes, and will not be answered
    TAKEN = auto()  # the path has taken what it needs: nothing passes, and the path answers


@dataclass(frozen=True, slots=True)
class Wait:
    """A verdict, too: not yet, nothing more is read until `until` has returned, and then `decide` is asked again."""

    until: Callable[[], Awaitable[None]]


Decide = "Callable[[Connection, memoryview], Answer | Verdict | Wait | None]"
"""Gets the frame from its first byte, as far as it has arrived (12 bytes at least). The view is only lent."""

Handle = "Callable[[Connection, bytearray, RequestHeader], Awaitable[None]]"
"""Gets the whole frame, and owns it. Nothing else of this connection's requests is read until it returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """From version `since` on: `decide` where there is one, else `handle`, else the request passes and `answer` says the rest.

    Requests behind one that was taken wait until it is answered, as they would at a broker; where the route `takes`, `decide`
    sees to that itself.
    """

    since: int = 0
    answer: Answer | None = None
    decide: Callable[[Connection, memoryview], Answer | Decision | Wait | None] | None = None
    handle: Callable[[Connection, bytearray, RequestHeader], Awaitable[None]] | None = None
    takes: bool = False


RouteTable = dict[int, Route]


def table(routes: Mapping[int, Route]) -> RouteTable:
    """With plain integers as keys, as they come off the wire."""
    return {int(key): route for key, route in routes.items()}
