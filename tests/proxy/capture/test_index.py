"""The index's files: contents, size, and failures to write."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.protocol.capture.index.blocks import Torn
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.proxy.capture.index import FLUSH_BYTES, Capture
from shoal.proxy.capture.index_files import IndexFiles
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import CaptureSettings
from tests.proxy.config.test_toml import GOOD
from tests.support.captures.capture_index import content, files
from tests.support.captures.capture_maker import a_row
from tests.support.processes import CLUSTERS, shoal
from tests.support.rig import until
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPOSITORY = Path(__file__).parents[3]


def new_capture(directory: Path, limits: Mapping[str, int] | None = None, **options: Any) -> Capture:
    settings = CaptureSettings(directory=directory, **options)
    return Capture(settings, {"site": "north"}, lambda _, __: None, **limits or {})


def fill(capture: Capture, rows: int, first: int = 1) -> None:
    for number in range(first, first + rows):
        capture.add(a_row(capture, number))


def requests(directory: Path) -> list[int]:
    return [row["request"] for path in files(directory) for row in content(path)[1]]


async def test_rows_are_in_the_file_with_their_names(tmp_path: Path) -> None:
    capture = new_capture(tmp_path)
    fill(capture, 25)
    await capture.flush()
    fill(capture, 5, 26)
    capture.close()
    (path,) = files(tmp_path)
    reader, rows, wrong = content(path)
    assert not wrong
    assert [(row["request"], row["client"]) for row in rows] == [(n, f"client-{n % 10}") for n in range(1, 31)]
    assert reader.state == {"written": 30, "dropped": 0, "closed": True}
    assert (reader.written_by["number"], reader.written_by["tags"]) == (1, {"site": "north"})
    assert path.name == f"shoal-{reader.proxy}-00000001.kxb"
    assert capture.statistics().written == 30
    assert capture.statistics().bytes == path.stat().st_size - len(path.read_bytes().partition(b"\xa5KXB\x02")[0])


async def test_nothing_seen_makes_no_file(tmp_path: Path) -> None:
    new_capture(tmp_path).close()
    assert not files(tmp_path)


async def test_a_file_is_closed_when_it_is_large_and_the_next_has_all_names_of_its_own(tmp_path: Path) -> None:
    capture = new_capture(tmp_path, max_file_bytes=10 * ROW_SIZE)
    for first in range(1, 61, 5):
        fill(capture, 5, first)
        await capture.flush()
    capture.close()
    assert requests(tmp_path) == list(range(1, 61))
    assert len(files(tmp_path)) >= 5
    for number, path in enumerate(files(tmp_path), 1):
        reader, rows, wrong = content(path)
        assert (reader.written_by["number"], reader.state["closed"], wrong) == (number, True, [])
        assert reader.state["written"] == len(rows)
        assert {row["client"] for row in rows} == set(reader.names.values())


async def test_a_file_is_closed_when_it_is_old(tmp_path: Path) -> None:
    capture = new_capture(tmp_path, roll_seconds=0.0)
    for first in (1, 11):
        fill(capture, 10, first)
        await capture.flush()
    assert [content(path)[0].state["closed"] for path in files(tmp_path)] == [True, True]
    assert requests(tmp_path) == list(range(1, 21))


async def test_the_oldest_files_make_room_and_files_of_others_that_are_open_stay(tmp_path: Path) -> None:
    size = 50 * ROW_SIZE
    other = new_capture(tmp_path, max_file_bytes=size, max_bytes=6 * size)
    fill(other, 10, 100_000)
    await other.flush()
    (kept,) = files(tmp_path)
    capture = new_capture(tmp_path, max_file_bytes=size, max_bytes=6 * size)
    for first in range(1, 2001, 20):
        fill(capture, 20, first)
        await capture.flush()
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 6 * size + FLUSH_BYTES
    capture.close()
    assert kept in files(tmp_path)
    mine = sorted(number for number in requests(tmp_path) if number < 100_000)
    assert mine == list(range(mine[0], 2001))
    other.close()


def test_a_killed_process_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    for _ in range(3):
        argv = [sys.executable, "-m", "tests.support.captures.capture_maker", str(tmp_path)]
        with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as maker:
            assert maker.stdout is not None
            written = [int(maker.stdout.readline()) for _ in range(20)][-1]
            maker.send_signal(signal.SIGKILL)
        newest = max(files(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        reader, rows, wrong = content(newest)
        assert [row["request"] for row in rows] == list(range(1, len(rows) + 1))
        assert len(rows) >= written
        assert {row["client"] for row in rows} == {f"client-{n}" for n in range(10)}
        assert all(isinstance(one, Torn) for one in wrong)
        assert not reader.state.get("closed")
    assert len(files(tmp_path)) == 3


async def test_a_torn_end_costs_the_last_block_only(tmp_path: Path) -> None:
    capture = new_capture(tmp_path)
    for first in (1, 11, 21):
        fill(capture, 10, first)
        await capture.flush()
    (path,) = files(tmp_path)
    data = path.read_bytes()
    for cut in range(1, 10 * ROW_SIZE, 97):
        path.write_bytes(data[:-cut])
        _, rows, wrong = content(path)
        assert [row["request"] for row in rows] == list(range(1, 21))
        assert [type(one) for one in wrong] == [Torn]


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Limits the size of every file of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_drops_rows_and_leaves_whole_blocks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    capture = new_capture(tmp_path)
    fill(capture, 10)
    await capture.flush()
    with disk_of(15 * ROW_SIZE), caplog.at_level(logging.INFO):
        for first in (11, 21):
            fill(capture, 10, first)
            await capture.flush()
    assert capture.statistics().dropped == 20
    fill(capture, 10, 31)
    with caplog.at_level(logging.INFO):
        await capture.flush()
    capture.close()
    (path,) = files(tmp_path)
    reader, rows, wrong = content(path)
    assert not wrong
    assert [row["request"] for row in rows] == [*range(1, 11), *range(31, 41)]
    assert reader.state == {"written": 20, "dropped": 20, "closed": True}
    told = [record.getMessage() for record in caplog.records]
    assert ["cannot be written" in told[0], "written again" in told[1], len(told)] == [True, True, 2]


@pytest.mark.parametrize("full_at_the_start", [True, False])
async def test_a_disk_without_room_has_every_row_that_counts_as_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, full_at_the_start: bool
) -> None:
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk, caplog.at_level(logging.INFO):
        capture = new_capture(disk.path)
        disk.fill(leave=0 if full_at_the_start else 3 * 4096)
        for first in range(1, 301, 10):
            fill(capture, 10, first)
            await capture.flush()
        written = capture.statistics().written
        assert (written, capture.statistics().dropped) == (300 - capture.dropped, 300 - written)
        assert bool(written) is not full_at_the_start
        disk.empty()
        fill(capture, 10, 1001)
        await capture.flush()
        capture.close()
        (path,) = files(disk.path)
        reader, rows, wrong = content(path)
        assert not wrong
        assert [row["request"] for row in rows][-10:] == list(range(1001, 1011))
        assert len(rows) == written + 10 == capture.statistics().written
        assert reader.state == {"written": written + 10, "dropped": 300 - written, "closed": True}
        first_line, again = caplog.messages
        assert f"cannot be written to {disk.path}: No space left on device" in first_line
        assert "written again" in again


async def test_a_disk_that_is_full_when_a_file_is_due_changes_no_names_of_the_rows_before(tmp_path: Path) -> None:
    capture = new_capture(tmp_path, max_file_bytes=40 * ROW_SIZE)
    fill(capture, 10)
    await capture.flush()
    with disk_of(15 * ROW_SIZE):
        fill(capture, 30, 11)
        await capture.flush()
    fill(capture, 10, 45)
    await capture.flush()
    capture.close()
    found = [[(row["request"], row["client"]) for row in content(path)[1]] for path in files(tmp_path)]
    assert found == [[(n, f"client-{n % 10}") for n in range(first, first + 10)] for first in (1, 45)]
    assert capture.statistics().dropped == 30


def test_a_file_that_could_not_be_closed_is_not_written_again(tmp_path: Path) -> None:
    """Its number may be a client's connection by then."""
    index = IndexFiles(CaptureSettings(directory=tmp_path), {})
    index.append(b"first")
    (path,) = files(tmp_path)
    os.close(next(int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.samefile(path)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        index.close()
    with (tmp_path / "another").open("wb"):
        index.append(b"second")
    index.close()
    assert (tmp_path / "another").read_bytes() == b""
    assert [file.read_bytes()[-6:] for file in files(tmp_path)[1:]] == [b"second"]


async def test_a_directory_that_goes_and_comes_back(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    directory.mkdir()
    capture = new_capture(directory)
    fill(capture, 10)
    await capture.flush()
    for path in files(directory):
        path.unlink()
    directory.rmdir()
    fill(capture, 10, 11)
    await capture.flush()
    assert capture.statistics().dropped == 10
    directory.mkdir()
    fill(capture, 10, 21)
    await capture.flush()
    capture.close()
    (path,) = files(directory)
    reader, rows, wrong = content(path)
    assert not wrong
    assert [(row["request"], row["client"]) for row in rows] == [(n, f"client-{n % 10}") for n in range(21, 31)]
    assert reader.state == {"written": 10, "dropped": 10, "closed": True}


async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    capture = new_capture(tmp_path, {"most_waiting": 7 * ROW_SIZE})
    fill(capture, 10)
    capture.close()
    assert requests(tmp_path) == list(range(1, 8))
    assert capture.statistics().dropped == 3


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"capture\.directory: .* is not a directory"):
        new_capture(tmp_path / "missing")
    for flag in ("--capture", "--capture-raw"):
        told = shoal("mirror", *CLUSTERS, flag, str(tmp_path / "missing"))
        assert (told.returncode, told.stdout) == (2, "")
        assert f"shoal: error: {flag}: {tmp_path / 'missing'} is not a directory: create it" in told.stderr
    file = tmp_path / "shoal.toml"
    for table, also in (("capture", ""), ("capture.raw", '[capture]\ndirectory = "."\n')):
        file.write_text(f'{GOOD}\n{also}[{table}]\ndirectory = "missing"\n')
        checked = shoal("check", "-c", str(file))
        assert checked.returncode == 2
        assert f"shoal: error: {table}.directory: {tmp_path / 'missing'} is not a directory" in checked.stderr


async def test_a_file_ends_with_too_many_names(tmp_path: Path) -> None:
    capture = new_capture(tmp_path, {"most_names": 6})
    for first in (1, 9):
        fill(capture, 8, first)
        await capture.flush()
    found = [[row["client"] for row in content(path)[1]] for path in files(tmp_path)]
    assert found == [
        [f"client-{n}" for n in range(1, 7)] + [None] * 2,
        [f"client-{n % 10}" for n in range(9, 15)] + [None] * 2,
    ]


async def test_names_of_any_length_are_written_and_their_size_is_bounded(tmp_path: Path) -> None:
    capture = new_capture(tmp_path, {"most_names_size": 6_000_000})
    for first in (1, 1001):
        for number in range(first, first + 1000):
            capture.number(f"{number:04}".ljust(32_767, "x"))
        fill(capture, 3, first)
        await capture.flush()
    capture.close()
    for path, first in zip(files(tmp_path), (1, 1001), strict=True):
        reader, rows, wrong = content(path)
        names = [name[:4] for name in reader.names.values()]
        assert (names, wrong) == ([f"{number:04}" for number in range(first, first + 184)], [])
        assert [row["client"] for row in rows] == [None] * 3
    assert capture.statistics().dropped == 0


async def test_an_error_of_shoals_own_ends_the_index_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    capture = new_capture(tmp_path, flush_seconds=0.05)
    no_bytes: Any = "?" * ROW_SIZE
    async with trio.open_nursery() as nursery:
        nursery.start_soon(capture.run)
        capture.add(no_bytes)
        await until(lambda: "the index stops" in caplog.text)
        fill(capture, 3, 2)
        nursery.cancel_scope.cancel()
    capture.close()
    assert capture.statistics().dropped == 4
