"""Traffic between two snapshots, as text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from shoal.protocol.coalesce.joinable import WhyAlone
from shoal.protocol.shallow.unwrap.reconcile import Mismatch
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.proxy.cli.serving.report import Line, Snapshot, report
from shoal.proxy.coalesce.counters import CoalesceStatistics
from shoal.proxy.shallow.counters import ShallowStatistics, ShallowTally
from shoal.proxy.statistics import CloseCause, ListenerStatistics, PathStatistics, ServerStatistics, Traffic

REASONS = ("raw_batches", "mismatches")  # by reason
START = Snapshot(at=100.0, server=ServerStatistics(listeners=()))


def listener(
    name: str = "source",
    *,
    opened: int = 4,
    active: int = 4,
    closed: dict[CloseCause, int] | None = None,
    in_flight: int = 0,
    **traffic: int,
) -> ListenerStatistics:
    flow = Traffic(**traffic)
    return ListenerStatistics(
        name=name, opened=opened, active=active, closed=closed or {}, traffic=flow, ports={}, in_flight=in_flight
    )


def snapshot(at: float, *listeners: ListenerStatistics, **paths: PathStatistics) -> Snapshot:
    """`paths`: the counters of the listeners' paths; a listener named only there has no other traffic."""
    known = {one.name: one for one in listeners} | {
        name: listener(name, opened=0) for name in paths.keys() - {one.name for one in listeners}
    }
    counted = [dataclasses.replace(one, path=(paths[name],) if name in paths else ()) for name, one in known.items()]
    return Snapshot(at=at, server=ServerStatistics(listeners=tuple(counted)))


def told(before: Snapshot, now: Snapshot) -> str:
    (line,) = report(before, now)
    return line.text


WRAPPED = ShallowStatistics(
    envelopes=741, wrapped_batches=12_022, wrapped_records=4_000_000, wrapped_bytes=366_000_000,
    raw_batches={Reason.FIRST: 4, Reason.HOLES: 12},
)  # fmt: skip
OPENED = ShallowStatistics(
    opened_envelopes=741,
    unwrapped_batches=12_022,
    unwrapped_records=4_000_000,
    unwrapped_bytes=366_000_000,
    produce_requests=6_100,
)


def test_a_wrap_listener_tells_what_was_wrapped_and_what_not_and_why() -> None:
    assert told(START, snapshot(110.0, listener(), source=WRAPPED)) == (
        "source: wrapped 12,022 batches (4,000,000 records, 366 MB, 36.6 MB/s) in 741 envelopes; 16 batches raw "
        "(compaction left holes in the batch: 12, first batch after a start or seek: 4); 4 connections"
    )


def test_an_unwrap_listener_tells_what_was_appended() -> None:
    assert told(START, snapshot(105.0, listener("target", active=1, in_flight=3), target=OPENED)) == (
        "target: opened 741 envelopes, appended 12,022 batches (4,000,000 records, 366 MB, 73.2 MB/s) in 6,100 "
        "requests; 1 connection, 3 requests in flight"
    )


def test_what_does_not_reconcile_is_told() -> None:
    before = ShallowStatistics(mismatches={Mismatch.BACK: 1})
    now = ShallowStatistics(reconciled_envelopes=5, mismatches={Mismatch.BACK: 1, Mismatch.FACTS: 2})
    (line,) = report(snapshot(100.0, target=before), snapshot(105.0, listener("target"), target=now))
    assert line.text == f"target: 2 mismatches ({Mismatch.FACTS}: 2); 4 connections"
    assert (line.values["mismatches"], line.values["reconciled_envelopes"]) == ({"facts": 2}, 5)


def test_a_coalescing_listener_tells_what_was_joined_and_what_went_alone_and_why() -> None:
    before = CoalesceStatistics(taken=1_000, requests=90, alone={WhyAlone.LARGE: 2, WhyAlone.RETRY: 5})
    now = CoalesceStatistics(
        taken=13_345, requests=213, alone={WhyAlone.LARGE: 9, WhyAlone.RETRY: 5, WhyAlone.TRANSACTIONAL: 30}
    )
    flows = listener("p", requests=12_382, from_client=3_000_000, to_client=700_000)
    line = report(
        snapshot(100.0, p=before),
        snapshot(105.0, flows, p=now),
    )[0]
    assert line.text == (
        "p: 12,382 requests, 3.0 MB in, 0.7 MB out, 0.7 MB/s; joined 12,345 produce requests into 123; 37 produce "
        "requests alone (transactional: 30, large: 7); 4 connections"
    )
    assert (line.values["coalesced_taken"], line.values["coalesced_alone"]) == (
        12_345,
        {"transactional": 30, "large": 7},
    )


def test_a_plain_listener_tells_requests_and_bytes() -> None:
    assert told(START, snapshot(101.0, listener("plain", requests=1204, from_client=1_500, to_client=2_500_000))) == (
        "plain: 1,204 requests, 1.5 kB in, 2.5 MB out, 2.5 MB/s; 4 connections"
    )


