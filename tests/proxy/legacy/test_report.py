"""The legacy counters, as text and as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import fields

from shoal.proxy.cli.serving.report import Snapshot, report
from shoal.proxy.legacy.budget import Budget
from shoal.proxy.legacy.counters import LegacyStatistics, LegacyTally
from shoal.proxy.statistics import ListenerStatistics, ServerStatistics, Traffic

READ = LegacyStatistics(
    fetches=9, conversions=2, source_bytes=1_500_000, converted_bytes=2_000_000, records=18_000, seconds=0.1, chunks=17
)


def test_nothing_is_said_where_nothing_happened() -> None:
    assert list(LegacyStatistics(fetches=100).details()) == []


def test_each_thing_that_happened_has_its_words() -> None:
    more = LegacyStatistics(
        conversions=1, records=3, source_bytes=2000, converted_bytes=3000, chunks=1, seconds=0.004,
        up_conversions=2, up_records=5, up_source_bytes=100, up_converted_bytes=90, up_seconds=1.5,
        waits=3, waited_seconds=2.25, evictions=1, dropped_headers=7, fetch_errors=1, up_errors=1,
    )  # fmt: skip
    assert list(more.details()) == [
        "converted 1 record set for old consumers (3 records, 2.0 kB to 3.0 kB, 1 chunk, 0.00 s)",
        "converted 2 message sets of old producers (5 records, 0.1 kB to 0.1 kB, 1.50 s)",
        "3 waits for the budget (2.2 s), 1 source evicted",
        "7 record headers dropped",
        "2 partitions with records that could not be converted",
    ]


def test_a_report_tells_what_was_added_since_the_last() -> None:
    traffic = Traffic(requests=9, to_client=2_000_000)
    before = ListenerStatistics(
        name="old", opened=1, active=1, closed={}, traffic=Traffic(), ports={}, path=(LegacyStatistics(conversions=1),)
    )
    now = dataclasses.replace(before, traffic=traffic, path=(READ,))
    earlier, later = (ServerStatistics(listeners=(one,)) for one in (before, now))
    (line,) = report(Snapshot(at=0, server=earlier), Snapshot(at=10, server=later))
    assert "converted 1 record set for old consumers (18,000 records, 1.5 MB to 2.0 MB, 17 chunks, 0.10 s)" in line.text
    assert line.values["legacy_fetches"] == 9
    assert line.values["legacy_conversions"] == 1


def test_every_counter_is_in_the_statistics() -> None:
    counted = {field.name: number for number, field in enumerate(fields(LegacyTally), 1)}
    statistics = LegacyTally(**counted).statistics(Budget(5).statistics())
    assert {name: getattr(statistics, name) for name in counted} == counted
    assert set(statistics.values()) == {f"legacy_{field.name}" for field in fields(LegacyStatistics)}
