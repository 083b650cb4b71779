"""The `shoal` command: the subcommands of `proxy/cli/main.py`, and others, which it does not import.

Each of the others is one line in `COMMANDS`. Its function gets the arguments after its name and returns the exit code.
It parses them itself (`prog` is `shoal NAME`) and raises OperatorError for what the operator can correct. It is
imported only when it is called: it loads slowly, or its dependencies are an extra of pyproject.toml and may be missing.
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
    extra: str | None = None  # of pyproject.toml, which it needs


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "capture": Command(
            what="list, print, verify and compact captured traffic",
            function="shoal.scenarios.capture.cli:main",
            extra="capture",
        ),
        "replay": Command(
            what="send scenarios or captured traffic through Shoal to real brokers, and check the result",
            function="shoal.scenarios.replay_command:main",
            extra="scenarios",
        ),
        "spark": Command(
            what="analyse captured traffic with Spark: batch sizes, coalescing, audit, clients",
            function="shoal.scenarios.spark_command:main",
            extra="spark",
        ),
        "users": Command(
            what="add, remove and list users who log in at Shoal",
            function="shoal.proxy.cli.users:main",
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
