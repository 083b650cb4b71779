"""What happens to requests, by API key: one table per listener. A request without a route passes undecoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, TypeAlias

from shoal.proxy.connection.pending import Answer, C

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shoal.protocol.schema.headers import RequestHeader

__all__ = ["ANY_VERSION", "Decision", "Route", "RouteTable", "Wait", "table"]


ANY_VERSION: Final = -0x8000  # also those that no API has, which brokers refuse


class Decision(Enum):
    """A result of a route's `decide` other than what happens to the answer."""

    MORE = auto()  # these first bytes are not enough: call again with more
    HOLD = auto()  # hold the whole request for the route's `handle`
    SILENT = auto()  # pass it; it has no answer
    TAKEN = auto()  # the path answers this request: nothing passes


@dataclass(frozen=True, slots=True)
class Wait:
    """Also a decision: not yet. Reading stops until `until` returns; then `decide` is called again."""

    until: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[C]):
    """For requests from version `since` on: `decide`, else `handle`; else they pass, and `answer` handles the answer.

    `decide` gets the bytes of the frame that have arrived, at least 12; the view is borrowed. `handle` gets the whole
    frame and owns it; no further request of this connection is read until it returns.

    `head`: how many first bytes of the frame the decision depends on; 0: all of them, or the connection's state. A
    later request of this API and version with the same ones, except the correlation id, has the same decision.

    Requests after a taken one wait until it is answered, as at a broker. A route that `takes` ensures this in `decide`.
    """

    since: int = 0
    answer: Answer[C] | None = None
    decide: Callable[[C, memoryview], Answer[C] | Decision | Wait | None] | None = None
    handle: Callable[[C, bytearray, RequestHeader], Awaitable[None]] | None = None
    takes: bool = False
    head: Callable[[memoryview], int] | None = None


RouteTable: TypeAlias = dict[int, Route[C]]


def table(routes: Mapping[int, Route[C]]) -> RouteTable[C]:
    """A table with API keys as plain integers."""
    return {int(key): route for key, route in routes.items()}
