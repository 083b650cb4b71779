"""make torture SECONDS=600 SEED=7: rounds with seeds SEED, SEED + 1, ... for SECONDS. Exit status 1 if one fails."""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.java.jars import BUILD
from tests.torture.environment.disk import private_mounts
from tests.torture.environment.pool import Pool

from .draw import keeping_offsets, make_plan
from .plan import FaultPlan, Plan, from_json, to_json
from .report import Report
from .round import run_round
from .shrink import shortest

if TYPE_CHECKING:
    from tests.torture.judge.verdict import Verdict

_OUT = BUILD / "torture"
_SHRINK_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture")
    parser.add_argument("--seconds", type=float, default=600.0, help="no round starts after this time")
    parser.add_argument("--seed", type=int, help="seed of the first round; random by default")
    parser.add_argument("--plan", type=Path, help="a plan in JSON instead of a seed's: build/torture/SEED/plan.json")
    parser.add_argument(
        "--shrink",
        type=float,
        default=_SHRINK_S,
        help="time limit for finding the shortest failing schedule, in seconds",
    )
    parser.add_argument("--out", type=Path, default=_OUT, help="directory of the results (default: build/torture)")
    parser.add_argument("--same-offsets", action="store_true", help="copies are mirror topics wherever it is possible")
    parser.add_argument("--secured", action="store_true", help="TLS and logins on both sides of Shoal")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.seconds:g} s", flush=True)
    private_mounts()  # full disks need it; without it each such fault is logged as impossible
    plan = None if arguments.plan is None else from_json(arguments.plan.read_bytes())
    secured = arguments.secured or (plan is not None and plan.secured)
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as work:
        return trio.run(
            _Runs(Path(work), arguments.out, arguments.shrink, secured=secured, same_offsets=arguments.same_offsets).go,
            seed,
            arguments.seconds,
            plan,
        )


def _commit() -> str:
    done = subprocess.run(("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class _Runs:
    def __init__(self, work: Path, out: Path, shrink_s: float, *, secured: bool, same_offsets: bool) -> None:
        self._same_offsets = same_offsets
        self._work = work
        self._out = out
        self._shrink_s = shrink_s
        self._pool = Pool(work / "clusters", secured=secured)
        self._secured = secured
        self._number = 0
        self._report = Report(out / "report.json", _commit())

    async def go(self, seed: int, seconds: float, plan: Plan | None) -> int:
        end = time.monotonic() + seconds
        failed = False
        try:
            while True:
                failed |= await self._seed(plan or self._plan(seed))
                seed += 1
                if plan is not None or time.monotonic() > end:
                    break
        finally:
            self._pool.end()
        summary = self._report.summary()
        print({name: value for name, value in summary.items() if name != "runs"}, flush=True)
        return int(failed)

    def _plan(self, seed: int) -> Plan:
        plan = replace(make_plan(seed), secured=self._secured)
        return keeping_offsets(plan) if self._same_offsets else plan

    async def _seed(self, plan: Plan) -> bool:
        """True: it failed. Its logs are kept, and its schedule is shortened."""
        verdict, logs = await self._round(plan)
        _print(plan, verdict)
        kept = None
        if verdict.failures:
            self._keep(logs, self._out / str(plan.seed))
            if self._shrink_s > 0 and plan.faults and not verdict.broken:
                kept = await self._shrink(plan)
                print(f"seed {plan.seed}: the shortest schedule that still fails:", *kept, sep="\n  ", flush=True)
                (self._out / str(plan.seed) / "shortest.json").write_bytes(to_json(plan.with_faults(kept)))
        shutil.rmtree(logs, ignore_errors=True)
        self._report.add(plan, verdict, shortest=kept)
        return bool(verdict.failures)

    async def _round(self, plan: Plan) -> tuple[Verdict, Path]:
        self._number += 1
        run = f"r{self._number}"
        logs = self._work / run
        logs.mkdir()
        (logs / "plan.json").write_bytes(to_json(plan))
        try:
            return await run_round(self._pool, plan, run, logs), logs
        finally:
            _brokers_logs(self._pool, logs)

    async def _shrink(self, plan: Plan) -> tuple[FaultPlan, ...]:
        end = time.monotonic() + self._shrink_s

        async def fails(faults: tuple[FaultPlan, ...]) -> bool:
            verdict, logs = await self._round(plan.with_faults(faults))
            shutil.rmtree(logs, ignore_errors=True)
            print(f"  with {len(faults)} faults: {'; '.join(verdict.failures) or 'passed'}"[:300], flush=True)
            return bool(verdict.failures) and not verdict.broken

        return await shortest(plan.faults, fails, lambda: time.monotonic() > end)

    def _keep(self, logs: Path, kept: Path) -> None:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(logs, kept, ignore=shutil.ignore_patterns("data"))


def _brokers_logs(pool: Pool, logs: Path) -> None:
    for path, name in pool.logs():
        shutil.copyfile(path, logs / name)


def _print(plan: Plan, verdict: Verdict) -> None:
    said = "; ".join(verdict.failures) or "passed"
    doubled = {cause: len(places) for cause, places in verdict.doubled.items()}
    print(
        f"seed {plan.seed}: {verdict.seconds:.0f} s, {verdict.records} records, {len(plan.faults)} faults, doubled "
        f"{doubled}, "
        f"{verdict.flow.get('wrapped_records', 0)} wrapped, {verdict.peak_mib:.0f} MiB: {said}"[:1500],
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
