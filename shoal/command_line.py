"""What the commands of `shoal` share: one parser, one style of errors, standard output.

    shoal: error: --sour: unknown flag; did you mean "--source"?
    shoal: see shoal mirror --help

An error names the setting, the cause and the way out. With `--json`, standard output also has the errors, as one JSON
object: `{"errors": [{"where": "--sour", "what": "unknown flag; ..."}]}`. Tools that run without the proxy use this too,
so it imports nothing of Shoal.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "JSON_FLAG",
    "OutputError",
    "Parser",
    "a_path",
    "did_you_mean",
    "drop_output",
    "listed",
    "printable",
    "report_errors",
    "say",
    "typed",
    "whole",
]

T = TypeVar("T")

JSON_FLAG = "--json"
WRONG_INPUT = 2
_WIDTH = 80
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse's: no flag, but a value


class OutputError(Exception):
    """Standard output cannot be written, for example because its disk is full."""


# -- words -------------------------------------------------------------------------------------------------------------


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean "x"? ` or nothing."""
    by_form = {_form(name): name for name in known}
    close = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=0.6)
    close = close or [form for form in by_form if len(_form(word)) > 1 and form.startswith(_form(word))]
    return f'did you mean "{by_form[close[0]]}"? ' if close else ""


def _form(word: str) -> str:
    return word.lower().replace("_", "-").lstrip("-")


def listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "(none)"


def printable(text: str) -> str:
    """Peers choose some texts: what a terminal would obey is escaped, and so are marks that reorder a line."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


# -- output ------------------------------------------------------------------------------------------------------------


def say(text: str, end: str = "\n") -> None:
    """Print to standard output at once. A closed pipe (`head`) is ignored. Raises OutputError."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        drop_output()
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"cannot be written: {error.strerror}") from None


def drop_output() -> None:
    """What standard output still buffers would fail again when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_errors(errors: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    """`errors`: (where, what); where "shoal" is not printed. To standard error; as JSON to standard output too."""
    errors = list(errors)
    for where, what in errors:
        _complain(f"shoal: error: {what}" if where == "shoal" else f"shoal: error: {where}: {what}")
    if as_json:
        with suppress(OutputError):
            say(json.dumps({"errors": [{"where": where, "what": what} for where, what in errors]}))


def _complain(text: str) -> None:
    with suppress(OSError):  # standard error is on a full disk
        print(printable(text), file=sys.stderr, flush=True)


# -- arguments ---------------------------------------------------------------------------------------------------------


class _Help(argparse.RawDescriptionHelpFormatter):
    """At most 80 columns."""

    def __init__(self, prog: str, **options: Any) -> None:
        width = min(shutil.get_terminal_size((_WIDTH, 50)).columns, _WIDTH)
        super().__init__(prog, max_help_position=min(30, width // 3), width=width, **options)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Unknown flags are named first: a required flag is often missing only because it is misspelt."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **options)
        self._json = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        given = sys.argv[1:] if args is None else list(args)
        self._json = JSON_FLAG in given and JSON_FLAG in self.flags
        if unknown := list(dict.fromkeys(self._unknown(given))):
            self._fail((flag, self._unknown_flag(flag)) for flag in unknown)
        parsed, rest = super().parse_known_args(given, namespace)
        if rest:
            self._fail([(rest[0], "unexpected argument")])
        return parsed, rest

    @property
    def flags(self) -> list[str]:
        return list(self._option_string_actions)

    @property
    def commands(self) -> dict[str, Parser]:
        """Sub-commands, by name."""
        found = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return found[0] if found else {}

    def error(self, message: str) -> NoReturn:
        if message.startswith(_REQUIRED):
            self._fail(self._missing(message.removeprefix(_REQUIRED).split(", ")))
        self._fail([self._worded(message)])

    def _missing(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        if self.commands:
            yield self.prog, f"give a command: {listed(self.commands)}"
            return
        for action in self._actions:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            if name in names:
                yield name, f"is missing: {action.help}"

    def _unknown(self, given: Sequence[str]) -> Iterator[str]:
        for text in given:
            if text == "--" or (self.commands and not text.startswith("-")):
                return
            if not text.startswith("-") or text == "-" or " " in text or _NUMBER.match(text):
                continue
            name, known = text.partition("=")[0], self._option_string_actions
            if name not in known and (text.startswith("--") or text[:2] not in known):
                yield name

    def _unknown_flag(self, flag: str) -> str:
        owners = [name for name, parser in self.commands.items() if flag in parser._option_string_actions]
        if owners:
            return f"belongs after the command: {self.prog} {owners[0]} {flag} ..."
        known = [name for name in self.flags if name.startswith("--")]
        return f"unknown flag; {did_you_mean(flag, known)}".rstrip("; ")

    def _worded(self, message: str) -> tuple[str, str]:
        """(where, what) of an error of argparse."""
        for pattern, what in _WORDS:
            if match := pattern.fullmatch(message):
                return match["where"], what.format(**match.groupdict())
        return self.prog, message

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        is_command = isinstance(action, argparse._SubParsersAction)
        where = str(value) if is_command else "/".join(action.option_strings) or str(action.metavar or action.dest)
        what = "unknown command" if is_command else f'unknown value "{value}"'
        known = f"commands of {self.prog}" if is_command else "write one of"
        self._fail([(where, f"{what}; {did_you_mean(str(value), names)}{known}: {listed(names)}")])

    def _fail(self, errors: Iterable[tuple[str, str]]) -> NoReturn:
        report_errors(errors, as_json=self._json)
        _complain(f"shoal: see {self.prog} --help")
        sys.exit(WRONG_INPUT)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Raises OutputError."""
        if file is None or file is sys.stdout:
            say(message, end="")
        else:
            super()._print_message(message, file)


_REQUIRED = "the following arguments are required: "
_WORDS = tuple(
    (re.compile(pattern, re.DOTALL), what)
    for pattern, what in (
        (r"argument (?P<where>.*?): expected one argument", "needs a value"),
        (r"argument (?P<where>.*?): expected at least one argument", "needs a value"),
        (r"argument (?P<where>.*?): expected (?P<n>\d+) arguments", "needs {n} values"),
        (r"argument (?P<where>.*?): ignored explicit argument (?P<given>.*)", "takes no value, not even {given}"),
        (r"argument (?P<where>.*?): not allowed with argument (?P<other>.*)", "excludes {other}: give one of them"),
        (r"argument (?P<where>[^ ]*?): (?P<what>.*)", "{what}"),
    )
)


def a_path(text: str) -> Path:
    """A `type=` function: the name of a file or directory."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: write the name of a file or directory")
    return Path(text)


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A `type=` function that reports the text of the `ValueError`."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A `type=` function: a whole number in this range."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) < 20
        if not is_number or int(text) < least or (most is not None and int(text) > most):
            span = f"from {least} to {most}" if most is not None else f"of at least {least}"
            raise ValueError(f'"{text}" is not a whole number {span}')
        return int(text)

    return typed(parse)
