"""`shoal completion bash|zsh|fish`: a script that completes commands, flags, choices and files.

shtab makes it from the parsers of all commands. The script is complete: pressing TAB starts no Python.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from shoal.cli import COMMANDS
from shoal.command_line import Parser, say
from shoal.proxy.cli.exit_codes import OK
from shoal.proxy.cli.flags.arguments import build_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser", "script", "whole_parser"]

SHELLS = ("bash", "zsh", "fish")
_END = """\
install:
  bash  shoal completion bash > /etc/bash_completion.d/shoal
        (or: eval "$(shoal completion bash)" in ~/.bashrc)
  zsh   shoal completion zsh > "${fpath[1]}/_shoal"
  fish  shoal completion fish > ~/.config/fish/completions/shoal.fish

Run it again after an update of Shoal.
"""
_FILES = ("FILE", "PATH", "IN", "SCENARIO|CAPTURE", "shoal.toml")
_DIRECTORIES = ("DIR", "OUT")


def parser() -> Parser:
    completion = Parser(
        prog="shoal completion", description="Print a script that completes commands and flags.", epilog=_END
    )
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell")
    return completion


def main(arguments: Sequence[str]) -> int:
    say(script(parser().parse_args(arguments).shell), end="")
    return OK


def script(shell: str) -> str:
    import shtab

    whole = whole_parser()
    _prepare(whole)
    text: str = shtab.complete(whole, shell=shell)
    return text


def whole_parser() -> Parser:
    """The parser of `shoal` with those of all commands."""
    whole = build_parser({name: command.what for name, command in COMMANDS.items()})
    for name, command in COMMANDS.items():
        with suppress(ModuleNotFoundError):  # an extra is not installed: only the command's name is known
            whole.commands[name] = resolve_name(command.parser)()
    return whole


def _prepare(parser: Parser) -> None:
    """Name the arguments that are files."""
    import shtab

    for action in parser._actions:
        name = action.metavar or action.dest
        if name in _FILES or name in _DIRECTORIES:
            action.complete = shtab.DIRECTORY if name in _DIRECTORIES else shtab.FILE  # type: ignore[attr-defined]
        if action.help == argparse.SUPPRESS:
            action.help = ""  # --help shows the flags of one side only
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _prepare(inner)
