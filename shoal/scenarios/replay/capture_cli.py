"""`shoal replay CAPTURE`."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cli.flags.cluster import as_cluster_flag
from shoal.proxy.cluster.cluster import Cluster, NotLearned
from shoal.proxy.config.settings import Limits
from shoal.proxy.errors import OperatorError
from shoal.scenarios.capture.files import RAW
from shoal.scenarios.progress import Progress
from shoal.scenarios.replay.brokers import Brokers
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
    print(as_trace_table(report))
    figures: Path = flags.out / "replay.json"
    write_figures(figures, report)
    print(f"figures: {figures}")
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
        raise OperatorError.of(",".join(map(str, target.bootstrap)), str(error)) from None


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
    from shoal.scenarios.capture.index import UnreadableFile  # the rest of this command needs no pyarrow
    from shoal.scenarios.replay.index.source import read_index

    try:
        is_raw = flags.raw or path.suffix == f".{RAW}"
        recorded = read_raw(path) if is_raw else read_index(path, flags.topic_prefix)
    except OSError as error:
        raise OperatorError.of(str(path), f"cannot be read: {error.strerror}") from None
    except (UnreadableFile, RemoteProtocolError) as error:
        raise OperatorError.of(str(path), str(error)) from None
    if not recorded.partitions:
        left_out = ", ".join(f"{count:,} {why}" for why, count in recorded.left_out.items() if count)
        raise OperatorError.of(str(path), f"holds nothing to replay (left out: {left_out or 'nothing'})")
    return recorded


def _listener(flags: argparse.Namespace) -> str:
    if not flags.coalesce:
        if flags.coalescing:
            raise OperatorError.of("--coalescing", "needs --coalesce")
        return ""
    pairs = [pair.partition("=") for pair in flags.coalescing]
    if wrong := [key for key, equals, value in pairs if not equals or not value]:
        raise OperatorError.of("--coalescing", f"{wrong[0]!r}: write KEY=VALUE, for example linger=0.01")
    return coalescing_lines({key: value for key, _, value in pairs})


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
        if isinstance(recorded, RawRecorded):
            return await replay_raw(recorded, flags.topic_prefix, site, work / "shoal", settings)
        return await replay_index(recorded, site, work / "shoal", settings)
