"""The arguments of a job, and the table of jobs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.scenarios.jobs.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["JOBS", "Job", "Task", "own_arguments", "own_parser"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`options`: of the data source, see `source/options.py`. `arguments`: the job's own, after the common ones."""

    spark: SparkSession
    source: str
    out: Path
    options: Mapping[str, str]
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    what: str  # a line of the help
    function: str  # "package.module:function", (Task) -> exit code; imported on first use


def own_parser(job: str) -> argparse.ArgumentParser:
    """A parser for the job's own arguments, after the common ones."""
    return argparse.ArgumentParser(prog=f"shoal spark {job} IN OUT", exit_on_error=False)


def own_arguments(job: str, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Raises JobError, also for unknown arguments."""
    try:
        parsed, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise JobError(job, str(error)) from None
    if unknown:
        raise JobError(job, f"does not know {' '.join(unknown)}")
    return parsed


JOBS: Mapping[str, Job] = MappingProxyType(
    {
        "batch-sizes": Job(
            what="batch sizes, the clients of small batches, and their cost",
            function="shoal.scenarios.jobs.batch_sizes.job:run",
        ),
        "audit": Job(
            what="is a copy complete? exit code 1 if records are missing",
            function="shoal.scenarios.jobs.audit.job:run",
        ),
        "coalescing": Job(
            what="produce requests saved by joining, and added latency, by policy",
            function="shoal.scenarios.jobs.coalescing.job:run",
        ),
        "cascade": Job(
            what="counters by client and topic, updated live; abnormal clients",
            function="shoal.scenarios.jobs.cascade.job:run",
        ),
    }
)
