"""The plan for claim checks is that for the envelopes with the same batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.shallow.unwrap.plan import Missing, Plan, Refused
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.wire.error_codes import ErrorCode
from tests.protocol.shallow.strategies import record_sets
from tests.support.kafka_python import murmur2
from tests.support.shallow.world import Seen, context, flat, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

if TYPE_CHECKING:
    from shoal.protocol.shallow.envelope import EnvelopeKey

LOG = b"".join(some_batch(base, 10) for base in range(100, 160, 10))
PLAIN = Seen(7, NewRecord(70, b"plain", b"record"))


class Here:
    """What Shoal keeps."""

    def __init__(self) -> None:
        self.batches: dict[EnvelopeKey, memoryview] = {}

    def keep(self, key: EnvelopeKey, batches: memoryview) -> None:
        self.batches[key] = batches

    def find(self, key: EnvelopeKey) -> memoryview | None:
        return self.batches.get(key)


def mirrored(log: bytes, here: Here | None, **changes: object) -> list[Seen]:
    keep = None if here is None else here.keep
    parts = wrap_record_set(log, 0, len(log), context(keep=keep, **changes)).parts
    return poll(flat(parts)) if parts is not None else poll(log)


def sent(plan: object) -> list[bytes]:
    assert isinstance(plan, Plan)
    return [b"".join(map(bytes, batch.buffers)) for item in plan.items for batch in item.batches]


@given(record_sets(kinds=("dense",)).filter(bool), st.sampled_from([2000, 1 << 19]), st.booleans())
def test_the_same_batches_are_sent(log: bytes, run_limit: int, plain_first: bool) -> None:
    here = Here()
    checks, envelopes = (mirrored(log, one, run_limit=run_limit) for one in (here, None))
    before = [PLAIN] if plain_first else []
    carried, claimed = produced([*before, *envelopes]), produced([*before, *checks])
    plan = plan_record_set(claimed, 0, len(claimed), find=here.find)
    wanted = plan_record_set(carried, 0, len(carried))
    assert isinstance(plan, Plan)
    assert isinstance(wanted, Plan)
    assert sent(plan) == sent(wanted)
    assert plan.outer_records == wanted.outer_records
    assert all(key.is_claim_check for key in plan.envelopes)


def test_the_mirror_gets_no_batch() -> None:
    here = Here()
    wrapped = wrap_record_set(LOG, 0, len(LOG), context(keep=here.keep))
    (key,) = wrapped.envelopes
    assert bytes(here.batches[key]) == LOG
    assert wrapped.wrapped_bytes == len(LOG)
    assert len(flat(wrapped.parts or [])) < 600


def test_all_that_is_missing_is_asked_for_at_once() -> None:
    here, asked = Here(), list[int]()

    def find(key: EnvelopeKey) -> memoryview | None:
        asked.append(key.serial)
        return None

    outer = produced(mirrored(LOG, here, run_limit=1400))
    assert isinstance(plan_record_set(outer, 0, len(outer), find=find), Missing)
    assert asked == sorted(key.serial for key in here.batches)
    assert len(asked) > 1


def test_a_claim_check_that_a_transform_has_changed_is_never_passed_on() -> None:
    here = Here()
    (seen,) = mirrored(LOG, here)
    for value in (b"a transform wrote this", b"", None, LOG):
        outer = produced([PLAIN, seen._replace(record=seen.record._replace(value=value))])
        plan = plan_record_set(outer, 0, len(outer), find=here.find)
        assert isinstance(plan, Refused)
        assert plan.error_code == ErrorCode.CORRUPT_MESSAGE


def test_without_a_wrapping_listener_a_claim_check_is_refused() -> None:
    outer = produced(mirrored(LOG, Here()))
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Refused)
    assert plan.error_code == ErrorCode.INVALID_RECORD


def test_a_damaged_request_is_sent_again_before_anything_is_read() -> None:
    here = Here()
    outer = bytearray(produced(mirrored(LOG, here)))
    outer[-1] ^= 1
    plan = plan_record_set(outer, 0, len(outer), find=lambda key: None)
    assert isinstance(plan, Refused)
    assert plan.error_code == ErrorCode.CORRUPT_MESSAGE


def test_kept_batches_that_are_not_those_of_the_key_are_refused() -> None:
    here = Here()
    outer = produced(mirrored(LOG, here))
    plan = plan_record_set(outer, 0, len(outer), find=lambda key: memoryview(LOG[: len(LOG) // 6]))
    assert isinstance(plan, Refused)
    assert plan.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("limits", [{"limit": 2 * len(LOG) - 1}, {"most_records": 11}])
def test_copies_of_a_claim_check_count_each_time(limits: dict[str, int]) -> None:
    here = Here()
    (seen,) = mirrored(LOG, here)
    outer = produced([seen, seen])
    assert isinstance(plan_record_set(outer, 0, len(outer), find=here.find), Plan)
    plan = plan_record_set(outer, 0, len(outer), find=here.find, **limits)  # type: ignore[arg-type]
    assert isinstance(plan, Refused)
    assert plan.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("partitions", [3, 12])
def test_a_mirror_that_partitions_by_key_keeps_the_partition(partitions: int) -> None:
    here = Here()
    for _ in range(5):
        (seen,) = mirrored(LOG, here, partitions=partitions, partition=2)
        assert (murmur2(bytes(seen.record.key or b"")) & 0x7FFFFFFF) % partitions == 2
