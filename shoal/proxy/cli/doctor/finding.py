"""The result of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.proxy.cli.doctor.destinations import ShoalListeners
    from shoal.proxy.cli.doctor.mirror import ReplicationFlow
    from shoal.proxy.cli.doctor.properties import Entry

__all__ = ["Case", "Finding", "Severity"]


class Severity(StrEnum):
    MUST = "must change"  # shallow mirroring would not work, or the mirror would change its behaviour
    SHOULD = "should change"  # it works, but one line would make it better
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`at`: the current line, or the missing key. `write`: lines to add or change; `remove`: lines to remove."""

    severity: Severity
    flow: str
    at: Entry | str
    why: str
    write: tuple[tuple[str, str], ...] = ()
    remove: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One flow of a mirror and the Shoal that it should use."""

    flow: ReplicationFlow
    flows: tuple[ReplicationFlow, ...]
    shoal: ShoalListeners

    def finding(self, severity: Severity, at: Entry | str, why: str, *write: tuple[str, str]) -> Finding:
        return Finding(severity=severity, flow=self.flow.name, at=at, why=why, write=write)
