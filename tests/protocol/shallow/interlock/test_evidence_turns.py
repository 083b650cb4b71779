"""Several flows have a turn at a time: the tasks of one mirror, and mirrors that read the same partitions."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.fingerprint import Sample
from shoal.protocol.shallow.interlock.evidence import Evidence
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.interlock.rules import HandedOut, Raw
from tests.protocol.shallow.interlock.mirrors import TOPIC, Data, Mirror, interlock, mark

STEP = 0.05
RECORDS = 4


def task(rules: Evidence, mirror: str, number: int, *, through: bool = True) -> Mirror:
    names = f"{mirror}|MirrorSourceConnector-{number}|replication-consumer"
    return Mirror(rules, names, through, client_id=f"connector-producer-MirrorSourceConnector-{number}")


def proven(mirror: Mirror) -> bool:
    return mirror.flow.is_proven


def answer(mirror: Mirror, partitions: list[int], now: float) -> bool:
    """One answer with all of these partitions, which is held whole until the flow is proven; -> whether it is sent."""
    rules, flow = mirror.rules, mirror.flow
    rules.asked(flow, now)
    if rules.pause_until(flow, now) is not None:
        return False
    starts = {partition: mirror.positions.get((TOPIC, partition), 0) for partition in partitions}
    read = [Fetched(mirror.connection, TOPIC, at, start, start + RECORDS) for at, start in starts.items()]
    data = [Data(one) for one in read]
    waits = rules.hold(flow, data, now)
    if any(until is not None for until in waits):
        return False
    review = rules.review(flow, data, waits, now)
    sent = [
        HandedOut(one, one.next_offset) if isinstance(what, Raw) else None
        for one, what in zip(read, review.decisions, strict=True)
    ]
    rules.commit(flow, review, sent, now)
    for one, handed, of in zip(read, sent, data, strict=True):
        if handed is not None:
            records = range(one.fetch_offset, one.next_offset)
            mirror.buffer.extend((TOPIC, one.partition, offset) for offset in records)
            mirror.positions[TOPIC, one.partition] = one.next_offset
        elif of.token:
            mirror.tokens[TOPIC, one.partition, one.fetch_offset] = of.token
            mirror.buffer.append((TOPIC, one.partition, one.fetch_offset))
            mirror.positions[TOPIC, one.partition] = one.fetch_offset + 1
    return True


def until_proven(readers: list[tuple[Mirror, list[int]]], within: float) -> float:
    """Each mirror fetches and produces at every step; -> when all of them are proven."""
    for number in range(int(within / STEP) + 1):
        now = number * STEP
        for mirror, partitions in readers:
            if not proven(mirror):
                answer(mirror, partitions, now)
                mirror.produce(now)
        if all(proven(mirror) for mirror, _ in readers):
            return now
    pytest.fail(f"{[str(mirror.flow) for mirror, _ in readers if not proven(mirror)]} not proven in {within} s")


def test_the_tasks_of_a_mirror_are_proven_at_once(rules: Evidence) -> None:
    tasks = [task(rules, "A->B", number) for number in range(32)]
    readers = [(mirror, [number, 32 + number]) for number, mirror in enumerate(tasks)]
    assert until_proven(readers, 1.0) <= 0.3


def test_two_mirrors_of_the_same_partitions_take_turns(rules: Evidence) -> None:
    """Each has claimed one before it reads that of the other: none waits for a deadline, and none has failed."""
    one, two = task(rules, "A->B", 0), task(rules, "A->C", 0)
    assert not answer(one, [0], 0.0)
    assert not answer(two, [1], 0.0)
    assert until_proven([(two, [0, 1]), (one, [0, 1])], 3.0) < 2.5
    assert (one.flow.failures, two.flow.failures) == (0, 0)


def test_the_older_turn_waits_for_no_other(rules: Evidence) -> None:
    one, two = task(rules, "A->B", 0), task(rules, "A->C", 0)
    assert not answer(one, [0], 0.0)
    assert not answer(two, [1], 0.0)
    assert not answer(one, [0, 1], 0.1)
    assert answer(one, [0, 1], 0.2)


def test_a_mirror_that_proves_nothing_delays_another_one_by_its_turn(rules: Evidence) -> None:
    """And lets it not fail, though that had begun a turn of its own."""
    lost, ours = task(rules, "A->C", 0, through=False), task(rules, "A->B", 0)
    assert not answer(lost, [0], 0.0)
    assert not answer(ours, [1], 0.0)
    now = 0.0
    while not proven(ours):
        assert now < 10.0
        for mirror, partitions in ((lost, [0]), (ours, [0, 1])):
            answer(mirror, partitions, now)
            mirror.produce(now)
        now += STEP
        assert ours.flow.failures == 0
    assert not proven(lost)
    assert lost.strayed == 0


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), min_size=1, unique=True)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.02, 0.1, 0.5, 3.0])), min_size=20, max_size=120),
)
def test_whatever_they_read_the_wrong_ones_are_not_proven_and_no_token_goes_astray(
    mirrors: list[tuple[bool, list[int]]], steps: list[tuple[int, float]]
) -> None:
    rules, now = interlock(), 0.0
    readers = [(task(rules, f"A->{name}", 0, through=through), read) for name, (through, read) in enumerate(mirrors)]
    for number, seconds in steps:
        mirror, partitions = readers[number % len(readers)]
        answer(mirror, partitions, now)
        mirror.produce(now)
        now += seconds
        rules.tick(now)
    for mirror, _ in readers:
        assert mirror.through or not proven(mirror)
        assert mirror.strayed == 0


@dataclass
class Alike(Data):
    """All topics have the same records."""

    def samples(self, first_offset: int) -> list[Sample]:
        _, _, partition, start, end = self.read
        offsets = range(max(first_offset, start), end)
        return [Sample(mark("alike", partition, offset), offset, False) for offset in offsets]


def test_a_record_that_two_flows_are_given_is_a_sample_of_one(rules: Evidence) -> None:
    """`orders` and `orders-2` have equal records, and the mirror of `orders` produces elsewhere."""
    ours, lost = task(rules, "A->B", 0), task(rules, "A->C", 0, through=False)
    for mirror, topic in ((ours, "orders-2"), (lost, "orders")):
        data = [Alike(Fetched(mirror.connection, topic, 0, 0, RECORDS))]
        rules.hold(mirror.flow, data, 0.0)
        waits = rules.hold(mirror.flow, data, 0.3)
        assert waits == [None]
        review = rules.review(mirror.flow, data, waits, 0.3)
        rules.commit(mirror.flow, review, [HandedOut(data[0].read, RECORDS)], 0.3)
    rules.saw_produced("A.orders-2", 0, [mark("alike", 0, offset) for offset in range(RECORDS)], 77, 0.4)
    assert ours.flow.is_sampled
    assert not lost.flow.is_sampled
