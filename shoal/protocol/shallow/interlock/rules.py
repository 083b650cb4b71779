"""What the proxy asks before it hands out an envelope, and what it tells the interlock.

`Evidence` (evidence.py) wraps only for a mirror that has shown that it produces through this very process. `AlwaysWrap` is for
an operator who says so (`unpaired`), where the target listener is another process.

On a response to a mirror's data consumer, for each partition with data:

1. `fetched`, once.
2. Unless `may_wrap`: `sample_from` -> `sample_record_set` -> `hold_until`. While any of them names a time: wait for it (or less)
   and do 2 again. Or leave that partition out of the response (empty record set) and do not call `given` for it.
3. Without any wait in between: `token`, and where it names one, put it into a record of that partition (token.py), and `gave_token`; `may_wrap`,
   wrap or not, `given`; then send. What can be left out of an answer that has a token, is left out.

On a produce request to the paired listener: `returned` for each token; `listens` for each plain partition, and only then
`produced_fingerprints` -> `saw_produced`; `arrived` for each envelope.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import count
from typing import NamedTuple, Protocol

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.fingerprint import Fingerprint, Sample
from shoal.protocol.shallow.interlock.flow import Fetched, Flow, Place, TopicPartition
from shoal.protocol.shallow.interlock.positions import MAX_PLACES
from shoal.protocol.shallow.interlock.way_back import WayBack

__all__ = ["AlwaysWrap", "Event", "EventKind", "Interlock"]


class EventKind(StrEnum):
    PROVEN = "proven"  # records came back; wrapping starts
    STOPPED = "stopped"  # envelopes did not arrive: an error
    PAUSED = "paused"  # evidence ended with a connection
    STRAYED = "strayed"  # a token did not come back, or by another mirror: an error
    NO_EVIDENCE = "no evidence"  # samples were given a while ago, and nothing came back


class Event(NamedTuple):
    """For the log. `topic` is None where the whole flow is meant."""

    kind: EventKind
    flow: Flow
    topic: str | None
    text: str


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

    def fetched(self, flow: Flow, read: Fetched, now: float) -> bool:
        """The flow asked for this. True: nothing was given since a start or seek there (`WrapContext.first_raw`).

        Of ordinary consumers it is enough to tell the fetch offsets (next_offset = fetch_offset).
        """

    def may_wrap(self, flow: Flow, read: Fetched, now: float) -> bool: ...

    def sample_from(self, flow: Flow, read: Fetched, now: float) -> int | None:
        """The offset from which samples of this partition are wanted; None: do not decompress anything."""

    def hold_until(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> float | None:
        """When to ask again before giving this raw; None: now. A matter of this partition alone: others need not wait."""

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        """Is the topic, as one more of a proven flow, to be proven soon? What is asked for meanwhile should be little: it goes raw."""

    def pause_until(self, flow: Flow, now: float) -> float | None:
        """When to look again before giving the flow any more records; None: now.

        A mirror queues what it was given, so while its first samples, or the envelopes of its trial, are on their way it is given
        nothing that would queue before what it is waited for next; nor is a mirror that has not had its first turn yet, nor anyone
        as long as nothing can be proven after the start of this process. Once a topic is proven, others wait by themselves
        (`hold_until`).
        """

    def token(self, flow: Flow, read: Fetched, now: float) -> bytes | None:
        """What a record of this should carry, if any can; None: none should."""

    def gave_token(self, flow: Flow, read: Fetched, offset: int, token: bytes, mark: Fingerprint, now: float) -> None:
        """The record at `offset` carries it; `mark` is that record without it."""

    def gave_unseen(self, flow: Flow, place: TopicPartition, raw_next: int, now: float) -> None:
        """Records of a partition below `raw_next` may have been given, nobody knows from which offset on."""

    def given(
        self, flow: Flow, read: Fetched, now: float, raw_next: int | None, envelopes: Sequence[EnvelopeKey] = ()
    ) -> None:
        """About to be sent. `raw_next`: the offset after the last record in it that is raw; None: none is."""

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

    def fetched(self, flow: Flow, read: Fetched, now: float) -> bool:
        place = flow.places.get(read.place) or Place(flow)
        if len(flow.places) < MAX_PLACES:
            flow.places[read.place] = place
        if place.next_offset != read.fetch_offset:
            flow.jump(place, read.fetch_offset)
        return place.fresh

    def may_wrap(self, flow: Flow, read: Fetched, now: float) -> bool:
        return True

    def sample_from(self, flow: Flow, read: Fetched, now: float) -> int | None:
        return None

    def hold_until(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> float | None:
        return None

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        return False

    def pause_until(self, flow: Flow, now: float) -> float | None:
        return None

    def token(self, flow: Flow, read: Fetched, now: float) -> bytes | None:
        return None

    def gave_token(
        self, flow: Flow, read: Fetched, offset: int, token: bytes, mark: Fingerprint, now: float
    ) -> None: ...

    def gave_unseen(self, flow: Flow, place: TopicPartition, raw_next: int, now: float) -> None: ...

    def given(
        self, flow: Flow, read: Fetched, now: float, raw_next: int | None, envelopes: Sequence[EnvelopeKey] = ()
    ) -> None:
        place = flow.places.get(read.place)
        if place:
            place.next_offset, place.fresh = read.next_offset, False

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
