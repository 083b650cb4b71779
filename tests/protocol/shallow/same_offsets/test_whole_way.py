"""From a source log of any shape through a mirror that fails at any time: each record once, at its own offset."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.same_offsets.fenced import FencedPartition, FencedSet
from shoal.protocol.shallow.same_offsets.follow import follow
from shoal.protocol.shallow.same_offsets.log_ends import LogEnd, LogEnds
from shoal.protocol.shallow.same_offsets.place import Place, PlaceState
from shoal.protocol.shallow.unwrap.findings import CopyMisplaced, CopyStopped, Finding
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.wrap.runs import WrapContext
from shoal.protocol.wire.types import TopicPartition
from tests.protocol.shallow.same_offsets.source_log import ABORT, COMMIT, SourceLog, source_logs
from tests.protocol.shallow.same_offsets.target_log import TargetLog

if TYPE_CHECKING:
    from shoal.protocol.shallow.same_offsets.covers import Covered

TARGET = TopicPartition("copy", 0)
STEPS = st.lists(st.sampled_from(("fetch", "produce", "lose", "again", "restart", "broker", "tight")), max_size=60)


class Way:
    """A mirror between the two logs. `queue`: what it has fetched and not produced.

    `given`, `asked` and `answered` are called with what passes, for tests that record it.
    """

    def __init__(self, source: SourceLog, target: TargetLog, serials: count[int], data: st.DataObject) -> None:
        self.source = source
        self.target = target
        self.ends = LogEnds()
        self.queue: deque[bytes] = deque()
        self.findings: list[Finding] = []
        self._serials = serials
        self._data = data
        self._last = b""
        self._has_dropped = False
        self.is_tight = False
        self.place = Place()
        self.restart()

    def restart(self) -> None:
        """The mirror begins somewhere: at what it has committed, or not."""
        self.queue.clear()
        self.place = Place()
        self.position = self._data.draw(st.sampled_from((self.source.start, self.target.end, self.source.end)))

    def given(self, frame: bytes, covered: Covered) -> None:
        """The mirror gets this of the source's answer."""

    def asked(self) -> None:
        """The target was asked where its log ends."""

    def answered(self, plan: Plan, sent: FencedSet, code: int) -> None:
        """The target has answered."""

    def fetch(self) -> None:
        offset = self.place.ask(self.position)
        found = self.source.fetch(offset, self._data.draw(st.integers(1, 4)))
        if found is None:  # the mirror goes to the beginning (auto.offset.reset)
            assert self.place.standing is not PlaceState.KNOWN
            self.position = self.source.start
            return
        self.place.source_start, self.place.source_end = self.source.start, self.source.end
        if self.place.standing is not PlaceState.KNOWN:
            self.place.give_locator(b"token", 0.0)
            self.position = self.place.position
            self.place.locate(self.target.end, self.target.start)
            self.asked()
            return
        frame, aborted = found
        context = WrapContext(
            cluster="a",
            topic="t",
            partition=0,
            fetch_offset=self.position,
            flow=1,
            serials=self._serials.__next__,
            run_limit=self._data.draw(st.sampled_from((1000, 100_000))),
        )
        if self.is_tight:
            frame, self.is_tight = frame[:60], False
        scanned = scan(frame, 0, len(frame)) if frame else None
        covered = follow(self.place, frame, scanned, aborted, context)
        if covered is None:
            return
        assert covered.problem is None
        fetched = {header.base_offset for _, _, header in scan(frame, 0, len(frame)).batches()}
        assert {*covered.aborted} == fetched & {*self.source.left_out}
        self.given(frame, covered)
        record_set = b"".join(covered.wrapped.parts or ())
        for start, end, header in scan(record_set, 0, len(record_set)).batches():
            assert header.base_offset >= self.position  # else the mirror's consumer leaves it out
            self.position = header.base_offset + 1
            self.queue.append(record_set[start:end])
        assert self.position == covered.position

    def produce(self) -> None:
        if self.queue:
            self._last = self.queue.popleft()
            self.deliver(self._last)

    def again(self) -> None:
        """The mirror's producer has not heard the answer."""
        if self._last:
            self.deliver(self._last)

    def lose(self) -> None:
        """The mirror drops a record, and goes on: it is misplaced then."""
        if self.queue:
            self.queue.popleft()
            self._has_dropped = True

    def broker(self) -> None:
        """Shoal's connection to the broker ends."""
        self.ends.forget(TARGET)

    def tight(self) -> None:
        """Other partitions leave no room for a whole batch in the next answer."""
        self.is_tight = True

    def deliver(self, record_set: bytes) -> None:
        plan = plan_record_set(record_set, 0, len(record_set))
        assert isinstance(plan, Plan)
        assert plan.keeps_offsets
        known = self.ends.of(TARGET)
        if known is None:
            known = LogEnd(self.target.start, self.target.end, self.target.end)
            self.asked()
        begin = self.place.source_start if self.place.source_start >= 0 else None
        fenced = FencedPartition(TARGET, plan, self.ends, known, text=lambda _: self.target.text, begin=begin)
        fenced.sets = self._data.draw(st.booleans())
        self.findings = fenced.findings()
        in_flight: deque[FencedSet] = deque()
        while fenced.outcome is None:
            sent = fenced.next_record_set(self._data.draw(st.sampled_from((None, 400))))
            if sent is not None:
                in_flight.append(sent)
                if len(in_flight) < self._data.draw(st.integers(1, 8)):
                    continue
            assert in_flight
            first = in_flight.popleft()
            code = self.target.produce(b"".join(first.buffers()))
            self.answered(plan, first, code)
            self.findings += fenced.answered(code, 0)
        assert fenced.next_record_set() is None
        if any(isinstance(found, CopyMisplaced) for found in self.findings):
            self.place.forget()  # `Places.lose`

    def unclean(self) -> None:
        """The target loses what it has acknowledged."""
        self.target.lose_tail(self._data.draw(st.integers(1, 3)))

    def drain(self) -> None:
        """The mirror works without a fault until the copy ends where the source does."""
        for _ in range(400):
            if self.target.end == self.source.end and not self.queue:
                return
            self.fetch()
            if self._has_dropped and not self.queue and self.place.offset >= self.source.end:
                self.place = Place()  # no record follows by which it is noticed: until the mirror connects again
            while self.queue:
                self.produce()
        raise AssertionError("it does not come to an end")


