"""Synthetic traffic has the counters of a broker and its clients, for any chunks, and is written to real files."""

from pathlib import Path

import numpy as np
import pytest

from shoal.protocol.capture.index.blocks import Block, BlockType, read_blocks, read_names, read_object
from shoal.protocol.capture.index.columns import ROW_SIZE
from tests.support.captures.synthetic import ROW, Chunk, Traffic, chunks
from tests.support.captures.synthetic_files import IndexFiles, index_bytes
from tests.support.captures.synthetic_mirror import Faults, mirrored

TRAFFIC = Traffic(rows=30_000, seed=7)


@pytest.fixture(scope="module")
def traffic() -> Chunk:
    [chunk] = chunks(TRAFFIC)
    return chunk


def test_a_row_is_what_the_proxy_writes() -> None:
    assert ROW.itemsize == ROW_SIZE


def test_the_same_seed_gives_the_same_rows(traffic: Chunk) -> None:
    assert np.array_equal(next(iter(chunks(TRAFFIC))).rows, traffic.rows)
    other = next(iter(chunks(Traffic(rows=30_000, seed=8))))
    assert not np.array_equal(other.rows, traffic.rows)


@pytest.mark.parametrize("size", [7_000, 1_000_000])
def test_offsets_go_on_without_a_gap_over_all_chunks(size: int) -> None:
    rows = np.concatenate([chunk.rows for chunk in chunks(TRAFFIC, size)])
    assert len(rows) == TRAFFIC.rows
    assert (np.diff(rows["time_ns"]) >= 0).all()
    for topic, partition in {(int(row["topic"]), int(row["partition"])) for row in rows}:
        mine = rows[(rows["topic"] == topic) & (rows["partition"] == partition)]
        ends = mine["log_offset"] + mine["last_offset_delta"] + 1
        assert mine["log_offset"].tolist() == [0, *ends[:-1].tolist()]


def test_the_runaway_client_runs_away_in_its_window_only(traffic: Chunk) -> None:
    mine = traffic.rows[traffic.rows["client"] == TRAFFIC.number("runaway")]
    share = (mine["time_ns"] - TRAFFIC.start_ns) / (TRAFFIC.seconds * 1e9)
    inside = (share >= 0.6) & (share < 0.62)
    assert inside.sum() > 50 * (~inside).sum() * 0.02 > 0


def test_the_files_are_read_by_the_reader_of_the_format(tmp_path: Path, traffic: Chunk) -> None:
    files = IndexFiles(directory=tmp_path, rows_per_file=20_000).write([traffic])
    rows = []
    for path in files:
        blocks = [block for block in read_blocks(path.read_bytes()) if isinstance(block, Block)]
        assert [blocks[0].kind, blocks[1].kind, blocks[-1].kind] == [BlockType.START, BlockType.NAMES, BlockType.STATE]
        assert read_names(blocks[1].payload)[TRAFFIC.number("orders")] == "orders"
        assert read_object(blocks[-1].payload)["closed"]
        rows += [np.frombuffer(block.payload, ROW) for block in blocks if block.kind == BlockType.ROWS]
    assert [path.name for path in files] == ["shoal-00c0ffee-00000000.kxb", "shoal-00c0ffee-00000001.kxb"]
    assert np.array_equal(np.concatenate(rows), traffic.rows)


def test_a_mirror_without_faults_copies_each_batch_once(traffic: Chunk) -> None:
    copy = mirrored(traffic)
    target = copy.target.rows
    assert np.array_equal(target["source_first"], copy.fetched.rows["log_offset"])
    assert np.array_equal(target["log_offset"], copy.fetched.rows["log_offset"])


def test_a_mirror_has_the_faults_that_were_asked_for(traffic: Chunk) -> None:
    copy = mirrored(traffic, Faults(missing=3, doubled=4, reordered=5, retried=6))
    key = ["source_topic", "source_partition", "source_first"]
    appended = copy.target.rows[copy.target.rows["log_offset"] >= 0]
    batches, times = np.unique(appended[key], return_counts=True)
    assert len(batches) == len(traffic.rows) - 3
    assert (times == 2).sum() == 4 == len(copy.doubled)
    assert len(copy.target.rows) - len(appended) == 6
    inversions = 0
    for partition in np.unique(appended[key[:2]]):
        mine = appended[appended[key[:2]] == partition]
        inversions += int((np.diff(mine[np.argsort(mine["log_offset"])]["source_first"]) < 0).sum())
    assert inversions == 5 == len(copy.reordered)


def test_an_ordinary_mirror_copies_all_records_in_fewer_batches(traffic: Chunk) -> None:
    copy = mirrored(traffic, wrapped=False)
    assert copy.target.rows["record_count"].sum() == traffic.rows["record_count"].sum()
    assert len(copy.target.rows) < 0.6 * len(traffic.rows)


def test_joined_rows_are_written_in_the_byte_order_of_the_format(traffic: Chunk) -> None:
    both = mirrored(traffic).both
    joined = np.concatenate([both.rows[:10], both.rows[10:20]])
    for rows in (both.rows[:20], joined):
        blocks = list(read_blocks(b"".join(index_bytes(rows, both.names))))
        assert isinstance(blocks[2], Block)
        assert (
            np.frombuffer(blocks[2].payload, ROW)["max_timestamp"].tolist() == both.rows[:20]["max_timestamp"].tolist()
        )
