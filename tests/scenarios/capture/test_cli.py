"""`shoal capture` from the command line."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from shoal.cli import main as shoal
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Encoder, Sender
from shoal.protocol.capture.frames.redaction import WITHHELD, ExchangePart
from shoal.protocol.capture.index.blocks import BlockType, encode_block, encode_names, encode_object
from shoal.protocol.schema.api import API
from shoal.scenarios.capture import compact
from shoal.scenarios.capture.cli import main
from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.frames.files import read_frames
from shoal.scenarios.capture.schema import COLUMNS
from shoal.scenarios.capture.text import parse_time, show_time
from tests.support.captures.index_files import NAMES, PROXY, encode_row, start_block
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR = 3_600_000_000_000
START = parse_time("2026-11-22T04:59:58")
SECOND = 1_000_000_000


def row(number: int, **fields: int) -> bytes:
    """One per second, from two seconds before an hour ends."""
    known = {"topic": 1 + number % 2, "client": 3, "kind": 1, "magic": 2, "record_count": 10, "batch_length": 88}
    return encode_row(**{"time_ns": START + number * SECOND, "partition": number, **known, **fields})


def closed(written: int, dropped: int = 0) -> bytes:
    return encode_object(BlockType.STATE, {"written": written, "dropped": dropped, "closed": True})


def index_file(directory: Path, number: int, rows: Sequence[bytes], *, end: bytes = b"") -> Path:
    path = directory / f"shoal-{PROXY}-{number:08d}.kxb"
    blocks = [start_block(number=number), encode_names(NAMES), *(encode_block(BlockType.ROWS, one) for one in rows)]
    path.write_bytes(b"".join([*blocks, end]))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two files of four rows each, across the end of an hour."""
    found = tmp_path / "index"
    found.mkdir()
    index_file(found, 1, [row(0) + row(1), row(2) + row(3)], end=closed(4))
    index_file(found, 2, [b"".join(map(row, range(4, 8)))], end=closed(4))
    return found


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    told = capsys.readouterr()
    assert told.err == ""
    return told.out.splitlines()


def test_the_shoal_command_knows_it(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shoal(["capture", "ls", str(directory)]) == 0
    assert len(lines(capsys)) == 3


def test_ls_is_a_table_of_files(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index_file(directory, 3, [row(8), row(9, kind=0)])
    (directory / "shoal-0000000a-00000001.kxb").write_bytes(encode_block(BlockType.ROWS, row(9))[:-1])
    main(["ls", str(directory)])
    titles, torn, first, second, third = lines(capsys)
    size = (directory / f"shoal-{PROXY}-00000001.kxb").stat().st_size

    assert titles.split() == ["PROXY", "NUMBER", "FROM", "TO", "ROWS", "BATCHES", "BYTES", "STATE", "FILE"]
    assert first.split() == [
        *(PROXY, "1", "2026-11-22T04:59:58.000Z", "2026-11-22T05:00:01.000Z", "4", "4", f"{size:,}", "closed"),
        f"shoal-{PROXY}-00000001.kxb",
    ]
    assert " closed " in second
    assert third.split()[4:6] == ["2", "1"]
    assert " left " in third
    assert " left, torn, damaged " in torn


def test_a_file_that_is_written_to_is_open(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = index_file(directory, 3, [row(8)])
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        main(["ls", str(path)])
    assert " open " in lines(capsys)[1]


def test_cat_prints_a_table_that_lines_up(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(directory), "--columns", "time_ns,topic,partition,latency_ns,transactional"]) == 0
    titles, first, *others = lines(capsys)

    assert titles.split() == ["time_ns", "topic", "partition", "latency_ns", "transactional"]
    assert first.split() == ["2026-11-22T04:59:58.000Z", "orders", "0", "0", "false"]
    assert {line.index("false") for line in (first, *others)} == {
        titles.index("transactional") + len("transactional") - 5
    }
    assert len(others) == 7


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_cat_prints_nothing_that_a_terminal_obeys(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = index_file(tmp_path, 1, [])
    names = encode_names({1: "orders", 3: "\x1b[2J\r\n\x9b31m\u202eevil"})
    path.write_bytes(start_block(number=1) + names + encode_block(BlockType.ROWS, row(0)))
    assert main(["cat", str(tmp_path), *form]) == 0
    found = lines(capsys)
    assert len(found) == (1 if form else 2)
    assert all(line.isprintable() for line in found)
    assert "\\u202eevil" in found[-1]


def test_cat_prints_lines_of_json_with_every_column(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cat", "--json", str(directory), "--limit", "5"])
    found = [json.loads(line) for line in lines(capsys)]

    assert [one["partition"] for one in found] == [0, 1, 2, 3, 4]
    assert list(found[0]) == list(COLUMNS)
    assert found[0]["client"] == "small-producer"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["--topic", "orders"], [0, 2, 4, 6]),
        (["--topic", "orders", "--topic", "payments", "--client", "nobody"], []),
        (["--from", "2026-11-22T05:00:01", "--to", "2026-11-22T05:00:03Z"], [3, 4]),
        (["--from", str(START // SECOND + 6)], [6, 7]),
    ],
)
def test_cat_takes_conditions(
    directory: Path, conditions: list[str], expected: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["cat", "--json", "--columns", "partition", str(directory), *conditions])
    assert [json.loads(line)["partition"] for line in lines(capsys)] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cat", "{}/none"], "none: No such file or directory"),
        (["ls", "."], "shoal capture ls: no captures (shoal-*.kxb) in ."),
    ],
)
def test_mistakes_are_told_in_one_line(
    directory: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(directory) for argument in arguments]) == 2

    told = capsys.readouterr().err
    assert told.startswith("shoal: error: ")
    assert expected in told
    assert told.count("\n") == 1


def test_a_closed_pipe_ends_it_quietly(directory: Path) -> None:
    for number in range(3, 9):
        index_file(directory, number, [row(8) * 5000])
    command = f"{sys.executable} -m shoal capture cat --json {directory} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )

    assert done.stdout.splitlines()[1:] == ["0"]
    assert done.stderr == ""


def test_without_pyarrow_cat_says_what_to_install_and_ls_works(directory: Path) -> None:
    hidden = "import sys; sys.modules['pyarrow'] = sys.modules['numpy'] = None; from shoal.cli import main; "
    code = f"{hidden}print(main(['capture', 'ls', {str(directory)!r}]), main(['capture', 'cat', {str(directory)!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )

    assert done.stdout.splitlines()[-1] == "0 2"
    assert "needs pyarrow, which is not installed: pip install 'numpy>=" in done.stderr


def test_verify_says_that_all_is_well(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(directory)]) == 0
    assert lines(capsys)[-1] == "2 files, 8 rows, 0 with problems"


