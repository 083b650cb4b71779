"""The pages of batch-sizes and audit, from hand-made tables: their text and their warnings."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shoal.scenarios.jobs.audit import report as audit
from shoal.scenarios.jobs.batch_sizes import report as batch_sizes
from shoal.scenarios.report.report import Fact, Listed
from shoal.scenarios.report.write import write_report

START = datetime(2026, 11, 22, 3, tzinfo=UTC)
NOTHING = Listed(total=0, rows=[])


def partition(**different: Any) -> dict[str, Any]:
    counted = (
        "batches records offsets_not_seen fetched_again copied doubled different pending unconfirmed missing "
        "missing_records doubled_records reordered retries target_records short over different_offset "
        "aborted below_end source_changed"
    )
    by_offset = dict.fromkeys(("same_offset_records", "wrong_records", "below_end_records"))
    return {"topic": "orders", "partition": 0, **dict.fromkeys(counted.split(), 0), **by_offset, **different}


def audited(
    *partitions: dict[str, Any], batches: Listed = NOTHING, only_read: Sequence[str] = (), faults: Sequence[Fact] = ()
) -> audit.AuditTables:
    timeline = [{"minute": START + timedelta(minutes=at), "source": 10, "target": 10 - (at == 3)} for at in range(9)]
    return audit.AuditTables(
        clusters=("a", "b"),
        partitions=partitions,
        batches=batches,
        minutes=NOTHING,
        timeline=timeline,
        only_read=only_read,
        faults=faults,
    )


def test_topics_that_were_not_copied_are_named() -> None:
    report = audit.audit_report(audited(partition(), only_read=[f"topic-{number}" for number in range(7)]))
    [fact] = [fact for fact in report.facts if fact.name == "Topics not copied"]
    assert fact.value == "7: topic-0, topic-1, topic-2, topic-3, topic-4, ..."


def test_a_complete_copy_is_said_to_be_complete(tmp_path: Path) -> None:
    found = audited(partition(batches=9, records=90, copied=9, target_records=90))
    assert list(audit.complaints(found)) == ["90 records at the target; missing: 0, doubled: 0; batches in transit: 0"]
    page = write_report(audit.audit_report(found), tmp_path).read_text()
    assert "<div><dt>The copy is</dt><dd>complete</dd></div>" in page


def test_a_copy_of_a_source_that_has_changed_is_not_said_to_be_complete() -> None:
    found = audited(partition(batches=9, records=90, copied=8, target_records=90, source_changed=1))
    assert audit.audit_report(found).facts[0] == Fact(
        name="The copy is", value="unknown: the source has changed", bad=True
    )
    first, _ = audit.complaints(found)
    assert first.startswith("source changed: another batch was fetched at the same offsets")
    assert "source_changed" in audit.NOT_PROVEN


def test_a_capture_that_has_lost_rows_proves_no_whole_copy() -> None:
    found = audited(partition(batches=9, records=90), faults=[Fact.count("Damaged blocks, not read", 1, bad=True)])
    fact = audit.audit_report(found).facts[0]
    assert (fact.value, fact.bad) == ("complete, of what is in the captures: some of them is lost", True)


def test_what_is_missing_is_told_by_its_offsets_and_once(tmp_path: Path) -> None:
    row = {
        "state": "missing",
        "topic": "orders",
        "partition": 0,
        "base_offset": 40,
        "last_offset": 49,
        "records": 10,
        "copies": 0,
        "target_offset": None,
    }
    found = audited(partition(records=90, missing=1, missing_records=10, short=8), batches=Listed(total=1, rows=[row]))
    assert list(audit.complaints(found))[:2] == [
        "missing: orders-0 offsets 40-49 (10 records)",
        "missing by count: orders-0: 8 records",
    ]
    report = audit.audit_report(found)
    assert report.summary["audit"]["missing"] == 10
    page = write_report(report, tmp_path).read_text()
    assert '<div class="bad"><dt>Missing records</dt><dd>10</dd></div>' in page


def mirrored(**counted: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("same_offset_records", "wrong_records", "below_end_records"), 0)
    return partition(**{**nothing, **counted})


def test_mirror_topics_are_told_by_their_records(tmp_path: Path) -> None:
    topics = [mirrored(same_offset_records=1_000, below_end_records=3), mirrored(partition=1, same_offset_records=500)]
    found = audited(*topics, partition(topic="plain", records=7))
    assert next(audit.complaints(found)) == "orders: 1,500 records at the same offset, wrong: 0, below the log's end: 3"
    report = audit.audit_report(found)
    [topic] = report.summary["audit"]["mirror_topics"]
    assert (topic["topic"], topic["partitions"], topic["same_offset"], topic["wrong"]) == ("orders", 2, 1_500, 0)
    page = write_report(report, tmp_path).read_text()
    assert "<dt>The copy is</dt><dd>complete</dd>" in page
    assert "<dt>Records at the same offset</dt><dd>1,500</dd>" in page


def test_records_at_another_offset_make_another_copy(tmp_path: Path) -> None:
    row = {"topic": "orders", "partition": 0, "base_offset": 40, "last_offset": 49, "records": 10, "copies": 1}
    batches = [
        row | {"state": "different_offset", "target_offset": 41},
        row | {"state": "below_end", "target_offset": 0},
    ]
    listed = Listed(total=2, rows=batches)
    found = audited(mirrored(same_offset_records=80, wrong_records=10, different_offset=1), batches=listed)
    assert list(audit.complaints(found))[:2] == [
        "different offset: orders-0 offsets 40-49 (10 records), at 41",
        "orders: 80 records at the same offset, wrong: 10, below the log's end: 0",
    ]
    page = write_report(audit.audit_report(found), tmp_path).read_text()
    assert '<div class="bad"><dt>The copy is</dt><dd>not the same</dd></div>' in page
    assert '<div class="bad"><dt>Wrong records of mirror topics</dt><dd>10</dd></div>' in page


def test_what_is_no_finding_is_not_counted_as_one() -> None:
    row = {"state": "below_end", "topic": "orders", "partition": 0, "base_offset": 1, "last_offset": 1, "records": 1}
    found = audited(mirrored(below_end=200, below_end_records=200), batches=Listed(total=200, rows=[row] * 200))
    assert [line for line in audit.complaints(found) if "batches:" in line] == []


def test_a_page_without_mirror_topics_does_not_speak_of_them(tmp_path: Path) -> None:
    page = write_report(audit.audit_report(audited(partition())), tmp_path).read_text()
    assert "irror topics" not in page


def test_a_long_list_of_faults_is_cut_and_says_where_the_rest_is() -> None:
    row = {
        "state": "doubled",
        "topic": "t",
        "partition": 0,
        "base_offset": 1,
        "last_offset": 1,
        "records": 1,
        "copies": 2,
        "target_offset": 1,
    }
    told = list(audit.complaints(audited(partition(), batches=Listed(total=200, rows=[row] * 200))))
    assert len(told) == 52
    assert told[50] == "... and 150 more batches: see the table batches.parquet"


def sizes(bins: list[dict[str, Any]], faults: list[Fact]) -> batch_sizes.BatchSizesTables:
    client = {"cluster": "c", "direction": "produced", "client": "", "batches": 4, "small": 3, "requests": 4}
    client |= {"requests_per_mb": 2000.0, "full_batches": 1, "bytes_per_request": 500.0, "gap_p50_us": None}
    gaps = [{"direction": "produced", "client": "", "gap_bin": at, "requests": 1} for at in (None, 30, 31)]
    return batch_sizes.BatchSizesTables(
        bins=bins, gaps=gaps, clients=Listed(total=1, rows=[client]), sizes=NOTHING, topics=[], faults=faults
    )


def a_bin(direction: str, number: int, batches: int) -> dict[str, Any]:
    return {
        "direction": direction, "client": "", "bytes_bin": number, "records_bin": 0,
        "batches": batches, "records": batches, "bytes": batches * 500,
    }  # fmt: skip


def test_a_client_without_a_name_has_one_on_the_page(tmp_path: Path) -> None:
    found = sizes([a_bin("produced", 36, 3), a_bin("produced", 60, 1)], [Fact(name="Damaged", value="2", bad=True)])
    report = batch_sizes.batch_sizes_report(found)
    page = write_report(report, tmp_path).read_text()
    assert "(no client id)" in page
    assert '<div class="bad"><dt>Damaged</dt><dd>2</dd></div>' in page
    assert report.summary["batch_sizes"]["small_share"] == pytest.approx(0.75)
    assert report.summary["batch_sizes"]["bytes_p50"] == pytest.approx(2**9.125)


def test_a_page_of_consumers_only_has_no_costs(tmp_path: Path) -> None:
    found = sizes([a_bin("fetched", 36, 3)], [])
    found = batch_sizes.BatchSizesTables(bins=found.bins, gaps=[], clients=NOTHING, sizes=NOTHING, topics=[], faults=[])
    headings = [section.heading for section in batch_sizes.batch_sizes_report(found).sections]
    assert headings[0] == "Sizes of the batches fetched"
    assert "What a megabyte costs" not in headings
