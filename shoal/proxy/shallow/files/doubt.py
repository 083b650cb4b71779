"""What an unwrap listener has in doubt (protocol/shallow/unwrap/sequence.py), over an orderly stop.

A broker that does not answer within the time to drain, or whose connection was lost before, leaves requests of which nobody knows whether
they are appended. The mirror's retry comes to the next Shoal, which sends them again with the stamps that they had: the broker knows
what of them it has. A producer id that is kept is of use for its own partition only: what the others have had of it is not known any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.protocol.shallow.unwrap.delivery import Target
from shoal.protocol.shallow.unwrap.sequence import InDoubt, Sequence, Shape, Stamp
from shoal.proxy.shallow.files.deliveries import decode_identity, encode_identity
from shoal.proxy.shallow.files.kept_lines import KeptLines

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from shoal.proxy.shallow.producer_ids import ProducerIds

__all__ = ["load_doubt", "save_doubt"]

_LOST = "what was in flight without an answer may be appended twice after a restart"


def save_doubt(path: Path, ids: ProducerIds, *, failed: Callable[[], None] = lambda: None) -> None:
    """Logs what goes wrong, and calls `failed`."""
    _file(path, failed).save(_encode(*kept) for kept in ids.in_doubt())


def load_doubt(path: Path, ids: ProducerIds, *, failed: Callable[[], None] = lambda: None) -> None:
    """And remove the file. Logs what goes wrong, and calls `failed`."""
    for kept in _file(path, failed).take(_decode):
        ids.restore(*kept)


def _file(path: Path, failed: Callable[[], None]) -> KeptLines:
    return KeptLines(path=path, first="shoal doubt 1", lost=_LOST, failed=failed)


def _encode(cluster_id: str | None, target: Target, sender: Hashable, sequence: Sequence) -> list[object]:
    assert sequence.doubt is not None
    assert isinstance(sequence.doubt.plan, tuple)  # the identities of its items
    plan = [encode_identity(identity) for identity in sequence.doubt.plan]
    ours = [sequence.producer_id, sequence.epoch, sequence.next, sequence.end]
    return [cluster_id, *target, sender, *ours, plan, sequence.doubt.shapes]


def _decode(row: Any) -> tuple[str | None, Target, Hashable, Sequence]:
    """Raises ValueError, TypeError, RemoteProtocolError."""
    cluster_id, topic, partition, sender, *numbers, plan, shapes = row
    producer_id, epoch, following, end = map(int, numbers)
    doubt = InDoubt(plan=tuple(decode_identity(*one) for one in plan), shapes=tuple(_shape(*one) for one in shapes))
    sequence = Sequence(producer_id=producer_id, epoch=epoch, next=following, end=end, doubt=doubt)
    return cluster_id and str(cluster_id), Target(str(topic), int(partition)), str(sender), sequence


def _shape(item: int, batch: int, first: int, records: list[int], stamp: list[int]) -> Shape:
    return Shape(int(item), int(batch), int(first), tuple(map(int, records)), Stamp(*map(int, stamp)))
