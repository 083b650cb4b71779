"""The `shoal` command: `proxy/cli/main.py`'s sub-commands, and those of packages above or beside it, which it must not import.

A sub-command of another package is one line in `COMMANDS`. Its function gets the arguments behind its name and returns the exit
code; it parses them itself (`prog` is `shoal NAME`), and raises OperatorError for what the operator can mend. It is imported when
it is asked for: what it needs beyond Shoal itself is an extra of pyproject.toml, and may be missing until then.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.proxy.cli.exit_codes import exit_code
from shoal.proxy.cli.main import main as proxy_main
from shoal.proxy.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    what: str  # a line of `shoal --help`
    function: str  # "package.module:function", (Sequence[str]) -> exit code
    extra: str | None = None  # that has to be installed for it


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "capture": Command(
            what="list, print, verify and compact what was captured",
            function="shoal.scenarios.capture.cli:main",
            extra="capture",
        ),
        "replay": Command(
            what="drive scenarios or captured traffic through Shoal to real brokers",
            function="shoal.scenarios.replay.cli:main",
            extra="scenarios",
        ),
        "spark": Command(
            what="work out batch sizes and more from captured traffic, with Spark",
            function="shoal.scenarios.spark_command:main",
            extra="spark",
        ),
    }
)


def main(arguments: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    name = given[0] if given else ""
    if name in commands:
        return exit_code(partial(_call, name, commands[name], given[1:]))
    return proxy_main(given, {name: command.what for name, command in commands.items()})


def _call(name: str, command: Command, arguments: Sequence[str]) -> int:
    try:
        result: int = resolve_name(command.function)(arguments)
        return result
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if command.extra is None or missing.partition(".")[0] == "shoal":
            raise
        what = f"needs {missing}, which is not installed: pip install 'shoal[{command.extra}]'"
        raise OperatorError.of(f"shoal {name}", what) from None
