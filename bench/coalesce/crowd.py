"""Producers of both kinds as child processes, which start together and report their results."""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import Jvm
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Crowd", "Load", "Told", "start_crowd"]

JAVA = Path(__file__).with_name("Producers.java")
START_S = 120.0
FINISH_S = 120.0  # beyond the length of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    name: str
    rate: float  # records per second of all producers together
    seconds: float
    librdkafka: int = 100  # producers
    java: int = 100
    acks: str = "all"
    size: int = 100  # bytes of a record's value


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`latencies` are microseconds, sorted, without the warm-up's."""

    sent: int
    failed: int
    seconds: float
    latencies: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    processes: list[Process]
    work: Path
    load: Load

    async def ready(self) -> None:
        """Every producer is connected and has sent one record."""
        for process in self.processes:
            await process.until_printed("ready", within=START_S)

    async def run(self) -> Told:
        (self.work / "go").touch()
        for process in self.processes:
            await until(
                lambda process=process: not process.running,  # type: ignore[misc]
                within=self.load.seconds + FINISH_S,
                what=f"{process.name} to end",
            )
        results = [json.loads(process.output().splitlines()[-1]) for process in self.processes]
        latencies = array("I")
        for out in sorted(self.work.glob("*.latencies")):
            latencies.frombytes(out.read_bytes())
        return Told(
            sent=sum(result["sent"] for result in results),
            failed=sum(result["failed"] for result in results),
            seconds=max(result["seconds"] for result in results),
            latencies=sorted(latencies),
        )

    def end(self) -> None:
        for process in self.processes:
            if process.running:
                process.kill()


async def start_crowd(load: Load, *, bootstrap: str, topic: str, partitions: int, work: Path, kafka: str) -> Crowd:
    arguments = partial(_arguments, load, bootstrap, topic, partitions, work)
    processes = []
    if load.librdkafka:
        argv = [sys.executable, "-m", "bench.coalesce.load", *arguments(0, load.librdkafka)]
        processes.append(Process(argv, log=work / "librdkafka.log", name="librdkafka producers"))
    if load.java:
        jvm = Jvm(lib=await jars(kafka), heap="1g", quick=False)
        argv = jvm.argv(str(JAVA), *arguments(load.librdkafka, load.java))
        processes.append(Process(argv, log=work / "java.log", name="Java producers"))
    return Crowd(processes=processes, work=work, load=load)


def _arguments(
    load: Load, bootstrap: str, topic: str, partitions: int, work: Path, first: int, producers: int
) -> list[str]:
    values = {
        "bootstrap": bootstrap,
        "topic": topic,
        "acks": load.acks,
        "go": work / "go",
        "out": work / f"{first}.latencies",
        "partitions": partitions,
        "producers": producers,
        "first": first,
        "size": load.size,
        "rate": load.rate * producers / (load.librdkafka + load.java),
        "seconds": load.seconds,
    }
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]
