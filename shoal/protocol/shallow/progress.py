"""Produce side: one partition's plan, sent batch by batch, and its answers folded into one.

The mirror sent k outer records and takes `base_offset + i` for the offset of record i. It writes offset syncs from that, and
consumer groups are moved by them, so an answer that is too high skips data. Let u_i be the target offset of the last record
that outer record i stands for. `base_offset + i <= u_i` for every i is what keeps any group from skipping a record, and
u_i - i never decreases, so the largest safe answer is u_0: the last record of the first envelope, or the first record of a
plain row. With one envelope per outer batch it is exact.

Each success is remembered before the next batch goes out. The first error ends the partition and is what the mirror is told,
except where the broker finds a batch too large: that one is split, deep, and its pieces go on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.shallow.delivery import Delivered, Deliveries, Target
from shoal.protocol.shallow.unwrap import CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, Item, Plan, SubBatch

__all__ = ["Outcome", "PartitionProgress", "Rounds"]

# org.apache.kafka.common.protocol.Errors
RECORD_LIST_TOO_LARGE = 18
_TOO_LARGE = frozenset({MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer for the mirror: an error code with its story for the log, or 0 and the base offset (-1: not known)."""

    error_code: int
    base_offset: int = -1
    message: str | None = None


class PartitionProgress:
    """`next_batch`, send it alone in its partition, `answered`; until `outcome` is there."""

    def __init__(self, target: Target, plan: Plan, deliveries: Deliveries) -> None:
        self.target = target
        self.outcome: Outcome | None = None
        self._plan = plan
        self._deliveries = deliveries
        self._index = 0
        self._delivered = deliveries.recall(target, plan.items[0].identity)
        self._base_offset = -1
        self._pieces: list[SubBatch] = []
        self._advance()

    def next_batch(self) -> SubBatch | None:
        """The batch to send, the same one until it is answered; None once there is an outcome."""
        return None if self.outcome else self._pieces[0]

    def answered(self, error_code: int, base_offset: int) -> None:
        """The broker's partition response to the last `next_batch` (base_offset -1 where it states none, as with acks=0)."""
        piece = self._pieces[0]
        if error_code in _TOO_LARGE:
            self._divide(piece, error_code)
        elif error_code:
            self._fail(error_code, f"the target broker refused {piece}")
        else:
            self._appended(self._pieces.pop(0), base_offset)
            self._advance()

    @property
    def _item(self) -> Item:
        return self._plan.items[self._index]

    def _appended(self, piece: SubBatch, base_offset: int) -> None:
        before = self._delivered
        started = before.batches or before.records
        records = before.records + piece.records
        whole = records == self._item.batches[before.batches].records
        self._delivered = Delivered(
            batches=before.batches + whole,
            records=0 if whole else records,
            first=before.first if started else base_offset,
            last=base_offset + piece.records - 1 if base_offset >= 0 else -1,
        )
        self._deliveries.record(self.target, self._item.identity, self._delivered)

    def _advance(self) -> None:
        """Go to what is not appended yet, over whatever is."""
        while not self._pieces and self.outcome is None:
            if self._delivered.batches < len(self._item.batches):
                self._take(self._item.batches[self._delivered.batches], self._delivered.records)
            else:
                self._finish_item()

    def _take(self, batch: SubBatch, appended: int) -> None:
        try:
            self._pieces = _remaining(batch, appended)
        except RemoteProtocolError as error:
            self._fail(CORRUPT_MESSAGE, f"{batch} cannot be split: {error}")

    def _finish_item(self) -> None:
        if self._index == 0:
            self._base_offset = self._delivered.last if self._item.key else self._delivered.first
        self._index += 1
        if self._index < len(self._plan.items):
            self._delivered = self._deliveries.recall(self.target, self._item.identity)
        else:
            self.outcome = Outcome(error_code=0, base_offset=self._base_offset)

    def _divide(self, piece: SubBatch, error_code: int) -> None:
        try:
            smaller = _halves(piece)
        except RemoteProtocolError as error:
            return self._fail(CORRUPT_MESSAGE, f"{piece} cannot be split: {error}")
        if len(smaller) > 1:
            self._pieces[:1] = smaller
            return None
        # A Java producer splits a batch of several records that is too large. The plain ones among them would have another
        # outer batch then, and so be appended twice; nothing would be gained, since a single record is what is too large.
        code = MESSAGE_TOO_LARGE if self._plan.outer_records == 1 else RECORD_LIST_TOO_LARGE
        return self._fail(code, f"the target broker answered {error_code}: a single record is too large: {piece}")

    def _fail(self, error_code: int, message: str) -> None:
        self.outcome = Outcome(error_code=error_code, message=message)


def _halves(batch: SubBatch) -> list[SubBatch]:
    """Pieces of at most half the bytes, or the batch alone where it is one record. The same batch always gives the same ones:
    that is how a retry finds the place up to which it is appended."""
    if batch.records == 1:
        return [batch]
    whole = b"".join(batch.buffers)
    return [
        SubBatch((piece,), int.from_bytes(piece[57:61], "big"), batch.codec, f"a part of {batch.source}")
        for piece in split_batch(whole, 0, len(whole), limit=len(whole) // 2)
    ]


def _remaining(batch: SubBatch, appended: int) -> list[SubBatch]:
    """What is left of the batch when its first `appended` records are there already."""
    if not appended:
        return [batch]
    rest: list[SubBatch] = []
    for piece in _halves(batch):
        skipped = min(appended, piece.records)
        appended -= skipped
        if skipped < piece.records:
            rest += _remaining(piece, skipped)
    return rest


class Rounds:
    """All partitions of one produce request: each round sends the next batch of every partition that is not done."""

    def __init__(self, partitions: Iterable[PartitionProgress]) -> None:
        self._partitions = {progress.target: progress for progress in partitions}

    def next_round(self) -> dict[Target, SubBatch]:
        """At most one batch per partition; empty = all is done. Answer each before the next round."""
        batches = {target: progress.next_batch() for target, progress in self._partitions.items()}
        return {target: batch for target, batch in batches.items() if batch is not None}

    def answered(self, target: Target, error_code: int, base_offset: int) -> None:
        self._partitions[target].answered(error_code, base_offset)

    def outcomes(self) -> Mapping[Target, Outcome]:
        """Of the partitions that are done."""
        return {target: done.outcome for target, done in self._partitions.items() if done.outcome}
