"""Problems that the operator can fix: one line each, without a traceback."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["OperatorError", "Problem"]


class Problem(NamedTuple):
    """`where` names the setting (a flag, or a path in a file); `what` has the cause and the remedy."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class OperatorError(Exception):
    """The settings request something impossible. Exit code 2."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems

    @classmethod
    def of(cls, where: str, what: str) -> OperatorError:
        return cls((Problem(where, what),))
