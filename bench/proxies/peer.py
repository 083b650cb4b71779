"""A peer of the load client: the broker itself, or a proxy. Shoal with one plaintext listener of any mode."""

from __future__ import annotations

import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bench.load import Wire
from shoal.scenarios.kafka.ports import LOOPBACK, free_ports
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from ssl import SSLContext

    from bench.load import Address

__all__ = ["Peer", "listening", "running_shoal", "shoal_config", "write"]

START_TIMEOUT_S = 20.0
SHOAL_PROGRAM = (sys.executable, "-m", "shoal")

_SHOAL = """\
[[cluster]]
name = "bench"
bootstrap = "{broker_host}:{broker_port}"

[[listener]]
name = "bench"
cluster = "bench"
listen = "{host}:{port}"
ports = {{ 1 = {node_port} }}
mode = "{mode}"
"""

_UNPAIRED = """
[listener.shallow]
unpaired = true  # nothing mirrors here: what is wrapped is thrown away
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    address: Address
    process: Process | None = None  # None: the broker itself
    tls: SSLContext | None = None  # of the load client; None: plaintext
    broker_port: int | None = None

    @property
    def pid(self) -> int:
        """Raises ValueError for the broker itself."""
        if self.process is None:
            raise ValueError(f"{self.name} is no proxy")
        return self.process.pid

    @property
    def at_broker(self) -> Peer:
        """The same for clients that have metadata: others are not joined."""
        if self.broker_port is None:
            raise ValueError(f"{self.name} has one port")
        return replace(self, address=(self.address[0], self.broker_port))

    def connect(self) -> Wire:
        return Wire(self.address, self.tls)


def shoal_config(mode: str, address: Address, node_port: int, broker: Address) -> str:
    host, port = address
    listener = _SHOAL.format(
        host=host, port=port, node_port=node_port, mode=mode, broker_host=broker[0], broker_port=broker[1]
    )
    return listener + (_UNPAIRED if mode == "wrap" else "")


@asynccontextmanager
async def running_shoal(
    mode: str,
    work: Path,
    broker: Address,
    more: str = "",
    *,
    index: bool = False,
    program: Sequence[str] = SHOAL_PROGRAM,
) -> AsyncIterator[Peer]:
    """`more`: further lines of the listener's configuration. `index`: it writes a traffic index."""
    if index:
        directory = work / f"index-{mode}"
        directory.mkdir(parents=True)
        more += f'\n[capture]\ndirectory = "{directory}"\n'
        work = work / "indexed"
    port, node_port = free_ports(2)
    address = (LOOPBACK, port)
    config = write(work / f"shoal-{mode}.toml", shoal_config(mode, address, node_port, broker) + more)
    argv = [*program, "run", "-c", str(config)]
    async with listening(Process(argv, log=work / f"shoal-{mode}.log", name=f"shoal {mode}"), address) as process:
        yield Peer(name=f"Shoal {mode}", address=address, process=process, broker_port=node_port)


def write(path: Path, text: str) -> Path:
    """-> path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@asynccontextmanager
async def listening(process: Process, *addresses: Address) -> AsyncIterator[Process]:
    """Raises NotReady with the end of its log if it does not listen on each address."""
    try:
        for address in addresses:
            what = f"{process.name} to listen on {address[0]}:{address[1]}"
            await until(partial(_accepts, address), within=START_TIMEOUT_S, what=what, process=process)
        yield process
    finally:
        await process.stop()


def _accepts(address: Address) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0
