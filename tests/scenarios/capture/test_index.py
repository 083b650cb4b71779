"""Index files are read in pieces, from any block on, while they grow, and past damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.index.blocks import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    BlockType,
    Damaged,
    Torn,
    encode_block,
    encode_names,
    encode_object,
)
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.files import CaptureFile, capture_files
from shoal.scenarios.capture.index import IndexReader, Rows, UnreadableFile, splits, whole_until
from tests.support.captures.index_files import NAMES, PROXY, encode_row, start_block, whole_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rewritten by each example."""
    return tmp_path_factory.mktemp("index") / f"shoal-{PROXY}-00000001.kxb"


def _times(first: int, count: int) -> bytes:
    return b"".join(encode_row(time_ns=time, topic=1 + time % 2) for time in range(first, first + count))


def _file(counts: list[int], names_between: bool = True) -> list[bytes]:
    """Blocks of rows, numbered by their time; the second name appears just before the rows that need it."""
    blocks, first = [start_block(), encode_names({1: "orders"})], 0
    for position, count in enumerate(counts):
        if names_between and position == len(counts) // 2:
            blocks.append(encode_names({2: "payments"}))
        blocks.append(encode_block(BlockType.ROWS, _times(first, count)))
        first += count
    return blocks


def _read(reader: IndexReader) -> tuple[list[int], list[Damaged | Torn]]:
    times: list[int] = []
    wrong: list[Damaged | Torn] = []
    for result in record_batches(reader, ["time_ns"]):
        if isinstance(result, (Damaged, Torn)):
            wrong.append(result)
        else:
            times += result["time_ns"].to_pylist()
    return times, wrong


_COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@given(_COUNTS, st.integers(1, 900))
def test_rows_come_back_in_order_in_pieces(path: Path, counts: list[int], piece: int) -> None:
    path.write_bytes(b"".join(_file(counts)))
    reader = IndexReader(path=path, piece=piece)
    pieces = [result for result in reader if isinstance(result, Rows)]

    assert b"".join(one.payload for one in pieces) == _times(0, sum(counts))
    assert all(len(one.payload) >= piece for one in pieces[:-1])
    assert reader.names == {1: "orders", 2: "payments"}
    assert reader.proxy == PROXY


@given(_COUNTS, st.integers(1, 1500))
def test_splits_together_are_the_whole_file_and_each_knows_its_names(path: Path, counts: list[int], size: int) -> None:
    path.write_bytes(b"".join(_file(counts, names_between=False)))
    end = whole_until(path)
    ranges = list(splits(path, 0, end, size))
    readers = [IndexReader(path=path, start=first, end=last) for first, last in ranges]
    read = [_read(reader) for reader in readers]

    assert end == path.stat().st_size
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == end
    assert [time for times, _ in read for time in times] == list(range(sum(counts)))
    assert not any(wrong for _, wrong in read)
    assert all(reader.names.get(1) == "orders" for reader, (times, _) in zip(readers, read, strict=True) if times)


