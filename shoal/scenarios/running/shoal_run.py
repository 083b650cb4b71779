"""`shoal run` as an operator starts it: a configuration file, a process, and the totals that it logs at its end."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["ShoalRun", "running_shoal_run", "totals"]

_START_S = 30.0
_NODES = 8  # brokers that have a port
_CONFIG = """\
[[cluster]]
name = "target"
bootstrap = "{bootstrap}"
{cluster}
[log]
format = "json"

[[listener]]
name = "clients"
cluster = "target"
listen = "{host}:{port}"
ports = "{first}-{last}"
{listener}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShoalRun:
    process: Process
    address: tuple[str, int]

    @property
    def bootstrap(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    async def stop(self) -> dict[str, Any]:
        """SIGTERM, which drains it; returns its listener's totals. Raises NotReady if it does not end cleanly."""
        ended = await self.process.stop()
        if not ended or self.process.exit_code or "Traceback" in self.process.output():
            raise NotReady(f"shoal run did not end cleanly\n{self.process.tail()}")
        return totals(self.process.output())


def totals(log: str) -> dict[str, Any]:
    """The sum, by name, of each listener's last line of totals in a JSON log."""
    found: dict[str, dict[str, Any]] = {}
    for line in log.splitlines():
        if '"total"' in line and line.startswith("{"):
            values = json.loads(line)
            found[values.get("listener", "")] = values
    added: dict[str, Any] = {}
    for values in found.values():
        for name, value in values.items():
            added[name] = added.get(name, 0) + value if isinstance(value, int) else value
    return added


@asynccontextmanager
async def running_shoal_run(
    work: Path,
    bootstrap: str,
    *,
    listener: str = "",
    cluster: str = "",
    capture: Path | None = None,
    raw: bool = False,
) -> AsyncIterator[ShoalRun]:
    """Start `shoal run` with one listener.

    `listener` and `cluster`: more lines of their tables. `capture`: the directory of the index; with `raw`, also of
    whole frames. Raises NotReady with the end of its log.
    """
    address = (LOOPBACK, free_port_block(_NODES + 1))
    config = _write(work / "shoal.toml", _config(address, bootstrap, listener, cluster) + _capture(capture, raw))
    argv = [sys.executable, "-m", "shoal", "run", "-c", str(config)]
    process = Process(argv, log=work / "shoal.log", name="shoal run")
    try:
        await until(lambda: _accepts(address), within=_START_S, what="shoal run to listen", process=process)
        yield ShoalRun(process=process, address=address)
    finally:
        if process.running:
            await process.stop()


def _config(address: tuple[str, int], bootstrap: str, listener: str, cluster: str) -> str:
    host, port = address
    return _CONFIG.format(
        bootstrap=bootstrap,
        cluster=cluster,
        host=host,
        port=port,
        first=port + 1,
        last=port + _NODES,
        listener=listener,
    )


def _capture(directory: Path | None, raw: bool) -> str:
    if directory is None:
        return ""
    directory.mkdir(parents=True, exist_ok=True)
    return f'[capture]\ndirectory = "{directory}"\n' + ("[capture.raw]\n" if raw else "")


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _accepts(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0
