"""One setup for old consumers: many slow ones, and a fast one."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import trio

from bench.legacy.fast import read_all, verify
from bench.legacy.report import BROKER
from bench.legacy.sampling import watching
from bench.legacy.slow import BEGIN, END, FINISH_S
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.legacy.stage import Kind
    from bench.load import Address

__all__ = ["Crowd", "Way", "fast", "slow"]

START_S = 60.0
LATE_S = 30.0
LEAST_S = 5.0  # minimum duration for a rate
MEGA, GIB = 1_000_000, 1 << 30
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`processes` by name: the broker, and Shoal if there is one."""

    name: str
    address: Address
    processes: Mapping[str, Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    consumers: int
    bite: int  # bytes that each takes every second
    seconds: float
    batches: int  # of each topic
    finish: int  # consumers that read their answers to the end, and one more, when the time is over


async def slow(way: Way, crowd: Crowd, work: Path) -> Figures:
    """Raises RuntimeError if a consumer was sent unreadable data, NotReady or ProcessLookupError if Shoal has ended.
    `ended`: the final log lines of a broker that ended."""
    argv = [sys.executable, "-m", "bench.legacy.slow", "--host", way.address[0], "--port", str(way.address[1])]
    argv += [text for name, value in asdict(crowd).items() for text in (f"--{name}", str(value))]
    began = trio.current_time()
    async with watching(way.processes) as (watches, tcp):
        process = Process(argv, log=work / f"{way.name}-consumers.log", name="consumers")
        try:
            await process.until_printed(BEGIN, within=START_S)
            await until(
                lambda: END in _lines(process), within=crowd.seconds + LATE_S, what="time to end", process=process
            )
            costs = {name: asdict(watch.cost()) for name, watch in watches.items()}
            kernel = tcp.most_mib
            await until(lambda: not process.running, within=FINISH_S + LATE_S, what="consumers to end")
        except (NotReady, ProcessLookupError):
            if ended := _ended_broker(way, trio.current_time() - began):
                return {"ended": ended}
            raise
        finally:
            if process.running:
                process.kill()
    if process.exit_code:
        raise RuntimeError(f"a consumer was not served well\n{process.tail(8)}")
    return {**_lives(json.loads(_lines(process)[-1]), crowd), "costs": costs, "tcp_mib": kernel}


def _ended_broker(way: Way, after: float) -> Figures | None:
    """None: it runs. (Only running out of memory counts as a figure; any other end is an error.)"""
    process = way.processes[BROKER]
    return None if process.running else {"after_s": after, "last_words": process.output().splitlines()[-1]}


def _lines(process: Process) -> list[str]:
    return process.output().splitlines()


def _lives(lives: Sequence[Mapping[str, Any]], crowd: Crowd) -> Figures:
    firsts = [crowd.seconds if life["first_at"] is None else life["first_at"] for life in lives]
    served = [max(crowd.seconds - first, LEAST_S) for first in firsts]
    rates = sorted(life["received"] / seconds for life, seconds in zip(lives, served, strict=True))
    silences = [max(life["silence"], crowd.seconds - life["last_at"]) for life in lives]
    return {
        **asdict(crowd),
        "never_served": sum(life["first_at"] is None for life in lives),
        "bytes_per_s_since_first": {"slowest": rates[0], "median": median(rates), "fastest": rates[-1]},
        "first_records_s": {"median": median(firsts), "last": max(firsts)},
        "longest_silence_s": max(silences),
        "messages_in_time": sum(life["in_time"] for life in lives),
        "consumers_without_a_message": sum(life["in_time"] == 0 for life in lives),
        "messages_verified": sum(life["messages"] for life in lives),
        "answers_read_whole": sum(life["answers"] for life in lives),
        "finished": sum(life["finished"] for life in lives),
        "padding_bytes": sum(life["padding"] for life in lives),
        "largest_entry": max(life["largest"] for life in lives),
    }


async def fast(way: Way, kind: Kind, rounds: int) -> Figures:
    """The topic from beginning to end, `rounds` times after one that is not counted. Bytes are those of the records,
    uncompressed."""
    await trio.to_thread.run_sync(read_all, way.address, kind)
    async with watching(way.processes) as (watches, _):
        reads = [await trio.to_thread.run_sync(read_all, way.address, kind) for _ in range(rounds)]
        costs = {name: watch.cost() for name, watch in watches.items()}
    await trio.to_thread.run_sync(verify, reads[-1], kind)
    seconds, plain = sum(read.seconds for read in reads), rounds * kind.plain_bytes
    return {
        "mb_per_s": plain / seconds / MEGA,
        "records_per_s": rounds * kind.end / seconds,
        "wire_mb_per_s": sum(read.received for read in reads) / seconds / MEGA,
        "answers": len(reads[-1].answers),
        "cpu_s_per_gib": {name: cost.cpu_s / (plain / GIB) for name, cost in costs.items()},
        "costs": {name: asdict(cost) for name, cost in costs.items()},
    }
