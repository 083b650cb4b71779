from typing import NamedTuple

import pytest

from shoal.protocol.shallow.interlock.evidence import Evidence
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.interlock.rules import AlwaysWrap, EventKind, HandedOut, InterlockRules, Raw, Review, Wrap
from tests.protocol.shallow.interlock.mirrors import TOPIC, Data, Mirror, interlock, kinds, mark, prove, sample_from

# Proof


def test_a_mirror_that_produces_through_shoal_is_proven(rules: Evidence, mirror: Mirror) -> None:
    assert not mirror.wraps(0.0)
    assert mirror.fetch(0.0) == pytest.approx(0.2)  # watched before they are given
    assert mirror.fetch(0.1) == pytest.approx(0.2)
    assert mirror.fetch(0.2) is None
    assert not mirror.wraps(0.3)
    mirror.produce(0.3, 1)
    assert not mirror.wraps(0.3)  # one sample is not enough
    mirror.produce(0.4, 1)
    assert not mirror.wraps(0.4)  # they might be another client's
    assert mirror.fetch(0.4) is None
    assert list(mirror.tokens) == [(TOPIC, 0, 4)]
    assert not mirror.wraps(0.4)
    mirror.produce(0.5)
    assert mirror.wraps(0.5)
    assert kinds(rules) == [EventKind.PROVEN]
    assert rules.statistics().proven == 1


class Event(NamedTuple):
    second: int
    kind: EventKind
    text: str


def told_in_vain(mirror: Mirror, *, drops: int = 0) -> list[Event]:
    """The log of a hundred seconds about an unwrapped mirror; `drops` records of each answer are filtered."""
    told = []
    for now in range(100):
        mirror.fetch(float(now))
        for _ in range(min(drops, len(mirror.buffer))):
            mirror.buffer.popleft()
        mirror.produce(float(now))
        mirror.rules.tick(float(now))
        told += [Event(now, event.kind, event.text) for event in mirror.rules.events()]
        assert not mirror.wraps(float(now))
    return told


def test_one_that_produces_past_it_is_not_and_shoal_says_why(rules: Evidence) -> None:
    (event,) = told_in_vain(Mirror(rules, through=False))
    assert event.kind is EventKind.NO_EVIDENCE
    assert event.text.startswith(f"no record of {TOPIC} ")
    assert "Does B.producer.bootstrap.servers " in event.text


def test_one_whose_transform_changes_records_is_not(rules: Evidence) -> None:
    (event,) = told_in_vain(Mirror(rules, changes=True))
    assert event.kind is EventKind.NO_EVIDENCE
    assert event.text.startswith(f"records for {TOPIC} come to the target listener, but ")
    assert "transform" in event.text


def test_a_filter_that_drops_some_records_is_told_once_it_is_no_accident(mirror: Mirror) -> None:
    (event,) = told_in_vain(mirror, drops=1)
    assert event.kind is EventKind.NO_EVIDENCE
    assert "deep-topics" in event.text
    assert 5 <= event.second <= 10


def test_a_filter_that_drops_some_records_is_seen(rules: Evidence, mirror: Mirror) -> None:
    mirror.fetch(0.0)
    mirror.fetch(0.2)
    mirror.buffer.popleft()
    mirror.produce(0.3)
    assert not mirror.wraps(0.3)
    assert "deep-topics" in str(rules.why_raw(mirror.flow, TOPIC, 0.3))


def test_records_that_come_before_they_were_given_are_somebody_elses(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False)
    mirror.fetch(0.0)
    rules.saw_produced(f"A.{TOPIC}", 0, [mark(TOPIC, 0, 0)], 77, 0.1)
    mirror.fetch(0.3)
    rules.saw_produced(f"A.{TOPIC}", 0, [mark(TOPIC, 0, 1), mark(TOPIC, 0, 2)], 77, 0.4)
    assert not mirror.wraps(0.4)
    assert "another client" in str(rules.why_raw(mirror.flow, TOPIC, 0.4))


