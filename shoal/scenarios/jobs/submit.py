"""A job on a Spark cluster: spark-submit of the installed pyspark, with this package as a zip that is built on the fly.

Executors need the same minor version of Python, numpy, pyarrow, pandas and crc32c; the zip has only Shoal's modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

import shoal
from shoal.scenarios.jobs.output.noise import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["package_zip", "submit"]

_LAUNCHER: Final = "import sys\nfrom shoal.scenarios.jobs.__main__ import main\nsys.exit(main())\n"


def submit(arguments: Sequence[str], master: str, settings: Mapping[str, str], log: Path) -> int:
    """`arguments`: JOB IN OUT and the rest, without the master. `log`: gets what Spark prints. Returns the job's exit
    code. Raises JobError."""
    descriptor = open_log(log)
    try:
        with tempfile.TemporaryDirectory(prefix="shoal-spark-") as directory:
            line = command(arguments, master, settings, Path(directory))
            code = subprocess.run(line, env=_environment(master), stderr=descriptor).returncode
    finally:
        os.close(descriptor)
    if code:
        _repeat_errors(log)
    return code


def _repeat_errors(log: Path) -> None:
    """The job's own errors are among Spark's lines."""
    errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(_ERROR)]
    for line in errors or [f"{_ERROR} spark-submit failed: {log} has its lines"]:
        print(line, file=sys.stderr)


_ERROR: Final = "shoal: error:"


def command(arguments: Sequence[str], master: str, settings: Mapping[str, str], directory: Path) -> list[str]:
    """Write the zip and the launcher into `directory`."""
    launcher = directory / "shoal_job.py"
    launcher.write_text(_LAUNCHER)
    packaged = package_zip(directory / "shoal.zip")
    script = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [str(script), "--master", master, *given, "--py-files", str(packaged), str(launcher), *arguments]


def package_zip(path: Path) -> Path:
    root = Path(shoal.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(root.rglob("*.py")):
            packed.write(file, Path("shoal") / file.relative_to(root))
    return path


def _environment(master: str) -> dict[str, str]:
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if master.startswith("local") else {}
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **local, **os.environ}
