"""A scenario: its set-up, its traffic, its faults, and what must be true afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shoal.scenarios.replay.facts import Fact
    from shoal.scenarios.replay.stage import Stage

__all__ = ["Case", "Fault", "Given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Set-up of a case.

    `topics` (name -> partitions) are created for each run, under unique names. With a mirror, they are in a source
    cluster, and the traffic's brokers are its target.
    """

    topics: Mapping[str, int]
    listener: str = ""  # lines of the listener's table in shoal.toml
    capture: bool = False  # Shoal writes its index to the directory `capture` of the run
    mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    at: float  # scenario seconds
    what: str
    inject: Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    what: str
    given: Given
    traffic: Callable[[Stage], Awaitable[None]]
    facts: tuple[Fact, ...]
    faults: tuple[Fault, ...] = field(default=())
    own_brokers: str = ""  # why it cannot run on brokers that others use; empty: it can
