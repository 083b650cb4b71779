"""Kafka from Maven Central: the class path of one version, downloaded once into `build/kafka/<version>/lib`.

python -m shoal.scenarios.kafka.java.jars [VERSION ...]
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import IO

import trio

from shoal.scenarios.kafka.errors import SetupError

VERSIONS = ("4.3.0", "3.9.1")
DEFAULT_VERSION = VERSIONS[0]
_TREE = Path(__file__).resolve().parents[4]
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
BUILD = _TREE / "build" if (_TREE / "pyproject.toml").is_file() else _CACHE / "shoal"
_POM = Path(__file__).with_name("pom.xml")
_PACKAGES = {"setpriv": "util-linux", "java": "default-jre-headless", "mvn": "maven"}


def require(*programs: str) -> None:
    """Raises SetupError with the Debian packages of the `programs` that are missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(_PACKAGES[program] for program in missing)
        raise SetupError(f"{', '.join(missing)} not found. On Debian: apt-get install {packages}")


async def jars(version: str = DEFAULT_VERSION) -> Path:
    """The directory with the jars of `version` (broker, Connect, MirrorMaker 2, tools, logging).

    The first call downloads them with Maven, later ones return immediately; parallel processes wait for each other.
    Raises SetupError when Java or Maven is missing or the download fails.
    """
    require("setpriv", "java")
    home = BUILD / "kafka" / version
    return await made_once(home, _fingerprint(version), partial(_download, version, home))


async def made_once(home: Path, fingerprint: str, make: Callable[[Path], Awaitable[object]]) -> Path:
    """`home/lib`, filled by `make` once per fingerprint; parallel processes wait for each other.

    It is filled under another name and renamed when complete: an interrupted download leaves no partial class path.
    """
    stamp, lib, aside = home / "stamp", home / "lib", home / "lib.partial"
    if _is_current(stamp, fingerprint):
        return lib
    with _lock_file(home) as lock:  # closing it releases the lock
        await trio.to_thread.run_sync(fcntl.flock, lock, fcntl.LOCK_EX)
        if not _is_current(stamp, fingerprint):
            for leftover in (aside, lib):
                shutil.rmtree(leftover, ignore_errors=True)
            await make(aside)
            aside.rename(lib)
            stamp.write_text(fingerprint)
    return lib


async def run_maven(*arguments: str, what: str) -> None:
    """Raises SetupError with the end of Maven's output when it fails, or when Maven is missing."""
    require("mvn")
    await run_step("mvn", "--batch-mode", "--quiet", *arguments, what=what)


async def run_step(*argv: str, what: str) -> None:
    """One program of the set-up. Raises SetupError with the end of its output when it fails."""
    finished = await trio.run_process(argv, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    if finished.returncode != 0:
        raise SetupError(f"{what}: {argv[0]} failed:\n{finished.stdout.decode(errors='replace')[-4000:]}")


def _lock_file(home: Path) -> IO[str]:
    home.mkdir(parents=True, exist_ok=True)
    return (home / "lock").open("w")


def _fingerprint(version: str) -> str:
    return hashlib.sha256(version.encode() + _POM.read_bytes()).hexdigest()


def _is_current(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


async def _download(version: str, home: Path, into: Path) -> None:
    print(f"downloading Kafka {version} from Maven Central into {home} ...", file=sys.stderr, flush=True)
    await run_maven(*_maven(version, into), what=f"Kafka {version}")


def _maven(version: str, into: Path) -> list[str]:
    logging = "reload4j" if version.startswith("3.") else "log4j2"
    return [
        *("--file", str(_POM), f"-P{logging}", f"-Dkafka.version={version}"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"),
    ]


async def _main(versions: list[str]) -> None:
    for version in versions:
        print(f"Kafka {version}: {await jars(version)}")


if __name__ == "__main__":
    try:
        trio.run(_main, sys.argv[1:] or [DEFAULT_VERSION])
    except SetupError as error:
        sys.exit(f"error: {error}")
