"""The probe against brokers with every behaviour for sets of batches."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from shoal.protocol.multibatch.probe import Ask, Probe, ProbePlan, clean_up
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.wrap.eligible import Reason, Topics
from tests.support.multibatch.broker import API_RANGES, BatchBroker, Habits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAN = ProbePlan(node_id=1, token=b"12345678", now=1_700_000_000_000)
NAMED = replace(PLAN, topic="shoal-probe")


_STEPS = 22  # requests of a whole probe


def run(broker: BatchBroker, plan: ProbePlan = PLAN, **options: Any) -> Proof:
    """Runs the whole probe; a broker that does not answer closes the connection."""
    probe = Probe(plan, **options)
    step = probe.start()
    for _ in range(200):
        if isinstance(step, Proof):
            return step
        assert step.pause <= 1
        answer = broker.answer(step.frame)
        step = probe.answered(answer) if answer else probe.lost()
    raise AssertionError("the probe does not end")


def judge(plan: ProbePlan = PLAN, **habits: Any) -> Proof:
    broker = BatchBroker(Habits(**habits))
    if plan.topic:
        broker.with_topic(plan.topic)
    return run(broker, plan)


@pytest.mark.parametrize("plan", [PLAN, NAMED])
def test_a_broker_that_stores_sets_whole_is_proven(plan: ProbePlan) -> None:
    broker = BatchBroker().with_topic("shoal-probe")
    proof = run(broker, plan)
    assert proof.result is Result.PROVEN
    assert proof.stamps
    assert proof.why == (
        "sets of 2, 5, 64 batches were stored and read back, nothing of a damaged one was; batches with sequences are "
        "known again one by one"
    )
    assert proof.identity is not None
    assert (proof.identity.cluster_id, proof.identity.node_id) == ("a-cluster", 1)
    assert (proof.identity.host, proof.identity.port) == ("127.0.0.1", 9092)


@pytest.mark.parametrize("plan", [PLAN, NAMED])
def test_a_quota_delays_what_is_read_and_says_nothing_of_the_broker(plan: ProbePlan) -> None:
    assert judge(plan, throttled=3).proven
    proof = judge(plan, throttled=1000)
    assert proof.result is Result.UNKNOWN
    assert "error 89 (THROTTLING_QUOTA_EXCEEDED)" in proof.why
    assert "raise the quotas" in proof.remedy


def test_the_scratch_topic_is_deleted_and_never_mirrored() -> None:
    broker = BatchBroker()
    proof = run(broker)
    assert broker.deleted == [PLAN.scratch]
    assert broker.topics == {}
    assert proof.left_behind == ()
    assert re.fullmatch(r"__.*", PLAN.scratch)
    assert Topics(()).raw_reason(PLAN.scratch) is Reason.INTERNAL_TOPIC


def test_a_named_topic_is_neither_made_nor_deleted() -> None:
    broker = BatchBroker(Habits(create_error=ErrorCode.topic_authorization_failed)).with_topic("shoal-probe")
    assert run(broker, NAMED).proven
    assert not {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS} & set(broker.asked)
    assert list(broker.topics) == ["shoal-probe"]


@pytest.mark.parametrize("code", [ErrorCode.invalid_record, ErrorCode.corrupt_message, ErrorCode.unknown_server_error])
def test_an_error_to_a_set_where_a_single_batch_is_taken_is_a_refusal(code: ErrorCode) -> None:
    broker = BatchBroker(Habits(refuses=code))
    proof = run(broker)
    assert proof.result is Result.REFUSED
    assert f"2 batches (uncompressed) with error {code.value}" in proof.why
    assert not proof.closed
    assert broker.deleted == [PLAN.scratch]
    assert broker.sets.total() == 1


def test_a_connection_that_ends_on_a_set_is_a_refusal() -> None:
    proof = judge(closes=True)
    assert proof.result is Result.REFUSED
    assert proof.closed
    assert proof.why == "the broker closed the connection on 2 batches (uncompressed)"
    assert proof.left_behind == (PLAN.scratch,)


def test_brokers_before_2_4_are_never_sent_a_set() -> None:
    broker = BatchBroker(Habits(ranges={**API_RANGES, ApiKey.PRODUCE: (3, 7)}))
    proof = run(broker)
    assert proof.result is Result.REFUSED
    assert broker.asked == [ApiKey.API_VERSIONS, ApiKey.METADATA]


UNSAFE: dict[str, tuple[dict[str, Any], str]] = {
    "Redpanda": ({"keeps": 1}, "3 of 5 records are lost"),
    "librdkafka's mock": ({"counts_first": True}, "3 of 5 records are lost"),
    "base offset": ({"answers_late_by": 1}, "begin at offset 3, and the log ended at 2"),
    "order": ({"reverses": True}, "5 of 5 records are not what was sent"),
    "content": ({"alters": True}, "1 of 5 records are not what was sent"),
    "in part": ({"in_part": True}, "stores a part of it"),
    "a set known in part is stored in part": (
        {"stamps": "in part"},
        "answers a partly known set with error 87",
    ),
    "the rest of a set is lost": ({"stamps": "stock"}, "loses its new batches"),
    "no checks": ({"checks": False}, "does not check batches"),
}


@pytest.mark.parametrize("plan", [PLAN, NAMED], ids=["scratch", "named"])
@pytest.mark.parametrize(("habits", "why"), UNSAFE.values(), ids=UNSAFE)
def test_success_with_records_lost_or_wrong_is_unsafe(habits: dict[str, Any], why: str, plan: ProbePlan) -> None:
    proof = judge(plan, **habits)
    assert proof.result is Result.UNSAFE
    if not (plan.topic and "answers_late_by" in habits):
        assert why in proof.why
    assert proof.left_behind == ()


UNKNOWN: dict[str, tuple[dict[str, Any], str, str]] = {
    "no right to create": (
        {"create_error": ErrorCode.topic_authorization_failed},
        "cannot create the scratch topic __shoal-probe-3132333435363738: error 29 (TOPIC_AUTHORIZATION_FAILED): so "
        "says the broker",
        "let the client create and delete topics __shoal-probe-*; or create a topic",
    ),
    "a policy": ({"create_error": ErrorCode.policy_violation}, "POLICY_VIOLATION", "name it with probe-topic"),
    "not the controller": ({"create_error": ErrorCode.not_controller}, "error 41", "name it with probe-topic"),
    "no CreateTopics": (
        {"ranges": {key: range_ for key, range_ in API_RANGES.items() if key != ApiKey.CREATE_TOPICS}},
        "no CreateTopics",
        "name it with probe-topic",
    ),
    "no right to write": ({"write_error": ErrorCode.topic_authorization_failed}, "no single batch", "let the client"),
    "no right to read": (
        {"read_error": ErrorCode.topic_authorization_failed},
        "cannot ask for the end",
        "let the client",
    ),
    "SASL": ({"closes_on": frozenset({ApiKey.METADATA})}, "asked for Metadata", "--sasl-mechanism"),
    "another node": ({"node_ids": (7,)}, "does not name a broker 1", ""),
    "no leader": ({"passing": 1000}, "error 6", ""),
}  # fmt: skip


@pytest.mark.parametrize(("habits", "why", "remedy"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_tried_is_told_with_a_way_out(habits: dict[str, Any], why: str, remedy: str) -> None:
    proof = judge(**habits)
    assert proof.result is Result.UNKNOWN
    assert why in proof.why
    assert remedy in proof.remedy


def test_a_connection_that_is_closed_at_once_does_not_say_why() -> None:
    proof = judge(closes_on=frozenset({ApiKey.API_VERSIONS}))
    assert (proof.result, proof.remedy) == (Result.UNKNOWN, "")
    assert proof.why == "the broker closed the connection when asked for ApiVersions"


def test_a_named_topic_that_is_not_there() -> None:
    proof = run(BatchBroker(), NAMED)
    assert proof.result is Result.UNKNOWN
    assert "topic shoal-probe: error 3" in proof.why


def test_a_named_topic_without_a_partition_of_this_broker() -> None:
    broker = BatchBroker(Habits(node_ids=(5, 1))).with_topic("shoal-probe", 1)
    assert "no partition that broker 1 leads" in run(broker, NAMED).why
    assert run(broker.with_topic("shoal-probe", 2), NAMED).proven


def test_a_topic_that_cannot_be_deleted_is_told() -> None:
    proof = judge(delete_error=ErrorCode.topic_authorization_failed)
    assert proof.proven
    assert proof.left_behind == (PLAN.scratch,)


@pytest.mark.parametrize(
    "habits", [{"passing": 3}, {"lags": 2}, {"appends_time": True}, {"batch_per_fetch": True}], ids=str
)
def test_a_good_broker_that_is_slow_or_stamps_its_own_time_is_proven(habits: dict[str, Any]) -> None:
    assert judge(**habits).proven


STAMPS: dict[str, tuple[dict[str, Any], str]] = {
    "stored again": ({"stamps": "ignored"}, "a resent batch with a sequence was stored again"),
    "refused": (
        {"stamps": "refused"},
        "a resent batch with a sequence was refused with error 87 (INVALID_RECORD)",
    ),
    "no more than five": (
        {"stamps": "five only"},
        "batches with sequences were not taken: the broker answers 7 batches",
    ),
    "no right": ({"producer_error": ErrorCode.cluster_authorization_failed}, "it gives no producer id: error 31"),
    "no ids": (
        {"ranges": {key: range_ for key, range_ in API_RANGES.items() if key != ApiKey.INIT_PRODUCER_ID}},
        "it gives no producer ids",
    ),
    "stamped are refused": (
        {"stamped_error": ErrorCode.invalid_record},
        "batches with sequences were not taken: the broker answers",
    ),
}


@pytest.mark.parametrize("plan", [PLAN, NAMED], ids=["scratch", "named"])
@pytest.mark.parametrize(("habits", "why"), STAMPS.values(), ids=STAMPS)
def test_a_broker_may_take_sets_and_not_know_sequences(habits: dict[str, Any], why: str, plan: ProbePlan) -> None:
    proof = judge(plan, **habits)
    assert proof.proven
    assert not proof.stamps
    assert why in proof.why


def test_a_broker_may_store_the_rest_of_a_set_that_it_knows_in_part() -> None:
    assert judge(stamps="rest").stamps


def test_a_broker_that_has_just_started_is_asked_again_for_a_producer_id() -> None:
    assert judge(loading=3).stamps


class Shared(BatchBroker):
    """Other clients produce to the given topic, too, between any two requests of the probe."""

    def answer(self, frame: bytes) -> bytes | None:
        answer = super().answer(frame)
        if self.asked[-1] is ApiKey.PRODUCE:
            probe = Probe(replace(NAMED, token=b"another client's"))
            step = probe.start()
            other = BatchBroker().with_topic("shoal-probe")
            while isinstance(step, Ask) and ApiKey.PRODUCE not in other.asked:
                step = probe.answered(other.answer(step.frame) or b"")
            self._store(self.topics["shoal-probe"][0], [one for _, one in other.topics["shoal-probe"][0].stored])
        return answer


def test_records_of_others_in_a_named_topic_do_not_matter() -> None:
    assert run(Shared().with_topic("shoal-probe"), NAMED).proven


@pytest.mark.parametrize(
    "habits", [{"keeps": 1}, {"in_part": True}, {"counts_first": True}, {"reverses": True}], ids=str
)
def test_records_of_others_do_not_hide_a_loss(habits: dict[str, Any]) -> None:
    assert run(Shared(Habits(**habits)).with_topic("shoal-probe"), NAMED).result is Result.UNSAFE


def test_a_known_broker_is_asked_who_it_is_and_nothing_more() -> None:
    broker = BatchBroker()
    first = run(broker)
    broker.asked.clear()
    again = run(broker, known=lambda identity: first if identity == first.identity else None)
    assert again.proven
    assert broker.asked == [ApiKey.API_VERSIONS, ApiKey.METADATA]


@pytest.mark.parametrize(
    "other",
    [{"cluster_id": "another"}, {"ranges": {**API_RANGES, ApiKey.FETCH: (4, 17)}}],
    ids=["cluster", "versions"],
)
def test_another_broker_has_another_identity(other: dict[str, Any]) -> None:
    assert judge().identity != judge(**other).identity


def _oldest(keys: Iterator[ApiKey]) -> dict[int, tuple[int, int]]:
    return {key: (API_RANGES[key][0], API_RANGES[key][0]) for key in keys}


@pytest.mark.parametrize("result", [Result.PROVEN, Result.UNSAFE])
@settings(max_examples=40)
@given(data=st.data())
def test_every_version_says_the_same(result: Result, data: st.DataObject) -> None:
    ranges = dict(API_RANGES)
    for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
        low = max(API_RANGES[key][0], 2 if key == ApiKey.METADATA else 0)
        ranges[key] = low, data.draw(st.integers(low, API_RANGES[key][1]))
    ranges[ApiKey.PRODUCE] = 3, data.draw(st.integers(8, 13))
    habits = Habits(ranges=ranges, keeps=None if result is Result.PROVEN else data.draw(st.integers(1, 1)))
    plan = data.draw(st.sampled_from([PLAN, NAMED]))
    assert run(BatchBroker(habits).with_topic("shoal-probe"), plan).result is result


def _cut(frame: bytes, data: st.DataObject) -> bytes:
    return frame[: data.draw(st.integers(8, len(frame)))]


def _flipped(frame: bytes, data: st.DataObject) -> bytes:
    at = data.draw(st.integers(8, len(frame) - 1))
    return frame[:at] + bytes([frame[at] ^ data.draw(st.integers(1, 255))]) + frame[at + 1 :]


@pytest.mark.parametrize("damage", [_cut, _flipped])
@settings(max_examples=300)
@given(data=st.data())
def test_damaged_answers_end_a_probe_and_raise_nothing(
    damage: Callable[[bytes, st.DataObject], bytes], data: st.DataObject
) -> None:
    broker, at = BatchBroker(), data.draw(st.integers(0, _STEPS - 1))
    probe = Probe(PLAN)
    step = probe.start()
    for number in range(200):
        if isinstance(step, Proof):
            break
        answer = broker.answer(step.frame)
        assert answer
        step = probe.answered(damage(answer, data) if number == at else answer)
    assert isinstance(step, Proof)


@pytest.mark.parametrize("at", range(_STEPS))
def test_a_connection_that_ends_anywhere_ends_the_probe(at: int) -> None:
    broker, probe = BatchBroker(), Probe(PLAN)
    step = probe.start()
    for _ in range(at):
        assert isinstance(step, Ask)
        step = probe.answered(broker.answer(step.frame) or b"")
    assert isinstance(step, Ask)
    proof = probe.lost()
    assert isinstance(proof, Proof)
    if proof.proven:  # all sets had been checked; only DeleteTopics was unanswered
        assert broker.asked[-1] is ApiKey.DELETE_TOPICS or proof.left_behind
    assert proof.left_behind in ((), (PLAN.scratch,))
    assert proof.closed or proof.proven


def test_what_was_left_behind_is_deleted_later() -> None:
    broker = BatchBroker().with_topic("__shoal-probe-1").with_topic("__shoal-probe-2")
    talk = clean_up(["__shoal-probe-1", "__shoal-probe-2", "__shoal-probe-gone"])
    question = talk.send(broker.answer(next(talk).frame) or b"")
    answer = broker.answer(question.frame) or b""
    with pytest.raises(StopIteration) as end:
        talk.send(answer)
    assert end.value.value == []
    assert broker.deleted == ["__shoal-probe-1", "__shoal-probe-2"]


def test_leftovers_of_earlier_probes_go_with_the_scratch_topic() -> None:
    broker = BatchBroker().with_topic("__shoal-probe-1")
    proof = run(broker, replace(PLAN, leftovers=("__shoal-probe-1", "__shoal-probe-gone")))
    assert broker.deleted == ["__shoal-probe-1", PLAN.scratch]
    assert proof.left_behind == ()
