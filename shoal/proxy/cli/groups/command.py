"""The command: its flags, how long it runs, and how it ends."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.command_line import Parser, printable, say, typed
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK, UNTRIED
from shoal.proxy.cli.flags.cluster import add_pair_flags, used_pair
from shoal.proxy.cli.flags.security import to_flag
from shoal.proxy.cli.flags.setting import some_seconds
from shoal.proxy.cli.groups.sync import GROUPS, SECONDS, Options, follow, open_sync
from shoal.proxy.config.parse import check_regex, check_topic_part
from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.proxy.cli.flags.cluster import UsedPair
    from shoal.proxy.cli.groups.report import Report

__all__ = ["main", "parser"]

_END = """\
Mirror topics of the Java agent have the offsets of their source, so committed
offsets are copied as they are, with their metadata. A consumer that moves to
the target goes on after the last record that it has committed.

what is copied:
  Only offsets of partitions that are mirror topics at the target, or promoted
  ones (not with --every: their records are not all from the source). An
  offset behind the end of the target's log is copied as that end: a later run
  copies the rest.
  A group with members at the target is left out. At the source it may be
  active. A higher offset at the target is kept (--allow-backwards replaces it).

examples:
  shoal groups sync --from a1:9092 --to b1:9092 --dry-run
  shoal groups sync --from a1:9092 --to b1:9092 --groups 'billing|orders-.*'
  shoal groups sync -c shoal.toml --source dc1 --target dc2 --every 10

The logins need DESCRIBE at the source (groups and topics); at the target READ
on the groups, READ and WRITE on the topics. No record is written.

exit codes: 0 all offsets are copied or were there, 1 something is left out:
            a group with members, an offset behind the target's end, an offset
            that the target refuses, a topic of --topics that is no mirror
            topic, 2 wrong arguments, or no answer from a cluster, 3 error in
            Shoal itself, 5 a broker has not answered in time. With --every: 0
            after SIGINT or SIGTERM
"""
_LEAST_SECONDS = 5.0  # a pass is not held up longer by a broker that is away
_DEFAULT_GROUPS = "all whose names do not begin with __"


def parser() -> Parser:
    groups = Parser(
        prog="shoal groups",
        description="Consumer groups of a cluster and of its mirror.",
        epilog="see: shoal groups sync --help",
    )
    commands = groups.add_subparsers(title="commands", dest="command", required=True)
    sync = commands.add_parser(
        "sync",
        usage="shoal groups sync --from HOST:PORT[,..] --to HOST:PORT[,..] | -c shoal.toml [options]",
        description="Copy committed offsets of consumer groups to mirror topics.",
        help="copy committed offsets to a cluster with mirror topics",
        epilog=_END,
    )
    regex = typed(check_regex)
    what = f"groups to copy; the whole name must match (default: {_DEFAULT_GROUPS})"
    sync.add_argument("--groups", type=regex, metavar="REGEX", default=GROUPS, help=what)
    what = "topics to copy, by their names at the source (default: all that are mirror topics)"
    sync.add_argument("--topics", type=regex, metavar="REGEX", help=what)
    what = "what the mirror puts before the names of topics (default: nothing)"
    sync.add_argument("--prefix", type=typed(check_topic_part), metavar="PREFIX", help=what)
    sync.add_argument("--allow-backwards", action="store_true", help="replace higher offsets at the target, too")
    sync.add_argument("--every", type=typed(some_seconds), metavar="SECONDS", help="repeat it, and print what changes")
    sync.add_argument("--dry-run", action="store_true", help="ask the brokers, and change nothing")
    what = f"time for the brokers to answer each question (default: {SECONDS:g})"
    sync.add_argument("--seconds", type=typed(some_seconds), metavar="SECONDS", default=SECONDS, help=what)
    add_pair_flags(sync)
    return groups


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError."""
    flags = parser().parse_args(arguments)
    pair = used_pair(flags)
    options = Options(
        groups=flags.groups,
        topics=flags.topics,
        prefix=flags.prefix or "",
        allow_backwards=flags.allow_backwards,
        dry_run=flags.dry_run,
        seconds=flags.seconds if flags.every is None else min(flags.seconds, max(flags.every, _LEAST_SECONDS)),
    )
    try:
        return trio.run(partial(_run, pair, options, flags.every))
    except OperatorError as error:
        if flags.config is not None:
            raise
        raise OperatorError(tuple(map(to_flag, error.problems))) from None


async def _run(pair: UsedPair, options: Options, every: float | None) -> int:
    with open_sync(pair.source, pair.target, options) as sync:
        if every is None:
            report = await sync.run_once()
            _show(report.lines)
            return _exit_code(report)
        async with trio.open_nursery() as nursery:
            await nursery.start(_end_at_signal, nursery.cancel_scope)
            await follow(sync, every, _show)
    return OK


async def _end_at_signal(
    scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return


def _show(lines: Sequence[str]) -> None:
    for line in lines:
        say(printable(line))


def _exit_code(report: Report) -> int:
    if report.is_untried:
        return UNTRIED
    return MUST_CHANGE if report.is_partial else OK
