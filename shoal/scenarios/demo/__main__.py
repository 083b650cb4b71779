"""`make demo`: one topic copied by MirrorMaker 2 alone and through Shoal, between real brokers; every record compared."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from confluent_kafka import KafkaException

from shoal.scenarios.demo.phases import Phases
from shoal.scenarios.demo.plan import ALONE_ONLY, BROKER_HEAP, MIRROR_HEAP, SHOAL_OPTIONS, TASKS, TUNING, Plan
from shoal.scenarios.demo.report import Report, as_json, as_table
from shoal.scenarios.demo.story import PHASES, play
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping

OK, NOT_EQUAL, FAILED, INTERRUPTED = 0, 1, 2, 130
RECORDS = 4_000_000
RECORDS_AT_LEAST = 1_000  # fewer say nothing


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m shoal.scenarios.demo", description=__doc__)
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS, help=f"default {DEFAULT_VERSION}")
    arguments.add_argument("--records", type=_records, default=RECORDS, help=f"default {RECORDS:,}")
    arguments.add_argument(
        "--out", type=Path, default=BUILD / "demo", help="for report.json, logs and, meanwhile, data"
    )
    return arguments


def _records(text: str) -> int:
    count = int(text.replace("_", "").replace(",", ""))
    if count < RECORDS_AT_LEAST:
        raise argparse.ArgumentTypeError(f"{count} is too few: at least {RECORDS_AT_LEAST:,}")
    return count


def main() -> int:
    options = parser().parse_args()
    plan = Plan(kafka=options.kafka, records=options.records, work=options.out / "work")
    progress = Progress(sys.stdout)
    phases = Phases(progress, PHASES)
    progress.say(_opening(plan))
    try:
        report = trio.run(play, plan, phases)
    except KeyboardInterrupt:
        progress.say("interrupted; all that was started has been ended")
        return INTERRUPTED
    except (HarnessError, KafkaException, OSError) as error:
        progress.say(f"\nfailed in: {phases.current}\n{error}\nlogs: {plan.work}")
        return FAILED
    target = options.out / "report.json"
    target.write_text(json.dumps(as_json(report), indent=2) + "\n")
    progress.say(_closing(report, target))
    return OK if report.good else NOT_EQUAL


def _opening(plan: Plan) -> str:
    return (
        f"Shoal's demo: {plan.records:,} JSON records from one Kafka {plan.kafka} cluster to another, on {os.cpu_count()} cores,\n"
        "first by a stock MirrorMaker 2 alone, then by the same MirrorMaker 2 through `shoal mirror`.\n"
    )


def _closing(report: Report, target: Path) -> str:
    notes = (
        "Measured from the first mirrored record to the last, on warm brokers; MirrorMaker 2 was started for each run.",
        f"Java heaps are those of Kafka's own scripts: {BROKER_HEAP} for a broker, {MIRROR_HEAP} for MirrorMaker 2.",
        f"Both runs: {_listed({'tasks.max': str(TASKS), **TUNING})}; otherwise MirrorMaker 2's defaults.",
        f"Alone: {_listed(ALONE_ONLY)}, so that the copy is compressed as the source is.",
        f"Through Shoal: `shoal mirror {' '.join(SHOAL_OPTIONS)}`, and the lines that it prints in mm2.properties.",
    )
    differences = [f"{name}: {run.difference}" for name, run in report.runs.items() if run.difference]
    return "\n".join(["", as_table(report), "", *notes, *differences, f"Figures: {target}"])


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


if __name__ == "__main__":
    sys.exit(main())
