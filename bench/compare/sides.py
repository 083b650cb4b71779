"""The two Shoals: a process per mode of each, with the configuration of this tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.coalesce.__main__ import COALESCING, LINGER_MS
from bench.overhead.workloads import JOINS, UNWRAP, WRAP
from bench.proxies.names import SHOAL
from bench.proxies.peer import running_shoal
from shoal.scenarios.kafka.errors import HarnessError, SetupError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AsyncExitStack
    from pathlib import Path

    from bench.compare.commit import Tree
    from bench.load import Address
    from bench.proxies.peer import Peer

__all__ = ["Side", "start_side"]

_PLAIN = "plain"
_COALESCE = "coalesce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """`left_out`: modes that do not start, and why."""

    name: str
    peers: dict[str, Peer]
    left_out: Mapping[str, str]


async def start_side(
    name: str,
    tree: Tree,
    stack: AsyncExitStack,
    work: Path,
    broker: Address,
    parts: Collection[str],
    *,
    index: bool = False,
) -> Side:
    """Only with the modes that the parts need; `index`: each writes a traffic index.

    Raises SetupError if this Shoal does not start at all.
    """
    peers: dict[str, Peer] = {}
    left_out: dict[str, str] = {}
    for way, mode in _modes(parts).items():
        joins = mode == _COALESCE
        more = COALESCING.format(linger=LINGER_MS / 1000) if joins else ""
        try:
            shoal = running_shoal(
                _PLAIN if joins else mode, work / name / mode, broker, more, index=index, program=tree.program
            )
            peers[way] = await stack.enter_async_context(shoal)
        except HarnessError as error:
            first, *log = str(error).splitlines()
            reason = f"{first}: {log[-1]}" if log else first
            left_out[mode] = f"{tree.name} does not start with the configuration of this tree: {reason}"
    if SHOAL not in peers:
        raise SetupError(left_out[_PLAIN])
    return Side(name=name, peers=peers, left_out=left_out)


def _modes(parts: Collection[str]) -> Mapping[str, str]:
    """By way. Envelopes are made by a Shoal, too."""
    modes = {SHOAL: _PLAIN}
    if "coalesce" in parts:
        modes[JOINS] = _COALESCE
    if "wrap" in parts or "unwrap" in parts:
        modes[WRAP] = "wrap"
    if "unwrap" in parts:
        modes[UNWRAP] = "unwrap"
    return modes
