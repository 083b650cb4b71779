"""Wrong usages: each answer names the setting, the cause and the way out. No traceback, none of Python's own words."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.cli import main
from shoal.proxy.cli.exit_codes import MEANINGS
from tests.support.processes import shoal

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).parent / "data"
MIRROR = "mirror --source a1:9092 --target b1:9092 --print-only"
TOML = """\
[[cluster]]
name = "source"
bootstrap = "a1:9092"
[[cluster]]
name = "target"
bootstrap = "b1:9092"
[[listener]]
name = "source"
cluster = "source"
listen = "127.0.0.1:39092"
ports = "39093-39192"
mode = "wrap"
pair = "target"
[[listener]]
name = "target"
cluster = "target"
listen = "127.0.0.1:49092"
ports = "49093-49192"
mode = "unwrap"
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files of many kinds."""
    monkeypatch.chdir(tmp_path)
    Path("shoal.toml").write_text(TOML, encoding="utf-8")
    Path("garbage.kxb").write_bytes(bytes(range(1, 201)) * 25)
    Path("garbage.pcapng").write_bytes(b"garbage" * 100)
    Path("empty").mkdir()
    Path("deep.json").write_text("[" * 100_000, encoding="utf-8")
    Path("bom.properties").write_bytes(b"\xef\xbb\xbfclusters = A, B\n")
    Path("utf16.properties").write_bytes("clusters = A, B\n".encode("utf-16"))
    Path("latin1.json").write_bytes('{"name": "café"}'.encode("latin-1"))
    Path("latin1.properties").write_bytes("clusters = A, B\nA->B.enabled = true\n# café\n".encode("latin-1"))
    return tmp_path


def run(arguments: Sequence[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def answer(capsys: pytest.CaptureFixture[str]) -> str:
    """Standard error without the prefix, and without the line that names --help."""
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("shoal: see shoal")]
    assert all(line.startswith("shoal: error: ") for line in lines)
    return "\n".join(line.removeprefix("shoal: error: ") for line in lines)


def assert_is(found: str, expected: str) -> None:
    """`...` at the end matches the rest."""
    assert (found[: len(expected) - 3] + "..." if expected.endswith(" ...") else found) == expected


def blocks(file: str) -> list[list[str]]:
    """Separated by empty lines; without comments."""
    lines = (DATA / file).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return [block.splitlines() for block in text.strip().split("\n\n")]


@pytest.mark.parametrize("case", blocks("wrong_commands.txt"), ids=lambda case: case[0])
def test_a_wrong_command_line(case: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command, *expected = case

    assert run(shlex.split(command.removeprefix("$ shoal").replace("MIRROR", MIRROR))) == 2
    assert_is(answer(capsys).replace(str(Path.cwd()), "PWD"), "\n".join(expected))


@pytest.mark.parametrize("case", blocks("wrong_files.txt"), ids=lambda case: case[1])
def test_a_wrong_file(case: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = ("\n".join(line[2:] for line in case if line.startswith(sign)) for sign in "-+")
    assert before in TOML
    Path("shoal.toml").write_text(TOML.replace(before, after, 1), encoding="utf-8")

    assert run(["check", "-c", "shoal.toml"]) == 2
    assert_is(answer(capsys), "\n".join(f"shoal.toml: {line}" for line in case if line[0] not in "-+"))


def test_nested_toml(capsys: pytest.CaptureFixture[str]) -> None:
    Path("shoal.toml").write_text(f"x = {'[' * 5000}", encoding="utf-8")

    assert run(["check", "-c", "shoal.toml"]) == 2
    assert answer(capsys) == "shoal.toml: is not valid TOML: it is nested too deeply"


def test_a_file_in_latin_1_is_read_as_java_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "latin1.properties"]) == 1

    assert capsys.readouterr().out.startswith("latin1.properties: dedicated MirrorMaker 2, checked A->B")


def test_a_byte_order_mark_before_toml_is_ignored() -> None:
    Path("shoal.toml").write_text(TOML, encoding="utf-8-sig")

    assert run(["check", "-c", "shoal.toml"]) == 0


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("probe 127.0.0.1:1 --json", "127.0.0.1:1"),
        ("probe --json", "shoal probe"),
        ("probe --json --tpic x", "--tpic"),
        ("capture cat --json garbage.kxb", "shoal capture cat"),
        ("capture cat --json empty", "shoal capture cat"),
    ],
)
def test_errors_of_json_are_json(command: str, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(command)) == 2

    printed = capsys.readouterr()
    errors = json.loads(printed.out)["errors"]
    assert [error["where"] for error in errors] == [where]
    assert f"shoal: error: {where}: {errors[0]['what']}\n" in printed.err


@pytest.mark.parametrize(
    "command", ["check -c shoal.toml", "--help", MIRROR, "capture ls garbage.kxb", "check latin1.properties"]
)
def test_a_full_disk_under_standard_output_is_an_error(command: str, files: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shoal", *shlex.split(command)],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith("shoal: error: ")
    assert done.stderr.endswith("standard output: cannot be written: No space left on device\n")
    assert done.stderr.count("\n") == 1


def test_standard_output_may_be_closed() -> None:
    command = shlex.join([sys.executable, "-m", "shoal", "check", "-c", "shoal.toml"])

    assert subprocess.run(f"{command} 0<&- >&- 2>&-", shell=True, check=False).returncode == 0


def test_the_documented_exit_codes() -> None:
    text = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")

    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |\n" in text


@pytest.mark.parametrize(
    "command",
    ["", "mirror", "run", "check", "probe", "capture", "capture cat", "capture to-pcap", "replay",
     "spark", "spark cascade", "completion", "users", "users add",
     "status", "top", "clients"],
)  # fmt: skip
def test_help_fits_80_columns(command: str) -> None:
    done = shoal(*command.split(), "--help")

    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
