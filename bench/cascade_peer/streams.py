"""The Streams program: its jars from Maven Central in `build/streams/lib`, its classes, its settings, its counters."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.java.jars import BUILD, made_once, run_maven, run_step
from shoal.scenarios.kafka.java.jvm import write_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JVM", "PROGRAMS", "argv", "streams_classes"]

_HERE = Path(__file__).parent
_POM, _JAVA = _HERE / "pom.xml", _HERE / "CascadeStreams.java"
_IN_MEMORY = {
    "dsl.store.suppliers.class": "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
}
PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "Streams, RocksDB": {"shoal.summed": "false"},
    "Streams, in memory": {"shoal.summed": "false", **_IN_MEMORY},
    "Streams, in memory, rows summed first": {"shoal.summed": "true", **_IN_MEMORY},
}
"""Name -> settings that differ. All have changelog topics and the default cache."""
_SETTINGS = {
    "num.stream.threads": "2",
    "commit.interval.ms": "1000",
    "consumer.max.poll.records": "10000",
    "consumer.max.partition.fetch.bytes": str(4 << 20),
}
JVM = ("-Xmx1g", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


async def streams_classes() -> Path:
    """The directory of the jars, with the program's classes beside them. Raises SetupError."""
    return await made_once(BUILD / "streams", sha256(_POM.read_bytes() + _JAVA.read_bytes()).hexdigest(), _make)


async def _make(into: Path) -> None:
    print("downloading Kafka Streams from Maven Central ...", file=sys.stderr, flush=True)
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}")
    await run_maven("--file", str(_POM), *goal, what="Kafka Streams")
    await run_step("javac", "-cp", f"{into}/*", "-d", str(into), str(_JAVA), what=_JAVA.name)


def argv(lib: Path, settings: Mapping[str, str], work: Path) -> list[str]:
    """`settings`: of PROGRAMS, with `bootstrap.servers`, `shoal.topic` and `shoal.rows`. Counters: `work/counters`."""
    own = {"application.id": work.name, "state.dir": str(work / "state"), "shoal.out": str(work / "counters")}
    file = write_properties(work / "streams.properties", {**_SETTINGS, **own, **settings})
    return ["java", *JVM, "-cp", f"{lib}:{lib}/*", _JAVA.stem, str(file)]
