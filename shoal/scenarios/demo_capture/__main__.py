"""`make demo-capture`: captures the traffic of a real run, then analyses it with Spark."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from confluent_kafka import KafkaException

from shoal.scenarios.demo.phases import Phases
from shoal.scenarios.demo_capture.captured import Captured, capture
from shoal.scenarios.demo_capture.jobs import Ran, run_job
from shoal.scenarios.demo_capture.report import as_report, as_text, compared, is_good
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.progress import Progress
from shoal.scenarios.replay.brokers import Brokers
from shoal.scenarios.replay.index.source import read_index
from shoal.scenarios.replay.trace import TraceSettings, coalescing_lines, replay_index

if TYPE_CHECKING:
    from collections.abc import Mapping

OK, NOT_GOOD, FAILED, INTERRUPTED = 0, 1, 2, 130
POLICY = "linger=10ms,group=broker"  # the predicted policy that the replay then uses
_CASCADE = ("--levels", "10,60,600,3600", "--floor", "100", "--buckets", "8")  # minutes are too long here
_COALESCING = {"linger": "0.01", "ignore-client-ids": "true"}
_OPENING = """\
Shoal's demo of captures: small producers and a mirror through Shoal, between two Kafka {kafka} clusters,
captured for {seconds:g} s and analysed with Spark.
"""


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m shoal.scenarios.demo_capture", description=__doc__)
    what = f"version of the brokers (default: {DEFAULT_VERSION})"
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS, help=what)
    arguments.add_argument("--seconds", type=float, default=120.0, help="duration of the traffic (default: 120)")
    what = "do not replay the captured traffic through a coalescing listener"
    arguments.add_argument("--no-replay", action="store_true", help=what)
    what = "directory for reports, captures and logs (default: build/demo-capture)"
    arguments.add_argument("--out", type=Path, default=BUILD / "demo-capture", help=what)
    return arguments


@dataclass(slots=True)
class Demo:
    options: argparse.Namespace
    phases: Phases
    jobs: dict[str, Ran] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        out: Path = self.options.out
        return out.absolute() / "work"

    async def run(self) -> dict[str, Any]:
        """The report. Raises HarnessError, OSError."""
        shutil.rmtree(self.options.out, ignore_errors=True)
        self.work.mkdir(parents=True)
        async with AsyncExitStack() as stack:
            brokers = await stack.enter_async_context(Brokers(self.work / "brokers", self.options.kafka))
            with self.phases.phase("clusters") as phase:
                source, target = await brokers.source(), await brokers.target()
                phase.done(f"source {source.bootstrap}, target {target.bootstrap}")
            with self.phases.phase("traffic, captured") as phase:
                captured = await capture(self.work, source, target, self.options.kafka, self.options.seconds, phase)
            replayed = None if self.options.no_replay else await self._replay(captured, brokers)
        for cluster in ("source", "target"):
            shutil.rmtree(self.work / "brokers" / cluster, ignore_errors=True)
        return await self._analyse(captured, replayed)

    async def _replay(self, captured: Captured, brokers: Brokers) -> Mapping[str, Any]:
        with self.phases.phase("the same trace, coalesced") as phase:
            recorded = read_index(captured.producers, "replayed-")
            phase.now(f"{recorded.requests:,} produce requests in {recorded.seconds:.0f} s")
            settings = TraceSettings(speed=1.0, listener=coalescing_lines(_COALESCING))
            replayed = await replay_index(recorded, await brokers.source(), self.work / "coalesced", settings)
            phase.done(f"{replayed['produce_requests']:,} requests sent, {replayed['broker_requests']:,} at the broker")
        return replayed

    async def _analyse(self, captured: Captured, replayed: Mapping[str, Any] | None) -> dict[str, Any]:
        for name, source, arguments in (
            ("batch-sizes", captured.all, ()),
            ("coalescing", captured.producers, ()),
            ("audit", captured.mirror, ("--prefix", "source.", "--tolerance", "0")),
            ("cascade", captured.producers, _CASCADE),
        ):
            with self.phases.phase(f"shoal spark {name}") as phase:
                job = partial(run_job, name, source, self.options.out.absolute() / name, arguments)
                self.jobs[name] = await trio.to_thread.run_sync(job)
                phase.done(str(self.jobs[name].page))
        reports = {name: ran.report for name, ran in self.jobs.items()}
        policies = {row["policy"]: row for row in reports["coalescing"]["coalescing"]}
        tried = None if replayed is None else compared(policies[POLICY], replayed)
        return as_report(_rows(captured.all), reports, tried, captured.books)


def _rows(directory: Path) -> int:
    """Rows of all files."""
    from shoal.scenarios.capture.batches import record_batches
    from shoal.scenarios.capture.files import capture_files
    from shoal.scenarios.capture.index import IndexReader

    batches = (
        batch for file in capture_files(directory) for batch in record_batches(IndexReader(path=file.path), ["kind"])
    )
    return sum(getattr(batch, "num_rows", 0) for batch in batches)


def main() -> int:
    options = parser().parse_args()
    progress = Progress(sys.stdout)
    phases = Phases(progress, 6 if options.no_replay else 7)
    progress.say(_OPENING.format(kafka=options.kafka, seconds=options.seconds))
    demo = Demo(options, phases)
    try:
        report = trio.run(demo.run)
    except KeyboardInterrupt:
        progress.say("interrupted; all that was started has been ended")
        return INTERRUPTED
    except (HarnessError, KafkaException, OSError) as error:
        progress.say(f"\nfailed in: {phases.current}\n{error}\nlogs: {demo.work}")
        return FAILED
    target: Path = options.out / "report.json"
    target.write_text(json.dumps(report, indent=1) + "\n")
    pages = [f"  {ran.page}" for ran in demo.jobs.values()]
    progress.say("\n".join(["", as_text(report), "", "Reports, for a browser:", *pages, f"Figures: {target}"]))
    return OK if is_good(report) else NOT_GOOD


if __name__ == "__main__":
    sys.exit(main())
