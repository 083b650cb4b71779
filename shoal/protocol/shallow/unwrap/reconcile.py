"""Reconciliation at the target: what an envelope states, what was in it, and which offsets the target gave to its
records.

    headers of the record     what the source side counted (facts.py) ─┐
    its key                   compared with every batch of the value ──┼── the same?
    the target's answers      offsets, request by request ─────────────┘

That the value is the very bytes that were wrapped, and its batches the ones that the key states, is checked before
anything is sent (plan.py); the broker checks each batch's CRC, which was patched, never computed anew. So what is left
to reconcile is: the facts in the headers with the key; and for each envelope, once all of it is appended, the source's
offset range with the target's. Its batches are dense at the source, so as many offsets as records must be between the
first and the last at the target, and none below what was appended before. It costs a comparison of numbers per
envelope, and no second look at a batch.

A mismatch never stops a copy: it is reported (log, report, `reason` in the capture). Where the broker did not state an
offset (a repeat that it knew, acks 0), or a part was appended in an earlier request or refused, the range is not known.
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

MAX_PARTITIONS = 100_000  # whose end is known; some 200 bytes each


class Mismatch(StrEnum):
    """As the operator reads it."""

    REFUSED = "an envelope was not appended, since it is not what its key says"
    FACTS = "an envelope's headers state other facts than its batches"
    BETWEEN = "other records stand between those of one envelope"  # prose: ok (it is in captures)
    FEWER = "the target gave fewer offsets than there are records"
    BACK = "the target's offsets went back"


class Discrepancy(NamedTuple):
    kind: Mismatch
    text: str


def mismatch(headers: Headers, key: EnvelopeKey) -> Discrepancy | None:
    """Before an envelope is appended: what its headers state otherwise than its key. No headers state nothing."""
    if agrees(headers, key):
        return None
    facts = read_facts(headers)
    what = contradiction(facts, key) if facts is not None else None
    return Discrepancy(Mismatch.FACTS, f"{key}: {what}") if what is not None else None


class Reconciler:
    """One for each unwrapping listener: where each partition ends, as far as envelopes were appended."""

    def __init__(self) -> None:
        self._ends = OrderedDict[TopicPartition, int]()

    def forget(self, topic: str) -> None:
        """The topic was deleted: its offsets begin again."""
        for partition in [partition for partition in self._ends if partition.topic == topic]:
            del self._ends[partition]

    def appended(self, envelope: EnvelopeAppended) -> Discrepancy | None:
        """An envelope whose offsets are known. None: it reconciles."""
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
