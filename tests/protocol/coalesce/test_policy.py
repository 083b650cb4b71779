"""The joining policy: its rules on any history, and the cases that they were made for."""

import math
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.protocol.coalesce.policy import Batch, CoalescingPolicy, Joined, JoinLimits

TARGETS = st.integers(0, 5)
PAUSES = st.sampled_from([0.0, 0.001, 0.005, 0.01, 0.1, 1.0])


class AnyHistory(RuleBasedStateMachine):
    """Any events in any order. `due` is obeyed: time does not pass it without a `take`."""

    @initialize(
        linger=st.sampled_from([0.0, 0.005, 0.05]),
        request_bytes=st.sampled_from([1, 50, 1000]),
        request_batches=st.sampled_from([1, 3, 100]),
        set_batches=st.sampled_from([1, 1, 3]),
        in_flight=st.sampled_from([1, 2, 4]),
    )
    def begin(self, **limits: float) -> None:
        self.limits = JoinLimits(**limits, patience=0.1)  # type: ignore[arg-type]
        self.joiner = CoalescingPolicy(self.limits)
        self.now = 100.0
        self.paused_until = -math.inf
        self.added = 0
        self.waiting: dict[object, list[Batch]] = defaultdict(list)  # the model: by target, in order
        self.flying: list[Joined] = []
        self.again: set[object] = set()  # numbers of batches whose set was split
        self.gone: set[object] = set()

    @rule(place=TARGETS, size=st.integers(1, 60), owner=st.integers(0, 2), lone=st.booleans())
    def add(self, place: int, size: int, owner: int, lone: bool) -> None:
        batch = Batch(place, size, self.now, owner, self.added, lone)
        self.added += 1
        self.joiner.add(batch)
        self.waiting[place].append(batch)

    @rule()
    def take(self) -> None:
        idle, oldest = not self.flying, min((one.sent for one in self.flying), default=math.inf)
        ready = [one[0] for target, one in self.waiting.items() if one and target not in self._busy()]
        joined = self.joiner.take(self.now)
        if joined is None:
            due = max(min((batch.arrived for batch in ready), default=0.0) + self.limits.linger, self.paused_until)
            assert not (ready and idle and self.now >= due)
            return
        assert self.now >= self.paused_until
        self._check(joined)
        full = len(ready) >= self.limits.request_batches or sum(b.size for b in ready) >= self.limits.request_bytes
        assert idle or full or self.now >= oldest + self.limits.patience
        assert full or self.now >= min(batch.arrived for batch in ready) + self.limits.linger
        self.flying.append(joined)
        assert len(self.flying) <= self.limits.in_flight

    def _check(self, joined: Joined) -> None:
        assert joined.batches
        assert joined.size == sum(batch.size for chosen in joined.sets.values() for batch in chosen)
        assert joined.batches <= self.limits.request_batches
        assert joined.size <= self.limits.request_bytes or joined.batches == 1
        assert not self._busy() & joined.sets.keys()
        for target, chosen in joined.sets.items():
            assert chosen == self.waiting[target][: len(chosen)], "the order of a target"
            del self.waiting[target][: len(chosen)]
            assert len(chosen) <= self.limits.set_batches
            assert len(chosen) == 1 or not any(batch.lone or batch.content in self.again for batch in chosen)

    def _busy(self) -> set[object]:
        return {target for joined in self.flying for target in joined.sets}

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        joined = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        sets = [target for target, chosen in joined.sets.items() if len(chosen) > 1]
        split = [target for target in sets if data.draw(st.booleans())]
        self.joiner.answered(joined, split)
        for target, chosen in joined.sets.items():
            if target in split:
                self.waiting[target][:0] = chosen
                self.again.update(batch.content for batch in chosen)
            else:
                self.gone.update(batch.content for batch in chosen)

    @rule(owner=st.integers(0, 2))
    def withdraw(self, owner: int) -> None:
        taken = self.joiner.withdraw(lambda batch: batch.owner == owner)
        expected = [batch for chosen in self.waiting.values() for batch in chosen if batch.owner == owner]
        assert sorted(taken) == sorted(expected)
        for chosen in self.waiting.values():
            chosen[:] = [batch for batch in chosen if batch.owner != owner]
        self.gone.update(batch.content for batch in taken)

    @rule(seconds=PAUSES)
    def pause(self, seconds: float) -> None:
        until = self.now + seconds
        self.joiner.pause(until)
        self.paused_until = max(self.paused_until, until)

    @rule(pause=PAUSES)
    def time_passes(self, pause: float) -> None:
        later = min(self.now + pause, self.joiner.due())
        self.now = max(self.now, later)

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        waiting = [batch for chosen in self.waiting.values() for batch in chosen]
        assert self.joiner.waiting_batches == len(waiting)
        assert self.joiner.waiting_bytes == sum(batch.size for batch in waiting)
        flying = [batch.content for one in self.flying for chosen in one.sets.values() for batch in chosen]
        everything = [batch.content for batch in waiting] + flying + list(self.gone)
        assert sorted(everything) == list(range(self.added)), "each exactly once"
        for target in range(6):
            assert self.joiner.holds(target) == bool(self.waiting[target] or target in self._busy())

    @invariant()
    def nothing_waits_without_a_reason(self) -> None:
        ready = any(one for target, one in self.waiting.items() if target not in self._busy())
        assert (self.joiner.due() < math.inf) == (ready and len(self.flying) < self.limits.in_flight)

    def teardown(self) -> None:
        """Everything is taken in the end."""
        if not hasattr(self, "joiner"):
            return
        while self.flying or any(self.waiting.values()):
            if self.flying:
                self.joiner.answered(self.flying.pop())
            self.now = max(self.now, min(self.joiner.due(), self.now + 1))
            self.take()


