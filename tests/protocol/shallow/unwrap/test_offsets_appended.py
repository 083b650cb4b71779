"""The offsets that findings state are those at which the records are, whatever fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.envelope import decode_key
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import Finding, OffsetsAppended
from shoal.protocol.shallow.unwrap.outgoing import halves
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from tests.protocol.shallow.strategies import record_sets
from tests.protocol.shallow.unwrap.test_doubt import begun, in_doubt, next_set
from tests.protocol.shallow.unwrap.test_exactly_once import TARGET, World, log_of, mirrored, plan_of
from tests.support.shallow.partition import Partition
from tests.support.shallow.world import context, flat, plain, poll
from tests.support.shallow.wrapping import wrap_record_set

if TYPE_CHECKING:
    from shoal.protocol.records.batch import NewRecord
    from shoal.protocol.shallow.unwrap.plan import Plan

NOT_LEADER = 6


def by_offset(log: bytes) -> dict[int, NewRecord]:
    seen = poll(log)
    return {one.offset: record for one, record in zip(seen, plain([one.record for one in seen]), strict=True)}


def stated(findings: list[Finding]) -> dict[int, int]:
    """Target offset -> source offset."""
    return {
        finding.target_first + number: finding.source_first + number
        for finding in findings
        if isinstance(finding, OffsetsAppended)
        for number in range(finding.records)
    }


def exchange(progress: PartitionProgress, partition: Partition, draws: list[str]) -> list[Finding]:
    found = list[Finding]()
    while True:
        while progress.cut_due is not None:
            found += progress.cut(halves(progress.cut_due))
        record_set = progress.next_record_set()
        if record_set is None:
            return found
        happens = draws.pop() if draws else ""
        if happens == "error":
            found += progress.answered(NOT_LEADER, -1)
            continue
        if happens == "foreign":
            partition.log.append(plain([poll(log_of([1]))[0].record])[0])
        error, offset = partition.produce(flat(record_set.buffers()))
        if happens == "lost":
            progress.abandon()
            return found
        found += progress.answered(error, -1 if happens == "silent" else offset)


@given(
    record_sets(kinds=("dense", "dense", "transactional", "holes"), max_size=6),
    st.lists(st.sampled_from(["", "", "error", "lost", "silent", "foreign"]), max_size=20),
    st.sampled_from([1200, 1 << 19]),
    st.sampled_from([250, 1 << 20]),
)
def test_every_stated_offset_is_right(log: bytes, draws: list[str], run_limit: int, most: int) -> None:
    originals, found = by_offset(log), list[Finding]()
    partition, deliveries, calm = Partition(max_message_bytes=most), AppendedLog(), not draws
    envelopes, copied = list(draws), 0
    wrapped = wrap_record_set(log, 0, len(log), context(run_limit=run_limit))
    for polled in poll(flat(wrapped.parts or [])):
        key = decode_key(bytes(polled.record.key)) if polled.record.key is not None else None
        if key is None:
            continue
        copied += key.records
        plan = plan_of([polled])
        outcome = None
        while outcome is None or outcome.error_code == NOT_LEADER:
            progress = PartitionProgress(TARGET, plan, deliveries)
            found += exchange(progress, partition, envelopes)
            outcome = progress.outcome
    offsets = stated(found)
    assert {place: originals[offset] for place, offset in offsets.items()} == {
        place: partition.log[place] for place in offsets
    }
    if calm and most > 250:
        assert len(offsets) == copied


@pytest.mark.parametrize("appended", range(6))
@pytest.mark.parametrize("foreign", [False, True])
def test_what_was_in_doubt_has_its_offsets_unless_something_else_is_between(appended: int, *, foreign: bool) -> None:
    log = log_of([2] * 8)
    plan, world = plan_of(mirrored(log)), World(Partition(), [])
    in_doubt(world, plan, appended)
    if foreign:
        world.partition.log.append(by_offset(log)[min(by_offset(log))])
    world.partition.restart()
    offsets = stated(replayed(world, plan))
    originals = by_offset(log)
    assert {place: originals[offset] for place, offset in offsets.items()} == {
        place: world.partition.log[place] for place in offsets
    }
    if not foreign:
        assert sorted(offsets) == list(range(2, 16)), "all but the record set that was acknowledged before"


def replayed(world: World, plan: Plan) -> list[Finding]:
    progress, found = begun(world, plan), list[Finding]()
    while progress.outcome is None:
        found += progress.answered(*world.partition.produce(next_set(progress)))
    return found
