"""Record sets of a source, and a mirror's view of them in an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key
from tests.support.shallow.batches import BATCHES
from tests.support.shallow.brokers import ORDERS, Place
from tests.support.shallow.world import poll, some_batch

if TYPE_CHECKING:
    from tests.support.shallow.rig import ShallowRig

__all__ = ["LEADER", "LOG", "MORE", "P0", "P1", "keys", "raw", "spans"]

NEXT = [some_batch(115, 3), some_batch(118, 2)]
LOG = b"".join(BATCHES)
MORE = b"".join(NEXT)
P0: Place = ORDERS, 0
P1: Place = ORDERS, 1
LEADER = 7, "broker-7.example", 9092


def keys(record_set: bytes) -> list[EnvelopeKey | None]:
    """For each record that a mirror would get: the envelope's key, None = a plain record."""
    found = []
    for seen in poll(record_set):
        key = seen.record.key
        found.append(decode_key(key) if key is not None else None)
    return found


def spans(record_set: bytes) -> list[tuple[int, int] | None]:
    """The offsets in each envelope."""
    return [(key.first_offset, key.last_offset) if key else None for key in keys(record_set)]


def raw(r: ShallowRig) -> dict[str, int]:
    return {str(reason): count for reason, count in r.wrap.tally.raw_batches.items()}
