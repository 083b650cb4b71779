"""Reconciliation at the target: compares an envelope's facts, its content, and the target offsets of its records.

    headers of the record     counted on the source side (facts.py) ───┐
    its key                   compared with every batch of the value ──┼── equal?
    the target's answers      offsets, request by request ─────────────┘

Before anything is sent, `plan` checks that the value has the bytes that were wrapped, and the batches that the key
states; the broker checks each batch's CRC, which is patched, never recomputed. What remains to compare: the facts in
the headers with the key; and for each envelope, when it is completely appended, the source's offset range with the
target's. Its batches are dense at the source, so the target's range must have as many offsets as records, and begin
after everything appended before. This costs a comparison of numbers per envelope; no batch is read again.

A mismatch never stops a copy; it is reported (log, report, `reason` in the capture). The range is unknown if the broker
did not return an offset (a duplicate, acks 0), or if a part was appended in an earlier request or refused.
"""

from collections import OrderedDict
from enum import StrEnum
from typing import NamedTuple

from shoal.protocol.records.record import Headers
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.facts import agrees, contradiction, read_facts
from shoal.protocol.shallow.unwrap.findings import EnvelopeAppended
from shoal.protocol.wire.types import TopicPartition

__all__ = ["MAX_PARTITIONS", "Discrepancy", "Mismatch", "Reconciler", "mismatch"]

MAX_PARTITIONS = 100_000  # with known ends; about 200 bytes each


class Mismatch(StrEnum):
    """Texts for the operator."""

    REFUSED = "an envelope was not appended, since it is not what its key says"
    FACTS = "an envelope's headers state other facts than its batches"
    BETWEEN = "other records stand between those of one envelope"  # prose: ok (it is in captures)
    FEWER = "the target gave fewer offsets than there are records"
    BACK = "the target's offsets went back"


class Discrepancy(NamedTuple):
    kind: Mismatch
    text: str


def mismatch(headers: Headers, key: EnvelopeKey) -> Discrepancy | None:
    """How the headers of an envelope differ from its key; call it before it is appended. Missing headers agree."""
    if agrees(headers, key):
        return None
    facts = read_facts(headers)
    what = contradiction(facts, key) if facts is not None else None
    return Discrepancy(Mismatch.FACTS, f"{key}: {what}") if what is not None else None


class Reconciler:
    """One for each unwrapping listener: the end of each partition, by the appended envelopes."""

    def __init__(self) -> None:
        self._ends = OrderedDict[TopicPartition, int]()

    def forget(self, topic: str) -> None:
        """The topic was deleted: its offsets start again at 0."""
        for partition in [partition for partition in self._ends if partition.topic == topic]:
            del self._ends[partition]

    def appended(self, envelope: EnvelopeAppended) -> Discrepancy | None:
        """An envelope is appended. None: its offsets agree, or are unknown."""
        end, partition = self._ends.get(envelope.partition, 0), envelope.partition
        self._ends[partition] = envelope.last + 1
        self._ends.move_to_end(partition)
        if len(self._ends) > MAX_PARTITIONS:
            self._ends.popitem(last=False)
        return _discrepancy(envelope, end)


def _discrepancy(envelope: EnvelopeAppended, end: int) -> Discrepancy | None:
    key, first, last = envelope.key, envelope.first, envelope.last
    count = last - first + 1
    if count == key.records and first >= end:
        return None
    where = f"{key} ({key.records} records) has the offsets {first}..{last} at the target"
    if count != key.records:
        return Discrepancy(Mismatch.BETWEEN if count > key.records else Mismatch.FEWER, where)
    why = "it has lost records, or was made anew"
    return Discrepancy(Mismatch.BACK, f"{where}, which had come to {end}: {why}")
