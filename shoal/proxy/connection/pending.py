"""The pending answers of one connection, in order, and what happens to each.

Kafka answers the requests of one connection in order (protocol guide, "Network"), so one queue per connection matches
answers to requests. Most answers pass unchanged; for these the queue has only the correlation id.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.net.upstream import UpstreamFault, UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.statistics import ApiCounters

__all__ = [
    "Answer",
    "Backlog",
    "EditAnswer",
    "Gate",
    "Hold",
    "InFlight",
    "OwnAnswer",
    "OwnRequest",
    "OwnRequests",
    "PendingAnswer",
    "Skimmer",
    "Token",
    "blaming_the_broker",
    "pending_answer",
]

C = TypeVar("C")  # the connection that the answer belongs to


@contextmanager
def blaming_the_broker() -> Iterator[None]:
    """For a handler: a protocol error in this block is the broker's, not the client's. Raises UpstreamFault."""
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


pending_answer: Callable[[tuple[int, int, int, Answer[Any]]], PendingAnswer] = partial(tuple.__new__, PendingAnswer)
"""Makes one in a third of the time."""


class Skimmer(Protocol):
    """Reads an answer in pieces, from its first byte. It may change bytes in place, but not their number.

    `feed` returns how many bytes of the piece pass. If these are not all, the rest of the answer is held, up to the
    limit of held answers, and `finish` returns its replacement. Up to `unread` of the next bytes need not be
    fed: then `passed` gets their number. The last byte is always fed.
    """

    @property
    def unread(self) -> int: ...

    def passed(self, size: int, /) -> None: ...

    def feed(self, chunk: memoryview, /) -> int: ...

    def finish(self, rest: bytearray, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class EditAnswer(Generic[C]):
    """Read the answer in place: `edit` returns its buffer, or a replacement.

    The buffer is borrowed: `edit` must not keep it, and must not await. If only a part of the answer is in the receive
    buffer, it is streamed through a `skimmer` (made from the entry and the frame's size), or held until it is complete
    if there is no skimmer. `holds`: only an answer above the limit of held answers is streamed.
    """

    edit: Callable[[C, PendingAnswer, Buffer], Buffer | Sequence[Buffer]]
    skimmer: Callable[[PendingAnswer, int], Skimmer] | None = None
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Hold(Generic[C]):
    """Hold the whole answer, and send the result of `edit`, which may keep the buffer and wait for any time.

    An empty result sends nothing. An answer above the limit goes to `too_large`, or ends the connection.
    """

    edit: Callable[[C, PendingAnswer, bytearray], Awaitable[Sequence[Buffer]]]
    too_large: EditAnswer[C] | None = None


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """Shoal's own answer, sent after the answers to all earlier requests."""

    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Token:
    """The broker's part of a SASL exchange after SaslHandshake v0: length-prefixed, without a Kafka header."""

    is_last: bool  # of the login


class OwnRequest:
    """A request of Shoal's own, and its answer.

    With a `gate`, reading stops after the answer's prefix until the gate, which gets the frame's size, returns.
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


class OwnRequests(OwnRequest):
    """Many requests of Shoal's own, with one header. Their answers are taken without waking a task, as they are read.

    `deliver` gets each answer, in order; `flush` is called when all that has been read is delivered. It must neither
    await nor raise.
    """

    __slots__ = ()

    def flush(self) -> None:
        raise NotImplementedError


class Backlog(Protocol):
    """Requests of one client that the listener's path answers instead of the broker."""

    @property
    def unanswered(self) -> int:
        """Their number. A later request that goes to the client's own broker connection waits until it is zero."""

    async def settled(self) -> None:
        """Wait until all are answered."""

    def leaves(self) -> None:
        """The client sends nothing more over this connection."""


Gate: TypeAlias = "Callable[[int], Awaitable[None]]"
InFlight: TypeAlias = "int | tuple[int, ApiCounters] | PendingAnswer"
"""An entry of the queue: of an answer that passes, the correlation id, and with a meter the counters of its API."""
Answer: TypeAlias = EditAnswer[C] | Hold[C] | OwnAnswer | Token | OwnRequest