def test_only_the_difference_is_told() -> None:
    more = dataclasses.replace(
        WRAPPED, envelopes=742, wrapped_batches=12_023, wrapped_records=4_000_500, wrapped_bytes=366_030_000
    )

    assert told(snapshot(110.0, listener(), source=WRAPPED), snapshot(115.0, listener(), source=more)) == (
        "source: wrapped 1 batch (500 records, 30.0 kB, 6.0 kB/s) in 1 envelope; 4 connections"
    )


def test_trouble_is_told() -> None:
    shallow = ShallowStatistics(retries_suppressed=3, partition_errors=1)
    closed = {CloseCause.UPSTREAM_LOST: 2, CloseCause.CLIENT_CLOSED: 9}

    assert told(START, snapshot(105.0, listener("target", active=0, closed=closed), target=shallow)) == (
        "target: 3 batches of retries not appended twice; 1 partition error from the target; connections ended: broker "
        "lost: 2; 0 connections"
    )


def test_where_nothing_happened_nothing_is_told() -> None:
    now = snapshot(110.0, listener(closed={CloseCause.IDLE: 1}), source=WRAPPED)

    assert report(now, dataclasses.replace(now, at=115.0)) == []


def test_raw_batches_are_told_with_the_traffic_that_they_made() -> None:
    raw = ShallowStatistics(raw_batches={Reason.NO_EVIDENCE: 105})

    assert told(START, snapshot(101.0, listener(requests=8, from_client=500, to_client=16_000_000), source=raw)) == (
        "source: 8 requests, 0.5 kB in, 16.0 MB out, 16.0 MB/s; 105 batches raw (no evidence yet that the mirror "
        "produces through Shoal: 105); 4 connections"
    )


@pytest.mark.parametrize(("size", "lines"), [(19_999, 0), (20_000, 1)])
def test_polls_that_find_nothing_are_not_told(size: int, lines: int) -> None:
    """Four connections, five seconds: below 1,000 bytes per second and connection counts as no traffic."""
    before = snapshot(100.0, listener())

    assert len(report(before, snapshot(105.0, listener(requests=40, from_client=size - 1000, to_client=1000)))) == lines


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ShallowStatistics)])
def test_every_counter_of_shallow_mirroring_is_told(field: str) -> None:
    value: Any = {"raw_batches": {Reason.HOLES: 7}, "mismatches": {Mismatch.BACK: 7}}.get(field, 7)
    before = snapshot(100.0, listener())

    (line,) = report(before, snapshot(101.0, listener(), source=ShallowStatistics(**{field: value})))

    assert line.values[field] == {"raw_batches": {"holes": 7}, "mismatches": {"back": 7}}.get(field, 7)


def test_machines_get_every_value() -> None:
    busy = listener(requests=5, from_client=10, to_client=20, in_flight=2)

    (line,) = report(START, snapshot(110.0, busy, source=WRAPPED))

    assert isinstance(line, Line)
    assert line.values["listener"] == "source"
    assert line.values["seconds"] == 10.0
    assert line.values["connections"] == line.values["opened"] == 4
    assert line.values["in_flight"] == 2
    assert (line.values["requests"], line.values["from_client"], line.values["to_client"]) == (5, 10, 20)
    assert line.values["raw_batches"] == {"first": 4, "holes": 12}


def test_every_listener_has_its_own_line() -> None:
    now = snapshot(
        110.0, listener(), listener("target"), listener("idle", opened=0, active=0), source=WRAPPED, target=OPENED
    )

    assert [line.text.partition(":")[0] for line in report(START, now)] == ["source", "target"]


def test_no_time_passed_is_no_rate() -> None:
    assert "0.0 kB/s" in told(START, snapshot(100.0, listener(), source=WRAPPED))


def test_a_tally_is_frozen_into_statistics() -> None:
    tally = ShallowTally(envelopes=1)
    tally.raw_batches[Reason.SMALL] += 2

    before = tally.statistics()
    tally.raw_batches[Reason.SMALL] += 1
    tally.envelopes += 1

    assert before == ShallowStatistics(envelopes=1, raw_batches={Reason.SMALL: 2})
    names = [field.name for field in dataclasses.fields(ShallowStatistics)]
    assert [field.name for field in dataclasses.fields(ShallowTally)] == names
    numbers = {name: index for index, name in enumerate(names) if name not in REASONS}
    counted = ShallowTally(**numbers).statistics()  # type: ignore[arg-type]
    assert {name: getattr(counted, name) for name in numbers} == numbers


def test_the_guide_says_what_to_do_about_every_reason() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "mirroring.md").read_text(encoding="utf-8")

    assert [str(reason) for reason in Reason if str(reason) not in guide] == []
