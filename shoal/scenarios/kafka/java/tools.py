"""Kafka's command line tools, from its jars, as `bin/kafka-*.sh` run them."""

import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.errors import SetupError, ToolFailed

from .jars import DEFAULT_VERSION, jars
from .jvm import Jvm

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_TIMEOUT_S = 120.0


async def run_tool(
    name: str,
    *args: str,
    version: str = DEFAULT_VERSION,
    stdin: bytes = b"",
    within: float = _TIMEOUT_S,
    jvm_options: tuple[str, ...] = (),
) -> str:
    """The standard output of one tool, by its class's simple name, such as "DumpLogSegments" or "GetOffsetShell".

    Raises ToolFailed with all output when the tool fails or exceeds its time, SetupError when it does not exist.
    """
    argv = await tool_argv(name, *args, version=version, jvm_options=jvm_options)
    with trio.move_on_after(within):
        done = await trio.run_process(argv, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        raise ToolFailed(f"{name} ended with {done.returncode}\n{_text(done)}")
    raise ToolFailed(f"{name} did not end within {within:g} s")


async def tool_argv(
    name: str, *args: str, version: str = DEFAULT_VERSION, jvm_options: tuple[str, ...] = ()
) -> list[str]:
    """The command line of a tool that runs beside others. Raises SetupError when the tool does not exist."""
    lib = await jars(version)
    return Jvm(lib=lib, heap="256m", options=jvm_options).argv(
        await trio.to_thread.run_sync(main_class, lib, name), *args
    )


@cache
def main_class(lib: Path, name: str) -> str:
    """The full name of the tool class: tools moved from `kafka.tools` to `org.apache.kafka.tools.*` over time."""
    found = [
        entry.removesuffix(".class").replace("/", ".")
        for jar in sorted([*lib.glob("kafka-tools-*.jar"), *lib.glob("kafka_2*.jar")])
        for entry in zipfile.ZipFile(jar).namelist()
        if entry.endswith(f"/{name}.class") and ("kafka/tools/" in entry or entry.startswith("kafka/admin/"))
    ]
    if not found:
        raise SetupError(f"no tool named {name} in {lib}")
    return found[0]


def _text(done: "CompletedProcess[bytes]") -> str:
    return (done.stdout + done.stderr).decode(errors="replace")
