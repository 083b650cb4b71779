"""`make demo`, `make demo-small`: one topic copied by MirrorMaker 2 alone and through Shoal, between real brokers;
every record compared."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.proxy.cli.mm2_java import KAFKAS
from shoal.proxy.config.settings import Address
from shoal.scenarios.demo.command import NOT_EQUAL, OK, attempt, record_count
from shoal.scenarios.demo.demo import phases_of, run_demo
from shoal.scenarios.demo.page import demo_page
from shoal.scenarios.demo.phases import Phases
from shoal.scenarios.demo.plan import BROKER_HEAP, LARGE, PARTITIONS, SMALL, TASKS, TUNING, Plan, RunPlan, alone_only
from shoal.scenarios.demo.report import as_json
from shoal.scenarios.demo.table import as_table
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.kafka.ports import LOOPBACK, free_port, is_free
from shoal.scenarios.kafka.security.certificates import Authority
from shoal.scenarios.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MEDIANS = "Medians of the rounds; ratios are medians of the ratios of each round."
_TLS = "TLS on every connection: the brokers' only listeners, MirrorMaker 2, and both sides of Shoal."
ADMIN_PORT = 9190  # as in the guides
RECORDS_AT_LEAST = 1_000  # fewer are no measurement
ROUNDS_AT_MOST = 8  # hours; of more, Spread leaves out the ends


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m shoal.scenarios.demo", description=__doc__)
    what = f"version of the brokers (default: {DEFAULT_VERSION})"
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS, help=what)
    arguments.add_argument("--small", action="store_true", help="batches of three records")
    what = "TLS everywhere: brokers with SSL only, from and to Shoal, certificates made on the fly"
    arguments.add_argument("--tls", action="store_true", help=what)
    what = f"number of records (default: {LARGE.records:,}; with --small {SMALL.records:,})"
    arguments.add_argument("--records", type=record_count(RECORDS_AT_LEAST), help=what)
    what = f"tasks.max of MirrorMaker 2, except in tuned runs, which have one for each core (default: {TASKS})"
    arguments.add_argument("--tasks", type=int, choices=range(1, PARTITIONS + 1), default=TASKS, help=what)
    what = "rounds of all runs, in turns; medians are printed (default: 1)"
    arguments.add_argument("--rounds", type=int, choices=range(1, ROUNDS_AT_MOST + 1), default=1, help=what)
    what = "directory for report.json, logs and temporary data (default: in build)"
    arguments.add_argument("--out", type=Path, help=what)
    return arguments


def main() -> int:
    options = parser().parse_args()
    demo = SMALL if options.small else LARGE
    out = options.out or BUILD / (f"{demo.folder}-tls" if options.tls else demo.folder)
    plan = Plan(
        comparison=demo,
        kafka=options.kafka,
        records=options.records or demo.records,
        work=out / "work",
        tasks=options.tasks,
        rounds=options.rounds,
        authority=_authority(out / "certificates") if options.tls else None,
        admin=Address(LOOPBACK, ADMIN_PORT if is_free(ADMIN_PORT) else free_port()),
    )
    progress = Progress(sys.stdout)
    phases = Phases(progress, phases_of(plan))
    progress.say(_opening(plan))
    report = attempt(partial(trio.run, run_demo, plan, phases), progress, phases, plan.work)
    if isinstance(report, int):
        return report
    target = out / "report.json"
    target.write_text(json.dumps(as_json(report), indent=2) + "\n")
    notes = _notes(plan)
    looks = target.with_suffix(".html")
    looks.write_text(demo_page(report, _title(plan), notes), encoding="utf-8")
    progress.say("\n".join(["", as_table(report), "", *notes, *report.differences(), f"Figures: {target}"]))
    progress.say(f"Report:  {looks.as_uri()}")
    return OK if report.good else NOT_EQUAL


def _authority(home: Path) -> Authority:
    shutil.rmtree(home, ignore_errors=True)  # of an earlier demo
    return Authority.create(home)


def _opening(plan: Plan) -> str:
    return (
        f"Shoal's demo: {plan.records:,} JSON records from one Kafka {plan.kafka} cluster to another, on "
        f"{os.cpu_count()} cores,\n{plan.comparison.opening}\n"
    )


def _title(plan: Plan) -> str:
    kind = " with small batches" if plan.comparison is SMALL else ""
    return f"Shoal's demo{kind}{' with TLS' if plan.authority else ''}"


def _notes(plan: Plan) -> list[str]:
    runs = plan.comparison.runs.values()
    return [
        *([_MEDIANS] if plan.rounds > 1 else []),
        "Measured from the first mirrored record to the last, on warm brokers; MirrorMaker 2 was started for each run.",
        f"JVM options are those of Kafka's scripts ({BROKER_HEAP} of heap for a broker), except as follows.",
        *(f"{run.column}: {' '.join(run.java.argv())}." for run in runs if run.java is not KAFKAS),
        *(f"{run.column}: {_listed({'tasks.max': str(run.tasks)})}." for run in runs if run.tasks is not None),
        f"Otherwise {_listed({'tasks.max': str(plan.tasks), **TUNING})}, and MirrorMaker 2's defaults.",
        f"Alone: {_listed(alone_only(plan.comparison))}, so that the copy is compressed as the source is.",
        *(_description(run, run.shoal) for run in runs if run.shoal is not None),
        *([_TLS] if plan.authority else []),
        "Through Shoal, MirrorMaker 2 has the lines in mm2.properties that `shoal mirror` prints.",
    ]


def _description(run: RunPlan, options: Sequence[str]) -> str:
    extras = [f"`shoal mirror {' '.join(options)}`", *(["a target broker with the agent"] if run.agent else [])]
    return f"{run.column}: {', '.join([*extras, *([_listed(run.mirror)] if run.mirror else [])])}."


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


if __name__ == "__main__":
    sys.exit(main())
