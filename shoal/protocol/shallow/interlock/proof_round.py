"""A proving turn: one flow gets sample records that no other flow has, and Shoal watches for them at the target.

For each topic the turn claims ONE partition, from an offset (`floor`) below which other flows may have got records.
During the turn, no other unproven flow gets records of that partition from there on (also no other task of its mirror),
so a sample can come back only through this flow's own producer. A sample counts if

- it is seen after it was sent: if it is seen before, another client produces these records, which proves nothing;
- no earlier sample of its partition is missing: mirrors keep the order, so the missing one was changed or dropped.

If another flow (a proven one, or an ordinary consumer) gets records at or above the floor, the floor rises and the
samples below it are void.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from shoal.protocol.shallow.fingerprint import Fingerprint, Sample
from shoal.protocol.shallow.interlock.flow import Fetched, Flow
from shoal.protocol.wire.types import TopicPartition

__all__ = ["NEEDED", "ProofRound", "RoundResult"]

NEEDED = 2  # different samples must come back
MAX_SAMPLES = 8  # per topic


class RoundResult(Enum):
    PROVEN = "proven"
    MATCHED = "a sample came back, more are needed"
    FOREIGN = (
        "a record came to the target listener before this mirror was given it: another client copies the same records"
    )
    CHANGED = (
        "of the records that the mirror was given, some came back and some did not: a transform or filter changes "
        "them, or its producer lost a connection meanwhile"
    )


@dataclass(slots=True)
class _Claim:
    connection: int
    partition: int
    floor: int

    def is_for(self, read: Fetched) -> bool:
        return self.connection == read.connection and self.partition == read.partition


@dataclass(slots=True)
class _Pending:
    topic: str
    sample: Sample
    given: bool = False
    matched: bool = False


class ProofRound:
    """`deadline` applies if another flow waits, `last_deadline` always (s)."""

    def __init__(self, flow: Flow, *, now: float, seconds: float, reserve: float, longest: float, most: int) -> None:
        self.flow = flow
        self._most = most  # topics
        self.deadline = now + reserve
        self._latest = now + reserve + 2 * seconds  # new samples extend the deadline at most to this
        self.last_deadline = now + longest
        self._seconds = seconds
        self._claims: dict[str, _Claim] = {}
        self._pending: dict[Fingerprint, _Pending] = {}
        self._ready: dict[TopicPartition, float] = {}
        self.proved = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are not proven yet."""
        return tuple(self._claims)

    def gave(self, topic: str) -> bool:
        """True if a sample of the topic was sent."""
        return any(pending.given for pending in self._pending.values() if pending.topic == topic)

    def unanswered(self) -> Iterable[Fingerprint]:
        return [mark for mark, pending in self._pending.items() if pending.given and not pending.matched]

    def wants(self, read: Fetched) -> int | None:
        """The offset from which samples of this partition are needed; None: none are."""
        claim = self._claims.get(read.topic)
        if claim is None or not claim.is_for(read) or self._count(read.topic) >= MAX_SAMPLES:
            return None
        return claim.floor

    def is_open(self, topic: str) -> bool:
        """True if a partition of the topic may be claimed, perhaps instead of another one."""
        return not self._count(topic) and (topic in self._claims or len(self._claims) < self._most)

    def claim(self, read: Fetched, floor: int) -> None:
        self._claims[read.topic] = _Claim(read.connection, read.partition, floor)

    def connection(self, topic: str) -> int:
        """The connection to prove: its client reads the topic and produces through Shoal."""
        return self._claims[topic].connection

    def covers(self, read: Fetched) -> bool:
        """True if sending this to another flow would spoil a claim."""
        claim = self._claims.get(read.topic)
        return claim is not None and claim.partition == read.partition and read.next_offset > claim.floor

    def claims(self, topic_partition: TopicPartition) -> bool:
        claim = self._claims.get(topic_partition.topic)
        return claim is not None and claim.partition == topic_partition.partition

    def samples(self, mark: Fingerprint) -> bool:
        return mark in self._pending

    def offer(self, read: Fetched, samples: Iterable[Sample], *, ready: float) -> float | None:
        """Samples among the records that the flow is about to get -> until when to wait for a foreign copy first."""
        floor = self.wants(read)
        fresh = [sample for sample in samples if sample.fingerprint not in self._pending]
        if floor is not None:
            room = MAX_SAMPLES - self._count(read.topic)
            fresh = [sample for sample in fresh if sample.offset >= floor][:room]
            for sample in fresh:
                self._pending[sample.fingerprint] = _Pending(read.topic, sample)
            if fresh:
                self._ready[read.topic_partition] = ready
                self._put_off(ready)
        return self._ready.get(read.topic_partition)

    def give(self, read: Fetched, raw_next: int, now: float) -> None:
        """The flow with the turn gets `read`, raw below `raw_next`."""
        claim = self._claims.get(read.topic)
        if claim is None or not claim.is_for(read):
            return
        for pending in self._pending.values():
            inside = read.fetch_offset <= pending.sample.offset < raw_next
            if pending.topic == read.topic and inside and not pending.given:
                pending.given = True
                self._put_off(now)
        self._ready.pop(read.topic_partition, None)

    def spoil(self, topic_partition: TopicPartition, raw_next: int) -> None:
        """Another flow got records of this partition below `raw_next`."""
        claim = self._claims.get(topic_partition.topic)
        if claim is None or claim.partition != topic_partition.partition or raw_next <= claim.floor:
            return
        claim.floor = raw_next
        self._pending = {
            mark: pending
            for mark, pending in self._pending.items()
            if pending.topic != topic_partition.topic or pending.sample.offset >= raw_next
        }

    def listens(self, produced_topic: str, partition: int) -> bool:
        return any(
            topic in produced_topic and claim.partition == partition and self._count(topic)
            for topic, claim in self._claims.items()
        )

    def topics_in(self, produced_topic: str) -> list[str]:
        """The topics with sent samples of which the produced topic may be the copy."""
        return [topic for topic in self._claims if topic in produced_topic and self.gave(topic)]

    def see(self, produced_topic: str, marks: Iterable[Fingerprint]) -> Mapping[str, RoundResult]:
        """Records that arrived at the target listener, in order -> results by source topic."""
        results: dict[str, RoundResult] = {}
        for mark in marks:
            pending = self._pending.get(mark)
            if pending is None or pending.topic not in produced_topic:
                continue
            if results.get(pending.topic, RoundResult.MATCHED) is RoundResult.MATCHED:
                results[pending.topic] = self._judge(pending)
        return results

    def drop(self, topic: str) -> None:
        """The topic is decided."""
        claim = self._claims.pop(topic, None)
        if claim:
            self._ready.pop(TopicPartition(topic, claim.partition), None)
        self._pending = {mark: pending for mark, pending in self._pending.items() if pending.topic != topic}

    def awaits(self, topic: str | None = None) -> bool:
        """True while a sample (of this topic) is in the mirror."""
        return any(
            pending.given and not pending.matched and topic in (None, pending.topic)
            for pending in self._pending.values()
        )

    def blocks(self, read: Fetched) -> bool:
        """True if this would only be sent raw before, or instead of, the records that can prove the topic."""
        claim = self._claims.get(read.topic)
        if claim is None:
            return True  # there is no room for its claim yet
        if claim.is_for(read):
            return self.awaits(read.topic)
        return any(pending.topic == read.topic and not pending.matched for pending in self._pending.values())

    def progress(self, now: float) -> None:
        """Records came back, but not yet the samples: the mirror still copies what it got earlier."""
        if self.awaits():
            self.deadline = max(self.deadline, min(now + self._seconds, self.last_deadline))

    def _put_off(self, now: float) -> None:
        self.deadline = max(self.deadline, min(now + self._seconds, self._latest))

    def _judge(self, pending: _Pending) -> RoundResult:
        if not pending.given:
            return RoundResult.FOREIGN
        pending.matched = True
        siblings = [other for other in self._pending.values() if other.topic == pending.topic]
        missing = [other for other in siblings if other.sample.offset < pending.sample.offset and not other.matched]
        if any(not other.sample.optional for other in missing):
            return RoundResult.CHANGED
        return RoundResult.PROVEN if sum(other.matched for other in siblings) >= NEEDED else RoundResult.MATCHED

    def _count(self, topic: str) -> int:
        return sum(pending.topic == topic for pending in self._pending.values())
