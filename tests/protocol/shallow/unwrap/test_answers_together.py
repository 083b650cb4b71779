"""Answers that have arrived together mean what they mean one by one."""

from collections import deque
from itertools import count
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import Finding, OffsetsAppended, RecordSetAppended
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet, halves
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.sequences.own import Sequence, Sequences
from shoal.protocol.wire.types import TopicPartition
from tests.support.shallow.world import Seen, context, flat, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

TARGET = TopicPartition("t", 0)
ERRORS = (6, 7, 10, 18, 19, 45, 46, 47, 59, 87)


class Answer(NamedTuple):
    error_code: int
    others: int  # records that another producer has appended since the last one; -1: the broker states no offset


def usually(value: int, *others: int) -> st.SearchStrategy[int]:
    return st.integers(0, 9).flatmap(lambda drawn: st.just(value) if drawn else st.sampled_from(others))


answers = st.lists(st.builds(Answer, usually(0, *ERRORS), usually(0, 3, -1)), min_size=30, max_size=30)
steps = st.lists(st.integers(1, 5), max_size=10)


class One:
    """A partition's progress, and all that comes of it."""

    def __init__(self, plan: Plan, *, sets: bool, doubt: int) -> None:
        sequences = Sequences()
        sequences.begin(3, 0)
        known = sequences.of(TARGET)
        assert known is not None
        self.sequence: Sequence = known
        self.ledger = AppendedLog()
        if doubt:
            before = PartitionProgress(TARGET, plan, self.ledger, sequence=known)
            sent = [before.next_record_set()]
            before.answered(0, 0)
            sent += [before.next_record_set() for _ in range(doubt)]
            before.abandon()
        self.progress = PartitionProgress(TARGET, plan, self.ledger, sequence=known, sets=sets)
        self.offsets = dict[int, int]()  # source -> target
        self.appended = [0, 0, 0, 0]
        self.other = list[Finding]()

    def take(self, findings: list[Finding]) -> None:
        for finding in findings:
            match finding:
                case RecordSetAppended():
                    self.appended = [a + b for a, b in zip(self.appended, finding[1:], strict=True)]
                case OffsetsAppended():
                    found = range(finding.records)
                    self.offsets |= {finding.source_first + at: finding.target_first + at for at in found}
                case _:
                    self.other.append(finding)

    def send(self) -> list[OutgoingRecordSet]:
        while self.progress.cut_due is not None:
            self.take(self.progress.cut(halves(self.progress.cut_due)))
        sent = list[OutgoingRecordSet]()
        while (record_set := self.progress.next_record_set()) is not None:
            sent.append(record_set)
        return sent

    def state(self) -> object:
        ledger, sequence = list(self.ledger.items()), self.sequence
        known = (sequence.epoch, sequence.next, sequence.end, sequence.doubt)
        return self.progress.outcome, ledger, known, self.offsets, self.appended, self.other, self.progress.unstamped


def plan_of(sizes: list[int], holes: set[int], each: int) -> Plan:
    """Batches of so many records, with holes before some; `each` are in an envelope."""
    mirrored, base, serials = list[Seen](), 100, count(1)
    for start in range(0, len(sizes), each):
        log, first = b"", base
        for at, size in enumerate(sizes[start : start + each], start):
            base += 2 if at in holes else 0
            log += some_batch(base, size)
            base += size
        parts = wrap_record_set(log, 0, len(log), context(fetch_offset=first, serials=lambda: next(serials))).parts
        assert parts is not None
        mirrored += poll(flat(parts), first)
    outer = produced(mirrored)
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    return plan


@settings(max_examples=300)
@given(
    sizes=st.integers(1, 30).flatmap(lambda count: st.lists(st.integers(1, 4), min_size=count, max_size=count)),
    holes=st.sets(st.integers(0, 29), max_size=4),
    each=st.integers(1, 30),
    sets=st.booleans(),
    doubt=st.just(0) | st.integers(1, 4),
    script=answers,
    counts=steps,
)
def test_answers_that_are_taken_together(
    sizes: list[int], holes: set[int], each: int, sets: bool, doubt: int, script: list[Answer], counts: list[int]
) -> None:
    plan = plan_of(sizes, holes, each)
    together, single = (One(plan, sets=sets, doubt=doubt) for _ in range(2))
    queue, end = deque(script), 1_000
    in_flight = list[OutgoingRecordSet]()
    for most in [*counts, *[5] * 60]:
        new = together.send()
        assert [(one.stamp, flat(one.buffers())) for one in new] == [
            (one.stamp, flat(one.buffers())) for one in single.send()
        ]
        in_flight += new
        if not in_flight:
            break
        given_now = list[tuple[int, int]]()
        for record_set in in_flight[:most]:
            answer = queue.popleft() if queue else Answer(0, 0)
            if not answer.error_code:
                end += max(answer.others, 0)
            given_now.append((answer.error_code, -1 if answer.error_code or answer.others < 0 else end))
            end += 0 if answer.error_code else record_set.records
        del in_flight[: len(given_now)]
        together.take(together.progress.answered_all(given_now))
        for one in given_now:
            single.take(single.progress.answered(*one))
        assert together.state() == single.state()
    assert together.state() == single.state()


def test_sets_grow_again_after_a_refused_batch() -> None:
    """After one, sets have one batch, and twice as many after each that is appended."""

    def sizes(*, at_once: int) -> list[int]:
        one = One(plan_of([1] * 60, set(), 60), sets=True, doubt=0)
        sent, end, refused = list[int](), 0, False
        in_flight = deque[OutgoingRecordSet]()
        while new := one.send() or in_flight:
            if new is not in_flight:
                sent += [record_set.batches for record_set in new]
                in_flight.extend(new)
            taken = [in_flight.popleft() for _ in range(min(at_once, len(in_flight)))]
            given_now = list[tuple[int, int]]()
            for record_set in taken:
                given_now.append((0, end) if refused else (87, -1))
                end += record_set.records if refused else 0
                refused |= record_set.batches == 1
            one.take(one.progress.answered_all(given_now))
        assert one.progress.outcome is not None
        assert end == 59
        return sent

    assert sizes(at_once=1)[:7] == [60, 30, 15, 8, 4, 2, 1]
    assert sizes(at_once=5) == [60, 30, 15, 8, 4, 2, 1, 1, 2, 2, 2, 2, 2, 48]
