"""The command line of jobs: JOB IN OUT and the common options. Remaining arguments are the job's own."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.task import JOBS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Arguments", "parse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    job: str
    source: str
    out: Path
    master: str | None
    settings: Mapping[str, str]  # Spark settings
    options: Mapping[str, str]  # data source options
    rest: Sequence[str]

    @property
    def for_submit(self) -> list[str]:
        """The arguments without those of spark-submit."""
        read = [part for name, value in self.options.items() for part in (f"--{name}", value)]
        return [self.job, self.source, str(self.out), *read, *self.rest]


def parse(given: Sequence[str]) -> Arguments:
    """Raises JobError; SystemExit for --help."""
    parsed, rest = _parser().parse_known_args(given)
    read = {"from": parsed.first, "to": parsed.last, "topics": parsed.topics}
    return Arguments(
        job=parsed.job,
        source=parsed.source if "://" in parsed.source else str(Path(parsed.source).absolute()),
        out=parsed.out.absolute(),  # workers have other working directories
        master=parsed.master,
        settings=dict(map(_setting, parsed.conf)),
        options={name: value for name, value in read.items() if value is not None},
        rest=rest,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise JobError("shoal spark", f"{message} (shoal spark --help lists all)")


def _parser() -> argparse.ArgumentParser:
    jobs = "\n".join(f"  {name:<12} {job.what}" for name, job in JOBS.items())
    parser = _Parser(
        prog="shoal spark",
        description="Analyse captured traffic with Spark:\n\n" + jobs,
        epilog="Further arguments are the job's own: docs/spark.md lists them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=JOBS, metavar="JOB")
    parser.add_argument("source", metavar="IN", help="directory of index files (*.kxb) or of compacted Parquet")
    parser.add_argument(
        "out", metavar="OUT", type=Path, help="directory for tables and report, reachable by all workers"
    )
    parser.add_argument(
        "--master", metavar="URL", help="URL of a Spark cluster; without it the job runs here, on all cores"
    )
    parser.add_argument("--from", dest="first", metavar="TIME", help="rows from this time on: 2026-11-22T03:00 (UTC)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="rows before this time")
    parser.add_argument("--topics", metavar="A,B,...", help="rows of these topics only, separated by commas")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
    return parser


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise JobError("--conf", f"{text!r} is not NAME=VALUE")
    return name, value