def test_the_target_topic_must_bear_the_name(rules: Evidence, mirror: Mirror) -> None:
    mirror.fetch(0.0)
    mirror.fetch(0.2)
    assert not rules.listens("other", 0)
    assert not rules.listens(TOPIC, 1)
    rules.saw_produced("other", 0, [mark(TOPIC, 0, 0), mark(TOPIC, 0, 1)], 77, 0.4)
    assert not mirror.wraps(0.4)
    assert rules.listens("orders.mirrored", 0)


def test_proof_is_per_topic(mirror: Mirror) -> None:
    now = prove(mirror)
    assert not mirror.wraps(now, "payments")


def test_after_a_start_no_turn_begins_before_others_can_have_come_back() -> None:
    rules = interlock(grace_seconds=5.0)
    mirror = Mirror(rules)
    assert mirror.fetch(4.8, patient=False) is None
    mirror.produce(4.8)
    assert not mirror.wraps(4.8)
    prove(mirror, 5.0)


# Pauses: awaited records should not queue behind others


def test_after_a_start_nothing_is_given_before_it_can_be_proof() -> None:
    rules = interlock(grace_seconds=5.0)
    mirror = Mirror(rules)
    assert mirror.fetch(0.0) == 5.0
    assert mirror.fetch(4.9) == 5.0
    assert mirror.wraps(prove(mirror, 5.0))


def test_nothing_more_is_given_while_samples_are_on_their_way(mirror: Mirror) -> None:
    mirror.fetch(0.0)
    assert mirror.fetch(0.2) is None
    assert mirror.fetch(0.3) == pytest.approx(3.2)
    mirror.produce(0.5, 1)
    assert mirror.fetch(0.6) == pytest.approx(3.5)  # it works: one has come back
    mirror.produce(0.7, 1)
    assert mirror.fetch(0.7) is None


def test_nor_while_the_trial_is(mirror: Mirror) -> None:
    now = prove(mirror)
    assert mirror.fetch(now) is None
    assert mirror.fetch(now + 1.0) == pytest.approx(now + 10.0)
    assert mirror.fetch(now + 10.0) is None


def test_a_mirror_waits_for_its_first_turn_and_then_no_more() -> None:
    rules = interlock(max_turns=1)
    other, ours = Mirror(rules, "A->C", through=False), Mirror(rules)
    other.fetch(0.0)
    other.fetch(0.2)
    assert ours.fetch(0.3, partition=5) == pytest.approx(3.2)
    ours.flow.failures = 1
    assert ours.fetch(0.3, partition=5) is None


# Two mirrors of one source


def test_the_other_mirror_waits_and_is_not_proven(rules: Evidence) -> None:
    ours, other = Mirror(rules), Mirror(rules, "A->C", through=False)
    ours.fetch(0.0)
    held = other.fetch(0.1)
    assert held is not None
    ours.fetch(0.2)
    ours.produce(0.4)
    ours.fetch(0.4)
    ours.produce(0.5)
    assert ours.wraps(0.5)
    other.fetch(0.5)
    other.produce(0.6)
    assert not other.wraps(0.6)


def test_a_turn_that_fails_passes_on(rules: Evidence) -> None:
    other, ours = Mirror(rules, "A->C", through=False), Mirror(rules)
    other.fetch(0.0)
    other.fetch(0.2)
    held = ours.fetch(0.3)
    assert held is not None
    assert held <= 10.0
    now = held
    for _ in range(100):  # the other one is ahead; ours gets its turn when it has caught up
        other.fetch(now)
        other.produce(now)
        ours.fetch(now, 8)
        ours.produce(now)
        now += 0.25
    assert ours.wraps(now)
    assert not other.wraps(now)


def test_records_that_another_flow_may_have_been_given_are_no_samples(rules: Evidence) -> None:
    other, ours = Mirror(rules, "ordinary consumer"), Mirror(rules)
    rules.gave_raw(other.flow, Fetched(other.connection, TOPIC, 0, 100, 100), 0.0)
    read = Fetched(ours.connection, TOPIC, 0, 0, 50)
    rules.gave_raw(ours.flow, read._replace(next_offset=0), 0.0)
    assert sample_from(rules, ours.flow, read, 0.0) == 100
    assert sample_from(rules, other.flow, Fetched(other.connection, TOPIC, 0, 100, 110), 0.0) == 0


