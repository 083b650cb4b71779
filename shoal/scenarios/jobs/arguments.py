"""The command line of jobs: JOB IN OUT, the common flags, and those of the job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.command_line import Parser, a_path, typed
from shoal.scenarios.jobs.job_flags import JOB_FLAGS
from shoal.scenarios.jobs.task import JOBS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Arguments", "parse", "parser"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    job: str
    source: str
    out: Path
    master: str | None
    settings: Mapping[str, str]  # Spark settings
    options: Mapping[str, str]  # data source options
    flags: Namespace  # with the job's own
    for_submit: Sequence[str]  # without those of spark-submit


def parse(given: Sequence[str]) -> Arguments:
    """Raises SystemExit."""
    parsed = parser().parse_args(given)
    read = {"from": parsed.first, "to": parsed.last, "topics": parsed.topics}
    return Arguments(
        job=parsed.job,
        source=parsed.input if "://" in parsed.input else str(Path(parsed.input).absolute()),
        out=parsed.out.absolute(),  # workers have other working directories
        master=parsed.master,
        settings=dict(parsed.conf),
        options={name: value for name, value in read.items() if value is not None},
        flags=parsed,
        for_submit=list(_for_submit(given)),
    )


_OF_SUBMIT = ("--master", "--conf")


def _for_submit(given: Sequence[str]) -> Iterator[str]:
    for before, text in pairwise(("", *given)):
        if before not in _OF_SUBMIT and text.partition("=")[0] not in _OF_SUBMIT:
            yield text


def parser() -> Parser:
    spark = Parser(prog="shoal spark", description="Analyse captured traffic with Spark.", epilog=_END)
    jobs = spark.add_subparsers(title="jobs", dest="job", required=True, metavar="JOB")
    for name, job in JOBS.items():
        what = f"{job.what[0].upper()}{job.what[1:]}."
        command: Parser = jobs.add_parser(name, help=job.what, description=what, epilog=_JOB_END)
        _add_common(command)
        if name in JOB_FLAGS:
            JOB_FLAGS[name](command)
    return spark


_END = """\
examples:
  shoal spark batch-sizes index/ report/
  shoal spark audit index/ audit/ --prefix a. --tolerance 0

More about a job and its flags: shoal spark JOB --help, docs/spark.md
"""
_JOB_END = """\
OUT gets a table (Parquet) per question, report.json, and a page (JOB.html).
Spark's own log is in OUT/spark.log.

exit codes: 0 done, 1 audit: records are missing, or wrong in a mirror topic,
            or the source has changed, 2 wrong arguments or input, 3 error in
            Shoal itself
"""


def _add_common(command: Parser) -> None:
    what = "directory of index files (*.kxb), of raw captures (*.pcapng) or of compacted Parquet; or one file"
    command.add_argument("input", metavar="IN", help=what)
    what = "directory for tables and report, reachable by all workers"
    command.add_argument("out", metavar="OUT", type=a_path, help=what)
    group = command.add_argument_group("rows")
    what = "from this time on: 2026-11-22T03:00 (UTC)"
    group.add_argument("--from", dest="first", type=typed(_time), metavar="TIME", help=what)
    group.add_argument("--to", dest="last", type=typed(_time), metavar="TIME", help="before this time")
    group.add_argument("--topics", metavar="A,B,..", help="of these topics only")
    group = command.add_argument_group("Spark")
    what = "URL of a cluster, such as spark://host:7077 (default: here, on all cores)"
    group.add_argument("--master", type=typed(_master), metavar="URL", help=what)
    what = "a setting of Spark, such as spark.driver.memory=4g (repeatable)"
    group.add_argument("--conf", action="append", type=typed(_setting), default=[], metavar="NAME=VALUE", help=what)


def _time(text: str) -> str:
    try:
        if not text.isdigit():  # else nanoseconds
            datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a time: write for example 2026-11-22T03:00') from None
    return text


_MASTER = re.compile(r"(local|local-cluster)(\[.*\])?\Z|yarn\Z|(spark|k8s|mesos)://.+")


def _master(text: str) -> str:
    if not _MASTER.match(text):
        raise ValueError(f'"{text}" is not a Spark master: write for example spark://host:7077, yarn or local[4]')
    return text


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f'"{text}": write NAME=VALUE')
    return name, value
