"""The target side's books: what an envelope states, what was in it, and which offsets the target gave to its records.

    headers of the record     what the source side counted (facts.py) ─┐
    its key                   compared with every batch of the value ──┼── the same?
    the target's answers      offsets, request by request ─────────────┘

That the value is the very bytes that were wrapped, and its batches the ones that the key states, is checked before anything is sent
(plan.py); the broker checks each batch's CRC, which was patched, never computed anew. So what is left to reconcile is: the facts in the
headers with the key; and for each envelope, once all of it is appended, the source's offset range with the target's. Its batches are
dense at the source, so as many offsets as records must lie between the first and the last at the target, and none below what was
appended before. It costs a comparison of numbers for each success of the broker, and no second look at any batch.

A mismatch never stops a copy: it is told (log, report, `reason` in the capture). Where the broker did not say an offset (a repeat that
it knew, acks 0), or a part was appended in an earlier request or refused, the range is not known, and the envelope counts as such.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from shoal.protocol.records.record import Headers
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.facts import agrees, contradiction, read_facts
from shoal.protocol.shallow.unwrap.delivery import Appended, Ledger, Target
from shoal.protocol.shallow.unwrap.plan import Plan

__all__ = ["MAX_TARGETS", "Books", "Mismatch", "Reconciler", "mismatch"]

MAX_TARGETS = 100_000  # partitions of which the end is known; some 200 bytes each
_MAX_TOLD = 100  # mismatches with their text, of one request


class Mismatch(StrEnum):
    """As the operator reads it."""

    REFUSED = "an envelope was not appended, since it is not what its key says"
    FACTS = "an envelope's headers state other facts than its batches"
    BETWEEN = "other records stand between those of one envelope"
    FEWER = "the target gave fewer offsets than there are records"
    BACK = "the target's offsets went back"


class Wrong(NamedTuple):
    kind: Mismatch
    text: str


class Told(NamedTuple):
    kind: Mismatch
    target: Target
    text: str


def mismatch(headers: Headers, key: EnvelopeKey) -> Wrong | None:
    """Of an envelope that is to be appended: what its headers state otherwise than its key. No headers state nothing."""
    if agrees(headers, key):
        return None
    facts = read_facts(headers)
    what = contradiction(facts, key) if facts is not None else None
    return Wrong(Mismatch.FACTS, f"{key}: {what}") if what is not None else None


@dataclass(slots=True, kw_only=True)
class Books:
    """Counts of envelopes; `records` of those that are reconciled. `told`: for the log."""

    reconciled: int = 0
    records: int = 0
    without_offsets: int = 0
    mismatches: Counter[Mismatch] = field(default_factory=Counter)
    told: list[Told] = field(default_factory=list)


class Reconciler:
    """One for each unwrapping listener. `open` for each plan whose batches are sent; `take` whenever it suits."""

    def __init__(self) -> None:
        self._books = Books()
        self._ends: OrderedDict[Target, int] = OrderedDict()

    def take(self) -> Books:
        """What was booked since the last time."""
        books, self._books = self._books, Books()
        return books

    def forget(self, topic: str) -> None:
        """It was deleted: offsets begin again."""
        for target in [target for target in self._ends if target.topic == topic]:
            del self._ends[target]

    def refused(self) -> None:
        """A record set with an envelope that cannot be opened: whoever refuses it says why."""
        self._books.mismatches[Mismatch.REFUSED] += 1

    def open(self, target: Target, plan: Plan, ledger: Ledger) -> Ledger:
        """Call it before anything is sent. What comes back stands where `ledger` does."""
        watched: dict[Hashable, EnvelopeKey] = {}
        for item in plan.items:
            if item.key is None:
                continue
            watched[item.identity] = item.key
            wrong = mismatch(item.headers, item.key)
            if wrong is not None:
                self._tell(wrong.kind, target, wrong.text)
        return _Watched(self, watched, ledger) if watched else ledger

    def appended(self, target: Target, key: EnvelopeKey, delivered: Appended, *, is_known: bool) -> None:
        """All of an envelope. `is_known`: `delivered` has the offsets of its first record and its last one."""
        books, first, last = self._books, delivered.first, delivered.last
        if not is_known or first < 0 or last < 0:
            books.without_offsets += 1
            return
        count, end = last - first + 1, self._ends.get(target, 0)
        if count == key.records and first >= end:
            books.reconciled += 1
            books.records += key.records
        else:
            self._tell_of(target, key, first, last, end)
        self._ends[target] = last + 1
        self._ends.move_to_end(target)
        if len(self._ends) > MAX_TARGETS:
            self._ends.popitem(last=False)

    def _tell_of(self, target: Target, key: EnvelopeKey, first: int, last: int, end: int) -> None:
        count = last - first + 1
        where = f"{key} ({key.records} records) has the offsets {first}..{last} at the target"
        if count != key.records:
            self._tell(Mismatch.BETWEEN if count > key.records else Mismatch.FEWER, target, where)
        else:
            why = "it has lost records, or was made anew"
            self._tell(Mismatch.BACK, target, f"{where}, which had come to {end}: {why}")

    def _tell(self, kind: Mismatch, target: Target, text: str) -> None:
        self._books.mismatches[kind] += 1
        if len(self._books.told) < _MAX_TOLD:
            self._books.told.append(Told(kind, target, text))


class _Watched:
    """A Ledger that passes everything on, and sees when an envelope is appended whole."""

    def __init__(self, reconciler: Reconciler, keys: Mapping[Hashable, EnvelopeKey], ledger: Ledger) -> None:
        self._reconciler = reconciler
        self._keys = keys
        self._ledger = ledger
        self._begun = set[Hashable]()  # in an earlier request

    def recall(self, target: Target, identity: Hashable) -> Appended:
        delivered = self._ledger.recall(target, identity)
        if delivered.batches or delivered.records:
            self._begun.add(identity)
        return delivered

    def record(self, target: Target, identity: Hashable, delivered: Appended) -> None:
        self._ledger.record(target, identity, delivered)
        key = self._keys.get(identity)
        if key is not None and delivered.batches == key.batches:
            is_known = identity not in self._begun and delivered.refusal is None
            self._reconciler.appended(target, key, delivered, is_known=is_known)
