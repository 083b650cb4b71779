"""The Spark jobs on the capture, each as an operator starts it: `shoal spark JOB IN OUT`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.kafka.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["JobFailed", "Ran", "run_job"]

_LONGEST_S = 600.0
_INCOMPLETE = 1  # exit code of an audit that found missing records


class JobFailed(HarnessError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    page: Path
    report: dict[str, Any]
    exit_code: int


def run_job(name: str, source: Path, out: Path, arguments: Sequence[str] = ()) -> Ran:
    """Blocks. Raises JobFailed with the end of the job's output."""
    argv = [sys.executable, "-m", "shoal", "spark", name, str(source), str(out), *arguments]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "job.log").open("wb") as log:
        try:
            ended = subprocess.run(argv, stdout=log, stderr=subprocess.STDOUT, timeout=_LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            raise JobFailed(f"shoal spark {name} did not end within {_LONGEST_S:g} s: {out / 'job.log'}") from None
    page, report = out / f"{name}.html", out / "report.json"
    if ended.returncode not in (0, _INCOMPLETE) or not report.exists():
        tail = (out / "job.log").read_text(errors="replace").splitlines()[-15:]
        raise JobFailed(f"shoal spark {name} ended with {ended.returncode}\n" + "\n".join(tail))
    return Ran(page=page, report=json.loads(report.read_text()), exit_code=ended.returncode)
