"""The answers that a connection still owes its client, in order, and what happens to each.

Kafka answers the requests of one connection in order (protocol guide, "Network"), so one queue per connection matches
answers to requests. Most answers pass unchanged: then the queue holds only the request's correlation id.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.errors import UpstreamFault, UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from shoal.proxy.net.transport import Buffer

__all__ = [
    "Answer",
    "Backlog",
    "Edit",
    "Gate",
    "Hold",
    "OwnAnswer",
    "OwnRequest",
    "PendingAnswer",
    "Skimmer",
    "Token",
    "blaming_the_broker",
]

C = TypeVar("C")  # the connection that the answer belongs to


@contextmanager
def blaming_the_broker() -> Iterator[None]:
    """For a handler: a protocol error in here is the broker's, not the client's. Raises UpstreamFault."""
    try:
        yield
    except RemoteProtocolError as error:
        raise UpstreamFault(str(error)) from error


class PendingAnswer(NamedTuple):
    """A request whose answer does not pass unchanged."""

    correlation_id: int
    api_key: int
    api_version: int
    answer: Answer[Any]


class Skimmer(Protocol):
    """Reads a whole answer in pieces, from its first byte, and may change bytes in place, but not their number.

    `feed` returns how many bytes of the piece pass. If that is not all of them, the rest of the answer is held, and
    `finish` returns what is sent instead of it. The limit of held answers applies to that rest.
    """

    def feed(self, chunk: memoryview, /) -> int: ...

    def finish(self, rest: bytearray, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Edit(Generic[C]):
    """Look at the answer in place: `edit` returns the buffer it was given, or its replacement.

    The buffer is only lent: `edit` must not keep it, and must not await. If only a part of the answer is in the receive
    buffer, the answer is streamed through a `skimmer` (made from the entry and the frame's size); without one, it is
    held until it is complete.
    """

    edit: Callable[[C, PendingAnswer, Buffer], Buffer | Sequence[Buffer]]
    skimmer: Callable[[PendingAnswer, int], Skimmer] | None = None


@dataclass(frozen=True, slots=True)
class Hold(Generic[C]):
    """Hold the whole answer, and send what `edit` returns: it may keep the buffer, and wait for any time.

    An empty result sends nothing. An answer above the limit is handled by `too_large`, or ends the connection.
    """

    edit: Callable[[C, PendingAnswer, bytearray], Awaitable[Sequence[Buffer]]]
    too_large: Edit[C] | None = None


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """Shoal's own answer, sent in its turn."""

    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Token:
    """The broker's part of a SASL exchange after SaslHandshake v0: length-prefixed, without a Kafka header."""


class OwnRequest:
    """A request of Shoal's own, and its answer.

    With a `gate`, only the answer's prefix is read until the gate, which gets the frame's size, has returned.
    """

    __slots__ = ("_answered", "_frame", "gate")

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self._answered = trio.Event()
        self._frame: bytearray | None = None

    @property
    def is_answered(self) -> bool:
        """Also true when there will be no answer."""
        return self._answered.is_set()

    async def frame(self) -> bytearray:
        """Wait for the answer (no checkpoint if it has arrived). Raises UpstreamLost."""
        if not self._answered.is_set():
            await self._answered.wait()
        if self._frame is None:
            raise UpstreamLost("the connection to the broker ended before it had answered")
        return self._frame

    def deliver(self, frame: bytearray | None) -> None:
        """None: there will be no answer."""
        self._frame = frame
        self._answered.set()


class Backlog(Protocol):
    """The requests of one client that the listener's path has taken, and answers instead of the broker."""

    @property
    def unanswered(self) -> int:
        """Their number. A later request that passes to the client's own broker waits until it is zero."""

    async def settled(self) -> None:
        """Wait until all are answered."""


Gate: TypeAlias = "Callable[[int], Awaitable[None]]"
Answer: TypeAlias = Edit[C] | Hold[C] | OwnAnswer | Token | OwnRequest
