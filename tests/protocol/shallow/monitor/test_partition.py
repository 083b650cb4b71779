"""A model of a source log, a mirror that may crash, and a target: what Shoal concludes of a partition is true of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.monitor.gap import Gap, GapKind
from shoal.protocol.shallow.monitor.in_transit import Span
from shoal.protocol.shallow.monitor.partition import PartitionCopy

COMMIT = 3  # items that are appended between two commits of the mirror


@dataclass
class Given:
    first: int
    end: int
    is_envelope: bool


@dataclass
class World:
    """`at`: the consumer's next offset; `queue`: in the mirror's memory; `gone`: copied offsets, in order."""

    copy: PartitionCopy = field(default_factory=PartitionCopy)
    now: float = 0.0
    start: int = 0
    end: int = 0
    at: int = 0
    life: int = 1
    committed: int = 0
    queue: deque[Given] = field(default_factory=deque)
    copied: set[int] = field(default_factory=set)
    appended: int = 0
    passed_over: set[int] = field(default_factory=set)
    reported: list[Gap] = field(default_factory=list)

    def produce(self, records: int) -> None:
        self.end += records

    def delete(self, records: int) -> None:
        self.start = min(self.start + records, self.end)

    def fetch(self, sizes: list[tuple[int, bool]], *, is_lost: bool = False) -> None:
        """One request, and its answer with these spans; a lost answer never reaches the mirror."""
        self.now += 1
        self.copy.ask(self.at, self.life, self.now)
        if self.at < self.start:  # OFFSET_OUT_OF_RANGE
            self.copy.refuse(is_out_of_range=True)
            if not is_lost:
                self.passed_over |= set(range(self.at, self.start)) - self.copied - self.in_memory
                self.at = self.start
            return
        self.reported += self.copy.answer(self.start, self.end, self.now)
        spans, at = [], self.at
        for size, is_envelope in sizes:
            stop = min(at + size, self.end)
            if stop > at:
                spans.append(Given(at, stop, is_envelope))
            at = stop
        shown = [Span(span.end, None if span.is_envelope else span.end - span.first) for span in spans]
        self.copy.give(shown, at - self.at, self.now)
        if not is_lost:
            self.queue += spans
            self.at = at

    def fetch_twice(self, sizes: list[tuple[int, bool]]) -> None:
        """Also from another broker, whose answer is empty: it comes behind the one with records."""
        before = self.at
        self.fetch(sizes)
        if before >= self.start:
            self.copy.ask(before, self.life, self.now)
            self.reported += self.copy.answer(self.start, self.end, self.now)

    @property
    def in_memory(self) -> set[int]:
        return {offset for one in self.queue for offset in range(one.first, one.end)}

    def deliver(self) -> None:
        self.now += 0.1
        if not self.queue:
            return
        one = self.queue.popleft()
        self.copied |= set(range(one.first, one.end))
        if one.is_envelope:
            self.copy.appended(one.end, self.now)
        else:
            self.copy.counts = True
            self.copy.arrived(one.end - one.first, self.now)
        self.appended += 1
        if not self.appended % COMMIT:
            self.committed = one.end

    def crash(self) -> None:
        """The mirror restarts where it had committed."""
        self.queue.clear()
        self.life += 1
        self.at = self.committed

    def check(self) -> None:
        lag = self.copy.lag(self.now)
        below = range(self.copy.mirrored)
        if self.copy.counts:
            assert all(offset in self.copied or offset in self.passed_over for offset in below)
        if lag is not None:
            assert lag.records >= 0
        for gap in self.reported:
            assert gap.kind is GapKind.DELETED
            assert self.passed_over >= set(range(gap.first, gap.end))

    def finish(self) -> None:
        """The mirror catches up."""
        while self.at < self.end or self.queue:
            self.fetch([(3, True), (2, False)])
            while self.queue:
                self.deliver()
        self.fetch([])
        lag = self.copy.lag(self.now)
        assert lag is not None
        assert lag.records == 0
        assert lag.seconds == 0
        found = [offset for gap in self.reported for offset in range(gap.first, gap.end)]
        assert len(found) == len(set(found)), "reported twice"
        assert set(found) == set(range(self.end)) - self.copied


sizes = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 12)),
        st.tuples(st.just("delete"), st.integers(1, 9)),
        st.tuples(st.just("fetch"), sizes),
        st.tuples(st.just("lost"), sizes),
        st.tuples(st.just("twice"), sizes),
        st.tuples(st.just("deliver"), st.just(0)),
        st.tuples(st.just("deliver"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_what_is_known_of_a_partition_is_true(taken: list[tuple[str, object]]) -> None:
    world = World()
    world.fetch([])
    for name, argument in taken:
        match name, argument:
            case "produce", int(records):
                world.produce(records)
            case "delete", int(records):
                world.delete(records)
            case "fetch", list(spans):
                world.fetch(spans)
            case "lost", list(spans):
                world.fetch(spans, is_lost=True)
            case "twice", list(spans):
                world.fetch_twice(spans)
            case "deliver", _:
                world.deliver()
            case _:
                world.crash()
        world.check()
    world.finish()


def test_a_mirror_that_starts_anew_passes_over_nothing() -> None:
    copy = PartitionCopy()
    copy.ask(0, 1, 0.0)
    copy.refuse()
    copy.ask(500, 1, 0.1)
    assert copy.answer(500, 600, 0.2) == []
    assert copy.lag(0.2) == (100, 0.0, 0.0)


def test_a_mirror_that_is_reset_forward_skips_what_the_log_has() -> None:
    copy = known(100)
    copy.ask(150, 2, 1.0)
    assert copy.answer(0, 200, 1.1) == [Gap(GapKind.SKIPPED, 100, 150)]


def test_a_mirror_that_is_reset_backward_skips_nothing() -> None:
    copy = known(100)
    copy.ask(20, 2, 1.0)
    assert copy.answer(0, 200, 1.1) == []


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_partition_that_is_asked_of_two_brokers_at_once_is_not_passed_over(is_refused: bool) -> None:
    """KIP-392: the follower answers first, and then the leader, without records."""
    copy = known(100)
    copy.ask(100, 1, 1.0)
    assert copy.answer(0, 200, 1.1) == []
    copy.give([Span(150, None)], 500, 1.1)
    copy.ask(100, 1, 1.2)
    if is_refused:
        copy.refuse()
    else:
        assert copy.answer(0, 200, 1.3) == []
    copy.ask(150, 1, 1.4)
    assert copy.answer(0, 200, 1.5) == []
    copy.give([Span(200, None)], 500, 1.5)
    for offset in (150, 200):
        copy.appended(offset, 1.6)
        assert copy.mirrored == offset


@pytest.mark.parametrize("other", [1, 2])
def test_a_consumer_that_reads_beside_one_that_is_behind_passes_over_nothing(other: int) -> None:
    """A worker that stood still goes on with what another one reads by now, for some seconds."""
    copy = known(100)
    copy.ask(100, 1, 1.0)
    copy.ask(40, other, 1.1)
    copy.give_also(100, 150)
    copy.ask(150, 1, 1.2)
    assert copy.answer(0, 200, 1.3) == []
    copy.give([Span(170, None)], 500, 1.3)
    copy.ask(190, 1, 1.4)
    assert copy.answer(0, 200, 1.5) == [Gap(GapKind.SKIPPED, 170, 190)]


def test_a_shorter_log_is_truncated_once() -> None:
    copy = known(100)
    assert copy.observe(0, 90, given=100, asked_at=1.0, now=1.1) == Gap(GapKind.TRUNCATED, 90, 100)
    assert copy.observe(0, 90, given=90, asked_at=2.0, now=2.1) is None
    copy.ask(90, 1, 3.0)
    assert copy.answer(0, 95, 3.1) == []


def test_an_answer_from_before_the_mirror_was_given_more_is_no_truncation() -> None:
    copy = known(100)
    assert copy.observe(0, 95, given=95, asked_at=0.5, now=1.1) is None


def test_a_topic_that_is_created_again_starts_at_zero() -> None:
    copy = known(100)
    copy.log.observe(0, 130, 100, 1.0)
    assert copy.make_anew() == Gap(GapKind.RECREATED, 100, 130)
    copy.ask(100, 1, 2.0)
    assert copy.answer(0, 400, 2.1) == [Gap(GapKind.SKIPPED, 0, 100)], "MM2 continues where it was, in another log"


def test_a_topic_that_is_created_again_and_read_from_its_start() -> None:
    copy = known(100)
    assert copy.make_anew() == Gap(GapKind.RECREATED, 100, 100)
    copy.ask(100, 1, 2.0)
    copy.refuse()
    copy.ask(0, 1, 2.1)
    assert copy.answer(0, 4, 2.2) == []


def test_a_consumer_that_is_already_in_the_new_topic_has_skipped_nothing() -> None:
    """One that knows topics by name only: it was reset before Shoal has learnt of the new id."""
    copy = known(100)
    copy.ask(100, 1, 2.0)
    copy.refuse()
    copy.ask(0, 1, 2.1)
    copy.answer(0, 4, 2.2)
    copy.give([Span(4, 4)], 40, 2.2)
    assert copy.make_anew() is not None
    copy.ask(4, 1, 2.3)
    assert copy.answer(0, 4, 2.4) == []


def test_raw_records_that_never_arrive_count_as_mirrored_after_a_while() -> None:
    copy = known(0)
    copy.counts = True
    copy.ask(0, 1, 0.0)
    copy.answer(0, 10, 0.0)
    copy.give([Span(10, 10)], 100, 0.0)
    copy.arrived(7, 0.1)
    copy.ask(10, 1, 0.2)
    for now in (1.0, 29.0):
        copy.settle(now)
        assert copy.mirrored == 7
    copy.settle(31.0)
    assert copy.mirrored == 10


@pytest.mark.parametrize("end", [100, 120])
def test_the_age_of_the_oldest_record(end: int) -> None:
    copy = known(100)
    copy.observe(0, 100, given=100, asked_at=1.0, now=1.0)
    for now in range(2, 10):
        copy.observe(0, end, given=100, asked_at=now, now=float(now))
    lag = copy.lag(9.5)
    assert lag is not None
    assert lag[::2] == ((0, 0.0) if end == 100 else (20, 7.5))


def known(offset: int) -> PartitionCopy:
    copy = PartitionCopy()
    copy.ask(offset, 1, 0.0)
    copy.answer(0, offset, 0.0)
    return copy
