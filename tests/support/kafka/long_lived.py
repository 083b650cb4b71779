"""Java's clients that send numbered records to one partition and read them back, all in one process.

What is lost, doubled or out of order ends the process with an error. Per topic it prints the number of records and of
new logins.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import Jvm
from shoal.scenarios.kafka.process import Process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.scenarios.kafka.security.clients import ClientSecurity

__all__ = ["long_lived", "outcomes"]


async def long_lived(
    bootstrap: str, logins: Mapping[str, ClientSecurity], stop: Path, *, settings: Mapping[str, str] | None = None
) -> Process:
    """A producer and a consumer for each topic, until the file `stop` exists. `settings`: further ones, of all."""
    assert shutil.which("javac"), "Java runs a source file only with a compiler"
    work, arguments = stop.parent, [str(stop)]
    more = {"bootstrap.servers": bootstrap, **(settings or {})}
    for topic, login in logins.items():
        config = login.write(work / f"{topic}.properties")
        lines = [f"{key}={value}\n" for key, value in {**more, "client.id": topic}.items()]
        config.write_text(config.read_text() + "".join(lines))
        arguments += [topic, str(config)]
    options = tuple({option for login in logins.values() for option in login.jvm_options})
    source = Path(__file__).with_name("LongLived.java")
    argv = Jvm(lib=await jars("4.3.0"), options=options).argv(str(source), *arguments)
    return Process(argv, log=work / "java.log", name="Java's clients")


def outcomes(java: Process) -> list[tuple[str, int, int]]:
    """Topic, records, and new logins of those that have ended without an error."""
    found = [line.split()[1:] for line in java.output().splitlines() if line.startswith("outcome ")]
    return [(topic, int(records), int(logins)) for topic, records, logins in found]
