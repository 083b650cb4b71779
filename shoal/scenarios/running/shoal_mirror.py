"""`shoal mirror` as an operator starts it, and the addresses that it prints for the properties of MirrorMaker 2."""

from __future__ import annotations

import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

__all__ = ["Shoal", "read_wiring", "running_shoal"]

START_TIMEOUT_S = 30.0
_NODES = 8  # brokers of a cluster that have a port
_LAST_LINE = "producer.batch.size"  # of the settings, which it prints once its ports are open
_WIRING = re.compile(r"^\w+\.(consumer|producer)\.bootstrap\.servers *= *(\S+)$", re.MULTILINE)


class Shoal(NamedTuple):
    process: Process
    consumer: str
    """Bootstrap servers for the mirror's consumer."""
    producer: str


def read_wiring(printed: str) -> dict[str, str]:
    """ "consumer" and "producer" -> bootstrap servers, from the lines for mm2.properties."""
    return dict(_WIRING.findall(printed))


@asynccontextmanager
async def running_shoal(work: Path, source: str, target: str, options: Sequence[str] = ()) -> AsyncIterator[Shoal]:
    """`options`: further ones of `shoal mirror`. Raises NotReady with the end of its log if it does not start. Ended
    with SIGTERM, which drains it."""
    source_at, target_at = free_port_block(1 + _NODES), free_port_block(1 + _NODES)
    argv = [
        *(sys.executable, "-m", "shoal", "mirror", "--source", source, "--target", target),
        *("--source-listen", f"{LOOPBACK}:{source_at}", "--source-ports", f"{source_at + 1}-{source_at + _NODES}"),
        *("--target-listen", f"{LOOPBACK}:{target_at}", "--target-ports", f"{target_at + 1}-{target_at + _NODES}"),
        *("--state-dir", str(work / "state"), "--form", "dedicated", *options),
    ]
    process = Process(argv, log=work / "shoal.log", name="shoal mirror")
    try:
        await process.until_printed(_LAST_LINE, within=START_TIMEOUT_S)
        wiring = read_wiring(process.output())
        if wiring.keys() != {"consumer", "producer"}:
            raise NotReady(f"shoal mirror printed no addresses for the mirror\n{process.tail()}")
        yield Shoal(process, wiring["consumer"], wiring["producer"])
    finally:
        if process.running:
            await process.stop()
