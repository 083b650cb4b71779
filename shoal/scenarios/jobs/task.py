"""What a job gets, and the table of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["JOBS", "Job", "Task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`options`: of the data source, see `source/options.py`. `flags`: the job's own, see `job_flags.py`."""

    spark: SparkSession
    source: str
    out: Path
    options: Mapping[str, str]
    flags: Namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    what: str  # a line of the help
    function: str  # "package.module:function", (Task) -> exit code; imported on first use


JOBS: Mapping[str, Job] = MappingProxyType(
    {
        "batch-sizes": Job(
            what="batch sizes, the clients of small batches, and their cost",
            function="shoal.scenarios.jobs.batch_sizes.job:run",
        ),
        "audit": Job(
            what="is a copy complete? exit code 1 if records are missing, or wrong in a mirror topic",
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
