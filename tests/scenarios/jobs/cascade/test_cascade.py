"""The cascade on files that grow, stop, arrive late and are killed: in the end every level has the sums of a plain
count."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from shoal.scenarios.jobs.cascade.abnormal import abnormal, worst
from shoal.scenarios.jobs.cascade.analysis import changelog, counts, diffs, mismatches
from shoal.scenarios.jobs.cascade.combine import READS
from shoal.scenarios.jobs.cascade.levels import CascadeSettings
from shoal.scenarios.jobs.cascade.rule import Rule
from shoal.scenarios.jobs.cascade.source import stream_increments
from shoal.scenarios.jobs.cascade.streaming import CascadeOutput, read_abnormal, read_flows, start
from shoal.scenarios.jobs.source.reading import read_index
from tests.scenarios.jobs.captures import write_index
from tests.support.captures.synthetic import Array, Chunk, Client, Traffic, chunks

CHOSEN = CascadeSettings(buckets=4)
OPTIONS = {"columns": ",".join(READS)}


class Run:
    """One capture directory and one checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.captures, self.directory = spark, directory / "captures", directory
        self.place = CascadeOutput(out=str(directory / "out"), checkpoint=str(directory / "checkpoint"))

    def once(self, settings: CascadeSettings = CHOSEN, **options: str) -> None:
        increments = stream_increments(self.spark, str(self.captures), options, settings)
        query = start(increments, self.place, settings)
        query.awaitTermination()
        assert query.exception() is None

    @property
    def flows(self) -> DataFrame:
        return read_flows(self.spark, self.place.out)

    def wrong(self, settings: CascadeSettings = CHOSEN) -> list[dict[int, int]]:
        """Counters of the diff flow and of the changelog."""
        wanted = counts(read_index(self.spark, str(self.captures), OPTIONS), settings).persist()
        assert wanted.select("level").distinct().count() == len(settings.levels)
        return [mismatches(diffs(self.flows), wanted), mismatches(changelog(self.flows), wanted)]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    return Run(spark, tmp_path)


