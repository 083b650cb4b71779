"""What the proxy asks before it hands out an envelope, and what it reports to the interlock.

`Evidence` (evidence.py) wraps only for a mirror that has shown that it produces through this very process. `AlwaysWrap`
is for an operator who vouches for that (`unpaired`), where the target listener is another process.

An answer to a mirror's data consumer goes through three calls. Each takes what the one before gave:

    hold(partitions)                  -> waits      until when each partition has to wait; asked again after each wait
    review(partitions, waits)         -> Review     what each is given: Wrap, Raw, Withhold, or a record with a token
    commit(review, handed out)                      what was given: it counts from here on

Nothing may await between the last `hold` and `commit`. A partition that still has to wait is withheld: its records are
left out of the answer, and do not count as given. Records that go to a client without a review are reported by
`gave_raw`, or by `gave_unseen` where their topic or their first offset is not known.

On a Produce request to the paired listener: `returned` for each token; `listens` for each plain partition, and only
then `saw_produced`; `arrived` for each envelope.
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
    "Interlock",
    "PartitionData",
    "Raw",
    "Review",
    "Withhold",
    "Wrap",
]


class EventKind(StrEnum):
    PROVEN = "proven"  # records came back; wrapping starts
    STOPPED = "stopped"  # envelopes did not arrive: an error
    PAUSED = "paused"  # evidence ended with a connection
    LOST = "lost"  # a connection closed before a token or the first envelopes came back, for the first time
    STRAYED = "strayed"  # a token did not come back, or by another mirror: an error
    NO_EVIDENCE = "no evidence"  # samples were given a while ago, and nothing came back


class Event(NamedTuple):
    """For the log. `topic` is None where the whole flow is meant."""

    kind: EventKind
    flow: Flow
    topic: str | None
    text: str


class PartitionData(Protocol):
    """A partition of an answer, with records in it. `read`: what the mirror is given if all of it goes."""

    @property
    def read(self) -> Fetched: ...

    @property
    def may_be_wrapped(self) -> bool:
        """False: its topic never is, so it needs no evidence."""

    def samples(self, first_offset: int) -> Sequence[Sample]:
        """Samples of its records from that offset on."""

    def with_token(self, token: bytes) -> Tokened | None:
        """Its first records, one of them with the token; None: none can carry it."""


class Wrap(NamedTuple):
    """Put into envelopes. `first_raw`: nothing was given since a start or seek there (`WrapContext.first_raw`)."""

    first_raw: bool


class Raw(NamedTuple):
    """Give it as it is."""


class Withhold(NamedTuple):
    """Give nothing of it: the mirror asks again."""


Decision: TypeAlias = Wrap | Raw | Withhold | Tokened


class Review(NamedTuple):
    """One decision for each partition.

    `allowance`: once this answer's envelopes hold so many bytes, the rest of it is raw.
    """

    decisions: Sequence[Decision]
    allowance: float = inf


class HandedOut(NamedTuple):
    """What is given of a partition. `raw_next`: the offset after its last raw record (None: none is raw)."""

    read: Fetched
    raw_next: int | None
    envelopes: Sequence[EnvelopeKey] = ()


class Interlock(Protocol):
    salt: bytes
    next_serial: Callable[[], int]

    def connected(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        """A consumer's connection. `connection` is unique in this process; one flow has one per broker."""

    def disconnected(self, flow: Flow, connection: int, now: float) -> None: ...

    def producer_disconnected(self, producer: int, now: float) -> None:
        """A connection to the target listener has closed."""

    def asked(self, flow: Flow, now: float) -> None:
        """A fetch request of the flow."""

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        """Is the topic, as one more of a proven flow, to be proven soon? Until then little should be asked
        for, since it goes raw.
        """

    def pause_until(self, flow: Flow, now: float) -> float | None:
        """When to look again before giving the flow any more records; None: now.

        A mirror queues what it was given. So while its first samples, or the envelopes of its trial, are on their way,
        it is given nothing that would queue before the records that are to come next. The same holds for a mirror that
        has not had its first turn yet, and for all mirrors while nothing can be proven after the start of this process.
        Once a topic is proven, others wait by themselves (`hold`).
        """

    def hold(self, flow: Flow, partitions: Sequence[PartitionData], now: float) -> Sequence[float | None]:
        """When to ask again before giving each partition; None: it may go. One does not wait for another."""

    def review(
        self, flow: Flow, partitions: Sequence[PartitionData], waits: Sequence[float | None], now: float
    ) -> Review:
        """`waits` is the last answer of `hold`: what waits is withheld. Tokens count as given from here on."""

    def commit(self, flow: Flow, review: Review, handed_out: Sequence[HandedOut | None], now: float) -> None:
        """About to be sent. For each decision `Wrap` or `Raw` what became of it; None for the others."""

    def gave_raw(self, flow: Flow, read: Fetched, now: float) -> None:
        """The flow is given this without a review.

        For ordinary consumers it is enough to report the fetch offsets (next_offset = fetch_offset).
        """

    def gave_unseen(self, flow: Flow, topic_partition: TopicPartition, raw_next: int, now: float) -> None:
        """Records of a partition below `raw_next` may have been given; from which offset on is not known."""

    def listens(self, topic: str, partition: int) -> bool:
        """Is it worth decoding plain records produced to this target topic?"""

    def saw_produced(self, topic: str, marks: Iterable[Fingerprint], producer: int, now: float) -> None:
        """Plain records at the target listener, in order, from connection `producer`."""

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None:
        """A token at the target listener, on a record that is `mark` without it."""

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None:
        """An envelope at the target listener."""

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        """For the operator; None when the topic is wrapped."""

    def tick(self, now: float) -> None:
        """Call it about every second."""

    def events(self) -> list[Event]:
        """What has happened since the last call."""


class AlwaysWrap:
    """For a wrap listener without its pair in this process: the operator vouches for the other end."""

    def __init__(self, *, salt: bytes, first_serial: int, token: int) -> None:
        self.salt = salt
        self.next_serial: Callable[[], int] = count(first_serial).__next__
        self._tokens = count(token)

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
        partition = self._enter(flow, read)
        partition.next_offset, partition.fresh = read.next_offset, False

    def gave_unseen(self, flow: Flow, topic_partition: TopicPartition, raw_next: int, now: float) -> None: ...

    def listens(self, topic: str, partition: int) -> bool:
        return False

    def saw_produced(self, topic: str, marks: Iterable[Fingerprint], producer: int, now: float) -> None: ...

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None: ...

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None: ...

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        return None

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
