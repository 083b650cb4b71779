"""`python -m shoal.scenarios.jobs JOB IN OUT`: the process of `shoal spark`, and of spark-submit on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shoal.command_line import report_errors
from shoal.scenarios.capture.files import INDEX, RAW, capture_files
from shoal.scenarios.capture.index import UnreadableFile, require_index, require_raw
from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.output.noise import SPARK_LOG, noise_into
from shoal.scenarios.jobs.output.watch import watching
from shoal.scenarios.jobs.session import session
from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.reading import source_of
from shoal.scenarios.jobs.task import JOBS, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from shoal.scenarios.capture.files import CaptureFile
    from shoal.scenarios.jobs.arguments import Arguments

__all__ = ["main", "run", "run_in"]

WRONG_INPUT = 2


def run(given: Arguments, master: str | None) -> int:
    """Raises JobError. `master` None: spark-submit has set it."""
    require_input(given)
    with noise_into(given.out / SPARK_LOG):
        spark = session(f"shoal {given.job}", master=master, settings=given.settings)
    try:
        with watching(spark, given.job):
            return run_in(spark, given)
    except (PySparkException, Py4JError) as error:
        raise JobError("Spark", f"{_first_line(error)} ({given.out / SPARK_LOG} has the details)") from None
    finally:
        spark.stop()


def require_input(given: Arguments) -> None:
    """Before a Java virtual machine starts. Creates OUT. Raises JobError."""
    source = source_of(given.source)
    if source != "parquet":
        _require_captures(Path(given.source), _SUFFIXES[source])
    selection = Options.of({**given.options, "path": given.source}).selection
    begin, end = selection.from_ns, selection.to_ns
    if begin is not None and end is not None and end <= begin:
        raise JobError("--to", "is not after --from: no row is between them")
    if given.job == CASCADE and source != "shoal":
        raise JobError(given.source, "has no index files (*.kxb); the cascade follows them as they grow")
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError("OUT", f"{given.out} cannot be made: {error.strerror}") from None


def _require_captures(path: Path, suffix: str) -> None:
    """The report names a file that is no index, unless there is no other. Raises JobError."""
    require = require_index if suffix == INDEX else require_raw
    errors = [_error_of(file, require) for file in capture_files(path, suffix)]
    if not errors:
        raise JobError(str(path), f"has no captures: their names are shoal-*.{suffix}")
    if None not in errors:
        raise JobError("IN", str(errors[0]))


def _error_of(file: CaptureFile, require: Callable[[Path], None]) -> Exception | None:
    try:
        require(file.path)
    except (OSError, UnreadableFile) as error:
        return error
    return None


_SUFFIXES = {"shoal": INDEX, "shoal-raw": RAW}
CASCADE = "cascade"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Error" in line or "Exception" in line), lines[0] if lines else "failed")


def run_in(spark: SparkSession, given: Arguments) -> int:
    """Run in an existing session. Raises JobError."""
    function = resolve_name(JOBS[given.job].function)
    given.out.mkdir(parents=True, exist_ok=True)
    task = Task(spark=spark, source=given.source, out=given.out, options=given.options, flags=given.flags)
    try:
        result: int = function(task)
    except OSError as error:  # OUT is on a full disk, or a file of IN has been removed since to make room
        where = str(error.filename or given.out)
        raise JobError(where, f"cannot be read or written: {error.strerror or error}") from None
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        given = parse(sys.argv[1:] if arguments is None else arguments)
        return run(given, given.master)
    except JobError as error:
        report_errors([(error.where, error.what)], as_json=False)
        return WRONG_INPUT


if __name__ == "__main__":
    sys.exit(main())