def _parts(rows: int, count: int, seconds: float = 1500.0) -> list[Chunk]:
    """Tables of one trace."""
    return list(chunks(Traffic(rows=rows, seconds=seconds), rows // count))


def test_a_file_grows_is_torn_and_the_query_is_started_again(run: Run) -> None:
    one, two = _parts(6000, 2)
    path = write_index(run.captures, one)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    run.once()
    first = run.flows.count()
    path.write_bytes(whole)
    write_index(run.captures, two, number=1)
    run.once()
    assert run.flows.count() > first
    assert run.wrong() == [{}, {}]


def test_a_query_that_goes_on_tells_at_each_flush_what_has_changed(run: Run) -> None:
    one, two = _parts(2000, 2)
    write_index(run.captures, one)
    place = replace(run.place, flush_seconds=0.5)
    query = start(stream_increments(run.spark, str(run.captures), {}, CHOSEN), place, CHOSEN)
    try:
        query.processAllAvailable()
        first = run.flows.count()
        write_index(run.captures, two, number=1)
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert run.flows.count() > first > 0
    assert run.wrong() == [{}, {}]


def test_many_turns_are_as_one(run: Run) -> None:
    for number, part in enumerate(_parts(6000, 4)):
        write_index(run.captures, part, number=number)
    run.once(maxBytesPerTrigger="300000")
    assert run.flows.select("batch_id").distinct().count() >= 3
    assert run.wrong() == [{}, {}]
    assert run.flows.where("final").count() > 0


def test_a_held_level_is_told_when_its_time_has_come(run: Run) -> None:
    held = CascadeSettings(buckets=4, hold=(0, 0, 100_000, 100_000))
    for number, part in enumerate(_parts(6000, 4)):
        write_index(run.captures, part, number=number)
    run.once(held, maxBytesPerTrigger="300000")
    lagging = mismatches(diffs(run.flows), counts(read_index(run.spark, str(run.captures), OPTIONS), held))
    assert lagging.keys() == {3600, 86400}
    run.place = CascadeOutput(out=run.place.out, checkpoint=run.place.checkpoint)
    write_index(run.captures, _later(_parts(600, 1)[0], 200_000), number=9)
    run.once(held)
    assert run.wrong(held) == [{}, {}]


def _later(chunk: Chunk, seconds: float) -> Chunk:
    rows: Array = chunk.rows.copy()
    rows["time_ns"] += int(seconds * 1e9)
    rows["max_timestamp"] += int(seconds * 1000)
    return Chunk(rows=rows, names=chunk.names)


def test_what_comes_late_is_counted_and_marked(run: Run) -> None:
    [trace] = _parts(4000, 1, seconds=3600.0)
    held = np.random.default_rng(5).random(len(trace.rows)) < 0.2
    write_index(run.captures, Chunk(rows=trace.rows[~held], names=trace.names))
    run.once()
    late: Array = trace.rows[held].copy()
    late["time_ns"] += 1800 * 10**9  # captured half an hour later, with their own times
    write_index(run.captures, Chunk(rows=late, names=trace.names), number=1)
    run.once()
    assert run.wrong() == [{}, {}]
    marked = {
        row["level"]: row["n"]
        for row in run.flows.where("late").groupBy("level").agg({"*": "count"}).toDF("level", "n").collect()
    }
    assert marked[60] > 50
    assert marked[600] > 5
    assert not run.flows.where("orphan").count()


def test_what_is_older_than_all_that_is_kept_is_an_orphan(run: Run) -> None:
    one, two = _parts(2000, 2)
    write_index(run.captures, _later(one, 200_000))
    run.once()
    old: Array = two.rows.copy()
    old["time_ns"] += 200_000 * 10**9
    write_index(run.captures, Chunk(rows=old, names=two.names), number=1)
    run.once()
    of_diffs, of_changelog = run.wrong()
    assert of_diffs == {}
    assert set(of_changelog) == {60, 600, 3600, 86400}
    assert run.flows.where("orphan").select("level").distinct().count() == 4


def test_a_killed_turn_is_done_again(run: Run) -> None:
    """The process is killed in its third turn, after that turn's flows were written and before they are committed."""
    for number, part in enumerate(_parts(6000, 4)):
        write_index(run.captures, part, number=number)
    arguments = [str(run.captures), run.place.out, run.place.checkpoint]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.scenarios.jobs.cascade.killed_cascade", *arguments], timeout=300
    )
    assert killed.returncode == -signal.SIGKILL
    assert (run.directory / "out/flows/batch_id=2").exists()
    assert not (run.directory / "checkpoint/commits/2").exists()
    assert any(run.wrong())
    run.once(maxBytesPerTrigger="200000")
    assert run.wrong() == [{}, {}]


RUNAWAY = (
    Client(name="steady", topic="orders", weight=10, records=5, record_bytes=100),
    Client(name="other", topic="clicks", weight=10, records=5, record_bytes=100),
    Client(name="wild", topic="orders", weight=1, records=5, record_bytes=100, runaway=(0.6, 0.66, 200.0)),
)


@pytest.mark.parametrize("together", [False, True], ids=["one client", "all clients"])
def test_a_client_that_runs_away_is_told_and_a_rush_hour_is_not(run: Run, together: bool) -> None:
    [chunk] = chunks(Traffic(rows=8000, seconds=1000.0, clients=RUNAWAY))
    rows = chunk.rows
    if together:  # all are many times busier in the last minute
        rows = np.concatenate([rows, *[_again(rows, 900, 960) for _ in range(40)]])
        rows = rows[np.argsort(rows["time_ns"], kind="stable")]
        rows = rows[(rows["time_ns"] < _at(rows, 590)) | (rows["time_ns"] > _at(rows, 670))]
    write_index(run.captures, Chunk(rows=rows, names=chunk.names))
    run.once()
    found = {(row["level"], row["client"]) for row in worst(read_abnormal(run.spark, run.place.out)).collect()}
    assert found == (set() if together else {(60, "wild")})


def _at(rows: Array, seconds: float) -> int:
    return int(rows["time_ns"].min() + seconds * 1e9)


def _again(rows: Array, start: float, end: float) -> Array:
    return rows[(rows["time_ns"] >= _at(rows, start)) & (rows["time_ns"] < _at(rows, end))]


def _flow(spark: SparkSession, *counters: tuple[int, str, int, float, int]) -> DataFrame:
    """Rows of (window, client, records, past, past_windows)."""
    columns = "level int, window long, topic string, client string, records long, past double, past_windows int"
    rows = [(60, window, "t", client, records, past, known) for window, client, records, past, known in counters]
    zeros = "0L as bytes, 0L as batches, 0L as restamped, 1 as version, false as final, false as late, false as orphan"
    return spark.createDataFrame(rows, columns).selectExpr("*", *zeros.split(", "))


@pytest.mark.parametrize(
    ("wild", "others", "told"),
    [
        ((9000, 1000.0, 3), [1.0, 1.1], True),
        ((900, 100.0, 3), [1.0, 1.1], False),  # below the floor
        ((7000, 1000.0, 3), [1.0, 1.1], False),  # growth below the factor
        ((9000, 1000.0, 2), [1.0, 1.1], False),  # too few known past windows
        ((9000, 1000.0, 3), [3.0, 2.5], False),  # its peers have grown too
        ((9000, 1000.0, 3), [9.0, 1.0], True),  # of two peers, the one that grew less
        ((9000, 1000.0, 3), [], False),
    ],
)
def test_the_rule(spark: SparkSession, wild: tuple[int, float, int], others: list[float], told: bool) -> None:
    peers = [(0, f"peer {number}", int(100 * growth), 100.0, 5) for number, growth in enumerate(others)]
    found = abnormal(_flow(spark, (0, "wild", *wild), *peers), Rule()).collect()
    assert [row["client"] for row in found] == (["wild"] if told else [])
