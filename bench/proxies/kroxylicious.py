"""Kroxylicious from Maven Central, downloaded once into `build/kroxylicious/lib`: python -m bench.proxies.kroxylicious

Its distribution is not there, but its parts are: kroxylicious-runtime has the proxy, and `Kroxylicious.java` starts it.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import trio

from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import BUILD, made_once, run_maven

__all__ = ["argv", "kroxylicious_jars"]

_HERE = Path(__file__).parent
_POM, _JAVA = _HERE / "pom.xml", _HERE / "Kroxylicious.java"


def argv(lib: Path, config: Path) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", "-Xmx1g", quiet, "-cp", f"{lib}/*", str(_JAVA), str(config)]


async def kroxylicious_jars() -> Path:
    """The directory with the jars. Raises SetupError."""
    return await made_once(BUILD / "kroxylicious", sha256(_POM.read_bytes()).hexdigest(), _download)


async def _download(into: Path) -> None:
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}")
    await run_maven("--file", str(_POM), *goal, what="Kroxylicious")


if __name__ == "__main__":
    try:
        print(f"Kroxylicious: {trio.run(kroxylicious_jars)}")
    except SetupError as error:
        sys.exit(f"error: {error}")
