"""The data source on real files, whole, torn, damaged and split, against the decoder without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from shoal.protocol.capture.index.blocks import BlockType, encode_object
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.cli import main as capture
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.source.options import Options, instant_ns
from shoal.scenarios.jobs.source.reading import read_faults, read_index
from shoal.scenarios.jobs.source.schema import ROW
from tests.scenarios.capture.frames.test_index import exchanges, written
from tests.scenarios.jobs.captures import one_chunk, write_index
from tests.support.captures.synthetic import Traffic, chunks

SMALL_SPLITS = {"splitBytes": "300000"}


def decoded(path: Path, columns: list[str] | None = None) -> pa.Table:
    batches = record_batches(IndexReader(path=path), columns)
    return pa.Table.from_batches([batch for batch in batches if isinstance(batch, pa.RecordBatch)])


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in ("time_ns", "request", "connection", "partition")])


def same_rows(rows: DataFrame, wanted: pa.Table) -> bool:
    found = rows.toArrow()
    return bool(in_order(found).cast(wanted.schema).equals(in_order(wanted)))


def test_splits_give_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    path = write_index(tmp_path, one_chunk(8_000))
    rows = read_index(spark, str(tmp_path), SMALL_SPLITS)
    assert rows.schema == ROW
    assert rows.rdd.getNumPartitions() >= 4
    assert same_rows(rows, decoded(path))


def test_several_processes_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    write_index(tmp_path, one_chunk(300, 1), proxy="0000000a")
    write_index(tmp_path, one_chunk(200, 2), proxy="0000000b")
    counted = read_index(spark, str(tmp_path), {"columns": "proxy"}).groupBy("proxy").count()
    assert {row["proxy"]: row["count"] for row in counted.collect()} == {"0000000a": 300, "0000000b": 200}


def test_a_torn_end_and_a_damaged_block_cost_what_they_hit(spark: SparkSession, tmp_path: Path) -> None:
    path = write_index(tmp_path, one_chunk(8_000))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data[:-1000])
    wanted = decoded(path)
    assert 8_000 - 1_000 <= wanted.num_rows < 8_000
    assert same_rows(read_index(spark, str(tmp_path), SMALL_SPLITS), wanted)
    faults = read_faults(spark, str(tmp_path))
    assert sorted(row["what"] for row in faults.collect()) == ["damaged", "torn"]


def test_what_a_file_lacked_when_it_was_compacted_is_known_of_the_parquet(spark: SparkSession, tmp_path: Path) -> None:
    path = write_index(tmp_path / "index", one_chunk(2_000))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data + encode_object(BlockType.STATE, {"written": 2_000, "dropped": 7, "closed": True}))
    assert capture(["compact", str(path), "--out", str(tmp_path / "out")]) == 0
    live, compacted = (read_faults(spark, str(tmp_path / name)).collect() for name in ("index", "out"))
    assert [row["what"] for row in compacted] == ["damaged", "dropped"]
    assert [row[1:] for row in compacted] == [row[1:] for row in live]


def test_columns_topics_and_times_are_selected_before_spark_sees_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = write_index(tmp_path, one_chunk(4_000))
    whole = decoded(path)
    times = sorted(whole["time_ns"].to_pylist())
    given = {"columns": "topic,time_ns", "topics": "orders, clicks", "from": str(times[1000]), "to": str(times[3000])}
    rows = read_index(spark, str(tmp_path), given).toArrow()
    wanted = [
        (row["topic"], row["time_ns"])
        for row in whole.to_pylist()
        if row["topic"] in {"orders", "clicks"} and times[1000] <= row["time_ns"] < times[3000]
    ]
    assert rows.schema.names == ["topic", "time_ns"]
    assert sorted(zip(*rows.to_pydict().values(), strict=True)) == sorted(wanted)


def test_compacted_files_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    [chunk] = chunks(Traffic(rows=2_000, seconds=9_000.0))  # of several hours
    whole = decoded(write_index(tmp_path / "live", chunk))
    assert capture(["compact", str(tmp_path / "live"), "--out", str(tmp_path / "compacted")]) == 0
    assert len(list((tmp_path / "compacted").glob("dt=*/hour=*"))) >= 3
    rows = read_index(spark, str(tmp_path / "compacted"))
    assert rows.columns == ROW.names
    assert same_rows(rows, whole)
    some = {"topics": "orders", "columns": "topic,records"}
    live = read_index(spark, str(tmp_path / "live"), some)
    assert read_index(spark, str(tmp_path / "compacted"), some).count() == live.count() > 0


def test_a_directory_without_captures_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="has neither captures"):
        read_index(None, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(JobError, match="there is no such file"):
        read_index(None, str(tmp_path / "nowhere"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("columns", "size", "columns: no such column: size"),
        ("from", "yesterday", "from: 'yesterday' is not a time"),
        ("splitBytes", "0", "splitBytes: '0' is not a positive number"),
        ("show", "all", "show: 'all' is none of rows, faults"),
    ],
)
def test_a_wrong_option_names_itself(option: str, value: str, what: str) -> None:
    with pytest.raises(JobError, match=what):
        Options.of({"path": "x", option: value})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-02", 86_400_000_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1_000),
        ("123", 123),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, wanted: int) -> None:
    assert instant_ns("from", text) == wanted


def test_a_raw_capture_gives_rows_of_the_same_schema(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        written(tmp_path / f"shoal-0000abcd-{number:08d}.pcapng", exchanges(4))
    rows = read_index(spark, str(tmp_path))
    assert rows.schema == ROW
    counted = {row["kind"]: row["count"] for row in rows.groupBy("kind").count().collect()}
    assert counted == {"batch": 8 * len(Codec), "request": 8}
    assert read_faults(spark, str(tmp_path)).count() == 0
