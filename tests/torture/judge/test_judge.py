"""The judge finds planted errors: a lost, repeated, reordered or altered record, a changed timestamp, an envelope, an
aborted record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.torture.clients.ledger import Ending, Entry, Fate, Ledger
from tests.torture.faults import Done

from .attribution import NONE, Doubled, attribute
from .judge import Findings, Seen, Terms, judge_partition, judge_source

if TYPE_CHECKING:
    from collections.abc import Iterable

COUNT = 20
TERMS = Terms()


def identity(number: int) -> bytes:
    return b"1.%d" % number


def seen(number: int, offset: int | None = None) -> Seen:
    return Seen(identity(number), 1000 + number, 5000 + number, 0, number if offset is None else offset)


def ledger(kind: str = "idempotent", transactions: dict[int, Ending] | None = None) -> Ledger:
    """Records 0 .. COUNT - 1 of producer 1, all acknowledged; `transactions`: how that of a record ended."""
    book = Ledger()
    for number in range(COUNT):
        ending = (transactions or {}).get(number)
        entry = Entry("A", "t", 1000 + number, 5000 + number, kind, fate=Fate.ACKED, partition=0, offset=number)
        if ending is not None:
            entry.transaction = (1, number)
            book.endings[1, number] = ending
        book.entries[identity(number)] = entry
    return book


SOURCE = [seen(number) for number in range(COUNT)]


def copy(numbers: Iterable[int]) -> list[Seen]:
    return [seen(number, offset) for offset, number in enumerate(numbers)]


def judged(target: list[Seen], terms: Terms = TERMS, book: Ledger | None = None) -> Findings:
    return judge_partition(0, SOURCE, target, book or ledger(), terms)


def test_a_copy_is_faithful() -> None:
    findings = judged(copy(range(COUNT)))
    assert findings.faithful
    assert not findings.doubled
    assert (findings.source, findings.target) == (COUNT, COUNT)


def test_a_loss_in_the_middle_and_at_the_end() -> None:
    findings = judged(copy([0, 1, 3, *range(5, 18)]))
    assert findings.lost == ["0/2:1.2", "0/4:1.4", "0/18:1.18", "0/19:1.19"]
    assert findings.tail == 2
    assert not findings.reordered
    assert not findings.altered


def test_a_repetition() -> None:
    findings = judged(copy([*range(10), *range(5, COUNT)]))
    assert findings.faithful
    assert findings.doubled == [(0, offset) for offset in range(10, 15)]


def test_another_order() -> None:
    findings = judged(copy([0, 2, 1, *range(3, COUNT)]))
    assert findings.reordered == ["0/2:1.1"]
    assert not findings.lost
    assert not findings.doubled


def test_another_byte() -> None:
    target = copy(range(COUNT))
    target[7] = target[7]._replace(content=1)
    assert judged(target).altered == ["0/7:1.7 has other bytes than were written"]


def test_another_time() -> None:
    target = copy(range(COUNT))
    target[7] = target[7]._replace(timestamp=1)
    assert judged(target).altered == ["0/7:1.7 has the time 1, not 5007"]
    assert not judged(target, Terms(keeps_time=False)).altered


def test_a_record_that_nobody_wrote_such_as_an_envelope() -> None:
    target = [*copy(range(COUNT)), Seen(4711, 4711, 0, 0, COUNT)]
    assert judged(target).altered == ["0/20:#4711 was never written"]


def test_a_record_of_another_partition() -> None:
    book = ledger()
    book.entries[b"2.1"] = Entry("A", "t", 1, 1, "plain")
    findings = judged([*copy(range(COUNT)), Seen(b"2.1", 1, 1, 0, COUNT)], book=book)
    assert findings.altered == ["0/20:2.1 is not in this partition of the source"]


def test_an_aborted_record_in_the_copy_of_committed_ones() -> None:
    book = ledger("transactional", {3: Ending.ABORTED})
    committed = [one for one in SOURCE if one.identity != identity(3)]
    findings = judge_partition(0, committed, copy(range(COUNT)), book, Terms(committed=True))
    assert findings.altered == ["0/3:1.3 is of an aborted transaction"]
    assert judge_partition(0, SOURCE, copy(range(COUNT)), book, TERMS).faithful


def test_a_repetition_that_the_source_has_itself() -> None:
    twice = [*SOURCE[:10], SOURCE[9]._replace(offset=10), *SOURCE[10:]]
    findings = judge_partition(0, twice, copy([*range(10), 9, *range(10, COUNT)]), ledger(), TERMS)
    assert findings.faithful
    assert not findings.doubled


def test_a_topic_that_was_made_anew_must_only_be_right() -> None:
    terms = Terms(required=False)
    assert judged(copy([15, 16, 2, 3]), terms).faithful
    target = copy([15, 16])
    target[1] = target[1]._replace(content=1)
    assert judged(target, terms).altered


def test_of_what_retention_has_taken_nothing_is_required() -> None:
    left = SOURCE[10:]
    assert judge_partition(0, SOURCE, copy(range(8, COUNT)), ledger(), TERMS, required=left).faithful
    short = judge_partition(0, SOURCE, copy(range(12, COUNT)), ledger(), TERMS, required=left)
    assert short.lost == ["0/10:1.10", "0/11:1.11"]


def test_of_a_compacted_topic_the_last_of_each_key_is_required() -> None:
    source = [one._replace(key=one.offset % 3) for one in SOURCE]
    terms = Terms(latest_only=True)
    assert judge_partition(0, source, source[-3:], ledger(), terms).faithful
    assert judge_partition(0, source, source[:-1], ledger(), terms).lost == ["0/19:1.19"]


@given(st.lists(st.integers(0, COUNT), min_size=1, max_size=4))
def test_whatever_a_mirror_repeats_after_it_went_back_is_a_repetition_and_no_other_finding(backs: list[int]) -> None:
    """It copies up to some record, goes back to an earlier one, and continues."""
    numbers: list[int] = []
    for back in backs:
        numbers += range(min(back, len(set(numbers))), COUNT)
    findings = judged(copy(numbers))
    assert findings.faithful
    assert len(findings.doubled) == len(numbers) - len(set(numbers))


@given(st.permutations(range(COUNT)))
def test_every_other_order_is_seen(numbers: list[int]) -> None:
    findings = judged(copy(numbers))
    assert bool(findings.reordered) == (list(numbers) != list(range(COUNT)))
    assert not findings.lost
    assert not findings.doubled


def source_judged(numbers: Iterable[int], book: Ledger) -> Findings:
    return judge_source("A", "t", {0: copy(numbers)}, book, complete=True)


def test_what_was_acknowledged_is_in_the_source_once_and_in_order() -> None:
    assert source_judged(range(COUNT), ledger()).faithful
    assert source_judged([*range(7), *range(8, COUNT)], ledger()).lost == ["0/7:1.7"]
    assert source_judged([0, *range(COUNT)], ledger()).doubled == [(0, 1)]
    assert not source_judged([0, *range(COUNT)], ledger("plain")).doubled
    assert source_judged([1, 0, *range(2, COUNT)], ledger()).reordered == ["0/1:1.0"]


def test_an_aborted_record_is_not_in_the_source() -> None:
    book = ledger("transactional", {3: Ending.ABORTED, 4: Ending.UNKNOWN})
    assert source_judged([*range(3), *range(5, COUNT)], book).faithful
    assert source_judged(range(COUNT), book).altered == ["0/3:1.3 is of an aborted transaction"]


def twice(when: float, *, stamped: bool = False, old: bool = False) -> list[Doubled]:
    return [Doubled(where=f"at {when:g}", when=when, stamped=stamped, old=old)]


def test_what_comes_twice_is_explained_by_what_happened_then() -> None:
    cut = [Done(kind="cut-link", where="link:B", begin=10, end=12)]
    assert attribute(twice(5), cut, []) == {NONE: ["at 5"]}
    assert attribute(twice(15), cut, []) == {"cut-link, raw": ["at 15"]}
    assert attribute(twice(100), cut, []) == {NONE: ["at 100"]}
    assert attribute(twice(100), cut, [95]) == {"task-restart": ["at 100"]}
    of_producers = [Done(kind="cut-link", where="link:producers", begin=10, end=12)]
    assert attribute(twice(15), of_producers, []) == {NONE: ["at 15"]}
    assert attribute(twice(15), [Done(kind="add-partitions", where="A/t", begin=10, end=12)], []) == {NONE: ["at 15"]}


def test_of_what_has_a_producer_id_only_a_killed_shoal_brings_anything_twice() -> None:
    for kind in ("cut-link", "pause-broker", "kill-broker", "stop-shoal"):
        fault = [Done(kind=kind, where="x", begin=10, end=12)]
        assert attribute(twice(15, stamped=True), fault, []) == {NONE: ["at 15"]}
    assert attribute(twice(15, stamped=True), [Done(kind="kill-shoal", where="shoal", begin=10, end=12)], []) == {
        "kill-shoal, stamped": ["at 15"]
    }
    stop = [Done(kind="stop-broker", where="x", begin=10, end=12)]
    assert attribute(twice(15, stamped=True, old=True), stop, []) == {"stop-broker, stamped": ["at 15"]}
