"""The cache against a model that counts everything anew."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shoal.protocol.shallow.kept_batches import FLOW_BYTES, KeptBatches
from shoal.protocol.wire.types import TopicPartition
from tests.support.shallow.world import some_key

if TYPE_CHECKING:
    from shoal.protocol.shallow.envelope import EnvelopeKey

LIMIT = 3 * FLOW_BYTES
SIZES = st.sampled_from([1000, FLOW_BYTES // 3, FLOW_BYTES // 2, FLOW_BYTES, 2 * FLOW_BYTES])
FLOWS, PARTITIONS = st.integers(1, 3), st.integers(0, 1)


def key_of(flow: int, serial: int, payload: int, partition: int = 0) -> EnvelopeKey:
    offsets = {"first_offset": serial, "last_offset": serial, "records": 1, "partition": partition}
    return some_key(**offsets, payload=payload, flow=flow, serial=serial, is_claim_check=True)


class Kept(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kept = KeptBatches(LIMIT)
        self.model: dict[EnvelopeKey, tuple[memoryview, float]] = {}
        self.appended: set[EnvelopeKey] = set()
        self.owing: Counter[int] = Counter()  # what was forgotten and not appended, since the last that was
        self.overdue: Counter[tuple[int, int]] = Counter()  # the same by flow and partition
        self.serials = count()
        self.now = 0.0

    @rule(flow=FLOWS, partition=PARTITIONS, size=SIZES, parts=st.integers(1, 3))
    def answer(self, flow: int, partition: int, size: int, parts: int) -> None:
        """An answer with some envelopes."""
        held, of_flow = self.held(), self.of_flow(flow) + self.owing[flow]
        has_room = held + size <= LIMIT and (of_flow == 0 or of_flow + size <= FLOW_BYTES)
        assert self.kept.has_room(flow, size) == has_room
        if has_room:
            view = memoryview(bytearray(size))
            for part in range(parts):
                batches = view[part * size // parts : (part + 1) * size // parts]
                key = key_of(flow, next(self.serials), len(batches), partition)
                self.kept.keep(key, batches, self.now)
                self.model[key] = batches, self.now

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        """A retry of its request may still need it."""
        if self.model:
            key = data.draw(st.sampled_from(sorted(self.model, key=lambda one: one.serial)))
            assert self.kept.appended(key) == (key not in self.appended)
            self.settle(key.flow, key.partition)
            self.appended.add(key)

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        """What is asked for stays."""
        if self.model:
            key = data.draw(st.sampled_from(sorted(self.model, key=lambda one: one.serial)))
            batches, _ = self.model[key]
            assert self.kept.find(key, self.now) is batches
            self.model[key] = batches, self.now

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.model:
            key = data.draw(st.sampled_from(sorted(self.model, key=lambda one: one.serial)))
            assert self.kept.forget(key)
            del self.model[key]
            assert not self.kept.forget(key)
            assert not self.kept.appended(key)
            self.settle(key.flow, key.partition)

    @rule(flow=FLOWS, partition=PARTITIONS)
    def append_another(self, flow: int, partition: int) -> None:
        """An envelope that was carried."""
        assert not self.kept.appended(key_of(flow, next(self.serials), 1, partition))
        self.settle(flow, partition)

    @rule(seconds=st.sampled_from([1.0, 59.0, 61.0, 120.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.kept.expire(self.now)
        for key, (batches, at) in self.model.items():
            if self.now - at >= 120 and key not in self.appended:
                self.owing[key.flow] += len(batches)
                self.overdue[key.flow, key.partition] += len(batches)
        self.model = {key: (batches, at) for key, (batches, at) in self.model.items() if self.now - at < 120}

    @rule()
    def clear(self) -> None:
        self.kept.clear()
        self.model.clear()
        self.owing.clear()
        self.overdue.clear()

    def held(self) -> int:
        answers = {id(batches.obj): memoryview(batches.obj).nbytes for batches, _ in self.model.values()}
        return sum(answers.values())

    def of_flow(self, flow: int) -> int:
        waiting = self.model.keys() - self.appended
        return sum(len(batches) for key, (batches, _) in self.model.items() if key.flow == flow and key in waiting)

    def settle(self, flow: int, partition: int) -> None:
        self.owing[flow] = self.overdue[flow, partition] = 0

    @invariant()
    def counts_are_true(self) -> None:
        assert self.kept.held == self.held() <= LIMIT
        assert len(self.kept) == len(self.model)
        for flow in range(1, 4):
            assert self.kept.has_any(flow) == (self.of_flow(flow) + self.owing[flow] > 0)
            for partition in range(2):
                overdue = self.overdue[flow, partition] >= FLOW_BYTES // 2
                assert self.kept.is_overdue(flow, TopicPartition("orders", partition)) == overdue
        for key, (batches, at) in sorted(self.model.items(), key=lambda one: one[1][1]):
            assert self.kept.find(key, at) is batches  # what is asked for again at its own time changes nothing


TestKept = Kept.TestCase


def test_what_a_task_has_not_produced_counts_also_when_it_is_forgotten() -> None:
    """The target is away, so nothing of what the task has got is asked for."""
    kept, now = KeptBatches(LIMIT), 0.0
    for serial in range(2):
        kept.keep(key_of(1, serial, FLOW_BYTES // 2), memoryview(bytearray(FLOW_BYTES // 2)), now)
    for _ in range(30):
        now += 120
        kept.expire(now)
        assert (len(kept), kept.held) == (0, 0)
        assert not kept.has_room(1, 1000)
        assert kept.has_room(2, 1000)
    kept.appended(key_of(1, 2, 1000, partition=1))
    assert kept.has_room(1, 1000)
    assert kept.is_overdue(1, TopicPartition("orders", 0)), "a batch of its producer may still have their claim checks"
    assert not kept.is_overdue(1, TopicPartition("orders", 1))
    kept.appended(key_of(1, 3, 1000))
    assert not kept.is_overdue(1, TopicPartition("orders", 0))
