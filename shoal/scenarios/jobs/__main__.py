"""`python -m shoal.scenarios.jobs JOB IN OUT`: the process of `shoal spark`, and of spark-submit on a cluster."""

from __future__ import annotations

import sys
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.session import session
from shoal.scenarios.jobs.task import JOBS, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from shoal.scenarios.jobs.arguments import Arguments

__all__ = ["main", "run", "run_in"]

WRONG_INPUT = 2


def run(given: Arguments, master: str | None) -> int:
    """Raises JobError. `master` None: spark-submit has set it."""
    spark = session(f"shoal {given.job}", master=master, settings=given.settings)
    try:
        return run_in(spark, given)
    finally:
        spark.stop()


def run_in(spark: SparkSession, given: Arguments) -> int:
    """Run in an existing session. Raises JobError."""
    function = resolve_name(JOBS[given.job].function)
    given.out.mkdir(parents=True, exist_ok=True)
    task = Task(spark=spark, source=given.source, out=given.out, options=given.options, arguments=given.rest)
    result: int = function(task)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        given = parse(sys.argv[1:] if arguments is None else arguments)
        return run(given, given.master)
    except JobError as error:
        print(f"shoal: error: {error}", file=sys.stderr)
        return WRONG_INPUT


if __name__ == "__main__":
    sys.exit(main())
