"""`shoal spark JOB IN OUT`: in process on all cores of this machine, or on a cluster with --master."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.proxy.errors import OperatorError
from shoal.scenarios.jobs.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    from shoal.scenarios.jobs.__main__ import run
    from shoal.scenarios.jobs.arguments import parse
    from shoal.scenarios.jobs.session import LOCAL_MASTER
    from shoal.scenarios.jobs.submit import submit

    try:
        given = parse(arguments)
        _check_java()
        if given.master is None:
            return run(given, LOCAL_MASTER)
        return submit(given.for_submit, given.master, given.settings)
    except JobError as error:
        raise OperatorError.of(error.where, error.what) from None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        raise OperatorError.of(
            "shoal spark", "needs Java 17 or later, and there is none on PATH (Debian: default-jre-headless)"
        )
