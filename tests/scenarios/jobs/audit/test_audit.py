"""The audit on mirrored traffic with known faults: it finds each one, names it correctly, and finds nothing else."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from shoal.protocol.capture.index.columns import Handling
from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.audit.analysis import audited, packing
from shoal.scenarios.jobs.audit.job import run
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.folding import fold_rows
from shoal.scenarios.jobs.task import Task
from tests.scenarios.jobs.captures import as_rows, one_chunk, write_index
from tests.support.captures.synthetic import Array, Chunk
from tests.support.captures.synthetic_mirror import Faults, Mirrored, mirrored, same_offsets

ROWS = 2_000
Audit = Callable[..., "Result"]


class Result:
    def __init__(self, rows: DataFrame, tolerance: int, prefix: str) -> None:
        tables = audited(fold_rows(rows, packing(("source", "target"), prefix)), tolerance)
        self.partitions: list[dict[str, Any]] = tables.partitions.toArrow().to_pylist()
        self.states: set[tuple[str, str, int, int]] = {
            (row["state"], row["topic"], row["partition"], row["base_offset"])
            for row in tables.batches.toArrow().to_pylist()
        }

    def total(self, key: str) -> int:
        return sum(row[key] for row in self.partitions)


@pytest.fixture
def audit(spark: SparkSession) -> Audit:
    def of(chunk: Chunk, tolerance: int = 0, prefix: str = "") -> Result:
        result = Result(as_rows(spark, chunk), tolerance, prefix)
        spark.catalog.clearCache()
        return result

    return of


def places(state: str, rows: Array, names: tuple[str, ...]) -> set[tuple[str, str, int, int]]:
    return {(state, names[row["topic"] - 1], int(row["partition"]), int(row["log_offset"])) for row in rows}


def test_a_whole_copy_has_no_faults(audit: Audit) -> None:
    found = audit(mirrored(one_chunk(ROWS)).both)
    assert found.states == set()
    assert [found.total(key) for key in ("missing", "doubled", "reordered", "retries", "short", "over")] == [0] * 6
    assert found.total("copied") == found.total("batches") == ROWS
    assert found.total("records") == found.total("target_records")


def test_each_fault_is_told_by_its_name(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS), Faults(missing=4, doubled=5, reordered=6, retried=7))
    found = audit(copy.both)
    names = copy.both.names
    assert found.states == places("missing", copy.missing, names) | places("doubled", copy.doubled, names)
    assert found.total("missing_records") == copy.missing["record_count"].sum()
    assert found.total("doubled_records") == copy.doubled["record_count"].sum()
    assert (found.total("reordered"), found.total("retries")) == (6, 7)


def without_target(copy: Mirrored, dropped: Array) -> Chunk:
    """`dropped`: the rows missing from the target."""
    rows = np.concatenate([copy.fetched.rows, copy.target.rows[~dropped]])
    return Chunk(rows=rows, names=copy.both.names)


def last_of_a_partition(rows: Array, count: int) -> Array:
    key = rows["topic"].astype(int) * 1000 + rows["partition"]
    mine = np.flatnonzero(key == np.bincount(key).argmax())
    dropped = np.zeros(len(rows), bool)
    dropped[mine[-count:]] = True
    return dropped


def test_the_last_batch_may_be_on_its_way_unless_traffic_has_ended(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS))
    chunk = without_target(copy, last_of_a_partition(copy.target.rows, 1))
    found = audit(chunk, tolerance=1)
    assert (found.total("pending"), found.total("missing"), found.total("short")) == (1, 0, 0)
    ended = audit(chunk, tolerance=0)
    assert (ended.total("pending"), ended.total("missing")) == (0, 1)


def test_more_than_the_tolerated_batches_at_the_end_are_missing(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS))
    found = audit(without_target(copy, last_of_a_partition(copy.target.rows, 3)), tolerance=1)
    assert (found.total("pending"), found.total("missing")) == (1, 2)


def test_a_batch_without_an_answer_is_unconfirmed_and_counts_as_missing(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS))
    lost = copy.target.rows[10:11]
    lost["error"], lost["log_offset"] = -32768, -1
    found = audit(copy.both)
    assert {state for state, *_ in found.states} == {"unconfirmed"}
    assert found.total("missing_records") == lost["record_count"][0]


def test_a_retry_that_the_broker_knew_is_a_copy(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS))
    known = copy.target.rows[10:11]
    known["error"], known["log_offset"] = 46, -1
    assert audit(copy.both).states == set()


def test_control_batches_are_not_expected_at_the_target(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS))
    control = last_of_a_partition(copy.target.rows, 2)
    copy.fetched.rows["attributes"][control] |= 0x30
    found = audit(without_target(copy, control))
    assert found.states == set()
    assert found.total("offsets_not_seen") == 0


def test_a_batch_that_was_fetched_both_ways_is_left_to_the_sums(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS))
    place = int(np.argmin(copy.target.rows["record_count"]))
    again = copy.fetched.rows[place : place + 1].copy()
    again["handling"] = 1
    chunk = without_target(copy, np.arange(ROWS) == place)
    found = audit(Chunk(rows=np.concatenate([chunk.rows, again]), names=chunk.names))
    assert found.states == set()
    assert found.total("fetched_again") == 1


def test_what_is_no_traffic_of_clients_is_left_out(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS), wrapped=False)
    internal = Chunk(rows=copy.fetched.rows, names=tuple(f"mm2-{name}.internal" for name in copy.both.names))
    names = (*internal.names[: len(copy.both.names) - 2], "mirror", "target")
    names = tuple("source" if name == "mm2-source.internal" else name for name in names)
    assert audit(Chunk(rows=internal.rows, names=names)).partitions == []
    copy.fetched.rows["handling"] = 5
    assert audit(Chunk(rows=copy.fetched.rows, names=copy.both.names)).partitions == []


def test_a_mirror_that_makes_its_own_batches_is_audited_by_sums(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS), wrapped=False)
    whole = audit(copy.both)
    assert (whole.total("short"), whole.total("over")) == (0, 0)
    assert whole.total("target_records") == whole.total("records")
    records = copy.target.rows["record_count"]
    gone = np.isin(np.arange(len(records)), np.argsort(records)[-40:])
    short = audit(without_target(copy, gone))
    assert sum(row["short"] for row in short.partitions) == records[gone].sum()
    assert short.total("over") == 0


def test_a_timestamp_of_no_year_is_audited_like_any_other(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS), wrapped=False)
    for rows, at in ((copy.fetched.rows, 5), (copy.target.rows, 5)):
        rows["max_timestamp"][at] = 2**62
        rows["max_timestamp"][at + 1] = -(2**62)
    assert audit(copy.both).total("records") > 0


def test_topics_that_nobody_mirrors_are_left_out(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS), wrapped=False)
    clicks = copy.both.names.index("clicks") + 1
    copy.fetched.rows["handling"] = 0
    found = audit(without_target(copy, copy.target.rows["topic"] == clicks))
    assert "clicks" not in {row["topic"] for row in found.partitions}
    assert found.total("short") == 0


def test_names_at_the_target_may_have_a_prefix(audit: Audit) -> None:
    copy = mirrored(one_chunk(ROWS), wrapped=False)
    names = copy.both.names
    copy.target.rows["topic"] += len(names)
    renamed = (*names, *(f"a.{name}" for name in names))
    found = audit(Chunk(rows=copy.both.rows, names=renamed), prefix="a.")
    assert found.total("batches") == ROWS
    assert (found.total("short"), found.total("over")) == (0, 0)


def task(spark: SparkSession, chunk: Chunk, path: Path, *arguments: str) -> Task:
    write_index(path / "index", chunk)
    flags = parse(["audit", "in", "out", *arguments]).flags
    return Task(spark=spark, source=str(path / "index"), out=path / "out", options={}, flags=flags)


def test_what_is_missing_is_listed_and_fails_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = mirrored(one_chunk(ROWS), Faults(missing=1))
    assert run(task(spark, copy.both, tmp_path)) == 1
    [row] = copy.missing
    place = f"{copy.both.names[row['topic'] - 1]}-{row['partition']} offsets {row['log_offset']}-"
    told = capsys.readouterr().out
    assert f"missing: {place}" in told
    assert f"missing: {row['record_count']}, doubled: 0; batches in transit: 0" in told
    assert "incomplete" in (tmp_path / "out" / "audit.html").read_text()


def test_a_complete_copy_ends_well(spark: SparkSession, tmp_path: Path) -> None:
    assert run(task(spark, mirrored(one_chunk(ROWS)).both, tmp_path, "--tolerance", "0")) == 0


def test_a_mirror_topic_is_proven_record_by_record(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = same_offsets(mirrored(one_chunk(ROWS)))
    copy.target.rows["topic"][copy.target.rows["topic"] == 1] = len(copy.both.names) + 1
    copy = replace(copy, target=Chunk(rows=copy.target.rows, names=(*copy.both.names, f"a.{copy.both.names[0]}")))
    names = copy.target.names
    rows = np.concatenate([copy.fetched.rows, copy.target.rows])
    assert run(task(spark, Chunk(rows=rows, names=names), tmp_path, "--tolerance", "0")) == 0
    proven = int(copy.fetched.rows["record_count"].sum())
    table = pq.read_table(tmp_path / "out" / "mirror_topics.parquet").to_pylist()
    assert {row["topic"] for row in table} == {names[number - 1] for number in np.unique(copy.fetched.rows["topic"])}
    assert sum(row["same_offset"] for row in table) == proven
    assert sum(row["wrong"] + row["missing"] + row["below_end"] for row in table) == 0
    assert json.loads((tmp_path / "out" / "report.json").read_text())["audit"]["mirror_topics"] == table
    assert "records at the same offset, wrong: 0" in capsys.readouterr().out


def test_one_offset_that_differs_fails_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = same_offsets(mirrored(one_chunk(ROWS)))
    wrong = copy.target.rows[ROWS // 2 : ROWS // 2 + 1]
    wrong["log_offset"] += 1
    assert run(task(spark, copy.both, tmp_path)) == 1
    told = capsys.readouterr().out
    first, last = wrong["source_first"][0], wrong["source_last"][0]
    place = f"{copy.both.names[wrong['topic'][0] - 1]}-{wrong['partition'][0]} offsets {first}-{last}"
    assert f"different offset: {place} ({wrong['record_count'][0]} records), at {first + 1}" in told
    assert "missing: 0, doubled: 0" in told
    assert "not the same" in (tmp_path / "out" / "audit.html").read_text()


def plainly_copied(prefix: str = "a.") -> Mirrored:
    """By a mirror that Shoal does not unwrap for, to topics with a prefix."""
    copy = mirrored(one_chunk(ROWS), wrapped=False)
    names = copy.both.names
    copy.fetched.rows["handling"] = 0
    copy.target.rows["topic"] += len(names)
    renamed = (*names, *(f"{prefix}{name}" for name in names))
    return replace(copy, fetched=Chunk(rows=copy.fetched.rows, names=renamed))


@pytest.mark.parametrize("lost", [0, 40])
def test_topics_are_chosen_by_their_names_at_the_source(spark: SparkSession, tmp_path: Path, lost: int) -> None:
    """The source has another topic, too, with the name of the copy: that is not chosen."""
    copy = plainly_copied()
    again = copy.fetched.rows[:100].copy()
    again["topic"], again["handling"] = copy.fetched.names.index("a.clicks") + 1, Handling.WRAPPED
    mine = np.flatnonzero(copy.target.rows["topic"] == copy.fetched.names.index("a.clicks") + 1)
    chunk = without_target(copy, np.isin(np.arange(len(copy.target.rows)), mine[:lost]))
    chunk = Chunk(rows=np.concatenate([chunk.rows, again]), names=chunk.names)
    given = task(spark, chunk, tmp_path, "--prefix", "a.", "--tolerance", "0")
    assert run(replace(given, options={"topics": " clicks"})) == bool(lost)
    partitions = pq.read_table(tmp_path / "out" / "partitions.parquet").to_pylist()
    assert {row["topic"] for row in partitions} == {"clicks"}


def test_a_comparison_of_nothing_is_no_complete_copy(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no topic was fetched from source and copied to target: nothing is compared"):
        run(task(spark, plainly_copied().both, tmp_path, "--prefix", "b."))


def test_topics_that_are_only_read_are_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = plainly_copied()
    clicks = copy.target.rows["topic"] == copy.fetched.names.index("a.clicks") + 1
    assert run(task(spark, without_target(copy, clicks), tmp_path, "--prefix", "a.")) == 0
    assert re.search(r"Topics not copied +1: clicks\n", capsys.readouterr().out)


def test_clusters_that_are_not_clear_have_to_be_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="--source: name the cluster"):
        run(task(spark, one_chunk(100), tmp_path))
