"""The file with requests in doubt (protocol/shallow/unwrap/sequences/own.py), over an orderly stop.

If a broker does not answer within the drain timeout, or its connection was lost, its requests may or may not be
appended. The next Shoal gets the mirror's retry and sends the same batches with the same stamps, so the broker
recognises those that it has. A producer id from the file is used only in its partition, because its sequences in other
partitions are no longer known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.protocol.shallow.unwrap.sequences.own import InDoubt, Sequence, Shape, Stamp
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.files.deliveries import decode_identity, encode_identity
from shoal.proxy.shallow.files.kept_lines import KeptLines

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from pathlib import Path

__all__ = ["Doubt", "load_doubt", "save_doubt"]

_LOST = "what was in flight without an answer may be appended twice after a restart"


class Doubt(NamedTuple):
    """One sender's sequence in one partition. `cluster_id` None: unknown."""

    cluster_id: str | None
    partition: TopicPartition
    sender: Hashable
    sequence: Sequence


def save_doubt(path: Path, doubts: Iterable[Doubt], *, failed: Callable[[], None] = lambda: None) -> None:
    """Errors are logged, and reported to `failed`."""
    _file(path, failed).save(_encode(*doubt) for doubt in doubts)


def load_doubt(path: Path, *, failed: Callable[[], None] = lambda: None) -> list[Doubt]:
    """Load and remove the file. Errors are logged, and reported to `failed`."""
    return _file(path, failed).take(_decode)


def _file(path: Path, failed: Callable[[], None]) -> KeptLines:
    return KeptLines(path=path, first="shoal doubt 1", lost=_LOST, failed=failed)


def _encode(cluster_id: str | None, partition: TopicPartition, sender: Hashable, sequence: Sequence) -> list[object]:
    assert sequence.doubt is not None
    assert isinstance(sequence.doubt.plan, tuple)  # the identities of its items
    plan = [encode_identity(identity) for identity in sequence.doubt.plan]
    ours = [sequence.producer_id, sequence.epoch, sequence.next, sequence.end]
    return [cluster_id, *partition, sender, *ours, plan, sequence.doubt.shapes]


def _decode(row: Any) -> Doubt:
    """Raises ValueError, TypeError, RemoteProtocolError."""
    cluster_id, topic, partition, sender, *numbers, plan, shapes = row
    producer_id, epoch, following, end = map(int, numbers)
    doubt = InDoubt(
        plan=tuple(decode_identity(*identity) for identity in plan), shapes=tuple(_shape(*shape) for shape in shapes)
    )
    sequence = Sequence(producer_id=producer_id, epoch=epoch, next=following, end=end, doubt=doubt)
    return Doubt(cluster_id and str(cluster_id), TopicPartition(str(topic), int(partition)), str(sender), sequence)


def _shape(item: int, batch: int, first: int, records: list[int], stamp: list[int]) -> Shape:
    return Shape(int(item), int(batch), int(first), tuple(map(int, records)), Stamp(*map(int, stamp)))
