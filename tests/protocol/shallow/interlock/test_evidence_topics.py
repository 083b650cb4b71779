"""A new topic of a proven mirror: it waits for its own proof, for a limited time, and nothing waits for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.interlock.evidence import Evidence
from tests.protocol.shallow.interlock.mirrors import TOPIC, Mirror, interlock, prove

NEW = "payments"
OTHERS = ["invoices", "returns", "stock"]
PATIENCE, PROBE = 10.0, 0.2


def proven(*mirrors: Mirror) -> float:
    """Each mirror's first topic is proven and its trial over; -> the time afterwards."""
    now = 0.0
    for index, mirror in enumerate(mirrors):
        mirror.positions[TOPIC, 0] = 100 * index  # the former ones were not given these
        now = prove(mirror, now)
        mirror.fetch(now)
        mirror.produce(now)
        now += 0.25
    return now


def sampled(mirror: Mirror, now: float, topic: str = NEW) -> float:
    """The mirror gets the first records of a new topic; -> the time afterwards."""
    assert mirror.fetch(now, topic=topic) == pytest.approx(now + PROBE)
    now += PROBE + 0.001
    assert mirror.fetch(now, topic=topic) is None
    return now


def come_back(mirror: Mirror, now: float, *topics: str) -> None:
    """The samples, and then a record with a token of each topic, come back."""
    mirror.produce(now)
    for topic in topics:
        assert mirror.fetch(now, topic=topic) is None
    mirror.produce(now)


def wait(mirror: Mirror, now: float, topic: str) -> float:
    """Request records of a topic until they are sent; -> the time."""
    while (until := mirror.fetch(now, topic=topic)) is not None:
        now = until
    return now


def test_it_waits_while_its_samples_are_on_their_way(mirror: Mirror) -> None:
    now = sampled(mirror, proven(mirror))
    assert mirror.fetch(now, topic=NEW) is not None
    mirror.produce(now, 1)
    assert mirror.fetch(now, topic=NEW) is not None
    mirror.produce(now, 3)
    assert mirror.fetch(now, topic=NEW) is None
    assert mirror.fetch(now, topic=NEW) == pytest.approx(now + PATIENCE), "its token is on its way"
    mirror.produce(now)
    assert mirror.wraps(now, NEW)


def test_its_other_partitions_wait_with_it(mirror: Mirror) -> None:
    now = proven(mirror)
    until = mirror.fetch(now, topic=NEW)
    assert until is not None
    assert mirror.fetch(now, topic=NEW, partition=1) is not None
    mirror.fetch(until, topic=NEW)
    assert mirror.fetch(until, topic=NEW, partition=1) is not None
    mirror.produce(until)
    assert mirror.fetch(until, topic=NEW, partition=1) is None


def test_what_is_proven_goes_on_meanwhile(rules: Evidence, mirror: Mirror) -> None:
    now = sampled(mirror, proven(mirror))
    assert rules.pause_until(mirror.flow, now) is None
    for _ in range(3):
        assert mirror.wraps(now)
        assert mirror.fetch(now) is None


def test_it_does_not_wait_for_ever(mirror: Mirror) -> None:
    begin = sampled(mirror, proven(mirror))
    end = wait(mirror, begin, NEW)
    assert begin - PROBE + PATIENCE <= end <= begin + PATIENCE + PROBE
    assert mirror.fetch(end + 1, topic=NEW) is None
    assert mirror.fetch(end + 1, topic=NEW, partition=1) is None


def test_it_waits_for_its_flow_to_have_a_turn() -> None:
    rules = interlock(max_turns=1)
    other, ours = Mirror(rules, "A->C"), Mirror(rules)
    now = sampled(other, proven(other, ours))
    until = ours.fetch(now, topic="invoices")
    assert until == pytest.approx(now + 3.0)
    other.produce(now)
    now = sampled(ours, now, "invoices")
    come_back(ours, now, "invoices")
    assert ours.wraps(now, "invoices")


def test_a_turn_of_another_flow_that_lasts_is_not_waited_out() -> None:
    rules = interlock(max_turns=1)
    other, ours = Mirror(rules, "A->C", through=False), Mirror(rules)
    begin = now = proven(ours)
    other.fetch(now, topic=NEW)
    other.fetch(now + 0.2, topic=NEW)
    until = ours.fetch(now, topic="invoices")
    while until is not None:
        now = until
        rules.saw_produced(f"A.{NEW}", 0, [b"else"], 77, now - 0.1)  # the turn goes on
        until = ours.fetch(now, topic="invoices")
    assert begin + 3 < now <= begin + PATIENCE + 1


