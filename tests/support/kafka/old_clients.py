"""Clients from before Kafka 0.11, in `build/old-clients/<name>/lib`.

The Java ones are from Maven Central; kafka-python 1.4.7 has the packages that its codecs need.

python -m tests.support.kafka.old_clients
"""

import hashlib
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import BUILD, made_once, require, run_maven, run_step

JAVA_VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.1.1", "0.10.2.2")
HOME = BUILD / "old-clients"
_POM = Path(__file__).with_name("old-clients.xml")
_WITH_CORE = "0.8.2.2"  # its consumer is in the broker's jar
_KAFKA_PYTHON = ("kafka-python==1.4.7", "python-snappy==0.7.3", "xxhash==4.1.0")  # Shoal brings cramjam and lz4


async def java_client(version: str) -> Path:
    """The directory with the jars of one of `JAVA_VERSIONS`. Raises SetupError like `jars()`."""
    require("java")
    return await made_once(HOME / version, _fingerprint(_POM, words=version), partial(_fetch_jars, version))


async def kafka_python() -> Path:
    """The directory to put at the front of `sys.path`. Raises SetupError."""
    fingerprint = "\n".join((*_KAFKA_PYTHON, sys.version))
    return await made_once(HOME / "kafka-python", fingerprint, _fetch_kafka_python)


async def compiled(version: str, name: str, sources: Sequence[Path]) -> Path:
    """The directory of Java classes, compiled against a client. Raises SetupError with javac's output."""
    lib = await java_client(version)
    home = HOME / version / name
    return await made_once(home, _fingerprint(*sources, words=version), partial(_compile, lib, sources))


def _fingerprint(*files: Path, words: str) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + words.encode()).hexdigest()


async def _fetch_jars(version: str, into: Path) -> None:
    _say(f"the Java client {version}")
    profile = ("-Pcore",) if version == _WITH_CORE else ()
    arguments = (f"-Dkafka.version={version}", "dependency:copy-dependencies", "-DincludeScope=runtime")
    await run_maven("--file", str(_POM), *profile, *arguments, f"-DoutputDirectory={into}", what=f"clients {version}")


async def _fetch_kafka_python(into: Path) -> None:
    _say("kafka-python 1.4.7")
    install = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--target", str(into))
    await run_step(sys.executable, *install, *_KAFKA_PYTHON, what="kafka-python")


async def _compile(lib: Path, sources: Sequence[Path], into: Path) -> None:
    if shutil.which("javac") is None:
        raise SetupError("javac not found. On Debian: apt-get install default-jdk-headless")
    arguments = ("-nowarn", "-Xlint:none", "-cp", f"{lib}/*", "-d", str(into))
    await run_step("javac", *arguments, *map(str, sources), what=sources[0].name)


def _say(what: str) -> None:
    print(f"downloading {what} into {HOME} ...", file=sys.stderr, flush=True)


async def _main() -> None:
    for version in JAVA_VERSIONS:
        print(f"{version}: {await java_client(version)}")
    print(f"kafka-python: {await kafka_python()}")


if __name__ == "__main__":
    try:
        trio.run(_main)
    except SetupError as error:
        sys.exit(f"error: {error}")
