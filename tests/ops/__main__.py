"""make ops: `python -m tests.ops [--only SECTION ...]` writes build/ops/report.json. Exit status 1: it failed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.progress import Progress
from tests.ops import metrics, mirrors, reload, takeover, translate
from tests.ops.monitoring import live
from tests.ops.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Section = Callable[[Stage], Awaitable[dict[str, object]]]

SECTIONS: Mapping[str, Section] = {
    "metrics": metrics.run,
    "monitoring": live.run,
    "lag": mirrors.lag_error,
    "gap": mirrors.gap,
    "reload": reload.run,
    "takeover": takeover.run,
    "translate": translate.run,
}


async def run(stage: Stage, names: list[str]) -> dict[str, object]:
    report: dict[str, object] = {}
    for name in names:
        stage.progress.say(f"{name} ...")
        report[name] = await SECTIONS[name](stage.of(name))
        stage.progress.say(f"{name}: {json.dumps(report[name])}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="make ops", description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=SECTIONS, metavar="SECTION")
    parser.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    parser.add_argument("--out", type=Path, default=BUILD / "ops")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    target: Path = options.out / "report.json"
    with tempfile.TemporaryDirectory(prefix="ops-", ignore_cleanup_errors=True) as work:
        stage = Stage(work=Path(work), kept=options.out, kafka=options.kafka, progress=Progress(sys.stderr))
        report = trio.run(run, stage, options.only)
    if target.exists() and set(options.only) < set(SECTIONS):  # keep what the other sections found
        report = json.loads(target.read_text()) | report
    target.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
