"""The `shoal` command: the subcommands of `proxy/cli/main.py`, and others, which it does not import.

Each of the others is one line in `COMMANDS`. Its function gets the arguments after its name and returns the exit code.
It parses them itself (`prog` is `shoal NAME`) and raises OperatorError for what the operator can correct. It is
imported only when it is called: it loads slowly, or its dependencies are an extra of pyproject.toml and may be missing.
`parser` makes its parser without running it, for `shoal completion`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.command_line import JSON_FLAG
from shoal.proxy.cli.exit_codes import exit_code
from shoal.proxy.cli.main import main as proxy_main
from shoal.proxy.config.identity import install_extra
from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    what: str  # a line of `shoal --help`
    function: str  # "package.module:function", (Sequence[str]) -> exit code
    parser: str = ""  # "package.module:function", () -> Parser
    extra: str | None = None  # of pyproject.toml, which it needs


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "status": Command(
            what="say whether a running Shoal is healthy, and what is wrong",
            function="shoal.proxy.cli.observe.status:main",
            parser="shoal.proxy.cli.observe.status:parser",
        ),
        "top": Command(
            what="watch a running Shoal: rates, lag, raw batches, errors",
            function="shoal.proxy.cli.observe.top:main",
            parser="shoal.proxy.cli.observe.top:parser",
        ),
        "clients": Command(
            what="list the clients of a running Shoal, and those that block Kafka 4",
            function="shoal.proxy.cli.observe.clients:main",
            parser="shoal.proxy.cli.observe.clients:parser",
        ),
        "capture": Command(
            what="read captured traffic: ls, cat, verify, compact, to-pcap",
            function="shoal.scenarios.capture.cli:main",
            parser="shoal.scenarios.capture.cli:parser",
            extra="capture",
        ),
        "gaps": Command(
            what="list the records that mirrors have passed over, and let stopped partitions go on",
            function="shoal.proxy.cli.gaps:main",
            parser="shoal.proxy.cli.gaps:parser",
        ),
        "groups": Command(
            what="copy committed offsets of consumer groups to a cluster with mirror topics of the Java agent",
            function="shoal.proxy.cli.groups.command:main",
            parser="shoal.proxy.cli.groups.command:parser",
        ),
        "promote": Command(
            what="make mirror topics of the Java agent ordinary topics, after their mirror has stopped",
            function="shoal.proxy.cli.promote.command:main",
            parser="shoal.proxy.cli.promote.command:parser",
        ),
        "reload": Command(
            what="let a running Shoal use its configuration as it is now",
            function="shoal.proxy.cli.reload:main",
            parser="shoal.proxy.cli.reload:parser",
        ),
        "replay": Command(
            what="send scenarios or captured traffic through Shoal to real brokers, and check the result",
            function="shoal.scenarios.replay_command:main",
            parser="shoal.scenarios.replay_command:parser",
            extra="scenarios",
        ),
        "spark": Command(
            what="analyse captured traffic with Spark: batch sizes, coalescing, audit, cascade",
            function="shoal.scenarios.spark_command:main",
            parser="shoal.scenarios.jobs.arguments:parser",
            extra="spark",
        ),
        "translate": Command(
            what="translate offsets and consumer groups between source and target of a mirror",
            function="shoal.proxy.cli.translate.command:main",
            parser="shoal.proxy.cli.translate.command:parser",
        ),
        "completion": Command(
            what="print a script that completes commands and flags, for bash, zsh or fish",
            function="shoal.completion:main",
            parser="shoal.completion:parser",
        ),
        "users": Command(
            what="add, remove and list users who log in at Shoal",
            function="shoal.proxy.cli.users:main",
            parser="shoal.proxy.cli.users:parser",
        ),
    }
)


def main(arguments: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    name = given[0] if given else ""
    if name in commands:
        return exit_code(partial(_call, name, commands[name], given[1:]), as_json=JSON_FLAG in given)
    whats = {name: command.what for name, command in commands.items()}
    return exit_code(partial(proxy_main, given, whats))


def _call(name: str, command: Command, arguments: Sequence[str]) -> int:
    try:
        result: int = resolve_name(command.function)(arguments)
        return result
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if command.extra is None or missing.partition(".")[0] == "shoal":
            raise
        what = f"needs {missing}, which is not installed: {install_extra(command.extra)}"
        raise OperatorError.of(f"shoal {name}", what) from None
