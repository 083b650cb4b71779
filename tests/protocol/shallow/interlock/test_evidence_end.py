import pytest

from shoal.protocol.shallow.interlock.evidence import Evidence
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.interlock.rules import EventKind
from tests.protocol.shallow.interlock.mirrors import TOPIC, Mirror, interlock, kinds, prove, sample_from

# The end of evidence


def test_the_first_envelopes_are_a_trial(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    assert not mirror.wraps(now)
    assert "on their way" in str(rules.why_raw(mirror.flow, TOPIC, now))
    mirror.produce(now)
    assert mirror.wraps(now)
    mirror.fetch(now)
    assert mirror.wraps(now)
    assert rules.why_raw(mirror.flow, TOPIC, now) is None
    assert rules.statistics().outstanding == 1


@pytest.mark.parametrize("changes", [{"evidence_seconds": 7.0}, {"evidence_bytes": 4500, "connection_bytes": 0}])
def test_envelopes_that_do_not_arrive_stop_wrapping(changes: dict[str, float]) -> None:
    rules = interlock(**changes)
    mirror = Mirror(rules)
    now = prove(mirror)
    mirror.fetch(now)
    mirror.produce(now)
    for _ in range(5):
        mirror.fetch(now)
        now += 2.0
        rules.tick(now)
    assert not mirror.wraps(now)
    (proven, stopped) = rules.events()
    assert (proven.kind, stopped.kind) == (EventKind.PROVEN, EventKind.STOPPED)
    assert "B.producer.bootstrap.servers" in stopped.text
    assert f" s, of {TOPIC}-0. " in stopped.text
    assert "list the topic in deep-topics" in stopped.text
    assert sample_from(rules, mirror.flow, Fetched(mirror.connection, TOPIC, 0, 0, 1), now) is None
    assert sample_from(rules, mirror.flow, Fetched(mirror.connection, TOPIC, 0, 0, 1), now + 60.0) is not None


def given_much(rules: Evidence, brokers: int, each: int = 4) -> tuple[Mirror, float]:
    """A proven mirror prefetches from several brokers, 1000 bytes in each envelope, and nothing arrives."""
    mirror = Mirror(rules)
    now = prove(mirror)
    for number in range(brokers - 1):
        rules.connected("10.0.0.1", mirror.name, 50_000 + number, now)
    mirror.fetch(now)
    mirror.produce(now)
    for _ in range(brokers * each):
        assert mirror.fetch(now) is None
        assert mirror.wraps(now), "answers of many brokers that are ready were taken for a strand"
    return mirror, now


def test_what_many_brokers_prefetch_is_no_strand() -> None:
    rules = interlock(evidence_bytes=4000, connection_bytes=4000)
    mirror, now = given_much(rules, 12)
    mirror.produce(now + 1.0)
    assert mirror.wraps(now + 1.0)
    assert kinds(rules) == [EventKind.PROVEN]


def test_much_at_once_is_no_strand_either_before_some_seconds_have_passed() -> None:
    rules = interlock(evidence_bytes=4000, connection_bytes=0)
    mirror, now = given_much(rules, 12)
    for second in range(10):
        assert mirror.wraps(now + second)
        rules.asked(mirror.flow, now + second)
    assert not mirror.wraps(now + 10.0)
    assert kinds(rules) == [EventKind.PROVEN, EventKind.STOPPED]


@pytest.mark.parametrize("drops", [False, True])
def test_a_mirror_that_is_paused_need_not_bring_anything(rules: Evidence, mirror: Mirror, drops: bool) -> None:
    """It does not fetch meanwhile. Then it continues with its records, or reads them again."""
    now = prove(mirror)
    mirror.fetch(now)
    mirror.produce(now)
    mirror.fetch(now)
    for _ in range(300):
        now += 1.0
        rules.tick(now)
    if drops:
        mirror.buffer.clear()
        mirror.positions[TOPIC, 0] -= 4
    assert mirror.fetch(now) is None
    rules.tick(now)
    assert mirror.wraps(now)
    mirror.produce(now + 1.0)
    rules.tick(now + 1.0)
    assert kinds(rules) == [EventKind.PROVEN]


def test_one_that_asks_for_more_is_not_paused(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    mirror.produce(now)
    mirror.fetch(now)
    for _ in range(70):
        now += 1.0
        rules.asked(mirror.flow, now)  # and there is nothing more
        rules.tick(now)
    assert kinds(rules) == [EventKind.PROVEN, EventKind.STOPPED]


def test_arrivals_keep_it_going() -> None:
    rules = interlock(evidence_bytes=3000, connection_bytes=0, evidence_seconds=5.0)
    mirror = Mirror(rules)
    now = prove(mirror)
    mirror.fetch(now)
    for _ in range(50):
        mirror.produce(now)
        assert mirror.wraps(now)
        mirror.fetch(now)
        now += 3.0
    mirror.produce(now)
    rules.tick(now + 1000.0)  # idle: nothing is outstanding
    assert mirror.wraps(now + 1000.0)


def test_a_consumer_that_seeks_is_not_waited_for(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    mirror.produce(now)
    mirror.fetch(now)
    mirror.buffer.clear()
    mirror.positions[TOPIC, 0] = 2
    mirror.fetch(now)
    mirror.produce(now)
    rules.tick(now + 1000.0)
    assert kinds(rules) == [EventKind.PROVEN]


def test_a_lost_envelope_is_forgotten_when_a_later_one_arrives(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    mirror.produce(now)
    mirror.fetch(now)
    mirror.fetch(now)
    mirror.buffer.popleft()
    mirror.produce(now)
    assert rules.statistics().outstanding == 0


def test_evidence_ends_with_the_last_consumer_connection(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    second = rules.connected("10.0.0.1", mirror.name, 555, now)
    mirror.leave(now)
    assert second is mirror.flow
    rules.disconnected(second, 555, now)
    reborn = Mirror(rules, now=now)
    assert reborn.flow.token != mirror.flow.token
    assert not reborn.wraps(now)


def test_evidence_ends_with_the_connection_that_was_proven(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    rules.connected("10.0.0.1", mirror.name, 555, now)
    mirror.leave(now)
    assert not mirror.flow.is_proven


def test_the_log_tells_that_it_ended(rules: Evidence, mirror: Mirror) -> None:
    mirror.leave(prove(mirror))
    assert kinds(rules) == [EventKind.PROVEN, EventKind.PAUSED]


def test_a_mirror_that_dies_of_its_first_envelope_is_told_of_at_once(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    assert mirror.fetch(now) is None
    mirror.leave(now + 1.0)
    proven, lost = rules.events()
    assert (proven.kind, lost.kind) == (EventKind.PROVEN, EventKind.LOST)
    assert "a connection failed" in lost.text
    assert "max.request.size" in lost.text


def test_it_is_an_error_when_that_happens_again(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    mirror.leave(now)
    reborn = Mirror(rules, now=now, positions={(TOPIC, 0): 4})
    now = prove(reborn, now + 60.0)
    reborn.fetch(now)
    reborn.leave(now)
    *_, stopped = rules.events()
    assert stopped.kind is EventKind.STOPPED
    assert "max.request.size" in stopped.text


def test_evidence_ends_with_the_last_producer_connection(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    first, mirror.producer = mirror.producer, 4711
    mirror.produce(now)  # the envelope comes over another connection
    rules.producer_disconnected(first, now)
    assert mirror.wraps(now)
    rules.producer_disconnected(4711, now)
    assert not mirror.wraps(now)
    prove(mirror, now + 1.0)


def test_a_mirror_that_dies_of_the_trial_is_not_tried_again_at_once(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    mirror.leave(now)
    reborn = Mirror(rules, now=now, positions={(TOPIC, 0): 4})
    assert "max.request.size" in str(rules.why_raw(reborn.flow, TOPIC, now))
    assert reborn.fetch(now + 1.0) is None
    prove(reborn, now + 60.0)


def test_unless_the_envelope_arrives_after_all(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.fetch(now)
    mirror.leave(now)
    mirror.produce(now)
    reborn = Mirror(rules, now=now, positions={(TOPIC, 0): 8})
    prove(reborn, now)


# Bounds


def test_too_many_partitions_end_all_proving() -> None:
    rules = interlock(max_partitions=3)
    mirror = Mirror(rules)
    for partition in range(5):
        mirror.fetch(0.0, partition=partition)
    assert rules.statistics().partitions == 3
    assert "keep track" in str(rules.why_raw(mirror.flow, TOPIC, 0.0))
    mirror.produce(1.0)
    assert not mirror.wraps(1.0)


def test_it_ends_when_the_peak_is_over() -> None:
    rules = interlock(max_partitions=3)
    peak, ours = Mirror(rules, "many"), Mirror(rules)
    for partition in range(5):
        peak.fetch(0.0, partition=partition)
    peak.leave(1.0)
    for second in range(2, 60):
        ours.fetch(float(second))
        ours.produce(float(second))
        assert not ours.wraps(float(second))
    assert "keep track" in str(rules.why_raw(ours.flow, TOPIC, 59.0))
    rules.tick(62.0)
    for second in range(62, 240):
        ours.fetch(float(second))
        ours.produce(float(second))
    assert ours.wraps(240.0), rules.why_raw(ours.flow, TOPIC, 240.0)


def test_nor_are_too_many_consumers_too_many_for_ever() -> None:
    rules = interlock(max_flows=1)
    peak, ours = Mirror(rules, "another"), Mirror(rules)
    ours.fetch(1.0)
    peak.leave(2.0)
    for second in range(3, 240):
        ours.fetch(float(second))
        ours.produce(float(second))
        rules.tick(float(second))
    assert ours.wraps(240.0), rules.why_raw(ours.flow, TOPIC, 240.0)
    ours.leave(241.0)
    assert rules.statistics().flows == 0
    rules.gave_raw(ours.flow, Fetched(ours.connection, TOPIC, 0, 0, 1), 242.0)
    assert rules.statistics().flows == 0


def test_too_many_consumers_end_all_proving() -> None:
    rules = interlock(max_flows=1)
    ours, other = Mirror(rules), Mirror(rules, "another")
    for _ in range(3):
        for mirror in (ours, other):
            mirror.fetch(1.0)
            mirror.produce(1.0)
    assert not ours.wraps(1.0)
    assert not other.wraps(1.0)
    assert rules.statistics().flows == 1
    other.leave(2.0)
