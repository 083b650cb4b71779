"""A captured run: brokers of two clusters, producers through one Shoal, a mirror through another.

sensors, orders -> Shoal (plain, captures) -> source -> Shoal (wrap) -> MirrorMaker 2 -> Shoal (unwrap) -> target
                                                      └──────── one process, captures ────────┘
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.demo_capture.traffic import ORDERS, PARTITIONS, READINGS, Sent, send
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.mirror import MirrorSpec, running_mirror
from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.process import Process, until
from shoal.scenarios.running.shoal_mirror import running_shoal
from shoal.scenarios.running.shoal_run import totals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from shoal.scenarios.demo.phases import Phase
    from shoal.scenarios.replay.brokers import Site
    from shoal.scenarios.running.shoal_mirror import Shoal

__all__ = ["Captured", "capture"]

_COPIED_S = 240.0
_START_S = 30.0
_NODES = 8
_OPTIONS = ("--log-format", "json", "--tag", "site=demo", "--plain-compression", "zstd")
_PRODUCERS = """\
tags = {{ site = "demo" }}

[[cluster]]
name = "source"
bootstrap = "{bootstrap}"

[[listener]]
name = "producers"
cluster = "source"
listen = "{host}:{port}"
ports = "{ports}"

[capture]
directory = "{directory}"
has-keys-sample = 20

[log]
format = "json"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Directories of index files. `all` links to the files of both."""

    producers: Path
    mirror: Path
    all: Path
    sent: Sent
    books: dict[str, int]
    """Envelope counters of the mirror's Shoal: opened, reconciled, mismatches."""


async def capture(work: Path, source: Site, target: Site, kafka: str, seconds: float, phase: Phase) -> Captured:
    """Raises HarnessError."""
    for topic, partitions in PARTITIONS.items():
        await Topics(source.bootstrap).create(topic, partitions)
    producers, mirror = _directories(work / "captured", "producers", "mirror")
    async with AsyncExitStack() as stack:
        bootstrap, shoal = await stack.enter_async_context(_for_producers(work / "producers", source, producers))
        starting = running_shoal(
            work / "mirror", source.bootstrap, target.bootstrap, (*_OPTIONS, "--capture", str(mirror))
        )
        pair = await stack.enter_async_context(starting)
        spec = _mirror_spec(source, target, pair, kafka)
        async with running_mirror(work / "mirror", spec) as copier:
            sent = await send(bootstrap, seconds, phase.now)
            for topic, records in ((READINGS, sent.readings), (ORDERS, sent.orders)):
                copy = spec.remote_topic(topic)
                await Topics(target.bootstrap).until_total(copy, records, within=_COPIED_S, process=copier.process)
        totals = [await _ended(process) for process in (pair.process, shoal)]
    phase.done(f"{sent.readings:,} readings and {sent.orders:,} orders, sent and copied")
    return Captured(
        producers=producers,
        mirror=mirror,
        all=_linked(work / "captured" / "all", (producers, mirror)),
        sent=sent,
        books={
            "envelopes": totals[0].get("opened_envelopes", 0),
            "reconciled": totals[0].get("reconciled_envelopes", 0),
            "mismatches": sum((totals[0].get("mismatches") or {}).values()),
        },
    )


def _mirror_spec(source: Site, target: Site, pair: Shoal, kafka: str) -> MirrorSpec:
    return MirrorSpec(
        source_alias="source",
        target_alias="target",
        source=source.bootstrap,
        target=target.bootstrap,
        consumer=pair.consumer,
        producer=pair.producer,
        topics="|".join(PARTITIONS),
        version=kafka,
    )


@asynccontextmanager
async def _for_producers(work: Path, source: Site, directory: Path) -> AsyncIterator[tuple[str, Process]]:
    port = free_port_block(_NODES + 1)
    config = _config(work, port, source.bootstrap, directory)
    argv = [sys.executable, "-m", "shoal", "run", "-c", str(config)]
    process = Process(argv, log=work / "shoal.log", name="shoal run")
    try:
        await until(
            lambda: "listening" in process.output(), within=_START_S, what="shoal run to listen", process=process
        )
        yield f"{LOOPBACK}:{port}", process
    finally:
        if process.running:
            await process.stop()


def _config(work: Path, port: int, bootstrap: str, directory: Path) -> Path:
    work.mkdir(parents=True)
    path = work / "shoal.toml"
    ports = f"{port + 1}-{port + _NODES}"
    path.write_text(_PRODUCERS.format(bootstrap=bootstrap, directory=directory, host=LOOPBACK, port=port, ports=ports))
    return path


async def _ended(process: Process) -> dict[str, Any]:
    """Send SIGTERM; return the totals that it logs then. Raises NotReady."""
    if not await process.stop() or "Traceback" in process.output():
        raise NotReady(f"{process.name} did not end cleanly\n{process.tail()}")
    return totals(process.output())


def _directories(parent: Path, *names: str) -> list[Path]:
    found = [parent / name for name in names]
    for directory in found:
        directory.mkdir(parents=True)
    return found


def _linked(directory: Path, others: Sequence[Path]) -> Path:
    directory.mkdir(parents=True)
    for file in (file for other in others for file in sorted(other.glob("*.kxb"))):
        (directory / file.name).hardlink_to(file)
    return directory
