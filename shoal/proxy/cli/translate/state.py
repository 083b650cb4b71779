"""What the state directory knows: the appended ranges of each unwrapping listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.protocol.shallow.translate.question import Known
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.state_files import NotOurs
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.shallow.files.offsets import read_offsets

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.protocol.shallow.translate.offset_map import SourcePartition

__all__ = ["Pair", "load_pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A source partition and a target partition that has its records, at one unwrapping listener."""

    listener: str
    target_cluster: str | None  # its id, if it was known
    source: SourcePartition
    target: TopicPartition
    known: Known

    @property
    def source_partition(self) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition)


def load_pairs(directory: Path) -> list[Pair]:
    """Raises OperatorError."""
    if not directory.is_dir():
        what = f"{directory} is no directory: give that of the Shoal that runs the mirror"
        raise OperatorError.of("--state-dir", what)
    files = sorted(directory.glob("*.offsets"))
    if not files:
        what = f"{directory} has no file NAME.offsets: give the directory of the Shoal with the unwrapping listener"
        raise OperatorError.of("--state-dir", what)
    return [pair for path in files for pair in _load(path)]


def _load(path: Path) -> list[Pair]:
    try:
        state = read_offsets(path)
    except (NotOurs, OSError, ValueError) as error:
        raise OperatorError.of(str(path), f"cannot be read: {error}") from None
    pairs, known = list[Pair](), state.known
    for target, source in known.pairs():
        ranges = [appended for appended in known.ranges(target) if appended.source == source]
        pair = Pair(listener=path.stem, target_cluster=state.cluster, source=source, target=target, known=Known(ranges))
        pairs.append(pair)
    return pairs
