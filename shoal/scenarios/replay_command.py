"""`shoal replay`: named scenarios, or a capture."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.command_line import Parser, a_path, did_you_mean, listed, say, typed
from shoal.proxy.cli.flags.cluster import add_cluster_flags, used_cluster
from shoal.proxy.config.parse import check_topic_part, parse_addresses
from shoal.proxy.config.problems import OperatorError
from shoal.scenarios.cases import CASES
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.progress import Progress
from shoal.scenarios.replay.brokers import Brokers
from shoal.scenarios.replay.capture_cli import SUFFIXES, replay_capture, require_usable
from shoal.scenarios.replay.clock import check_speed, parse_speed, showing_time
from shoal.scenarios.replay.report import as_json, as_lines, as_table, write_figures
from shoal.scenarios.replay.runner import run_case

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from shoal.proxy.config.settings import ClusterSettings
    from shoal.scenarios.replay.case import Case
    from shoal.scenarios.replay.runner import Outcome

__all__ = ["main", "parser"]

OK, FAILED = 0, 1
TOPIC_PREFIX = "replay-"
ALL = "all"
_END = """\
scenarios:
{cases}

A capture is a file or a directory. An index (*.kxb) is replayed as its produce
requests, each over its connection, with synthetic records of the same count,
size and codec. A raw capture (*.pcapng) is replayed as its produce and fetch
requests, with their own records. Both use new topics (--topic-prefix).

examples:
  shoal replay bursty-night            temporary broker, recorded pace
  shoal replay all --speed 10x
  shoal replay capture/ --speed max    captured traffic, as fast as possible
  # a mirror to this cluster, from a temporary source
  shoal replay mirror-tailing --target b1:9092
  # TLS and login of a cluster in shoal.toml
  shoal replay capture/ -c shoal.toml --cluster target
  # through a coalescing listener
  shoal replay capture/ --coalesce --coalescing linger=0.01

exit codes: 0 all checks hold, 1 a check fails (the last lines name it),
            2 wrong arguments
"""


def parser() -> Parser:
    listing = "\n".join(f"  {case.name:<20} {case.what}" for case in CASES.values())
    arguments = Parser(
        prog="shoal replay",
        description="Send traffic through Shoal to real brokers, then check the result.",
        epilog=_END.format(cases=listing),
    )
    arguments.add_argument(
        "what", nargs="+", metavar="SCENARIO|CAPTURE", help=f"scenario names, `{ALL}`, or a capture path"
    )
    what = "use these brokers instead of temporary ones; the run's topics are deleted at its end"
    arguments.add_argument("--target", type=typed(parse_addresses), metavar="HOST:PORT[,..]", help=what)
    arguments.add_argument("--speed", default="1x", type=typed(check_speed), metavar="1x|10x|max", help="default: 1x")
    arguments.add_argument(
        "--kafka", default=DEFAULT_VERSION, choices=VERSIONS, help="version of the temporary brokers"
    )
    what = "directory for report.json and logs (default: build/scenarios, or ~/.cache/shoal/scenarios if installed)"
    arguments.add_argument("--out", type=a_path, default=BUILD / "scenarios", metavar="DIR", help=what)
    _add_capture_options(arguments.add_argument_group("captures"))
    add_cluster_flags(arguments)
    return arguments


def _add_capture_options(group: argparse._ArgumentGroup) -> None:
    what = "prefix of the replay's topics (default: replay-); topics that it creates are deleted at its end"
    group.add_argument(
        "--topic-prefix", type=typed(check_topic_part), default=TOPIC_PREFIX, metavar="PREFIX", help=what
    )
    group.add_argument("--keep-topics", action="store_true", help="keep the topics of the replay")
    group.add_argument(
        "--raw", action="store_true", help="for a directory: replay its raw captures (*.pcapng), not its index"
    )
    group.add_argument("--coalesce", action="store_true", help="use a coalescing listener")
    what = "a setting of [listener.coalescing], such as linger=0.01 (repeatable)"
    group.add_argument("--coalescing", action="append", default=[], metavar="KEY=VALUE", help=what)


def main(arguments: Sequence[str], *, known: Mapping[str, Case] = CASES) -> int:
    flags = parser().parse_args(arguments)
    speed = parse_speed(flags.speed)
    used = used_cluster(flags, flags.target, "--target HOST:PORT")
    target = None if used is None else used.settings
    if any(Path(what).exists() or what.endswith(SUFFIXES) for what in flags.what if what not in known):
        return replay_capture(flags, target, speed)
    _refuse_capture_flags(flags)
    cases = _cases(known, flags.what, target)
    require_usable(target)
    outcomes = trio.run(partial(_run_all, cases, flags, target, speed))
    say(as_table(outcomes))
    write_figures(flags.out / "report.json", as_json(outcomes))
    return OK if all(outcome.good for outcome in outcomes) else FAILED


def _refuse_capture_flags(flags: argparse.Namespace) -> None:
    """Raises OperatorError."""
    given = {"--raw": flags.raw, "--coalesce": flags.coalesce, "--coalescing": flags.coalescing}
    given |= {"--keep-topics": flags.keep_topics, "--topic-prefix": flags.topic_prefix != TOPIC_PREFIX}
    for flag in (flag for flag, is_given in given.items() if is_given):
        raise OperatorError.of(flag, f"is for captures: the scenario {flags.what[0]} has its own settings")


def _cases(known: Mapping[str, Case], names: Sequence[str], target: ClusterSettings | None) -> list[Case]:
    if unknown := [name for name in names if name not in known and name != ALL]:
        hint = did_you_mean(unknown[0], [*known, ALL])
        what = f"is neither a scenario nor a file; {hint}scenarios: {listed(known)}, {ALL}"
        raise OperatorError.of(unknown[0], what)
    cases = [known[name] for name in (known if ALL in names else names)]
    if target is not None and ALL not in names:
        for case in cases:
            if case.own_brokers:
                raise OperatorError.of(case.name, f"needs brokers of its own: {case.own_brokers}; leave --target out")
    return [case for case in cases if target is None or not case.own_brokers]


async def _run_all(
    cases: Sequence[Case], flags: argparse.Namespace, target: ClusterSettings | None, speed: float
) -> list[Outcome]:
    progress, outcomes = Progress(sys.stderr), []
    work: Path = flags.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    async with Brokers(work / "brokers", flags.kafka, target) as brokers:
        for case in cases:
            progress.say(f"{case.name}: {case.what}")
            async with showing_time(progress, case.name):
                outcome = await run_case(case, brokers, work / case.name, kafka=flags.kafka, speed=speed)
            progress.say(as_lines(outcome))
            outcomes.append(outcome)
    return outcomes
