"""What the capture index records about wrapped answers and unwrapped requests: envelopes, their source offsets, and
reasons for raw batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.capture.index.columns import Handling
from shoal.protocol.capture.index.pending import BatchSource, FetchOutcome, RequestAnnotation, Treatment
from shoal.protocol.shallow.same_offsets.fenced import FencedSet
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.reconcile import mismatch
from shoal.proxy.capture.annotations import OWN, raw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.capture.index.tap import Tap
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.same_offsets.covers import Covered
    from shoal.protocol.shallow.unwrap.plan import Item
    from shoal.protocol.shallow.unwrap.schedule import SendableSet
    from shoal.protocol.shallow.wrap.wrap import Wrapped
    from shoal.protocol.wire.types import PartitionRef, Topic, TopicPartition
    from shoal.proxy.connection.topic_names import Naming

__all__ = ["JUDGED", "NOT_UNWRAPPED", "Judgement", "Unwrapped", "probed"]

_NO_ENVELOPE = "no envelope"
_COPIED = "the copy has it"
JUDGED = RequestAnnotation(judged=True)
NOT_UNWRAPPED = raw(_NO_ENVELOPE)
_TREATMENT = Treatment(handling=Handling.RAW, reason=_NO_ENVELOPE)


class Judgement:
    """What happens to the partitions of one Fetch answer."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[Topic, int], FetchOutcome] = {}

    def raw(self, partition: PartitionRef, reason: str, *, given_below: int | None = None) -> None:
        self._outcomes[partition] = FetchOutcome(reason=str(reason), given_below=given_below)

    def withheld(self, partition: PartitionRef) -> None:
        self._outcomes[partition] = FetchOutcome(given_below=0)

    def covered(self, partition: PartitionRef, what: Covered) -> None:
        """A partition of a mirror topic. What follows a problem is held back."""
        self.wrapped(partition, what.wrapped)
        below = None if what.problem is None else what.wrapped.next_offset
        self._outcomes[partition] = self._outcomes[partition]._replace(
            reason=_COPIED, given_below=below, aborted=frozenset(what.aborted)
        )

    def wrapped(self, partition: PartitionRef, what: Wrapped) -> None:
        """If batches are raw for several reasons, the index lists all reasons, not which batch has which."""
        reason = ", ".join(sorted(str(why) for why, count in what.raw.items() if count)) or None
        inside = [(key.first_offset, key.last_offset) for key in what.envelopes]
        self._outcomes[partition] = FetchOutcome(wrapped=inside, reason=reason)

    def give(self, tap: Tap | None, correlation_id: int) -> None:
        if tap is not None:
            tap.judge(correlation_id, self._outcomes)


class Unwrapped:
    """The requests that are made of one request's items."""

    def __init__(self, items: Mapping[TopicPartition, Sequence[Item]], naming: Naming) -> None:
        self._items = items
        self._naming = naming
        self._reasons: dict[tuple[TopicPartition, int], str | None] = {}  # of items

    def note(self, record_sets: Mapping[TopicPartition, SendableSet]) -> RequestAnnotation:
        """A request with these record sets."""
        said = self._naming.said
        sources = {
            (said(partition), partition.partition): self._sources(partition, record_set)
            for partition, record_set in record_sets.items()
        }
        return RequestAnnotation(treatment=_TREATMENT, sources=sources)

    def _sources(self, partition: TopicPartition, record_set: SendableSet) -> Sequence[BatchSource | None]:
        items = self._items[partition]
        if isinstance(record_set, FencedSet):
            return _fenced(record_set, items[0].key)
        found: list[BatchSource | None] = []
        for number, start, first, batches in record_set.ranges if isinstance(record_set, OutgoingRecordSet) else ():
            item = items[number]
            key, source_of = item.key, item.batches.source_of
            for at, records in enumerate(batches.records, start):
                base = source_of(at)
                if key is None or isinstance(base, str):
                    found.append(None)
                else:
                    base += first if at == start else 0
                    reason = self._reason(partition, number, item)
                    found.append(BatchSource(key.topic, key.partition, base, base + records - 1, reason))
        return found

    def _reason(self, partition: TopicPartition, number: int, item: Item) -> str | None:
        place = partition, number
        if place not in self._reasons:
            wrong = None if item.key is None else mismatch(item.headers, item.key)
            self._reasons[place] = wrong and wrong.kind
        return self._reasons[place]


def probed(sources: Mapping[TopicPartition, TopicPartition]) -> RequestAnnotation:
    """Shoal's own request for where the logs of mirror topics end; `sources`: of those that are known."""
    named: dict[tuple[Topic, int], Sequence[BatchSource]] = {
        (target.topic, target.partition): [BatchSource(*source, -1, -1, handling=Handling.OWN)]
        for target, source in sources.items()
    }
    return RequestAnnotation(treatment=OWN.treatment, sources=named)


def _fenced(record_set: FencedSet, key: EnvelopeKey | None) -> list[BatchSource | None]:
    return [
        None
        if key is None or not batch.records
        else BatchSource(key.topic, key.partition, batch.base, batch.last, handling=Handling.FENCED)
        for batch in record_set.made
    ]
