"""How a command of `shoal` ends: its exit code, and the error text for the operator."""

from __future__ import annotations

import textwrap
import traceback
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.command_line import OutputError, report_errors
from shoal.proxy.config.problems import OperatorError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "MEANINGS",
    "MUST_CHANGE",
    "OK",
    "STALLED",
    "UNTRIED",
    "WRONG_INPUT",
    "exit_code",
    "help_text",
    "operator_problems",
]

OK, MUST_CHANGE, WRONG_INPUT, FAILED, STALLED, UNTRIED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        OK: "done",
        MUST_CHANGE: (
            "the answer is no: check: something must change; groups sync: an offset or a group is left out; reload: "
            "refused; capture verify, cat: a file is damaged; replay: a check failed; spark audit: records are missing "
            "or wrong, or the source has changed; probe: a broker refuses sets; promote: the mirror still writes, or a "
            "topic is no mirror topic; status: something is wrong; translate: an offset is not exact"
        ),
        WRONG_INPUT: "wrong arguments, configuration or input; no broker reachable; output cannot be written",
        FAILED: "error in Shoal itself",
        STALLED: "run, mirror: the event loop was blocked (--stall-exit); probe: a broker is unsafe",
        UNTRIED: (
            "probe: a broker could not be tried; promote: a broker has not confirmed it in time; groups sync: a broker "
            "has not answered in time"
        ),
        INTERRUPTED: "ended by Ctrl-C (run, mirror and groups sync --every end with 0)",
    }
)
"""For all commands; docs/troubleshooting.md has the same table."""


def help_text() -> str:
    lines = []
    for code, meaning in MEANINGS.items():
        lines += textwrap.wrap(meaning, 78, initial_indent=f"  {code:<5}", subsequent_indent=" " * 7)
    return "\n".join(["exit codes:", *lines, ""])


def exit_code(
    command: Callable[[], int], describe: Callable[[Problem], Problem] | None = None, *, as_json: bool = False
) -> int:
    """Run a command. The problems of its OperatorErrors go to standard error, one line each, worded by `describe`.

    `as_json`: also to standard output, as JSON.
    """
    try:
        return command()
    except BaseException as error:
        if problems := operator_problems(error):
            report_errors((describe(problem) if describe else problem for problem in problems), as_json=as_json)
            return WRONG_INPUT
        if all(isinstance(leaf, KeyboardInterrupt) for leaf in _leaves(error)):  # from trio, in a group
            return INTERRUPTED
        if not isinstance(error, Exception):
            raise
        with suppress(OSError):  # standard error is on a full disk
            traceback.print_exc()
        report_errors([("shoal", f"{_OURS} ({type(error).__name__})")], as_json=as_json)
        return FAILED


_OURS = "this is an error in Shoal itself: please report it with the lines above"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The single exceptions of trio's groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def operator_problems(error: BaseException) -> list[Problem]:
    """Each once; none if there is another error as well."""
    return [] if _others(error) else list(dict.fromkeys(_problems(error)))


def _problems(error: BaseException) -> Iterator[Problem]:
    for leaf in _leaves(error):
        if isinstance(leaf, OperatorError):
            yield from leaf.problems
        elif isinstance(leaf, OutputError):
            yield Problem("standard output", str(leaf))


def _others(error: BaseException) -> bool:
    return any(not isinstance(leaf, OperatorError | OutputError) for leaf in _leaves(error))
