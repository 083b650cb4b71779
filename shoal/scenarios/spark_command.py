"""`shoal spark JOB IN OUT`: in process on all cores of this machine, or on a cluster with --master."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.proxy.config.problems import OperatorError
from shoal.scenarios.jobs.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

LEAST_JAVA = 17  # of Spark 4


def main(arguments: Sequence[str]) -> int:
    from shoal.scenarios.jobs.arguments import parse

    given = parse(arguments)
    _check_java()
    from shoal.scenarios.jobs.__main__ import require_input, run  # imports pyspark, which --help does not need
    from shoal.scenarios.jobs.output.noise import SPARK_LOG
    from shoal.scenarios.jobs.session import LOCAL_MASTER
    from shoal.scenarios.jobs.submit import submit

    try:
        if given.master is None:
            return run(given, LOCAL_MASTER)
        require_input(given)
        return submit(given.for_submit, given.master, given.settings, given.out / SPARK_LOG)
    except JobError as error:
        raise OperatorError.of(error.where, error.what) from None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    own = Path(home) / "bin" / "java" if home else None
    java = str(own) if own is not None and own.exists() else shutil.which("java")
    if java is None:
        raise OperatorError.of(
            "shoal spark", "needs Java 17 or later, and there is none on PATH (Debian: default-jre-headless)"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(1\.)?(\d+)', said)
    if version is not None and int(version[2]) < LEAST_JAVA:
        what = f"needs Java {LEAST_JAVA} or later, and {java} is {version[2]}: set JAVA_HOME to a newer one"
        raise OperatorError.of("shoal spark", what)