def test_it_waits_for_the_pause_after_a_turn(mirror: Mirror) -> None:
    now = prove(mirror)
    assert mirror.fetch(now, topic=NEW) == pytest.approx(now + 0.25)


def test_one_that_failed_does_not_wait_again(mirror: Mirror) -> None:
    now = sampled(mirror, proven(mirror))
    mirror.buffer.popleft()  # a filter
    mirror.produce(now)
    for _ in range(100):
        until = mirror.fetch(now, topic=NEW)
        assert until is None or until <= now + PROBE
        mirror.buffer.clear()
        now += 0.1


def test_several_are_proven_at_once(mirror: Mirror) -> None:
    now = proven(mirror)
    untils = {mirror.fetch(now, topic=topic) for topic in OTHERS}
    assert len(untils) == 1
    now += 0.21
    assert [mirror.fetch(now, topic=topic) for topic in OTHERS] == [None] * 3
    come_back(mirror, now, *OTHERS)
    assert all(mirror.wraps(now, topic) for topic in OTHERS)


def test_more_than_one_turn_takes_are_proven_one_after_the_other() -> None:
    mirror = Mirror(interlock(max_claims=1))
    now = proven(mirror)
    mirror.fetch(now, topic=OTHERS[0])
    assert mirror.fetch(now, topic=OTHERS[1]) is not None
    for topic in OTHERS:
        now = wait(mirror, now, topic)
        come_back(mirror, now, topic)
        assert mirror.wraps(now, topic)


def test_its_partitions_on_another_broker_are_proven_after_it(rules: Evidence, mirror: Mirror) -> None:
    now = sampled(mirror, proven(mirror))
    first, second = mirror.connection, 555
    rules.connected("10.0.0.1", mirror.name, second, now)
    mirror.connection = second
    assert mirror.fetch(now, topic=NEW, partition=1) is not None
    mirror.produce(now)
    now = wait(mirror, now, NEW)
    come_back(mirror, now, NEW)
    assert mirror.wraps(now, NEW)
    mirror.connection = first
    come_back(mirror, now, NEW)
    assert rules.statistics().proven == 3


def test_little_is_asked_for_until_it_is_proven(rules: Evidence, mirror: Mirror) -> None:
    expects = rules.expects_proof
    assert not expects(mirror.flow, mirror.connection, NEW, 0.0), "the flow is not proven"
    begin = proven(mirror)
    assert expects(mirror.flow, mirror.connection, NEW, begin)
    now = sampled(mirror, begin)
    mirror.produce(now, 1)
    assert expects(mirror.flow, mirror.connection, NEW, now)
    come_back(mirror, now, NEW)
    assert not expects(mirror.flow, mirror.connection, NEW, now)


def test_nor_is_little_asked_for_when_its_time_is_over(rules: Evidence, mirror: Mirror) -> None:
    begin = sampled(mirror, proven(mirror)) - 0.2
    assert rules.expects_proof(mirror.flow, mirror.connection, NEW, begin + PATIENCE - 0.1)
    assert not rules.expects_proof(mirror.flow, mirror.connection, NEW, begin + PATIENCE)


STEP = st.tuples(
    st.integers(0, 1), st.sampled_from([*OTHERS, NEW]), st.integers(0, 2), st.sampled_from([0.0, 0.1, 0.4])
)


@given(st.lists(STEP, min_size=20, max_size=80), st.booleans())
def test_nothing_is_starved_and_all_are_proven_in_the_end(
    steps: list[tuple[int, str, int, float]], second: bool
) -> None:
    """Two mirrors with new topics, in any order; the second one's may all be filtered."""
    rules = interlock()
    mirrors = [Mirror(rules), Mirror(rules, "A->C")]
    now = proven(*mirrors)
    since: dict[tuple[int, str, int], float] = {}
    for index, topic, partition, pause in [
        *steps,
        *((n, t, 0, 0.1) for _ in range(30) for t in OTHERS for n in (0, 1)),
    ]:
        mirror, name = mirrors[index], f"{topic}-{index}"
        held = mirror.fetch(now, topic=name, partition=partition) is not None
        began = since.setdefault((index, name, partition), now)
        assert not held or now - began < 4 * PATIENCE, "a topic was starved"
        if not held:
            del since[index, name, partition]
        if index and not second:
            mirror.buffer.clear()
        mirror.produce(now)
        assert rules.pause_until(mirror.flow, now) is None
        now += pause
    assert all(mirrors[0].wraps(now, f"{topic}-0") for topic in OTHERS)
