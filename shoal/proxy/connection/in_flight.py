"""What a connection still owes its client, in order, and what is to be done with each answer when it comes.

Kafka answers the requests of one connection in the order in which they came (protocol guide, "Network"), so one queue per
connection tells which request an answer belongs to. Most answers pass as they come: then the queue has the request's
correlation id and nothing else.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.errors import UpstreamFault, UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from shoal.proxy.connection.connection import Connection
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


@contextmanager
def blaming_the_broker() -> Iterator[None]:
    """For a request's handler: what is wrong in here was not said by the client. Raises UpstreamFault."""
    try:
        yield
    except RemoteProtocolError as error:
        raise UpstreamFault(str(error)) from error


class PendingAnswer(NamedTuple):
    """A request whose answer does not just pass."""

    correlation_id: int
    api_key: int
    api_version: int
    answer: Answer


class Skimmer(Protocol):
    """Sees a whole answer in pieces, from its first byte, and may change bytes in place, never their number.

    `feed` says how many bytes of the piece pass. Where these are not all, the rest of the answer is held, and `finish` makes of
    it what is sent instead. (What it can be is bounded by what is held.)
    """

    def feed(self, chunk: memoryview, /) -> int: ...

    def finish(self, rest: bytearray, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Edit:
    """Look at the answer in place: `edit` returns the buffer it was given, or what takes its place.

    The buffer is only lent: `edit` must not keep it, and nothing may be awaited. With a `skimmer`, an answer that does not lie
    whole in the receive buffer is streamed through that (made from the entry and the frame's size); without, it is held until
    it is complete.
    """

    edit: Callable[[Connection, PendingAnswer, Buffer], Buffer | Sequence[Buffer]]
    skimmer: Callable[[PendingAnswer, int], Skimmer] | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold the answer whole, and send what `edit` returns: it may keep the buffer, and wait as long as it likes.

    An empty result sends nothing. An answer larger than what is held goes the way of `too_large`, or ends the connection.
    """

    edit: Callable[[Connection, PendingAnswer, bytearray], Awaitable[Sequence[Buffer]]]
    too_large: Edit | None = None


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """Shoal's own answer, which waits for its turn."""

    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Token:
    """The broker's part of a SASL exchange after SaslHandshake v0: length-prefixed, without a Kafka header."""


class OwnRequest:
    """The answer to a request of Shoal's own. With a `gate`, no more of it than its first bytes is read before the gate, which is
    called with the frame's size, has returned: until then the broker keeps it."""

    __slots__ = ("_answered", "_frame", "gate")

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self._answered = trio.Event()
        self._frame: bytearray | None = None

    @property
    def is_answered(self) -> bool:
        """Also where there will be no answer."""
        return self._answered.is_set()

    async def frame(self) -> bytearray:
        """Wait for the answer, without a checkpoint where it is there; raises UpstreamLost."""
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
    """The requests of one client that its listener's path has taken, and answers in the broker's place."""

    @property
    def unanswered(self) -> int:
        """How many there are. What comes behind them and goes to the client's own broker has to wait."""

    async def settled(self) -> None:
        """Wait until all are answered."""


Gate: TypeAlias = "Callable[[int], Awaitable[None]]"
Answer = Edit | Hold | OwnAnswer | Token | OwnRequest
