"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.proxy.doctor.mirror import Flow
    from shoal.proxy.doctor.places import Shoal
    from shoal.proxy.doctor.properties import Entry

__all__ = ["Case", "Finding", "Severity"]


class Severity(StrEnum):
    MUST = "must change"  # shallow mirroring does not work, or the mirror would not do what it does today
    SHOULD = "should change"  # it works, at a cost that one line avoids
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`at`: the line as it stands, or the key that is missing. `write`: the lines to have; `remove`: the lines to drop."""

    severity: Severity
    flow: str
    at: Entry | str
    why: str
    write: tuple[tuple[str, str], ...] = ()
    remove: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One flow of a mirror, to be checked against one Shoal."""

    flow: Flow
    flows: tuple[Flow, ...]
    shoal: Shoal

    def finding(self, severity: Severity, at: Entry | str, why: str, *write: tuple[str, str]) -> Finding:
        return Finding(severity=severity, flow=self.flow.name, at=at, why=why, write=write)
