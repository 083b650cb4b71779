"""`shoal replay CAPTURE`."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from shoal.command_line import say
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cli.flags.cluster import as_cluster_flag
from shoal.proxy.cli.probe import unreachable
from shoal.proxy.cluster.cluster import Cluster, NotLearned
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Limits
from shoal.proxy.config.toml import read_config
from shoal.scenarios.capture.files import RAW, capture_files
from shoal.scenarios.progress import Progress
from shoal.scenarios.replay.brokers import Brokers
from shoal.scenarios.replay.clock import MAX, showing_time
from shoal.scenarios.replay.frames.source import RawRecorded, read_raw
from shoal.scenarios.replay.report import write_figures
from shoal.scenarios.replay.runner import FAILURES, messages_of
from shoal.scenarios.replay.trace import (
    TraceSettings,
    as_trace_table,
    coalescing_lines,
    is_good,
    replay_index,
    replay_raw,
)

if TYPE_CHECKING:
    import argparse

    from shoal.proxy.config.problems import Problem
    from shoal.proxy.config.settings import ClusterSettings
    from shoal.scenarios.replay.index.source import Recorded

__all__ = ["SUFFIXES", "replay_capture", "require_usable"]

SUFFIXES = (".kxb", ".pcapng")
OK, FAILED = 0, 1


def replay_capture(flags: argparse.Namespace, target: ClusterSettings | None, speed: float) -> int:
    """The exit code. Raises OperatorError; ModuleNotFoundError when pyarrow is not installed."""
    if len(flags.what) > 1:
        raise OperatorError.of("shoal replay", "takes one capture, or scenarios, not both")
    settings = TraceSettings(speed=speed, listener=_listener(flags), keep_topics=flags.keep_topics)
    recorded = _recorded(Path(flags.what[0]), flags)
    require_usable(target)
    report = _run(recorded, flags, target, settings)
    say(as_trace_table(report))
    figures: Path = flags.out / "replay.json"
    write_figures(figures, report)
    say(f"figures: {figures}")
    return OK if is_good(report) else FAILED


def require_usable(target: ClusterSettings | None) -> None:
    """Raises OperatorError if the brokers cannot be used with these settings, before a Shoal is started with them."""
    if target is None:
        return
    try:
        trio.run(Cluster(target, Limits()).ask_metadata)
    except OperatorError as error:
        raise OperatorError(tuple(map(as_cluster_flag, error.problems))) from None
    except NotLearned as error:
        raise OperatorError.of(*unreachable(target.bootstrap, error)) from None


def _run(
    recorded: Recorded | RawRecorded,
    flags: argparse.Namespace,
    target: ClusterSettings | None,
    settings: TraceSettings,
) -> dict[str, Any]:
    """Raises OperatorError when the brokers do not allow the replay."""
    failed: list[BaseException] = []
    report: dict[str, Any] = {}
    try:
        report = trio.run(partial(_replay, recorded, flags, target, settings))
    except* FAILURES as group:
        failed.append(group)
    if failed:
        raise OperatorError.of(flags.what[0], f"could not be replayed: {messages_of(failed[0])}")
    return report


def _recorded(path: Path, flags: argparse.Namespace) -> Recorded | RawRecorded:
    from shoal.scenarios.capture.index import UnreadableFile, require_index  # the rest of this command needs no pyarrow
    from shoal.scenarios.replay.index.source import read_index

    try:
        is_raw = flags.raw or path.suffix == f".{RAW}"
        for file in () if is_raw else capture_files(path):
            require_index(file.path)
        recorded = read_raw(path) if is_raw else read_index(path, flags.topic_prefix)
    except OSError as error:
        raise OperatorError.of(str(path), f"cannot be read: {error.strerror}") from None
    except (UnreadableFile, RemoteProtocolError) as error:
        raise OperatorError.of(str(path), str(error).removeprefix(f"{path}: ")) from None
    if not recorded.partitions:
        left_out = ", ".join(f"{count:,} {why}" for why, count in recorded.left_out.items() if count)
        raise OperatorError.of(str(path), "has no traffic to replay" + (f" (left out: {left_out})" if left_out else ""))
    return recorded


def _listener(flags: argparse.Namespace) -> str:
    """Its lines in shoal.toml. Raises OperatorError."""
    pairs = [pair.partition("=") for pair in flags.coalescing]
    if wrong := [key for key, equals, value in pairs if not equals or not value]:
        raise OperatorError.of("--coalescing", f"{wrong[0]!r}: write KEY=VALUE, for example linger=0.01")
    lines = coalescing_lines({key: _in_toml(key, value) for key, _, value in pairs})
    try:
        read_config(f"{_ANY_LISTENER}{lines}", Path("--coalescing"))
    except OperatorError as error:
        raise OperatorError(tuple(map(_of_coalescing, error.problems))) from None
    if flags.coalescing and not flags.coalesce:
        raise OperatorError.of("--coalescing", "needs --coalesce")
    return lines if flags.coalesce else ""


def _in_toml(key: str, value: str) -> str:
    """Text needs no quotes here."""
    try:
        tomllib.loads(f"x = {value}")
    except tomllib.TOMLDecodeError:
        return json.dumps(value)
    return value


_ANY_LISTENER = """\
[[cluster]]
name = "brokers"
bootstrap = "localhost:9092"
[[listener]]
name = "any"
cluster = "brokers"
listen = "127.0.0.1:19092"
ports = "19093-19192"
"""


def _of_coalescing(problem: Problem) -> Problem:
    return problem._replace(where=problem.where.replace(": listener[0].coalescing.", " "))


async def _replay(
    recorded: Recorded | RawRecorded,
    flags: argparse.Namespace,
    target: ClusterSettings | None,
    settings: TraceSettings,
) -> dict[str, Any]:
    progress = Progress(sys.stderr)
    work: Path = flags.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    what = f"{recorded.batches:,} batches in {recorded.seconds:,.1f} s"
    progress.say(f"{flags.what[0]}: {what}, to {len(recorded.partitions)} topics, at {flags.speed}")
    async with Brokers(work / "brokers", flags.kafka, target) as brokers:
        site = await brokers.target()
        seconds = 0.0 if settings.speed == MAX else recorded.seconds / settings.speed
        async with showing_time(progress, "replaying", seconds):
            if isinstance(recorded, RawRecorded):
                return await replay_raw(recorded, flags.topic_prefix, site, work / "shoal", settings)
            return await replay_index(recorded, site, work / "shoal", settings)
