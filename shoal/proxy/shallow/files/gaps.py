"""The file of a wrap listener with the gaps of its mirrors, and the file by which an operator acknowledges them.

    NAME.gaps            written by Shoal: a first line, then a line of JSON for each gap, the oldest first
    NAME.acknowledged    written by `shoal gaps --acknowledge`, read and removed by Shoal: TOPIC-PARTITION by line

With `on-gap = "stop"` a gap stops its partition until it is acknowledged, also over a restart.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from shoal.protocol.shallow.monitor.gap import GapKind
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.state_files import NotOurs, write_lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["ALL", "MOST_GAPS", "SeenGap", "acknowledge", "read_gaps", "take_acknowledged", "write_gaps"]

MOST_GAPS = 1000
"""Gaps of a listener that are remembered, ~300 bytes each: the latest, and those that stop a partition."""

_FIRST = "shoal gaps 1"
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGap:
    """`at`: UTC, ISO 8601. Offsets from `from_offset` up to, but not including, `to_offset`."""

    at: str
    mirror: str
    topic: str
    partition: int
    kind: str  # of a GapKind, in lower case
    from_offset: int
    to_offset: int
    stops: bool  # until it is acknowledged

    @property
    def place(self) -> tuple[str, TopicPartition]:
        return self.mirror, TopicPartition(self.topic, self.partition)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def acknowledged(self) -> SeenGap:
        return replace(self, stops=False)


def read_gaps(path: Path) -> list[SeenGap]:
    """Raises NotOurs, OSError, and ValueError for a damaged file."""
    if not path.exists():
        return []
    first, *lines = path.read_text().splitlines() or [_FIRST]
    if first != _FIRST:
        raise NotOurs(path, "a file of gaps")
    try:
        return [_decode(json.loads(line)) for line in lines]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"a damaged line: {error}") from error


def write_gaps(path: Path, gaps: Iterable[SeenGap]) -> None:
    """Raises OSError."""
    write_lines(path, [_FIRST, *(json.dumps(asdict(gap)) for gap in gaps)])


def _decode(row: Any) -> SeenGap:
    gap = SeenGap(**row)
    if gap.kind.upper() not in GapKind.__members__ or not isinstance(gap.partition, int):
        raise ValueError(f"no gap: {row}")
    return gap


def acknowledge(path: Path, names: Iterable[str]) -> None:
    """`path` is that of the gaps. Raises OSError."""
    with _beside(path).open("a") as file:
        file.write("".join(f"{name}\n" for name in names))


def take_acknowledged(path: Path) -> frozenset[str]:
    """The names that were acknowledged since the last call. Raises OSError."""
    beside = _beside(path)
    taken = beside.with_name(f"{beside.name}.taken")
    with suppress(FileNotFoundError):
        os.rename(beside, taken)  # lines that are added later go into a new file
    try:
        return frozenset(line.strip() for line in taken.read_text(errors="replace").splitlines() if line.strip())
    except FileNotFoundError:
        return frozenset()
    finally:
        with suppress(OSError):
            taken.unlink()


def _beside(path: Path) -> Path:
    return path.with_suffix(".acknowledged")
