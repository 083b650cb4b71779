"""Starts Kafka's Java programs, with the agent of `agent/` where a broker accepts several batches per partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.ports import LOOPBACK

from .class_archive import archive_option
from .jars import BUILD

_HERE = Path(__file__).parent
_LOGGING = (
    f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
    f"-Dlog4j.configuration=file:{_HERE / 'reload4j.properties'}",
)
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    lib: Path
    """The directory of jars from `jars()`."""
    heap: str = "512m"
    quick: bool = True
    """Fast start-up rather than throughput: no C2 compiler, no GC threads, classes from an archive. For tests, not for
    measurements.
    """
    options: tuple[str, ...] = ()

    def argv(self, main: str, *args: str) -> list[str]:
        quick = (*_QUICK, *archive_option(self.lib)) if self.quick else ()
        return [
            *("java", f"-Xmx{self.heap}", "-XX:+ExitOnOutOfMemoryError", *quick, *self.options, *_LOGGING),
            *("-cp", f"{self.lib}/*", main, *args),
        ]


def agent_option() -> str:
    """The JVM option that attaches the agent. Raises SetupError when `make agent` has not built it."""
    jar = BUILD / "agent" / "shoal-agent.jar"
    if not jar.is_file():
        raise SetupError(f"{jar} is missing: `make agent` builds it")
    return f"-javaagent:{jar}"


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a Java properties file; backslashes in values are escaped."""
    lines = [f"{key} = {value}" for key, value in properties.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).replace("\\", "\\\\") + "\n")
    return path


def jmx_options(port: int) -> tuple[str, ...]:
    """Any local process can read the program's MBeans."""
    settings = {"port": port, "rmi.port": port, "host": LOOPBACK, "authenticate": "false", "ssl": "false"}
    remote = (f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in settings.items())
    return *remote, f"-Djava.rmi.server.hostname={LOOPBACK}"
