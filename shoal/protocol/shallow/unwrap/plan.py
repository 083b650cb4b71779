"""The plan for one partition of a ProduceRequest that has envelopes: what is sent to the target instead of it.

A list of items in the order of the outer records. An envelope becomes its batches, each with a producible header;
consecutive plain records become one re-encoded batch. A stock broker accepts one batch per partition and request, so
the items are sent batch by batch (progress.py), strictly in order.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from shoal.protocol.records.batch import BatchHeader
from shoal.protocol.records.rebatch import compress_plain
from shoal.protocol.records.record import Headers, Record
from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.locator import LocatorRecord
from shoal.protocol.shallow.unwrap.inner_batches import MirroredBatch
from shoal.protocol.shallow.unwrap.sequences.mirror import OuterStamp, outer_stamp
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer

__all__ = ["Item", "Missing", "OutgoingBatch", "Plan", "Refused", "ReturnedToken", "Stripped", "plain_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An envelope (`key`), or consecutive plain records (`key` is None).

    `identity` is equal only in a retry of the same bytes. `headers`: those of the envelope's record (facts.py). An
    envelope for a mirror topic has its batches in `mirrored`.
    """

    identity: Hashable
    key: EnvelopeKey | None
    batches: BatchSlice
    headers: Headers = ()
    mirrored: tuple[MirroredBatch, ...] = ()


class ReturnedToken(NamedTuple):
    """A token that came back, and the fingerprint of its record without it."""

    token: bytes
    timestamp: int
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripped:
    """No envelope, but tokens: `record_set` replaces the original. The same bytes always give the same result."""

    record_set: bytes
    tokens: tuple[ReturnedToken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`outer_records`: number of records for the mirror's producer.

    With a `stamp` the producer is idempotent, and its batches must be stamped before they are sent
    (mirror_producers.py).
    """

    items: tuple[Item, ...]
    outer_records: int
    stamp: OuterStamp | None = None
    tokens: tuple[ReturnedToken, ...] = ()
    locators: tuple[LocatorRecord, ...] = ()  # they are not produced
    left_out: int = 0  # locators that came to an ordinary topic: not produced either, and the others' places change
    opened: int = 0  # bytes that were decompressed, or of claim checks, which live as long as the plan

    @property
    def keeps_offsets(self) -> bool:
        """It is for a mirror topic: envelopes with covers, or locators, and nothing else."""
        return bool(self.locators) or any(key.cover is not None for key in self.envelopes)

    @property
    def identity(self) -> Hashable:
        """Equal only in a retry of the same outer batch."""
        return tuple(item.identity for item in self.items)

    @property
    def sender(self) -> Hashable:
        """The owner of the sequence: the source cluster.

        Not the connection or its client: a restarted mirror, on any host, is the same sender, and fences what it had in
        flight before. Nor the source topic: a mirror may merge several into one. Empty: no envelope says it.
        """
        return next((item.key.cluster for item in self.items if item.key), "")

    @property
    def several(self) -> bool:
        """True if it has more than one batch for the broker."""
        return len(self.items) > 1 or any(len(item.batches) > 1 or len(item.mirrored) > 1 for item in self.items)

    @property
    def envelopes(self) -> tuple[EnvelopeKey, ...]:
        return tuple(item.key for item in self.items if item.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The partition is answered with this error; nothing of it may be sent to the broker."""

    error_code: int
    message: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The batches of claim checks must be read from the source before there is a plan: those that `find` had not."""


def plain_plan(
    frame: Buffer, start: int, end: int, header: BatchHeader, plain_codec: Codec | None, identity: Hashable
) -> Plan:
    """For the record set `frame[start:end]`, one batch without an envelope. It is sent alone, and cut if need be.

    It is compressed with `plain_codec` if it is not compressed.
    """
    buffers = compress_plain(header, frame, start, end, plain_codec) if plain_codec is not None else None
    source = f"a batch at {header.max_timestamp} ms without envelopes"
    whole = tuple(buffers or (memoryview(frame)[start:end],))
    batch = OutgoingBatch(whole, header.record_count, plain_codec if buffers and plain_codec else header.codec, source)
    item = Item(identity=identity, key=None, batches=BatchSlice.of((batch,)))
    return Plan(items=(item,), outer_records=header.record_count, stamp=outer_stamp(header))
