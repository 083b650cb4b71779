"""The flags of each job, besides the common ones of `arguments.py`. Nothing here imports Spark."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.command_line import typed, whole
from shoal.scenarios.jobs.cascade.levels import CascadeSettings
from shoal.scenarios.jobs.cascade.rule import Rule

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from shoal.command_line import Parser
    from shoal.scenarios.jobs.coalescing.policies import Policy

__all__ = ["JOB_FLAGS"]

_CASCADE, _RULE = CascadeSettings(), Rule()


def _add_audit(parser: Parser) -> None:
    group = parser.add_argument_group("what is compared")
    for side, done in (("source", "read"), ("target", "written")):
        what = f"{side} cluster, by its name in Shoal's configuration (default: the only one that is {done})"
        group.add_argument(f"--{side}", metavar="CLUSTER", help=what)
    what = "the mirror's prefix of topic names, such as a. (default: none)"
    group.add_argument("--prefix", default="", metavar="PREFIX", help=what)
    what = "batches at the end of a partition that may be in transit; 0 after the traffic (default: 1)"
    group.add_argument("--tolerance", type=whole(0), default=1, metavar="N", help=what)


def _add_coalescing(parser: Parser) -> None:
    group = parser.add_argument_group("what is compared")
    what = "settings such as linger=5ms,bytes=64k (repeatable; default: twelve policies; names: docs/spark.md)"
    group.add_argument("--policy", action="append", type=typed(_policy), default=[], metavar="NAME=VALUE,..", help=what)
    group.add_argument("--joiner", action="store_true", help="run the listener's own code: the same result, slowly")


def _policy(text: str) -> Policy:
    from shoal.scenarios.jobs.coalescing.policies import read_policy  # imports numba

    return read_policy(text)


def _add_cascade(parser: Parser) -> None:
    group = parser.add_argument_group("the stream")
    what = "directory of the state; a run with the same one continues where the last ended (default: OUT/checkpoint)"
    group.add_argument("--checkpoint", metavar="DIR", help=what)
    what = "count the existing files, report and end (the default)"
    group.add_argument("--once", action="store_const", const=None, dest="flush", help=what)
    what = "run until stopped, and emit changes at this interval"
    group.add_argument("--flush", type=typed(_some_seconds), metavar="SECONDS", help=what)
    group.add_argument("--no-recount", action="store_false", dest="recount", help="do not count again for comparison")
    _add_windows(parser.add_argument_group("windows (docs/spark.md)"))
    group = parser.add_argument_group("which clients are abnormal")
    what = "at least this many records in a window (default: {})"
    group.add_argument("--floor", type=whole(0), default=_RULE.floor, metavar="N", help=what.format(_RULE.floor))
    for name, of_what in (("times", "the client's own past windows"), ("peers", "the growth of other clients")):
        usual: float = getattr(_RULE, name)
        what = f"and this many times {of_what} (default: {usual:g})"
        group.add_argument(f"--{name}", type=typed(_factor), default=usual, metavar="X", help=what)


def _add_windows(group: argparse._ArgumentGroup) -> None:
    usual = ",".join(map(str, _CASCADE.levels))
    what = f"windows in seconds, each a multiple of the one before (default: {usual})"
    group.add_argument("--levels", type=typed(_levels), default=_CASCADE.levels, metavar="S,S,..", help=what)
    what = "emit each level at most this often (default: 0: every turn)"
    group.add_argument("--hold", type=typed(_each_second), default=_CASCADE.hold, metavar="S,S,..", help=what)
    for name, what in (
        ("delay", "seconds that the clock is behind the newest row"),
        ("grace", "seconds after its end until a window is final"),
        ("keep", "seconds until a window is forgotten"),
    ):
        usual_seconds: int = getattr(_CASCADE, name)
        what = f"{what} (default: {usual_seconds})"
        group.add_argument(f"--{name}", type=whole(0), default=usual_seconds, metavar="S", help=what)
    what = f"parts of the state (default: {_CASCADE.buckets}); like the levels, fixed in a checkpoint"
    group.add_argument("--buckets", type=whole(1), default=_CASCADE.buckets, metavar="N", help=what)


def _each_second(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ValueError(f'"{text}" is not a list of seconds, for example 60,600,3600')
    return tuple(map(int, parts))


def _levels(text: str) -> tuple[int, ...]:
    levels = _each_second(text)
    if 0 in levels:
        raise ValueError(f'"{text}": a window has at least 1 second')
    return CascadeSettings(levels=levels).levels


def _some_seconds(text: str) -> float:
    return _number(text, "a number of seconds above 0, for example 10")


def _factor(text: str) -> float:
    return _number(text, "a number above 0, for example 8")


def _number(text: str, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError(f'"{text}" is not {expected}')
    return value


JOB_FLAGS: Mapping[str, Callable[[Parser], None]] = MappingProxyType(
    {"audit": _add_audit, "coalescing": _add_coalescing, "cascade": _add_cascade}
)
