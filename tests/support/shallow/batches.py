"""Record sets of a mirror's producer for the unwrap listener, and the expected result at the target."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord
from tests.support.shallow.world import Seen, context, flat, plain, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

__all__ = [
    "BATCHES",
    "EARLIER",
    "LATER",
    "NONE",
    "NOT_LEADER",
    "OTHERS",
    "envelope",
    "of",
    "outer",
    "records",
]

NONE = ErrorCode.none
NOT_LEADER = ErrorCode.not_leader_or_follower
BATCHES = [some_batch(100, 4), some_batch(104, 6), some_batch(110, 5)]
OTHERS = [some_batch(7, 2), some_batch(9, 3)]
EARLIER = NewRecord(70, b"earlier", b"plain record", ((b"h", None),))
LATER = NewRecord(90, None, b"plain record")


def envelope(*batches: bytes) -> list[Seen]:
    """One record for the mirror's producer."""
    source = b"".join(batches)
    parts = wrap_record_set(source, 0, len(source), context()).parts
    assert parts is not None
    (record,) = poll(flat(parts))
    return [record]


def outer(*batches: bytes) -> bytes:
    return produced(envelope(*batches))


def records(*batches: bytes) -> list[NewRecord]:
    return plain([seen.record for seen in poll(b"".join(batches))])


def of(*batches: bytes) -> list[bytes]:
    return [batch[61:] for batch in batches]
