"""What Spark and Java print goes to a file, so that the terminal has only the job's own lines."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from shoal.scenarios.jobs.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SPARK_LOG", "noise_into", "open_log"]

SPARK_LOG: Final = "spark.log"


def open_log(path: Path) -> int:
    """-> a descriptor; a former log is overwritten. Raises JobError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    except OSError as error:
        raise JobError("OUT", f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def noise_into(path: Path) -> Iterator[None]:
    """A process that is started here (the Java virtual machine, and its workers) keeps the file as its standard error.

    Raises JobError.
    """
    log = open_log(path)
    sys.stderr.flush()
    before = os.dup(2)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(log)
