"""The interface between the proxy and the interlock.

`Evidence` (evidence.py) wraps only for a mirror that has proven to produce through this process. `AlwaysWrap` is for
`unpaired` listeners, whose target listener is in another process: the operator guarantees it.

An answer to a mirror's data consumer goes through three calls. Each takes the result of the one before:

    hold(partitions)                  -> waits      until when each partition must wait; called again after each wait
    review(partitions, waits)         -> Review     per partition: Wrap, Raw, Withhold, or a record with a token
    commit(review, handed out)                      what is sent; it counts as sent from now on

Nothing may await between the last `hold` and `commit`. A partition that must still wait is withheld: its records are
left out of the answer, and do not count as sent. Records that are sent to a client without a review are reported with
`gave_raw`, or with `gave_unseen` if their topic or their first offset is unknown.

On a Produce request to the paired listener: `returned` for each token; `listens` for each plain partition, and if it is
true `saw_produced`; `arrived` for each envelope.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import count
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.fingerprint import Fingerprint, Sample
from shoal.protocol.shallow.interlock.flow import Fetched, Flow, FlowPartition
from shoal.protocol.shallow.interlock.limits import MAX_PARTITIONS
from shoal.protocol.shallow.interlock.way_back import WayBack
from shoal.protocol.shallow.token import Tokened
from shoal.protocol.wire.types import TopicPartition

__all__ = [
    "AlwaysWrap",
    "Decision",
    "Event",
    "EventKind",
    "HandedOut",
    "InterlockRules",
    "PartitionData",
    "Raw",
    "Review",
    "Withhold",
    "Wrap",
]


class EventKind(StrEnum):
    PROVEN = "proven"  # the records came back; wrapping starts
    STOPPED = "stopped"  # envelopes did not arrive: an error
    PAUSED = "paused"  # evidence ended with a connection
    LOST = "lost"  # a connection closed before a token or the first envelopes came back, for the first time
    STRAYED = "strayed"  # a token did not come back, or another mirror brought it: an error
    NO_EVIDENCE = "no evidence"  # samples were sent a while ago, and nothing came back


class Event(NamedTuple):
    """For the log. `topic` None: the whole flow."""

    kind: EventKind
    flow: Flow
    topic: str | None
    text: str


class PartitionData(Protocol):
    """A partition of an answer that has records. `read`: the offsets if all of it is sent."""

    @property
    def read(self) -> Fetched: ...

    @property
    def may_be_wrapped(self) -> bool:
        """False: its topic is never wrapped, so it needs no evidence."""

    def samples(self, first_offset: int) -> Sequence[Sample]:
        """Samples of its records, from that offset on."""

    def with_token(self, token: bytes) -> Tokened | None:
        """Its first records, one of them with the token; None: none can carry it."""


class Wrap(NamedTuple):
    """Put into envelopes. `first_raw`: nothing was sent since a start or seek there (`WrapContext.first_raw`)."""

    first_raw: bool


class Raw(NamedTuple):
    """Send it unchanged."""


class Withhold(NamedTuple):
    """Send no records of it: the mirror requests it again."""


Decision: TypeAlias = Wrap | Raw | Withhold | Tokened


class Review(NamedTuple):
    """One decision per partition.

    `allowance`: bytes of envelopes in this answer; the rest of it is raw.
    """

    decisions: Sequence[Decision]
    allowance: float = inf


class HandedOut(NamedTuple):
    """What is sent of a partition. `raw_next`: the offset after its last raw record (None: none is raw)."""

    read: Fetched
    raw_next: int | None
    envelopes: Sequence[EnvelopeKey] = ()


class InterlockRules(Protocol):
    salt: bytes
    next_serial: Callable[[], int]

    def begin(self, now: float) -> None:
        """The process that served the mirrors before has ended. Without this call: when this object was made."""

    def connected(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        """A consumer's connection. `connection` is unique in this process; one flow has one per broker."""

    def disconnected(self, flow: Flow, connection: int, now: float) -> None: ...

    def producer_disconnected(self, producer: int, now: float) -> None:
        """A connection to the target listener has closed."""

    def asked(self, flow: Flow, now: float) -> None:
        """A fetch request of the flow."""

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        """True for a new topic of a proven flow that will be proven soon. Until then request little: it is sent raw."""

    def pause_until(self, flow: Flow, now: float) -> float | None:
        """When to ask again before sending the flow more records; None: send now.

        A mirror queues what it gets. So while its first samples, or the envelopes of its trial, are in the mirror, it
        gets nothing that would queue before the next important records. The same applies to a mirror before its first
        turn, and to all mirrors while nothing can be proven after start-up. Once a topic is proven, other topics wait
        separately (`hold`).
        """

    def hold(self, flow: Flow, partitions: Sequence[PartitionData], now: float) -> Sequence[float | None]:
        """Per partition when to ask again; None: it may be sent. Partitions do not wait for each other."""

    def review(
        self, flow: Flow, partitions: Sequence[PartitionData], waits: Sequence[float | None], now: float
    ) -> Review:
        """`waits`: the last result of `hold`; partitions that wait are withheld. Tokens count as sent from now on."""

    def commit(self, flow: Flow, review: Review, handed_out: Sequence[HandedOut | None], now: float) -> None:
        """The answer is about to be sent. `handed_out`: what is sent for each `Wrap` or `Raw`; None for the others."""

    def gave_raw(self, flow: Flow, read: Fetched, now: float) -> None:
        """The flow gets this without a review.

        For ordinary consumers it is enough to report the fetch offsets (next_offset = fetch_offset).
        """

    def gave_unseen(self, flow: Flow, topic_partition: TopicPartition, raw_next: int, now: float) -> None:
        """The flow may get records of a partition below `raw_next`; their first offset is unknown."""

    def listens(self, topic: str, partition: int) -> bool:
        """True if plain records produced to this target topic may be evidence, so must be decoded."""

    def saw_produced(self, topic: str, partition: int, marks: Iterable[Fingerprint], producer: int, now: float) -> None:
        """Plain records at the target listener, in order, from connection `producer`."""

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None:
        """A token at the target listener, on a record whose fingerprint without it is `mark`."""

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None:
        """An envelope at the target listener."""

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        """For the operator; None: the topic is wrapped."""

    def flows(self) -> Iterable[Flow]:
        """The connected consumers."""

    def tick(self, now: float) -> None:
        """Call it about every second."""

    def events(self) -> list[Event]:
        """The events since the last call."""


