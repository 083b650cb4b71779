"""The `shoal` command: which package does what, and what it says when something is not installed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pytest

import shoal.__main__
from shoal.cli import COMMANDS, Command, main
from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HERE = "tests.test_cli"


def tell(arguments: Sequence[str]) -> int:
    print("called", *arguments)
    return 7


def need(arguments: Sequence[str]) -> int:
    raise ModuleNotFoundError(f"No module named {arguments[0]!r}", name=arguments[0])


def refuse(_: Sequence[str]) -> int:
    raise OperatorError.of("--speed", "is too high")


OTHERS = {
    "tell": Command(what="tells what it is given", function=f"{HERE}:tell"),
    "need": Command(what="needs more", function=f"{HERE}:need", extra="spark"),
    "gone": Command(what="is in no file", function="no_such_package.module:main", extra="spark"),
    "refuse": Command(what="refuses", function=f"{HERE}:refuse"),
}


@pytest.mark.parametrize(("command", "ignores"), [("run", True), ("mirror", True), ("check", False), ("", False)])
def test_a_reload_does_not_end_shoal_while_it_loads_its_modules(command: str, ignores: bool, tmp_path: Path) -> None:
    """Here the modules are others."""
    package = tmp_path / "shoal"
    package.mkdir()
    shutil.copy(shoal.__main__.__file__, package)
    (package / "cli.py").write_text("from _signal import SIGHUP, getsignal\ndef main(): return getsignal(SIGHUP)")
    argv = [sys.executable, "-m", "shoal", *command.split()]
    done = subprocess.run(argv, cwd=tmp_path, check=False)
    assert done.returncode == (signal.SIG_IGN if ignores else signal.SIG_DFL)


def test_another_packages_command_gets_its_arguments_and_gives_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tell", "--help", "x"], OTHERS) == 7

    assert capsys.readouterr().out == "called --help x\n"


@pytest.mark.parametrize("arguments", [["need", "pyspark.sql"], ["gone"]])
def test_a_missing_package_is_told_with_the_extra_to_install(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, OTHERS) == 2

    missing = (arguments[1:] or ["no_such_package"])[0]
    told = capsys.readouterr().err
    assert told.startswith(f"shoal: error: shoal {arguments[0]}: needs {missing}, which is not installed: pip install")
    assert told.count("\n") == 1
    assert "'pyarrow>=" in told  # by way of the extra `capture`
    assert "'pyspark[sql]" in told
    assert "shoal[" not in told  # in no index


def test_a_module_of_our_own_that_is_missing_is_an_error_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["need", "shoal.nowhere"], OTHERS) == 3

    assert "an error in Shoal itself" in capsys.readouterr().err


def test_what_the_operator_can_mend_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["refuse"], OTHERS) == 2

    assert capsys.readouterr().err == "shoal: error: --speed: is too high\n"


@pytest.mark.parametrize("arguments", [["--help"], ["none"]])
def test_all_commands_are_listed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments, OTHERS)

    told = "".join(capsys.readouterr())
    for name in ("mirror", "run", "check", "probe", *OTHERS):
        assert name in told
    if arguments == ["--help"]:
        assert all(command.what in told for command in OTHERS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_function_of_a_command_is_there(name: str) -> None:
    assert callable(resolve_name(COMMANDS[name].function))


def test_asking_for_help_loads_no_other_package() -> None:
    look = "import sys; import shoal.cli; print([name for name in sys.modules if name.startswith('shoal.scenarios')])"

    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "[]\n"
