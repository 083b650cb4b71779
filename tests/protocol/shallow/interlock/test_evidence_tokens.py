"""A record with a token, which only the flow itself can bring back; and tokens that do not come back."""

import pytest

from shoal.protocol.shallow.interlock.evidence import Evidence
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.interlock.rules import EventKind
from shoal.protocol.shallow.interlock.way_back import WayBack
from shoal.protocol.wire.types import TopicPartition
from tests.protocol.shallow.interlock.mirrors import HOST, TOPIC, Mirror, interlock, kinds, mark, prove, sample_from


def deceived(mirror: Mirror, now: float = 0.0) -> float:
    """Another client produces the mirror's samples, a moment after the mirror got them. Then it gets a token."""
    until = mirror.fetch(now)
    while until is not None:
        now = until
        until = mirror.fetch(now)
    start = mirror.positions[TOPIC, 0]
    for offset in range(start - 4, start):
        mirror.rules.saw_produced(f"A.{TOPIC}", 0, [mark(TOPIC, 0, offset)], 99, now + 0.1)
    assert not mirror.wraps(now + 0.1)
    assert mirror.fetch(now + 0.1) is None
    assert (TOPIC, 0, start) in mirror.tokens
    return now + 0.1


def test_somebody_elses_copies_prove_nothing(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False)
    now = deceived(mirror)
    mirror.produce(now)
    for _ in range(200):
        mirror.fetch(now)
        mirror.produce(now)
        rules.saw_produced(f"A.{TOPIC}", 0, [mark(TOPIC, 0, offset) for offset in range(2000)], 99, now)
        rules.tick(now)
        now += 0.2
    assert not mirror.stranded
    assert mirror.strayed == 1, "it backs off"
    (event,) = rules.events()
    assert event.kind is EventKind.STRAYED
    assert "orders-0 at offset 4," in event.text
    assert "another client copies" in event.text
    assert "Does B.producer.bootstrap.servers " in event.text
    assert rules.why_raw(mirror.flow, TOPIC, now) == event.text


def test_the_next_life_of_a_deceived_flow_backs_off_too(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False)
    now = deceived(mirror)
    mirror.leave(now + 1.0)
    assert kinds(rules) == [EventKind.LOST]
    reborn = Mirror(rules, through=False, now=now + 1.0, positions={(TOPIC, 0): 5})
    assert "with a token" in str(rules.why_raw(reborn.flow, TOPIC, now + 1.0))
    for second in range(1, 59):
        reborn.fetch(now + second)
    assert not reborn.tokens
    now = deceived(reborn, now + 62.0)
    reborn.leave(now + 1.0)
    assert kinds(rules) == [EventKind.STRAYED]


def test_unless_the_token_comes_back_after_all(rules: Evidence, mirror: Mirror) -> None:
    now = deceived(mirror)
    mirror.leave(now)
    mirror.produce(now)
    prove(Mirror(rules, now=now, positions={(TOPIC, 0): 5}), now)


def test_a_token_that_is_late_is_proof_all_the_same(rules: Evidence, mirror: Mirror) -> None:
    now = deceived(mirror)
    rules.tick(now + 20.0)
    assert kinds(rules) == [EventKind.STRAYED]
    mirror.produce(now + 21.0)
    assert mirror.wraps(now + 21.0)
    assert kinds(rules) == [EventKind.PROVEN]
    mirror.fetch(now + 21.0)
    mirror.produce(now + 21.0)
    assert rules.why_raw(mirror.flow, TOPIC, now + 21.0) is None


def test_nothing_else_is_given_meanwhile_for_a_bounded_time(mirror: Mirror) -> None:
    now = deceived(mirror)
    assert mirror.fetch(now + 1.0) == pytest.approx(now + 10.0)
    assert mirror.fetch(now + 10.0) is None
    assert len(mirror.tokens) == 1


def test_what_comes_back_with_its_token_but_changed_proves_nothing(rules: Evidence) -> None:
    mirror = Mirror(rules, changes=True)
    now = deceived(mirror)
    mirror.produce(now)
    assert not mirror.wraps(now)
    assert "changed" in str(rules.why_raw(mirror.flow, TOPIC, now))
    assert mirror.fetch(now) is None


def test_one_that_was_dropped_is_given_again_after_a_while(rules: Evidence, mirror: Mirror) -> None:
    now = deceived(mirror)
    mirror.buffer.clear()
    mirror.tokens.clear()
    mirror.positions[TOPIC, 0] = 4  # a seek, and the pause may be over before the next token
    mirror.fetch(now + 1.0, patient=False)
    assert not mirror.tokens
    mirror.positions[TOPIC, 0] = 4
    mirror.fetch(now + 6.0, patient=False)
    assert list(mirror.tokens) == [(TOPIC, 0, 4)]
    mirror.produce(now + 6.0)
    assert mirror.wraps(now + 6.0)


