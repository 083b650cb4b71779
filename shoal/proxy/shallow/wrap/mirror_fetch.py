"""A mirror's pending fetch request: the consumer, the requested offsets, and the partitions of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.messages.sessions import FetchSessions
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.fingerprint import sample_record_set
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.token import put_token
from shoal.protocol.wire.types import PartitionRef, TopicPartition
from shoal.proxy.connection.topic_names import topic_name, topic_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.messages.fetch import FetchedPartition, FetchRequest
    from shoal.protocol.messages.sessions import FetchOffsets
    from shoal.protocol.records.scan import ScannedSet
    from shoal.protocol.shallow.fingerprint import Sample
    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.protocol.shallow.same_offsets.place import Place
    from shoal.protocol.shallow.token import Tokened
    from shoal.protocol.shallow.wrap.eligible import Reason
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.interlock import Interlock

__all__ = ["MOST_KEPT", "AnsweredPartition", "Consumer", "MirrorFetch", "Unseen"]

MOST_KEPT = 16_384
"""Batches of a held answer whose headers are kept, ~330 bytes each; those of other partitions are read again. An answer
of 8 MiB may have 120,000 tiny batches, and may be held for seconds."""
_MAX_UNSEEN = 10_000  # partitions of topics without a known name, by flow
_PROVING_SECONDS = 30.0  # then a mirror that cannot be proven continues as fast as without Shoal
_TRIAL_SECONDS = 2.0  # likewise a proven one that reads nothing that could be wrapped


class Consumer:
    """A connection with Fetch requests."""

    __slots__ = (
        "answered_at",
        "asked_names_at",
        "covered",
        "flow",
        "has_copies",
        "has_unplaced",
        "is_mirror",
        "limits_of",
        "located_at",
        "number",
        "places",
        "proven_since",
        "proving_since",
        "sent_back",
        "sessions",
    )

    def __init__(self, flow: Flow, number: int, *, is_mirror: bool) -> None:
        self.flow = flow
        self.number = number
        self.is_mirror = is_mirror
        self.sessions = FetchSessions()
        self.answered_at = float("-inf")
        self.covered: FetchOffsets = {}  # by the latest answered request
        self.limits_of = (0, False)  # the state of stopped partitions when the consumer listed all its partitions
        self.sent_back = False  # the last answer made the client start a new fetch session
        self.asked_names_at = float("-inf")
        self.proving_since: float | None = None
        self.proven_since: float | None = None
        self.places: dict[TopicPartition, Place] = {}  # of mirror topics
        self.has_copies = False  # it got envelopes for a mirror topic
        self.has_unplaced = False  # partitions that may be of mirror topics, and must be listed again
        self.located_at = float("-inf")

    def is_proving(self, now: float) -> bool:
        """True while no envelope has arrived at the pair yet, but may still do so."""
        if self.flow.arrived or self.has_copies:
            self.proving_since = self.proven_since = None
            return False
        if self.proving_since is None:
            self.proving_since = now
        if now - self.proving_since >= _PROVING_SECONDS:
            return False
        return not self._is_idle_proven(now)

    def _is_idle_proven(self, now: float) -> bool:
        """True if it could have got envelopes for a while, but had no batches to wrap."""
        if not self.flow.is_proven or self.flow.silent_since is not None:
            self.proven_since = None
            return False
        if self.proven_since is None:
            self.proven_since = now
        return now - self.proven_since >= _TRIAL_SECONDS


class MirrorFetch(NamedTuple):
    """A request, and the fetch offset of each partition."""

    consumer: Consumer
    request: FetchRequest
    asked: FetchOffsets

    def read(
        self, connection: Connection, partition: PartitionRef, next_offset: int, high_watermark: int
    ) -> Fetched | None:
        """The offsets that the answer has of a partition; None if its name or its fetch offset is unknown.

        `next_offset` is -1 for an unreadable record set: then the high watermark is the limit.
        """
        topic, index = partition
        name, offset = topic_name(connection, topic), self.asked.get(partition)
        if name is None or offset is None:
            return None
        following = max(next_offset if next_offset >= 0 else high_watermark, offset)
        return Fetched(self.consumer.number, name, index, offset, following)


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredPartition:
    """A partition of an answer that has records and a known name; the interlock's `PartitionData`.

    `raw_reason`: why its topic is never wrapped. `aborted`: (producer id, first offset) of transactions whose records a
    read_committed client drops. `kept`: its headers; None: they are read again when needed (`MOST_KEPT`).
    """

    frame: Buffer
    ref: PartitionRef
    fetched: FetchedPartition
    kept: ScannedSet | None
    read: Fetched
    salt: bytes
    raw_reason: Reason | None = None
    aborted: Sequence[tuple[int, int]] = ()

    @property
    def scanned(self) -> ScannedSet:
        return self.kept if self.kept is not None else scan(self.frame, self.fetched.start, self.fetched.end)

    @property
    def may_be_wrapped(self) -> bool:
        return self.raw_reason is None

    def samples(self, first_offset: int) -> Sequence[Sample]:
        return sample_record_set(
            self.frame, self.scanned, salt=self.salt, partition=self.read.partition, first_offset=first_offset
        )

    def with_token(self, token: bytes) -> Tokened | None:
        return put_token(
            self.frame,
            self.scanned,
            token,
            salt=self.salt,
            partition=self.read.partition,
            fetch_offset=self.read.fetch_offset,
            unseen=[producer_id for producer_id, _ in self.aborted],
        )


class Unseen:
    """Up to which offset mirrors and other clients got records of topics that are known only by id.

    As soon as the name is known, those records are no evidence for other flows; until then no flow can be proven by
    that topic.
    """

    def __init__(self, interlock: Interlock) -> None:
        self._interlock = interlock
        self._next: dict[Topic, dict[tuple[int, int], tuple[Flow, int]]] = {}  # by topic, then partition and flow
        self._count = 0

    def note(self, connection: Connection, flow: Flow, partition: PartitionRef, raw_next: int) -> None:
        """Records of a partition below `raw_next` are sent; their first offset, or their topic, is unknown."""
        named = topic_partition(connection, *partition)
        if named is not None:
            self._report(flow, named, raw_next)
            return
        topic, index = partition
        key = index, flow.token
        known = self._next.get(topic, {})
        if key not in known:
            if self._count >= _MAX_UNSEEN:
                return
            self._count += 1
        self._next.setdefault(topic, known)[key] = flow, max(raw_next, known.get(key, (flow, 0))[1])

    def resolve(self, connection: Connection) -> None:
        """Report topics whose names are known now to the interlock."""
        named = [(topic, name) for topic in self._next if (name := topic_name(connection, topic)) is not None]
        for topic, name in named:
            noted = self._next.pop(topic)
            self._count -= len(noted)
            for (index, _), (flow, raw_next) in noted.items():
                self._report(flow, TopicPartition(name, index), raw_next)

    def _report(self, flow: Flow, partition: TopicPartition, raw_next: int) -> None:
        self._interlock.rules.gave_unseen(flow, partition, raw_next, trio.current_time())
