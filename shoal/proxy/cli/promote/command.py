"""The command: its flags, and how it ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.command_line import Parser, report_errors, say, typed
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK, UNTRIED
from shoal.proxy.cli.flags.cluster import add_cluster_flags, as_cluster_flag, used_cluster
from shoal.proxy.cli.flags.setting import some_seconds
from shoal.proxy.cli.promote.promotion import QUIET_SECONDS, SECONDS, Options, Refused, promote_topics
from shoal.proxy.config.parse import check_topic, parse_addresses
from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser"]

_END = f"""\
A topic that the Java agent keeps as a mirror topic refuses ordinary producers
until it is promoted: until the brokers' cluster-wide config has a key
shoal.mirror.promoted.TOPIC with the topic's id. A topic that is created again
has another id, and is a mirror topic again.

what happens:
  Each partition's leader is asked first. If one does not have the topic as a
  mirror topic, or if the mirror appends anything within {QUIET_SECONDS:g} s, nothing is
  changed. One request then promotes all topics or none. At last each leader is
  asked until it confirms.

examples:
  shoal promote orders payments --bootstrap b1:9092
  shoal promote orders --bootstrap b1:9092 --dry-run
  shoal promote orders -c shoal.toml --cluster target

The login needs WRITE on the topics and ALTER_CONFIGS on the cluster.

exit codes: 0 all topics are promoted, 1 the mirror still writes, or a topic is
            no mirror topic, 2 wrong arguments, or no answer from a broker,
            3 error in Shoal itself, 5 the key is set, but a broker has not
            confirmed it in time
"""


def parser() -> Parser:
    promote = Parser(
        prog="shoal promote",
        usage="shoal promote TOPIC... --bootstrap HOST:PORT[,..] | -c shoal.toml [options]",
        description="Turn mirror topics of the Java agent into ordinary topics.",
        epilog=_END,
    )
    promote.add_argument("topics", nargs="+", type=typed(check_topic), metavar="TOPIC", help="mirror topic to promote")
    what = "brokers of the cluster with the mirror topics (default: those of -c)"
    promote.add_argument("--bootstrap", type=typed(parse_addresses), metavar="HOST:PORT[,..]", help=what)
    promote.add_argument("--force", action="store_true", help="promote, even while the mirror writes")
    promote.add_argument("--dry-run", action="store_true", help="ask the brokers, and change nothing")
    what = f"time for the brokers to answer, and again to confirm (default: {SECONDS:g})"
    promote.add_argument("--seconds", type=typed(some_seconds), metavar="SECONDS", default=SECONDS, help=what)
    add_cluster_flags(promote)
    return promote


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError."""
    flags = parser().parse_args(arguments)
    used = used_cluster(flags, flags.bootstrap, "--bootstrap HOST:PORT")
    if used is None:
        raise OperatorError.of("--bootstrap", "is missing: give HOST:PORT, or -c shoal.toml")
    options = Options(force=flags.force, dry_run=flags.dry_run, seconds=flags.seconds)
    topics = list(dict.fromkeys(flags.topics))
    try:
        outcome = trio.run(partial(promote_topics, used.settings, used.limits, topics, options))
    except Refused as refused:
        report_errors(refused.problems, as_json=False)
        return MUST_CHANGE
    except OperatorError as error:
        raise OperatorError(tuple(map(as_cluster_flag, error.problems))) from None
    for line in outcome.lines:
        say(line)
    return OK if outcome.is_confirmed else UNTRIED