def test_a_second_connection_by_the_same_name_needs_a_token_of_its_own(rules: Evidence, mirror: Mirror) -> None:
    """It may be another mirror's."""
    now = prove(mirror)
    other = Mirror(rules, through=False, now=now)
    assert other.flow is mirror.flow
    other.positions[TOPIC, 1] = 0
    for _ in range(100):
        other.fetch(now, partition=1)
        other.produce(now)
        for offset in range(other.positions[TOPIC, 1]):
            if rules.listens(f"A.{TOPIC}", 1):
                rules.saw_produced(f"A.{TOPIC}", 1, [mark(TOPIC, 1, offset)], 99, now)
        now += 0.3
    assert not other.stranded
    assert other.strayed == 1
    assert mirror.wraps(now)


def test_what_nobody_knows_the_offset_of_counts_as_given(rules: Evidence) -> None:
    other, ours = Mirror(rules, "A->B"), Mirror(rules)
    rules.gave_unseen(other.flow, TopicPartition(TOPIC, 0), 70, 0.0)
    read = Fetched(ours.connection, TOPIC, 0, 0, 50)
    rules.gave_raw(ours.flow, read, 0.0)
    assert sample_from(rules, ours.flow, read, 0.0) == 70


def test_samples_of_which_somebody_was_given_an_unknown_part_are_void(rules: Evidence) -> None:
    other, ours = Mirror(rules, "A->C"), Mirror(rules, through=False)
    ours.fetch(0.0)
    ours.fetch(0.2)
    rules.gave_unseen(other.flow, TopicPartition(TOPIC, 0), 4, 0.3)
    rules.saw_produced(f"A.{TOPIC}", 0, [mark(TOPIC, 0, offset) for offset in range(4)], 77, 0.4)
    ours.fetch(0.5)
    assert not ours.tokens


def test_tokens_that_never_come_are_bounded() -> None:
    rules = interlock(max_tokens=1)
    mirror = Mirror(rules, through=False)
    now = deceived(mirror)
    rules.tick(now + 20.0)
    deceived(mirror, now + 100.0)
    assert len(mirror.flow.tokens) == 1


RELAY = "10.0.0.2"


def relayed(mirror: Mirror, now: float = 0.0) -> float:
    """Copy, and copy the copy, until a token has come back."""
    end = now + 30.0
    while not mirror.tokens:
        until = mirror.fetch(now)
        now = until or now + 0.1
        assert now < end, "no token was given"
        if not mirror.tokens:
            mirror.produce(now)
    mirror.produce(now)
    return now


def test_a_token_that_another_host_brings_proves_nothing(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False, relay=RELAY)
    now = relayed(mirror)
    (event,) = rules.events()
    assert event.kind is EventKind.STRAYED
    for told in (f"from {RELAY}, not from {HOST}", "orders-0 at offset", "any-producer", "Does B.producer.bootstrap"):
        assert told in event.text
    assert "\n" not in event.text
    assert rules.why_raw(mirror.flow, TOPIC, now) == event.text
    for _ in range(200):
        mirror.fetch(now)
        mirror.produce(now)
        rules.tick(now)
        now += 0.2
    assert not mirror.stranded
    assert not rules.events(), "it backs off"


def test_nor_in_the_next_life_of_the_flow(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False, relay=RELAY)
    now = relayed(mirror)
    rules.events()
    mirror.leave(now)
    reborn = Mirror(rules, through=False, relay=RELAY, now=now, positions=mirror.positions)
    assert f"from {RELAY}, not from {HOST}" in str(rules.why_raw(reborn.flow, TOPIC, now))
    for second in range(1, 299):
        reborn.fetch(now + second)
    assert not reborn.tokens
    relayed(reborn, now + 302.0)
    assert kinds(rules) == [EventKind.STRAYED]


def test_a_relay_that_takes_its_time_is_told_of_when_it_is_known(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False, relay=RELAY)
    now = deceived(mirror)
    rules.tick(now + 20.0)
    mirror.produce(now + 21.0)
    silent, relays = rules.events()
    assert "another client copies" in silent.text
    assert f"from {RELAY}" in relays.text
    assert mirror.flow.stops == 1, "it is one token that went astray"


def test_what_comes_from_another_host_after_all_does_not_end_the_back_off(rules: Evidence) -> None:
    mirror = Mirror(rules, through=False, relay=RELAY)
    now = deceived(mirror)
    mirror.leave(now)
    mirror.produce(now)
    reborn = Mirror(rules, now=now, positions={(TOPIC, 0): 5})
    assert "with a token" in str(rules.why_raw(reborn.flow, TOPIC, now))


def test_one_that_comes_from_elsewhere_is_no_matter_where_another_has_proved_the_same(
    rules: Evidence, mirror: Mirror
) -> None:
    now = deceived(mirror)
    (first,) = mirror.flow.tokens
    mirror.positions[TOPIC, 0] = 4  # a seek: it is given another token
    mirror.fetch(now + 6.0, patient=False)
    mirror.produce(now + 6.0)
    assert mirror.wraps(now + 6.0)
    rules.events()
    rules.returned(first, mark(TOPIC, 0, 4), WayBack(98, RELAY, "", TOPIC), now + 7.0)
    assert mirror.wraps(now + 7.0)
    assert not rules.events()


def test_a_mirror_of_several_addresses_is_proven_where_the_operator_says_so() -> None:
    mirror = Mirror(interlock(any_producer=True), through=False, relay=RELAY)
    now = relayed(mirror)
    assert mirror.wraps(now)
