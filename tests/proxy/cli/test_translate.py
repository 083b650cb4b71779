"""`shoal translate` from the files of a state directory, without any broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.shallow.translate.offset_map import AppendedRange, SourcePartition
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cli.translate.command import main
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.shallow.files.offsets import OffsetsFile

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = SourcePartition("cluster", "orders", 0)
TARGET = TopicPartition("A.orders", 0)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    file = OffsetsFile("target-29092", tmp_path / "target-29092.offsets")
    file.anew(file.write_anew(file.begin_anew(file.load())))
    for known in (AppendedRange(10, 100, 50, SOURCE), AppendedRange(60, 155, 10, SOURCE), (90, 200, 10, SOURCE)):
        file.add(file.appended(TARGET, AppendedRange(*known)))
    file.close()
    return tmp_path


def asked(state: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["--state-dir", str(state), *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)["offsets"]


def test_exact_offsets(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = asked(state, capsys, "orders-0", "100", "149", "152", "155", "209")
    assert code == 0
    assert [row["translated"] for row in rows] == [10, 59, 60, 60, 99]
    assert [row["why"] for row in rows] == ["appended", "appended", "hole", "appended", "appended"]


def test_bounds(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = asked(state, capsys, "orders-0", "50", "180", "210")
    assert code == 1
    found = [(row["translated"], row["low"], row["high"], row["why"]) for row in rows]
    assert found == [(None, 0, 10, "older"), (None, 70, 90, "raw"), (None, 100, None, "newer")]


def test_to_the_source(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = asked(state, capsys, "A.orders-0", "10", "69", "--to-source")
    assert code == 0
    assert [row["translated"] for row in rows] == [100, 164]


def test_in_words(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--state-dir", str(state), "orders-0", "100", "180"])
    exact, bounds = capsys.readouterr().out.splitlines()
    assert exact == "orders-0 100  ->  A.orders-0 10"
    assert bounds.startswith("orders-0 180  ->  A.orders-0 between 70 and 90 (to continue at 70 misses nothing: ")
    assert "--source-bootstrap" in bounds


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "shoal translate: give TOPIC-PARTITION and at least one OFFSET, or --group"),
        (["orders-0"], "shoal translate: give TOPIC-PARTITION and at least one OFFSET, or --group"),
        (["orders", "1"], "orders: is not TOPIC-PARTITION, as in orders-0"),
        (["order-0", "1"], 'order-0: Shoal has appended nothing .*; did you mean "orders-0"'),
        (["A.orders-0", "1"], "A.orders-0: Shoal has appended nothing of this partition in this direction"),
        (["--group", "g"], "--group: needs the brokers of the source: give --source-bootstrap, or -c shoal.toml"),
        (["--group", "g", "orders-0", "1"], "--group: translates all partitions of the group: leave out orders-0"),
        (["orders-0", "1", "--reset-file", "x"], "--reset-file: needs --group"),
        (["--group", "g", "--source-bootstrap", "127.0.0.1:1"], "--group: cluster 'source': cannot reach the broker"),
    ],
)
def test_wrong_usage(arguments: list[str], error: str, state: Path) -> None:
    with pytest.raises(OperatorError, match=error):
        main(["--state-dir", str(state), *arguments])


def test_directories_without_offsets(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"has no file NAME.offsets"):
        main(["--state-dir", str(tmp_path), "orders-0", "1"])
    with pytest.raises(OperatorError, match="is no directory"):
        main(["--state-dir", str(tmp_path / "none"), "orders-0", "1"])
    (tmp_path / "x.offsets").write_text("something else")
    with pytest.raises(OperatorError, match="is not a file of appended offsets"):
        main(["--state-dir", str(tmp_path), "orders-0", "1"])


def test_brokers_that_cannot_be_reached_leave_the_bounds(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brokers = ["--source-bootstrap", "127.0.0.1:1", "--target-bootstrap", "127.0.0.1:1"]
    code, (row,) = asked(state, capsys, "orders-0", "180", *brokers)
    assert (code, row["low"], row["high"]) == (1, 70, 90)
    assert "cannot reach the broker" in row["not_read"]
