"""How a command of `shoal` ends: its exit code, and the error text for the operator."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from shoal.proxy.errors import OperatorError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FAILED", "INTERRUPTED", "MUST_CHANGE", "OK", "STALLED", "WRONG_INPUT", "exit_code"]

OK, MUST_CHANGE, WRONG_INPUT, FAILED, STALLED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def exit_code(command: Callable[[], int], describe: Callable[[Problem], object] = str) -> int:
    """Run a command. The problems of its OperatorErrors go to standard error, one line each, worded by `describe`."""
    try:
        return command()
    except BaseException as error:
        if (problems := list(_operator_problems(error))) and not _others(error):
            for problem in problems:
                print(f"shoal: error: {describe(problem)}", file=sys.stderr)
            return WRONG_INPUT
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        if not isinstance(error, Exception):
            raise
        traceback.print_exc()
        print("shoal: this is an error in Shoal itself: please report it with the lines above", file=sys.stderr)
        return FAILED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The single exceptions of trio's groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _operator_problems(error: BaseException) -> Iterator[Problem]:
    for leaf in _leaves(error):
        if isinstance(leaf, OperatorError):
            yield from leaf.problems


def _others(error: BaseException) -> bool:
    return any(not isinstance(leaf, OperatorError) for leaf in _leaves(error))