@given(_COUNTS, st.data())
def test_a_growing_file_is_read_on_from_where_it_was_whole(path: Path, counts: list[int], draw: st.DataObject) -> None:
    data = b"".join(_file(counts))
    times: list[int] = []
    start = 0
    for end in sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5))):
        path.write_bytes(data[:end])
        until = whole_until(path, start)
        if until > start:
            found, wrong = _read(IndexReader(path=path, start=start, end=until))
            assert not wrong
            times += found
        start = until
    path.write_bytes(data)
    times += _read(IndexReader(path=path, start=start))[0]

    assert times == list(range(sum(counts)))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_a_damaged_block_costs_its_rows_and_no_others(path: Path, counts: list[int], draw: st.DataObject) -> None:
    blocks = _file(counts)
    hit = draw.draw(st.sampled_from([one for one in range(2, len(blocks)) if blocks[one][4] == BlockType.ROWS]))
    before = sum(map(len, blocks[:hit]))
    at = draw.draw(st.integers(0, len(blocks[hit]) - 1))
    data = bytearray(b"".join([*blocks, encode_object(BlockType.STATE, {"closed": True})]))
    data[before + at] ^= draw.draw(st.integers(1, 255))
    path.write_bytes(data)
    reader = IndexReader(path=path)
    times, wrong = _read(reader)
    lost = sum(counts[: [one for one in range(len(blocks)) if blocks[one][4] == BlockType.ROWS].index(hit)])
    missing = range(lost, lost + (len(blocks[hit]) - HEADER_SIZE) // ROW_SIZE)

    assert times == [time for time in range(sum(counts)) if time not in missing]
    assert wrong == [Damaged(before, before + len(blocks[hit]))]
    assert reader.names == {1: "orders", 2: "payments"}
    assert reader.state == {"closed": True}


@given(st.lists(st.integers(1, 5), min_size=2, max_size=8), st.data())
def test_names_before_a_damaged_block_are_found_by_who_begins_behind_it(
    path: Path, counts: list[int], draw: st.DataObject
) -> None:
    *blocks, last = _file(counts, names_between=False)
    blocks.insert(draw.draw(st.integers(2, len(blocks))), encode_names({2: "payments"}))
    data = bytearray(b"".join([*blocks, last]))
    places = [sum(map(len, blocks[:one])) for one in range(len(blocks)) if blocks[one][4] == BlockType.ROWS]
    data[draw.draw(st.sampled_from(places)) + draw.draw(st.integers(0, 11))] ^= draw.draw(st.integers(1, 255))
    path.write_bytes(data)
    reader = IndexReader(path=path, start=sum(map(len, blocks)))

    assert _read(reader) == (list(range(sum(counts) - counts[-1], sum(counts))), [])
    assert reader.names == {1: "orders", 2: "payments"}


def test_a_torn_end_is_told_and_read_later(path: Path) -> None:
    *blocks, last = _file([3, 4])
    path.write_bytes(b"".join(blocks) + last[:-1])
    start = sum(map(len, blocks))

    assert _read(IndexReader(path=path)) == ([0, 1, 2], [Torn(start)])
    assert whole_until(path) == start


def test_more_than_a_window_of_blocks_and_of_damage(path: Path) -> None:
    rows = _times(0, MAX_PAYLOAD // ROW_SIZE // 4) * 4
    large = encode_block(BlockType.ROWS, rows)
    hole = b"\xa5KXB\x03\0\0\0" * ((MAX_PAYLOAD * 2) // 8)
    path.write_bytes(start_block() + encode_names(NAMES) + large + hole + large * 2)
    before = len(start_block() + encode_names(NAMES) + large)
    results = list(IndexReader(path=path, piece=1))

    assert [len(result.payload) for result in results if isinstance(result, Rows)] == [len(rows)] * 3
    assert [result for result in results if not isinstance(result, Rows)] == [Damaged(before, before + len(hole))]
    assert whole_until(path) == path.stat().st_size


def test_rows_that_do_not_fill_their_block_are_damage(path: Path) -> None:
    path.write_bytes(whole_file([_times(0, 2)[:-1], _times(2, 1)]))
    times, (damaged,) = _read(IndexReader(path=path))

    assert times == [2]
    assert isinstance(damaged, Damaged)


def test_rows_of_a_later_version_are_read_by_their_beginning(path: Path) -> None:
    rows = b"".join(encode_row(time_ns=time) + b"new" for time in range(3))
    path.write_bytes(start_block(version=2, row_size=ROW_SIZE + 3) + encode_block(BlockType.ROWS, rows))

    assert _read(IndexReader(path=path)) == ([0, 1, 2], [])


@pytest.mark.parametrize("size", [ROW_SIZE - 1, None, "178"])
def test_rows_of_an_unknown_size_are_refused(path: Path, size: object) -> None:
    path.write_bytes(start_block(row_size=size))

    with pytest.raises(UnreadableFile, match="rows of"):
        list(IndexReader(path=path))


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_read_without_another_error(path: Path, data: bytes, cut: int) -> None:
    path.write_bytes(whole_file([_times(0, 1)])[:cut] + data)

    for start in (0, cut):
        times, _ = _read(IndexReader(path=path, start=start))
        assert times in ([], [0])
    assert 0 <= whole_until(path) <= path.stat().st_size


def test_a_file_without_its_beginning_is_named_by_its_name(path: Path) -> None:
    path.write_bytes(encode_block(BlockType.ROWS, _times(0, 1)))
    reader = IndexReader(path=path)

    assert _read(reader) == ([0], [])
    assert reader.proxy == PROXY


def test_files_of_a_directory_are_those_of_captures_in_order(tmp_path: Path) -> None:
    given = ["shoal-0000000b-00000001", "shoal-0000000a-00000010", "shoal-0000000a-00000009"]
    for name in (*(f"{name}.kxb" for name in given), f"{given[0]}.pcapng", "shoal-x-1.kxb", "other.kxb"):
        (tmp_path / name).touch()

    assert [(proxy, number) for proxy, number, _ in capture_files(tmp_path)] == [
        ("0000000a", 9),
        ("0000000a", 10),
        ("0000000b", 1),
    ]
    assert [one.path.name for one in capture_files(tmp_path, "pcapng")] == [f"{given[0]}.pcapng"]
    assert capture_files(tmp_path / "other.kxb") == [CaptureFile("", 0, tmp_path / "other.kxb")]
    with pytest.raises(FileNotFoundError):
        capture_files(tmp_path / "none.kxb")
