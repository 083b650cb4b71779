"""`shoal replay CAPTURE`."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from shoal.proxy.operator_error import OperatorError
from shoal.scenarios.progress import Progress
from shoal.scenarios.replay.brokers import Brokers
from shoal.scenarios.replay.trace import TraceSettings, as_trace_table, coalescing_lines, is_good, replay_index

if TYPE_CHECKING:
    import argparse

    from shoal.scenarios.replay.index import Recorded

__all__ = ["SUFFIXES", "replay_capture"]

SUFFIXES = (".kxb", ".pcapng")
OK, FAILED = 0, 1


def replay_capture(flags: argparse.Namespace, speed: float) -> int:
    """The exit code. Raises OperatorError; ModuleNotFoundError where pyarrow is not installed."""
    if len(flags.what) > 1:
        raise OperatorError.of("shoal replay", "takes one capture at a time, and no scenario with it")
    recorded = _recorded(Path(flags.what[0]), flags.topic_prefix)
    settings = TraceSettings(speed=speed, listener=_listener(flags), keep_topics=flags.keep_topics)
    report = trio.run(partial(_replay, recorded, flags, settings))
    print(as_trace_table(report))
    flags.out.mkdir(parents=True, exist_ok=True)
    target: Path = flags.out / "replay.json"
    target.write_text(json.dumps(report, indent=1) + "\n")
    print(f"figures: {target}")
    return OK if is_good(report) else FAILED


def _recorded(path: Path, prefix: str) -> Recorded:
    from shoal.capture.index import UnreadableFile
    from shoal.scenarios.replay.index import read_index

    try:
        recorded = read_index(path, prefix)
    except OSError as error:
        raise OperatorError.of(str(path), f"cannot be read: {error.strerror}") from None
    except UnreadableFile as error:
        raise OperatorError.of(str(path), str(error)) from None
    if not recorded.batches:
        left_out = ", ".join(f"{count:,} rows {why}" for why, count in recorded.left_out.items() if count)
        raise OperatorError.of(str(path), f"holds no produce request that could be replayed ({left_out or 'no rows'})")
    return recorded


def _listener(flags: argparse.Namespace) -> str:
    if not flags.coalesce:
        if flags.coalescing:
            raise OperatorError.of("--coalescing", "needs --coalesce")
        return ""
    pairs = [one.partition("=") for one in flags.coalescing]
    if wrong := [key for key, equals, value in pairs if not equals or not value]:
        raise OperatorError.of("--coalescing", f"{wrong[0]!r}: write KEY=VALUE, for example linger=0.01")
    return coalescing_lines({key: value for key, _, value in pairs})


async def _replay(recorded: Recorded, flags: argparse.Namespace, settings: TraceSettings) -> dict[str, Any]:
    progress = Progress(sys.stderr)
    work: Path = flags.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    what = f"{recorded.requests:,} produce requests, {recorded.batches:,} batches in {recorded.seconds:,.1f} s"
    progress.say(f"{flags.what[0]}: {what}, to {len(recorded.partitions)} topics, at {flags.speed}")
    async with Brokers(work / "brokers", flags.kafka, flags.target) as brokers:
        return await replay_index(recorded, await brokers.target(), work / "shoal", settings)