def test_verify_tells_what_is_wrong(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = index_file(directory, 3, [row(8), row(9, topic=77), row(10)], end=closed(4, dropped=5))
    data = bytearray(whole.read_bytes())
    data[-150] ^= 1
    whole.write_bytes(data)
    index_file(directory, 4, [row(8)], end=encode_block(BlockType.ROWS, row(9))[:100])
    index_file(directory, 5, [row(8)]).write_bytes(encode_block(BlockType.ROWS, row(1)))

    assert main(["verify", str(directory)]) == 1
    told = "\n".join(lines(capsys))
    for expected in (
        "are damaged",
        "its writer counted 4 rows",
        "5 rows could not be written",
        "1 names are missing: ?77",
        "100 bytes are not a whole block",
        "its first block is missing",
        "5 files, 12 rows, 3 with problems",
    ):
        assert expected in told


def parquet(out: Path) -> list[int]:
    """The numbers of all rows; hidden files are ignored, as in Spark."""
    if not list(out.glob("dt=*/hour=*/[!.]*")):
        return []
    table = ds.dataset(out, partitioning="hive", exclude_invalid_files=False).to_table(columns=["partition"])
    return sorted(table["partition"].to_pylist())


def test_compact_writes_parquet_by_date_and_hour(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parquet"
    assert main(["compact", str(directory), "--out", str(out)]) == 0
    assert parquet(out) == list(range(8))
    parts = sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet"))
    assert parts == [
        f"dt=2026-11-22/hour=04/shoal-{PROXY}-00000001.parquet",
        f"dt=2026-11-22/hour=05/shoal-{PROXY}-00000001.parquet",
        f"dt=2026-11-22/hour=05/shoal-{PROXY}-00000002.parquet",
    ]
    file = pq.ParquetFile(out / parts[0])
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.names == list(COLUMNS)
    lines(capsys)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}

    assert main(["compact", str(directory), "--out", str(out)]) == 0
    assert all("was compacted before" in line for line in lines(capsys))
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before


@pytest.mark.parametrize("crash_at", range(6))
def test_a_crash_in_the_middle_of_a_compaction_leaves_nothing_double(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    out, left = tmp_path / "parquet", [crash_at]
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    try:
        main(["compact", str(directory), "--out", str(out)])
    except KeyboardInterrupt:
        assert crash_at < 5  # three parts, two notes
    monkeypatch.undo()
    assert len(set(parquet(out))) == len(parquet(out))
    assert main(["compact", str(directory), "--out", str(out)]) == 0
    assert parquet(out) == list(range(8))


def test_what_was_compacted_may_be_removed_but_nothing_else(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parquet"
    torn = index_file(directory, 3, [row(8)], end=encode_block(BlockType.ROWS, row(9))[:100])
    live = index_file(directory, 4, [row(9)])
    with live.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert main(["compact", "--remove", str(directory), "--out", str(out)]) == 0
    told = "\n".join(lines(capsys))

    assert sorted(directory.iterdir()) == [torn, live]
    assert parquet(out) == list(range(9))
    assert f"{live}: is still open for writing" in told
    assert f"{torn}: is kept: it is damaged or torn" in told


def test_one_compaction_at_a_time(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with compact.locked(tmp_path):
        assert main(["compact", str(directory), "--out", str(tmp_path)]) == 2
    assert "another compaction is running" in capsys.readouterr().err


def raw(directory: Path, proxy: str, times: Sequence[int], topic: bytes) -> None:
    encoder, data = Encoder(proxy), b""
    for number, time_ns in enumerate(times):
        body = b"\0\0\0\3" + number.to_bytes(4, "big") + b"\0\1c" + b"\xff\xff\0\1" + bytes(8) + b"\0\6" + topic
        asked = len(body).to_bytes(4, "big") + body
        answer = b"\0\0\0\4" + number.to_bytes(4, "big")
        for sender, frame in ((Sender.CLIENT, asked), (Sender.BROKER, answer)):
            data += encoder.frame(CapturedFrame(time_ns * SECOND, proxy, 1, sender, frame, None, 4))
    (directory / f"shoal-{proxy}-00000001.pcapng").write_bytes(data)


def test_to_pcap_merges_by_time_and_selects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw(tmp_path, "0000000a", [1, 4, 5], b"orders")
    raw(tmp_path, "0000000b", [2, 3, 6], b"events")
    out = tmp_path / "all.pcapng"
    assert main(["to-pcap", str(tmp_path), "--out", str(out)]) == 0
    assert lines(capsys) == [f"{out}: 12 frames"]
    frames = list(read_frames(out))
    assert [frame.time_ns // SECOND for frame in frames] == [time for time in range(1, 7) for _ in range(2)]
    assert [frame.connection for frame in frames[::2]] == [1, 2, 2, 1, 1, 2]
    assert {frame.node for frame in frames} == {4}
    assert b"connection 1 of proxy 0000000b" in out.read_bytes()
    given = [str(one.path) for one in capture_files(tmp_path, "pcapng")]
    main(["to-pcap", *given, "--out", str(out), "--topic", "orders", "--from", "4", "--api", "Produce"])
    assert [one.time_ns // SECOND for one in read_frames(out)] == [4, 4, 5, 5]


def test_to_pcap_replaces_no_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw(tmp_path, "0000000a", [1, 4, 5], b"orders")
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    assert main(["to-pcap", str(tmp_path), "--out", str(path), "--topic", "events"]) == 2
    assert "is one of the captures, which it would replace" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_cat_reads_raw_captures_as_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw(tmp_path, "0000000a", [1, 4, 5], b"orders")
    assert main(["cat", "--json", str(tmp_path), "--columns", "time_ns,client,api_key"]) == 0
    assert [json.loads(line) for line in lines(capsys)] == [
        {"time_ns": time * SECOND, "client": "c", "api_key": 0} for time in (1, 4, 5)
    ]


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:01", SECOND),
        ("1970-01-01T01:00:00.5+01:00", SECOND // 2),
        ("2.5", 5 * SECOND // 2),
        ("1970-01-02", 86_400 * SECOND),
    ],
)
def test_times_are_read_as_people_write_them(text: str, time_ns: int) -> None:
    assert parse_time(text) == time_ns
    assert parse_time(show_time(time_ns)) == time_ns


def test_the_guide_names_everything_that_is_withheld() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "capture.md").read_text()
    parts = {
        ExchangePart.REQUEST: "requests",
        ExchangePart.ANSWER: "answers",
        ExchangePart.BOTH: "requests and answers",
    }

    for key, (part, why) in WITHHELD.items():
        assert f"| {API[key].name}, {parts[part]} | {why} |" in guide


@pytest.mark.parametrize("command", ["compact", "to-pcap"])
@pytest.mark.parametrize("room", [0, 4096, 8192, 16_384])
def test_a_full_disk_ends_a_command_with_one_line_and_loses_nothing(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], room: int, command: str
) -> None:
    """Existing output stays, no partial file remains, and the same command succeeds once there is room."""
    sources = sorted(directory.iterdir())
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        out = disk.path / ("parquet" if command == "compact" else "all.pcapng")
        arguments = [command, str(directory), "--out", str(out), *(["--remove"] if command == "compact" else [])]
        if command == "to-pcap":
            raw(directory, "0000000a", range(400), b"orders")
            sources = sorted(directory.iterdir())
        disk.fill(leave=room)
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"shoal: error: shoal capture {command}: {disk.path}")
        assert "No space left on device" in line
        assert not [path for path in disk.path.rglob("*.part")]
        disk.empty()
        if command == "compact":
            assert set(sources) >= set(directory.iterdir())
            assert main(arguments) == 0
            assert parquet(out) == list(range(8))
        else:
            assert sources == sorted(directory.iterdir())
            assert main(arguments) == 0
            assert len(list(read_frames(out))) == 800
