"""The tasks of one mirror have their turns at a time; another mirror waits until these end."""

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
    readers = [(task(rules, "A->B", number), [number, 16 + number]) for number in range(16)]
    assert until_proven(readers, 1.0) <= 0.3


def test_more_tasks_than_there_may_be_turns_are_proven_soon(rules: Evidence) -> None:
    readers = [(task(rules, "A->B", number), [number]) for number in range(40)]
    assert until_proven(readers, 2.0) <= 1.0


def test_two_mirrors_of_the_same_partitions_take_turns(rules: Evidence) -> None:
    """Neither waits for a deadline, and neither has failed."""
    tasks = [task(rules, mirror, number) for mirror in ("A->B", "A->C") for number in range(2)]
    readers = [(tasks[0], [0, 1]), (tasks[2], [1, 2]), (tasks[1], [2, 3]), (tasks[3], [3, 0])]
    assert until_proven(readers, 3.0) <= 1.0
    assert [mirror.flow.failures for mirror in tasks] == [0] * 4


def test_a_mirror_that_proves_nothing_delays_another_one_by_its_turns(rules: Evidence) -> None:
    """All of its tasks have them at once."""
    lost = [task(rules, "A->C", number, through=False) for number in range(8)]
    ours, now = task(rules, "A->B", 0), 0.0
    readers = [*((mirror, [number]) for number, mirror in enumerate(lost)), (ours, list(range(8)))]
    while not proven(ours):
        assert now < 11.0
        for mirror, partitions in readers:
            answer(mirror, partitions, now)
            mirror.produce(now)
        now += STEP
        assert ours.flow.failures == 0
    assert not any(map(proven, lost))
    assert sum(mirror.strayed for mirror in lost) == 0


def test_tasks_of_one_name_that_read_the_same_partitions_wait_for_each_other_for_a_limited_time(
    rules: Evidence,
) -> None:
    """As those of two mirrors on one host do, if they have the same names."""
    one, two = task(rules, "A->B", 0), task(rules, "A->B", 1)
    assert not answer(one, [0], 0.0)
    assert not answer(two, [1], 0.0)
    assert until_proven([(one, [0, 1]), (two, [1, 0])], 30.0) <= 10.0


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), min_size=1, unique=True)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.02, 0.1, 0.5, 3.0])), min_size=20, max_size=120),
)
def test_whatever_they_read_the_wrong_ones_are_not_proven_and_no_token_goes_astray(
    mirrors: list[tuple[bool, list[int]]], steps: list[tuple[int, float]]
) -> None:
    rules, now = interlock(), 0.0
    readers = [
        (task(rules, f"A->{number % 2}", number, through=through), read)
        for number, (through, read) in enumerate(mirrors)
    ]
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
