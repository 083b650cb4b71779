"""Are the replicas of a partition equal, byte by byte? Files of brokers that have been stopped.

A broker that becomes leader notes the start of its epoch at once, the others with the epoch's first batch. A clean stop
moves leaders, so the last epochs of a checkpoint may have no batch yet: these are left out.
"""

from __future__ import annotations

from filecmp import cmp
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Replicas", "compare_replicas", "epochs_with_batches", "log_end"]

_EPOCHS = "leader-epoch-checkpoint"
_HEADER = Struct(
    ">"
    "q"  # baseOffset
    "i"  # batchLength
    "11x"  # partitionLeaderEpoch, magic, crc, attributes
    "i"  # lastOffsetDelta
)
_UNCOUNTED = 12  # baseOffset and batchLength


class Replicas(NamedTuple):
    files: int
    """Segments, of all replicas."""
    differences: tuple[str, ...]


def compare_replicas(replicas: Sequence[Path]) -> Replicas:
    """Directories of one partition, of one broker each."""
    first, *others = replicas
    return Replicas(
        sum(len(_segments(replica)) for replica in replicas),
        tuple(difference for other in others for difference in _differences(first, other)),
    )


def _differences(first: Path, other: Path) -> list[str]:
    ours, theirs = _segments(first), _segments(other)
    if ours != theirs:
        return [f"segments {', '.join(ours)} in {first}, {', '.join(theirs)} in {other}"]
    unequal = [name for name in ours if not cmp(first / name, other / name, shallow=False)]
    found = [f"{name} differs in {first} and {other}" for name in unequal]
    if _epochs(first) != _epochs(other):
        found.append(f"{_EPOCHS} differs in {first} and {other}: {_epochs(first)} and {_epochs(other)}")
    return found


def _segments(replica: Path) -> list[str]:
    return sorted(path.name for path in replica.glob("*.log"))


def _epochs(replica: Path) -> list[tuple[int, int]]:
    checkpoint = replica / _EPOCHS
    return epochs_with_batches(checkpoint.read_text() if checkpoint.is_file() else "", log_end(replica))


def epochs_with_batches(checkpoint: str, end: int) -> list[tuple[int, int]]:
    """(epoch, start offset) of the text of a checkpoint, which begins with a version and a count."""
    rows = (line.split() for line in checkpoint.splitlines()[2:])
    return [(int(epoch), int(start)) for epoch, start in rows if int(start) < end]


def log_end(replica: Path) -> int:
    """The offset behind the last batch; an empty segment ends where it begins."""
    segments = _segments(replica)
    if not segments:
        return 0
    data = (replica / segments[-1]).read_bytes()
    end, at = int((replica / segments[-1]).stem), 0
    while at + _HEADER.size <= len(data):
        base, length, last = _HEADER.unpack_from(data, at)
        if length <= 0:  # a preallocated end
            break
        end, at = base + last + 1, at + _UNCOUNTED + length
    return end
