"""The stream: growing files, torn ends that become whole, restarts, limits. Batches are taken with availableNow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.reading import read_index, stream_index
from shoal.scenarios.jobs.source.stream import IndexReaderStream
from tests.scenarios.jobs.captures import one_chunk, write_index
from tests.support.captures.synthetic import Chunk

Drain = Callable[..., list[int]]


@pytest.fixture
def drain(spark: SparkSession, tmp_path: Path) -> Drain:
    """Reads everything available as one stream with a checkpoint; returns the rows of each micro-batch."""

    def run(directory: Path, **options: str) -> list[int]:
        counts: list[int] = []
        rows = stream_index(spark, str(directory), {"columns": "time_ns", **options})
        writer = rows.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return counts

    return run


def test_a_stream_goes_on_where_it_ended(drain: Drain, tmp_path: Path) -> None:
    index = tmp_path / "index"
    path = write_index(index, one_chunk(3_000))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    first = sum(drain(index))
    assert 1_000 <= first <= 1_500
    path.write_bytes(whole)
    write_index(index, one_chunk(700), number=1)
    assert sum(drain(index)) == 3_700 - first
    assert sum(drain(index)) == 0


def test_a_limit_makes_more_and_smaller_batches(drain: Drain, tmp_path: Path) -> None:
    index = tmp_path / "index"
    write_index(index, one_chunk(3_000))
    counts = drain(index, maxBytesPerTrigger="200000")
    assert sum(counts) == 3_000
    assert len(counts) == 3


def test_topics_and_times_are_selected_in_a_stream_too(spark: SparkSession, tmp_path: Path) -> None:
    path = write_index(tmp_path / "index", one_chunk(2_000))
    rows = read_index(spark, str(path), {"columns": "topic,time_ns"}).collect()
    times = sorted(row["time_ns"] for row in rows)
    given = {"columns": "topic,time_ns", "topics": "orders", "from": str(times[500]), "to": str(times[1500])}
    found: list[tuple[str, int]] = []
    stream = stream_index(spark, str(tmp_path / "index"), given)
    writer = stream.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
    writer.option("checkpointLocation", str(tmp_path / "selected")).trigger(
        availableNow=True
    ).start().awaitTermination()
    wanted = [tuple(row) for row in rows if row["topic"] == "orders" and times[500] <= row["time_ns"] < times[1500]]
    assert wanted
    assert sorted(found) == sorted(wanted)


def reader(directory: Path, **options: str) -> IndexReaderStream:
    return IndexReaderStream(Options.of({"path": str(directory), **options}))


def test_files_come_in_the_order_of_their_rows(tmp_path: Path) -> None:
    late, early = one_chunk(500), one_chunk(500)
    rows = np.array(early.rows)
    rows["time_ns"] -= 10**12
    write_index(tmp_path, late, proxy="0000000a")
    write_index(tmp_path, Chunk(rows=rows, names=early.names), proxy="0000000b")
    offset = reader(tmp_path).latestOffset({}, ReadMaxBytes(1))
    assert list(offset) == ["shoal-0000000b-00000000.kxb"]


def test_a_removed_file_leaves_the_offset(tmp_path: Path) -> None:
    paths = [write_index(tmp_path, one_chunk(500), number=number) for number in range(2)]
    stream = reader(tmp_path)
    start = stream.latestOffset({}, ReadAllAvailable())
    paths[0].unlink()
    assert list(stream.latestOffset(start, ReadAllAvailable())) == [paths[1].name]


def test_a_batch_of_a_removed_file_fails_unless_that_is_allowed(tmp_path: Path) -> None:
    path = write_index(tmp_path, one_chunk(500))
    end: dict[str, Any] = reader(tmp_path).latestOffset({}, ReadAllAvailable())
    path.unlink()
    with pytest.raises(Exception, match=r"is gone before it was read; failOnDataLoss=false continues without it"):
        reader(tmp_path).partitions({}, end)
    assert reader(tmp_path, failOnDataLoss="false").partitions({}, end) == []
