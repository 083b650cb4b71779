"""Jobs from their entry points: arguments, tables, reports, errors, and continuing from a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shoal.scenarios.jobs.__main__ import run_in
from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.errors import JobError
from tests.scenarios.jobs.captures import write_index
from tests.support.captures.synthetic import Traffic, chunks


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    [chunk] = chunks(Traffic(rows=2000, seconds=400.0))
    write_index(tmp_path / "captures", chunk)
    return tmp_path / "captures"


def _run(spark: SparkSession, job: str, captures: Path, *arguments: str) -> dict[str, Any]:
    out = captures.parent / job
    assert run_in(spark, parse([job, str(captures), str(out), *arguments])) == 0
    assert (out / f"{job}.html").exists()
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def test_coalescing_compares_the_policies_that_are_asked_for(
    spark: SparkSession, captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ["linger=100ms,group=broker", "linger=0ms,group=broker"]
    given = [part for policy in policies for part in ("--policy", policy)]
    report = _run(spark, "coalescing", captures, *given)
    assert [one["policy"] for one in report["coalescing"]] == policies
    much, little = (one["requests_saved"] for one in report["coalescing"])
    assert much > 0.1 > little
    assert "Open loop" in capsys.readouterr().out
    assert _run(spark, "coalescing", captures, *given, "--joiner")["coalescing"] == report["coalescing"]


def test_cascade_goes_on_and_counts_nothing_twice(spark: SparkSession, captures: Path) -> None:
    first = _run(spark, "cascade", captures, "--buckets", "4")["cascade"]
    again = _run(spark, "cascade", captures, "--buckets", "4")["cascade"]
    assert first["levels_equal"]
    assert again["levels_equal"]
    assert again["levels"] == first["levels"]
    with pytest.raises(JobError, match="was made with"):
        _run(spark, "cascade", captures, "--buckets", "8")
    moved, out = captures.parent / "moved", captures.parent / "cascade"
    (out / "checkpoint").rename(moved)
    with pytest.raises(JobError, match="has the counters of another checkpoint"):
        _run(spark, "cascade", captures, "--buckets", "4")
    continued = ("--buckets", "4", "--checkpoint", str(moved))
    assert _run(spark, "cascade", captures, *continued)["cascade"]["levels"] == first["levels"]
    out.rename(captures.parent / "first")
    _run(spark, "cascade", captures, "--buckets", "4")  # another checkpoint
    with pytest.raises(JobError, match="has the counters of another checkpoint"):
        _run(spark, "cascade", captures, *continued)


def test_a_held_level_that_lags_behind_is_not_said_to_be_wrong(spark: SparkSession, captures: Path) -> None:
    held = ("--buckets", "4", "--levels", "60,600", "--hold", "0,100000")
    _run(spark, "cascade", captures, *held)
    [chunk] = chunks(Traffic(rows=500, seconds=100.0, seed=2))
    write_index(captures, chunk, number=1)
    found = _run(spark, "cascade", captures, *held)["cascade"]
    first, second = (level["records"] for level in found["levels"])
    assert first > second
    assert found["levels_equal"]


def test_a_checkpoint_elsewhere_is_continued_from_any_directory(
    spark: SparkSession, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hold for each level, nothing can be compared."""
    given = ("--buckets", "2", "--levels", "60", "--hold", "100000", "--checkpoint", f"file://{tmp_path}/checkpoint")
    for directory in (tmp_path / "one", tmp_path / "two"):
        directory.mkdir()
        monkeypatch.chdir(directory)
        assert _run(spark, "cascade", captures, *given)["cascade"]["levels_equal"] is None
        assert not list(directory.iterdir())


def test_a_table_that_cannot_be_written_is_reported(spark: SparkSession, captures: Path) -> None:
    table = captures.parent / "batch-sizes" / "gaps.parquet"
    table.parent.mkdir()
    table.touch()
    with pytest.raises(JobError, match=f"{table}: cannot be read or written: File exists"):
        _run(spark, "batch-sizes", captures)


def test_a_cascade_needs_index_files(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no index files"):
        _run(spark, "cascade", tmp_path)