@given(source_logs(), STEPS, st.data())
def test_each_record_is_there_once_at_its_own_offset(source: SourceLog, steps: list[str], data: st.DataObject) -> None:
    target = TargetLog()
    way = Way(source, target, count(1), data)
    for step in steps:
        getattr(way, step)()
        assert not any(isinstance(found, CopyStopped) for found in way.findings)
    way.drain()
    assert target.records() == source.committed
    assert target.end == source.end
    if source.committed:
        assert target.start == source.start


@given(source_logs(), STEPS, st.data())
def test_two_mirrors_of_one_topic_double_nothing(source: SourceLog, steps: list[str], data: st.DataObject) -> None:
    target, serials = TargetLog(), count(1)
    ways = [Way(source, target, serials, data) for _ in range(2)]
    for step in steps:
        way = ways[data.draw(st.integers(0, 1))]
        getattr(way, step)()
        assert not any(isinstance(found, CopyStopped) for found in way.findings)
    for way in ways:
        way.drain()
    assert target.records() == source.committed


@given(source_logs(), st.lists(st.sampled_from(("fetch", "produce", "again", "unclean", "restart"))), st.data())
def test_what_the_target_has_lost_is_fetched_again(source: SourceLog, steps: list[str], data: st.DataObject) -> None:
    target = TargetLog()
    way = Way(source, target, count(1), data)
    for step in steps:
        getattr(way, step)()
        assert not any(isinstance(found, CopyStopped) for found in way.findings)
    source.append((0,), 0, producer_id=-1, keep=True, times=False)  # the loss is seen with the next record
    way.drain()
    assert target.records() == source.committed


@given(source_logs(), st.integers(0, 5), st.data())
def test_a_source_that_has_deleted_all_has_a_copy_with_its_end(
    source: SourceLog, fetches: int, data: st.DataObject
) -> None:
    target = TargetLog()
    way = Way(source, target, count(1), data)
    for _ in range(fetches):
        way.fetch()
        way.produce()
    source.delete_all()
    way.restart()
    way.drain()
    assert target.end == source.end
    source.append((0,), 0, producer_id=-1, keep=True, times=False)
    way.drain()
    assert target.records().items() >= {source.end - 1: source.committed[source.end - 1]}.items()


@given(st.sampled_from(("commit", "abort", "holed")), st.integers(1, 4), st.data())
def test_another_source_of_the_same_shape_is_not_mixed_with_the_copy(tail: str, size: int, data: st.DataObject) -> None:
    """Truncated or created again; what is at the end of the copy can't be compared."""
    one, another = (SourceLog(0, value=value) for value in (b"v", b"w"))
    for log in (one, another):
        log.append((0, 1, 2), 2, producer_id=-1, keep=True, times=False)
        if tail == "holed":
            log.append(tuple(range(0, 2 * size, 2)), 2 * size, producer_id=-1, keep=True, times=False)
        else:
            first = log.end
            log.append(tuple(range(size)), size - 1, producer_id=1, keep=tail == "commit", times=False)
            log.mark(1, COMMIT if tail == "commit" else ABORT, first)
    target = TargetLog()
    way = Way(one, target, count(1), data)
    way.drain()
    another.append((0,), 0, producer_id=-1, keep=True, times=False)
    way.source = another
    way.restart()
    tight = data.draw(st.integers(0, 5))
    for number in range(100):
        way.is_tight = number < tight
        way.fetch()
        way.produce()
        if any(isinstance(found, CopyStopped) for found in way.findings):
            break
    else:
        raise AssertionError("nothing has stopped it")
    assert target.records() == one.committed


@given(source_logs(), st.data())
def test_a_batch_that_is_too_large_stops_the_copy_before_it(source: SourceLog, data: st.DataObject) -> None:
    target = TargetLog(largest=data.draw(st.integers(62, 200)))
    way = Way(source, target, count(1), data)
    for _ in range(60):
        way.fetch()
        while way.queue:
            way.produce()
            if any(isinstance(found, CopyStopped) for found in way.findings):
                way.queue.clear()
                way.place.forget()
    kept = {offset: record for offset, record in source.committed.items() if offset < target.end}
    assert target.records() == kept
    target.largest = 1 << 30
    way.restart()
    way.drain()
    assert target.records() == source.committed