def test_samples_that_an_ordinary_consumer_has_read_too_are_void(rules: Evidence) -> None:
    other, ours = Mirror(rules, "ordinary consumer"), Mirror(rules, through=False)
    ours.fetch(0.0)
    ours.fetch(0.2)
    rules.gave_raw(other.flow, Fetched(other.connection, TOPIC, 0, 4, 4), 0.3)
    rules.saw_produced(f"A.{TOPIC}", 0, [mark(TOPIC, 0, 0), mark(TOPIC, 0, 1)], 77, 0.4)
    assert not ours.wraps(0.4)


def test_a_consumer_that_has_gone_counts_for_a_while(rules: Evidence) -> None:
    other, ours = Mirror(rules, "A->C"), Mirror(rules)
    other.positions[TOPIC, 0] = 100
    other.fetch(0.0)
    other.leave(0.0)
    read = Fetched(ours.connection, TOPIC, 0, 0, 50)
    assert sample_from(rules, ours.flow, read, 50.0) == 100
    rules.tick(61.0)
    assert sample_from(rules, ours.flow, read, 61.0) == 0
    assert rules.statistics().partitions == 0


def test_what_was_handed_out_in_envelopes_does_not_count_as_given(rules: Evidence) -> None:
    first, second = Mirror(rules), Mirror(rules, "A->C")
    now = prove(first)
    first.fetch(now)
    assert first.positions[TOPIC, 0] == 9
    read = Fetched(second.connection, TOPIC, 0, 5, 9)
    rules.gave_raw(second.flow, read._replace(next_offset=5), now)
    assert sample_from(rules, second.flow, read, now + 1) == 5


def test_one_flow_over_two_connections_that_reads_everything_twice_is_two_mirrors(rules: Evidence) -> None:
    one = Mirror(rules)
    now = prove(one)
    two = Mirror(rules, through=False)
    assert two.flow is one.flow
    two.positions[TOPIC, 0] = one.positions[TOPIC, 0]
    for _ in range(100):
        for mirror in (two, one):
            mirror.fetch(now)
            mirror.produce(now)
        now += 0.1
        assert not two.stranded
    assert not one.wraps(now)
    assert "client.id of its own" in str(rules.why_raw(one.flow, TOPIC, now))


def test_a_partition_that_moves_to_another_broker_is_proven_anew(rules: Evidence, mirror: Mirror) -> None:
    now = prove(mirror)
    mirror.connection = 555
    rules.connected("10.0.0.1", mirror.name, 555, now)
    mirror.fetch(now)
    assert not mirror.wraps(now)
    prove(mirror, now + 1.0)
    assert rules.statistics().proven == 2
    assert kinds(rules) == [EventKind.PROVEN]


# Without a pair


def test_the_operator_may_vouch() -> None:
    rules: InterlockRules = AlwaysWrap(salt=b"s", first_serial=5, token=(1 << 64) - 1)
    flow = rules.connected("10.0.0.1", "x", 1, 0.0)
    read = Fetched(1, TOPIC, 0, 5, 9)

    def review(read: Fetched) -> Review:
        assert rules.pause_until(flow, 0.0) is None
        assert rules.hold(flow, [Data(read)], 0.0) == [None]
        return rules.review(flow, [Data(read)], [None], 0.0)

    assert review(read).decisions == review(read).decisions == [Wrap(first_raw=True)]
    rules.commit(flow, review(read), [HandedOut(read, None)], 0.0)
    assert review(read._replace(fetch_offset=9, next_offset=12)).decisions == [Wrap(first_raw=False)]
    assert review(read._replace(fetch_offset=3, next_offset=9)).decisions == [Wrap(first_raw=True)]
    assert rules.review(flow, [Data(read, may_be_wrapped=False)], [None], 0.0).decisions == [Raw()]
    assert (rules.next_serial(), rules.next_serial()) == (5, 6)
    assert not rules.listens(TOPIC, 0)
    assert rules.why_raw(flow, TOPIC, 0.0) is None
    assert rules.events() == []
    assert rules.connected("10.0.0.2", "x", 1, 0.0).token != flow.token


def test_evidence_is_an_interlock() -> None:
    rules: InterlockRules = interlock()
    assert rules.next_serial() == 1
