"""Kafka from Maven Central: the class path of one version, downloaded once into `build/kafka/<version>/lib`.

python -m shoal.scenarios.kafka.jars [VERSION ...]
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import trio

from .errors import SetupError

VERSIONS = ("4.3.0", "3.9.1")
DEFAULT_VERSION = VERSIONS[0]
BUILD = Path(__file__).resolve().parents[3] / "build"
_POM = Path(__file__).with_name("pom.xml")
_PACKAGES = {"setpriv": "util-linux", "java": "default-jre-headless", "mvn": "maven"}


def require(*programs: str) -> None:
    """Raises SetupError naming the Debian packages of the `programs` that are missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(_PACKAGES[program] for program in missing)
        raise SetupError(f"{', '.join(missing)} not found. On Debian: apt-get install {packages}")


async def jars(version: str = DEFAULT_VERSION) -> Path:
    """The directory with the jars of `version` (broker, Connect, MirrorMaker 2, tools, logging).

    The first call downloads them with Maven, others return at once; parallel processes wait for each other.
    Raises SetupError when Java or Maven is missing or the download fails.
    """
    require("setpriv", "java")
    home = BUILD / "kafka" / version
    stamp, wanted = home / "stamp", _fingerprint(version)
    if _is_current(stamp, wanted):
        return home / "lib"
    require("mvn")
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:  # closing it lets go
        await trio.to_thread.run_sync(fcntl.flock, lock, fcntl.LOCK_EX)
        if not _is_current(stamp, wanted):
            await _download(version, home)
            stamp.write_text(wanted)
    return home / "lib"


def _fingerprint(version: str) -> str:
    return hashlib.sha256(version.encode() + _POM.read_bytes()).hexdigest()


def _is_current(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


async def _download(version: str, home: Path) -> None:
    """Into a directory aside, renamed when whole: an interrupted download leaves nothing that looks like a class path."""
    partial = home / "lib.partial"
    for leftover in (partial, home / "lib"):
        shutil.rmtree(leftover, ignore_errors=True)
    print(f"downloading Kafka {version} from Maven Central into {home} ...", file=sys.stderr, flush=True)
    finished = await trio.run_process(
        _maven(version, partial), capture_stdout=True, stderr=subprocess.STDOUT, check=False
    )
    if finished.returncode != 0:
        raise SetupError(f"Maven could not fetch Kafka {version}:\n{finished.stdout.decode(errors='replace')[-4000:]}")
    partial.rename(home / "lib")


def _maven(version: str, into: Path) -> list[str]:
    logging = "reload4j" if version.startswith("3.") else "log4j2"
    return [
        *("mvn", "--batch-mode", "--quiet", "--file", str(_POM), f"-P{logging}", f"-Dkafka.version={version}"),
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
