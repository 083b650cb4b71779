"""What happens to requests, by API key: one table per listener. A request without a route passes undecoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeAlias

from shoal.proxy.connection.pending import Answer, C

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shoal.protocol.schema.headers import RequestHeader

__all__ = ["Decision", "Route", "RouteTable", "Wait", "table"]


class Decision(Enum):
    """What a route's `decide` may return instead of what happens to the answer."""

    MORE = auto()  # these first bytes are not enough: call again with more
    HOLD = auto()  # hold the request whole and hand it to the route's `handle`
    SILENT = auto()  # pass it; it has no answer
    TAKEN = auto()  # the path has taken the request and will answer it: nothing passes


@dataclass(frozen=True, slots=True)
class Wait:
    """Also a decision: not yet. Nothing more is read until `until` has returned; then `decide` is called again."""

    until: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[C]):
    """For requests from version `since` on: `decide`, else `handle`; else they pass, and `answer` is for the answer.

    `decide` gets what has arrived of the frame, at least its first 12 bytes; the view is only lent. `handle` gets the
    whole frame, and owns it; no further request of this connection is read until it returns.

    Requests behind one that was taken wait until it is answered, as they would at a broker. If the route `takes`,
    `decide` ensures that itself.
    """

    since: int = 0
    answer: Answer[C] | None = None
    decide: Callable[[C, memoryview], Answer[C] | Decision | Wait | None] | None = None
    handle: Callable[[C, bytearray, RequestHeader], Awaitable[None]] | None = None
    takes: bool = False


RouteTable: TypeAlias = dict[int, Route[C]]


def table(routes: Mapping[int, Route[C]]) -> RouteTable[C]:
    """A table with plain integers as keys, as on the wire."""
    return {int(key): route for key, route in routes.items()}