AnyHistory.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestAnyHistory = AnyHistory.TestCase


def batch(target: str, arrived: float = 0.0, **fields: object) -> Batch:
    return Batch(target, arrived=arrived, **({"size": 10} | fields))  # type: ignore[arg-type]


def filled(*batches: Batch, **limits: float) -> CoalescingPolicy:
    joiner = CoalescingPolicy(JoinLimits(**limits))  # type: ignore[arg-type]
    for one in batches:
        joiner.add(one)
    return joiner


def taken(joiner: CoalescingPolicy, now: float = 0.0) -> Joined:
    joined = joiner.take(now)
    assert joined is not None
    return joined


def names(joined: Joined) -> list[object]:
    return [batch.target for chosen in joined.sets.values() for batch in chosen]


def test_a_lone_batch_leaves_at_once() -> None:
    joiner = filled(batch("a"))
    assert names(taken(joiner)) == ["a"]
    assert joiner.take(0.0) is None


def test_what_comes_while_a_request_is_unanswered_leaves_together() -> None:
    joiner = filled(batch("a"))
    first = taken(joiner)
    for target in "abcab":
        joiner.add(batch(target))
    assert joiner.take(0.05) is None
    joiner.answered(first)
    assert names(taken(joiner, 0.05)) == ["b", "c", "a"]


def test_an_idle_joiner_waits_for_company_as_long_as_the_linger() -> None:
    joiner = filled(batch("a", 1.0), batch("b", 1.004), linger=0.005)
    assert joiner.due() == 1.005
    assert joiner.take(1.004) is None
    assert names(taken(joiner, 1.005)) == ["a", "b"]


def test_a_full_request_does_not_wait() -> None:
    assert names(taken(filled(batch("a"), batch("b"), linger=1, request_batches=2))) == ["a", "b"]
    assert names(taken(filled(batch("a"), batch("b"), linger=1, request_bytes=20))) == ["a", "b"]


def test_others_overtake_a_request_that_is_slow() -> None:
    joiner = filled(batch("slow"))
    taken(joiner, 1.0)
    joiner.add(batch("slow", 1.0))
    joiner.add(batch("other", 1.0))
    assert joiner.due() == 1.1
    assert names(taken(joiner, 1.1)) == ["other"]
    assert joiner.due() == math.inf


def test_a_pause_ends_neither_early_nor_by_a_full_request() -> None:
    joiner = filled(batch("a"), in_flight=2, request_batches=1)
    first = taken(joiner, 1.0)
    joiner.add(batch("b", 1.0))
    joiner.pause(5.0)
    joiner.pause(4.0)
    joiner.answered(first)
    assert joiner.due() == 5.0
    assert joiner.take(4.9) is None
    assert names(taken(joiner, 5.0)) == ["b"]


def test_every_target_has_its_turn() -> None:
    """A target that always has something to send does not prevent small requests from being joined."""
    joiner = filled(*(batch("greedy") for _ in range(10)), batch("b"), batch("c"), request_batches=1)
    seen = []
    for _ in range(4):
        joined = taken(joiner)
        seen += names(joined)
        joiner.answered(joined)
    assert seen == ["greedy", "b", "c", "greedy"]


def test_one_batch_may_be_larger_than_a_request() -> None:
    joiner = filled(batch("a", size=500), batch("b"), request_bytes=100)
    assert names(taken(joiner)) == ["a"]


def test_sets_where_the_broker_takes_them() -> None:
    joiner = filled(*(batch("a", content=number) for number in range(5)), batch("b"), set_batches=3)
    joined = taken(joiner)
    assert [batch.content for batch in joined.sets["a"]] == [0, 1, 2]
    assert names(joined)[-1] == "b"


def test_a_lone_batch_is_never_in_a_set() -> None:
    joiner = filled(batch("a", content=0), batch("a", content=1, lone=True), batch("a", content=2), set_batches=9)
    seen = []
    for _ in range(3):
        joined = taken(joiner)
        seen.append([batch.content for batch in joined.sets["a"]])
        joiner.answered(joined)
    assert seen == [[0], [1], [2]]


def test_a_split_set_leaves_again_batch_by_batch_and_before_what_came_later() -> None:
    joiner = filled(batch("a", content=0), batch("a", content=1), set_batches=9)
    joined = taken(joiner)
    joiner.add(batch("a", content=2))
    joiner.add(batch("a", content=3))
    joiner.answered(joined, split=["a"])
    seen = []
    for _ in range(3):
        joined = taken(joiner)
        seen.append([batch.content for batch in joined.sets["a"]])
        joiner.answered(joined)
    assert seen == [[0], [1], [2, 3]]
