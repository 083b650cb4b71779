"""`make demo-offsets`: topics mirrored by MirrorMaker 2 behind `shoal mirror --same-offsets` to brokers with the agent;
every record at its source's offset, and a consumer group that moves in the middle."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import trio

from shoal.scenarios.demo.command import NOT_EQUAL, OK, attempt, record_count
from shoal.scenarios.demo.phases import Phases
from shoal.scenarios.demo_offsets.demo import PHASES, run_demo
from shoal.scenarios.demo_offsets.plan import NODES, RECORDS, Plan
from shoal.scenarios.demo_offsets.report import Figures, Report, as_json, as_table, demo_figures, figures_table
from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.progress import Progress

RECORDS_AT_LEAST = 10_000  # fewer leave nothing for the cleaner
_OURS = ".shoal-demo-offsets"  # in a directory that an earlier demo has made
_DEMO = BUILD / "demo" / "report.json"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m shoal.scenarios.demo_offsets", description=__doc__)
    what = f"version of the brokers (default: {DEFAULT_VERSION})"
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS, help=what)
    what = f"number of records to write (default: {RECORDS:,})"
    arguments.add_argument("--records", type=record_count(RECORDS_AT_LEAST), default=RECORDS, help=what)
    what = "directory for report.json, logs and temporary data (default: build/demo-offsets)"
    arguments.add_argument("--out", type=Path, default=BUILD / "demo-offsets", help=what)
    return arguments


def main() -> int:
    options = parser().parse_args()
    out: Path = options.out.absolute()
    plan = Plan(kafka=options.kafka, records=options.records, work=out / "work")
    progress = Progress(sys.stdout)
    phases = Phases(progress, PHASES)

    def run() -> Report:
        clear_out(out)
        progress.say(_opening(plan))
        return trio.run(run_demo, plan, phases)

    report = attempt(run, progress, phases, plan.work)
    if isinstance(report, int):
        return report
    target = out / "report.json"
    target.write_text(json.dumps(as_json(report), indent=2) + "\n")
    tables = [as_table(report), "", figures_table(report, _figures_of_demo())]
    progress.say("\n".join(["", *tables, "", *_notes(), f"Figures: {target}"]))
    return OK if report.good else NOT_EQUAL


def clear_out(out: Path) -> None:
    """Remove what an earlier demo has left there. Raises SetupError when the directory has anything else."""
    mark = out / _OURS
    if out.exists() and not (out.is_dir() and (mark.is_file() or not any(out.iterdir()))):
        raise SetupError(f"{out} is not of an earlier demo, and not empty: name another directory with --out")
    out.mkdir(parents=True, exist_ok=True)
    mark.touch()
    shutil.rmtree(out / "work", ignore_errors=True)
    (out / "report.json").unlink(missing_ok=True)


def _opening(plan: Plan) -> str:
    return (
        f"Shoal's demo of mirror topics: {plan.records:,} records from {NODES} Kafka {plan.kafka} brokers to {NODES} "
        f"others with the agent,\non {os.cpu_count()} cores, by a stock MirrorMaker 2 behind "
        f"`shoal mirror {' '.join(plan.shoal_options())}`.\n"
    )


def _figures_of_demo() -> list[Figures]:
    return demo_figures(json.loads(_DEMO.read_text())) if _DEMO.is_file() else []


def _notes() -> list[str]:
    return [
        f"Measured while the mirror copied what was there at its start; all of the {NODES} brokers of a side together.",
        *([] if _DEMO.is_file() else ["`make demo` has other figures to compare with: run it first."]),
    ]


if __name__ == "__main__":
    sys.exit(main())
