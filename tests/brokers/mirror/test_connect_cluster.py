"""A Connect cluster of three workers with a Shoal each, as three pods with a sidecar: workers, Shoals and a whole pod
are killed under load, and every record arrives.

All workers have the same configuration, with one name for Shoal. As in a pod, each finds its own Shoal by it.
"""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.compare import reconcile
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.mirror import MirrorSpec
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, counted, logged, mismatches
from tests.brokers.mirror.rig.steady import steady
from tests.support.kafka.catchup import until_copied
from tests.support.kafka.connect import SIDECAR, SidecarWorker, connector_config
from tests.support.shoal_process import ShoalProcess, free_port_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

NAME = "mirror"
ADDRESSES = ("127.0.0.11", "127.0.0.12", "127.0.0.13")
PARTITIONS = TASKS = 6
BROKERS = 3  # ports for brokers of a listener


@dataclass
class Pod:
    """A worker and its Shoal."""

    work: Path
    shoal: ShoalProcess
    worker: SidecarWorker

    @property
    def wrapped(self) -> int:
        """Records in envelopes since the last start of this Shoal."""
        return sum(line.get("wrapped_records", 0) for line in self.shoal.json_lines() if line["event"] == "flow")

    def lines_for_connect(self) -> dict[str, str]:
        """The connector's lines for Shoal, as this Shoal prints them when it starts."""
        said = self.shoal.output()
        lines: dict[str, str] = json.loads(said[said.index("{\n") : said.index("\n}\n") + 2])
        return lines


@asynccontextmanager
async def pods(pair: Pair, spec: MirrorSpec, ports: tuple[int, int], work: Path) -> AsyncIterator[list[Pod]]:
    made: list[Pod] = []
    try:
        for address in ADDRESSES:
            home = work / address
            shoal = sidecar(pair, address, ports, home)
            await shoal.start()
            made.append(Pod(home, shoal, await SidecarWorker.beside(address, home, spec)))
        yield made
    except BaseException:
        for pod in made:
            print(pod.shoal.process.tail(), pod.worker.process.tail(), sep="\n")
        raise
    finally:
        for pod in made:
            pod.worker.kill()
            pod.shoal.kill()


def sidecar(pair: Pair, address: str, ports: tuple[int, int], work: Path) -> ShoalProcess:
    argv = ["mirror", "--form", "connect", "--advertise", SIDECAR, "--state-dir", str(work / "state")]
    argv += ["--log-format", "json", "--report-every", "0.5", "--on-gap", "report-running"]
    sides = {"source": pair.source.bootstrap, "target": pair.target.bootstrap}
    for (side, bootstrap), port in zip(sides.items(), ports, strict=True):
        argv += [f"--{side}", bootstrap, f"--{side}-listen", f"{address}:{port}"]
        argv += [f"--{side}-ports", f"{port + 1}-{port + BROKERS}"]
    return ShoalProcess(argv, work=work, ports=ports)


async def create_connector(worker: SidecarWorker, config: dict[str, str]) -> None:
    async def is_created() -> bool:
        try:
            await worker.configure(NAME, config)
        except HarnessError:  # the workers' group rebalances
            return False
        return True

    await until(is_created, within=WITHIN, what="the connector to be created", process=worker.process, poll_s=1.0)


async def until_spread(pods: Sequence[Pod]) -> None:
    """Wait until all tasks run, and each of these workers has some."""
    wanted = {pod.worker.address for pod in pods}

    async def is_spread() -> bool:
        try:
            tasks = await pods[0].worker.tasks(NAME)
        except (HarnessError, OSError):
            return False
        running = [at for at, state in tasks if state == "RUNNING"]
        return len(running) == TASKS and set(running) == wanted

    await until(is_spread, within=WITHIN, what=f"tasks on {sorted(wanted)}", process=pods[0].worker.process, poll_s=1.0)


async def until_all_wrap(pods: Sequence[Pod], records: int = 1_000) -> None:
    """Wait until each Shoal has put this many more records into envelopes."""
    for pod, goal in [(pod, pod.wrapped + records) for pod in pods]:
        await until(
            lambda pod=pod, goal=goal: pod.wrapped >= goal,  # type: ignore[misc]
            within=WITHIN,
            what=f"{goal} wrapped records at {pod.work.name}",
            process=pod.shoal.process,
            poll_s=0.5,
        )


@pytest.mark.slow
async def test_workers_shoals_and_a_pod_are_killed_and_every_record_arrives(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, PARTITIONS)
    ports = free_port_block(BROKERS + 1), free_port_block(BROKERS + 1)
    spec = MirrorSpec(
        source=bootstrap,
        target=pair.target.bootstrap,
        topics=topic,
        tasks=TASKS,
        source_alias=aliases.source,
        target_alias=aliases.target,
    )
    async with pods(pair, spec, ports, tmp_path) as (first, second, third):
        lines = first.lines_for_connect()
        assert lines == second.lines_for_connect() == third.lines_for_connect()
        await create_connector(first.worker, {**connector_config(spec), **lines})
        await until_spread([first, second, third])
        async with AsyncExitStack() as load:
            await load.enter_async_context(steady(pair, topic, partitions=PARTITIONS))
            await until_all_wrap([first, second, third])

            second.worker.kill()
            await until_spread([first, third])
            await until_all_wrap([first, third])
            second.worker.restart()
            await until_spread([first, second, third])

            first.shoal.kill()
            await until_all_wrap([second, third])
            await first.shoal.start()
            await until_all_wrap([first, second, third])

            third.worker.kill()  # a pod, with its disk
            third.shoal.kill()
            shutil.rmtree(third.work / "state")
            await until_spread([first, second])
            await until_all_wrap([first, second])

        ours = await read_copy(bootstrap, topic)
        remote = spec.remote_topic(topic)
        theirs = await until_copied(ours, pair.target.bootstrap, remote, within=WITHIN, process=first.worker.process)
        counts = reconcile(ours, theirs)
        assert counts.faithful, counts
        assert await pair.envelopes() == []
        for pod in (first, second):
            await pod.shoal.stop()
    for pod in (first, second, third):
        assert mismatches(pod.shoal) == set()
        assert not logged(pod.shoal, "flow-stopped")
        assert not logged(pod.shoal, "mirror-gap")
        assert counted(pod.shoal)["envelopes"] > 0
