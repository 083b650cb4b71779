"""A source log of any shape, and a fetch from it, as a broker answers it under read_committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from shoal.protocol.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
_TIME = 1_700_000_000_000


@dataclass
class SourceLog:
    """`committed`: offset -> (timestamp, key, value) of what a read_committed consumer gets."""

    start: int
    end: int = 0
    value: bytes = b"v"
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # base, last, bytes
    committed: dict[int, tuple[int, bytes, bytes]] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first offset, marker's offset
    left_out: list[int] = field(default_factory=list)  # base offsets of aborted batches

    def __post_init__(self) -> None:
        self.end = self.start

    def append(self, deltas: tuple[int, ...], last: int, *, producer_id: int, keep: bool, times: bool) -> None:
        attributes = (TRANSACTIONAL if producer_id >= 0 else 0) | (LOG_APPEND_TIME if times else 0)
        records = [
            NewRecord(
                _TIME + self.end + delta, b"k%d" % (self.end + delta), b"%b%d" % (self.value, self.end), (), delta
            )
            for delta in deltas
        ]
        made = encode_batch(
            records,
            base_offset=self.end,
            codec=Codec.GZIP if len(deltas) > 2 else Codec.NONE,
            attributes=attributes,
            leader_epoch=3,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            last_offset_delta=last,
        )
        if keep:
            for record, delta in zip(records, deltas, strict=True):
                newest = _TIME + self.end + deltas[-1]
                self.committed[self.end + delta] = (
                    newest if times else record.timestamp,
                    b"k%d" % (self.end + delta),
                    b"%b%d" % (self.value, self.end),
                )
        else:
            self.left_out.append(self.end)
        self._add(made, last)

    def mark(self, producer_id: int, kind: bytes, first: int) -> None:
        if kind == ABORT:
            self.aborted.append((producer_id, first, self.end))
        made = encode_batch(
            [NewRecord(_TIME, kind, b"\0" * 6)],
            base_offset=self.end,
            attributes=CONTROL | TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self._add(made, 0)

    def skip(self, offsets: int) -> None:
        """As after a compaction that removed whole batches."""
        self.end += offsets

    def delete_all(self) -> None:
        self.batches.clear()
        self.start = self.end

    def _add(self, made: bytes, last: int) -> None:
        self.batches.append((self.end, self.end + last, made))
        self.end += last + 1

    def fetch(self, offset: int, most: int) -> tuple[bytes, list[tuple[int, int]]] | None:
        """At most that many batches, and the aborted transactions among them; None: out of range."""
        if not self.start <= offset <= self.end:
            return None
        found = [batch for batch in self.batches if batch[1] >= offset][:most]
        if not found:
            return b"", []
        aborted = [
            (producer_id, first)
            for producer_id, first, marker in self.aborted
            if first <= found[-1][1] and marker >= found[0][0]
        ]
        return b"".join(made for _, _, made in found), aborted


@st.composite
def source_logs(draw: st.DrawFn) -> SourceLog:
    log = SourceLog(draw(st.sampled_from((0, 0, 100, 5_000_000_000))))
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(("plain", "plain", "holed", "times", "commit", "abort", "skip")))
        count = draw(st.integers(1, 4))
        deltas, last = tuple(range(count)), count - 1
        if kind == "holed":
            deltas, last = tuple(2 * delta for delta in deltas), 2 * count
        if kind == "skip":
            log.skip(draw(st.sampled_from((1, 7))))
        elif kind in ("commit", "abort"):
            first, producer_id = log.end, draw(st.integers(1, 2))
            for _ in range(draw(st.integers(1, 2))):
                log.append(deltas, last, producer_id=producer_id, keep=kind == "commit", times=False)
            log.mark(producer_id, COMMIT if kind == "commit" else ABORT, first)
        else:
            log.append(deltas, last, producer_id=-1, keep=True, times=kind == "times")
    log.append((0,), 0, producer_id=-1, keep=True, times=False)  # a cleaner leaves the newest segment alone
    return log