class AlwaysWrap:
    """For an `unpaired` wrap listener: the operator guarantees that envelopes are opened."""

    def __init__(self, *, salt: bytes, first_serial: int, token: int) -> None:
        self.salt = salt
        self.next_serial: Callable[[], int] = count(first_serial).__next__
        self._tokens = count(token)

    def begin(self, now: float) -> None: ...

    def connected(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        return Flow(peer=peer, client_id=client_id, token=next(self._tokens) & (1 << 64) - 1, arrived=True)

    def disconnected(self, flow: Flow, connection: int, now: float) -> None: ...

    def producer_disconnected(self, producer: int, now: float) -> None: ...

    def asked(self, flow: Flow, now: float) -> None: ...

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        return False

    def pause_until(self, flow: Flow, now: float) -> float | None:
        return None

    def hold(self, flow: Flow, partitions: Sequence[PartitionData], now: float) -> Sequence[float | None]:
        return [None] * len(partitions)

    def review(
        self, flow: Flow, partitions: Sequence[PartitionData], waits: Sequence[float | None], now: float
    ) -> Review:
        decisions = list[Decision]()
        for partition in partitions:
            wrap = Wrap(self._enter(flow, partition.read).fresh)
            decisions.append(wrap if partition.may_be_wrapped else Raw())
        return Review(decisions)

    def commit(self, flow: Flow, review: Review, handed_out: Sequence[HandedOut | None], now: float) -> None:
        for handed in handed_out:
            if handed is not None:
                self.gave_raw(flow, handed.read, now)

    def gave_raw(self, flow: Flow, read: Fetched, now: float) -> None:
        self._enter(flow, read).got(read)

    def gave_unseen(self, flow: Flow, topic_partition: TopicPartition, raw_next: int, now: float) -> None: ...

    def listens(self, topic: str, partition: int) -> bool:
        return False

    def saw_produced(
        self, topic: str, partition: int, marks: Iterable[Fingerprint], producer: int, now: float
    ) -> None: ...

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None: ...

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None: ...

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        return None

    def flows(self) -> Iterable[Flow]:
        return ()

    def tick(self, now: float) -> None: ...

    def events(self) -> list[Event]:
        return []

    def _enter(self, flow: Flow, read: Fetched) -> FlowPartition:
        partition = flow.partitions.get(read.topic_partition) or FlowPartition(flow)
        if len(flow.partitions) < MAX_PARTITIONS:
            flow.partitions[read.topic_partition] = partition
        if partition.next_offset != read.fetch_offset:
            flow.jump(partition, read.fetch_offset)
        return partition
