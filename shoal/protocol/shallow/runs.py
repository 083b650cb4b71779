"""Fetch side: which rows of batches may travel in an envelope together, and why the rest stays raw.

A run is a maximal row of consecutive eligible batches. Offset gaps between its batches are fine, since retention and
compaction remove whole batches too, and each batch is dense in itself.

Where the consumer reads committed data, it drops the batches of aborted transactions itself, by producer id and
transactional bit (CompletedFetch.java). So there a transactional run is of one producer id and epoch, keeps both and the
bit in its header, and has no gap: a gap may be a transaction marker that compaction removed, and the consumer would judge the
data before it by the fate of the transaction after it. For a consumer that reads uncommitted data these are erased.

Batches may be tiny, so this is counted in microseconds per batch: one look at each header, in one loop, and nothing made for a batch
but the tuple of its fields. `is_plain` answers for nearly all of them; only a batch that it does not know goes through the rules.
Payloads are looked at when it is clear that the partition is worth it. A batch that turns out to be damaged is rare, and the rows
are then made once more without it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from shoal.protocol.crc import Buffer
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.records.batch import TRANSACTIONAL, BatchHeader, body_crc, read_fields
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.records.recordset import LOG_OVERHEAD, entries
from shoal.protocol.shallow.eligible import DELIVERS_NOTHING, Measure, Reason, is_plain, raw_reason
from shoal.protocol.shallow.envelope import Header

__all__ = ["Found", "Row", "WrapContext", "find_rows"]

# The key but for its two names (85), eight headers with names of up to 22 bytes and up to 25 bytes each, varints, and the
# header of the synthetic batch (61).
_OVERHEAD = 61 + 640
_MAX_OFFSET = (1 << 63) - 2  # so that the next one is an int64, too

_Fields: TypeAlias = tuple[int, ...]  # those of a BatchHeader, by its order
# A batch: where it starts and ends, its header (None below magic 2), its last offset, and why it stays raw.
_Judged: TypeAlias = tuple[int, int, _Fields | None, int, Reason | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrapContext:
    """One partition of one response. `serials` gives a new envelope serial at each call; sizes are bytes."""

    cluster: str
    topic: str
    partition: int
    fetch_offset: int
    flow: int
    serials: Callable[[], int]
    read_committed: bool = False
    first_raw: bool = False  # the first response after a start or seek: mirrors need an offset sync at its first batch
    run_limit: int = 512 * 1024
    min_batch_bytes: int = 4096
    partitions: int | None = None  # number of partitions, for a mirror that chooses the partition by key hash
    tags: tuple[Header, ...] = ()  # headers that all envelopes have: application tags, provenance
    sampler: KeySampler | None = None  # which batches are looked into for keys; None: none

    @property
    def payload_limit(self) -> int:
        """Bytes of batches in one envelope, so that the synthetic batch stays within `run_limit`."""
        tags = sum(len(name) + len(value) + 4 for name, value in self.tags)
        names = len(self.cluster.encode()) + len(self.topic.encode())
        return self.run_limit - _OVERHEAD - names - tags


@dataclass(slots=True, eq=False)
class Row:
    """Adjacent batches: a run, or batches that stay raw. Of a run, the start and the header of each are known."""

    start: int
    end: int
    is_run: bool
    starts: list[int] = field(default_factory=list)
    headers: list[_Fields] = field(default_factory=list)


class Found(NamedTuple):
    """`next_offset`: -1 where there are no batches; `raw_next`: after the last record that stays raw (None: none does)."""

    rows: Sequence[Row]
    raw: Counter[Reason]
    next_offset: int
    raw_next: int | None


def find_rows(frame: Buffer, start: int, end: int, context: WrapContext) -> Found:
    """The rows of the record set `frame[start:end]`, in order. RemoteProtocolError where it cannot be read."""
    found = _found(_judged(frame, start, end, context, ()), context)
    runs = [row for row in found.rows if row.is_run]
    batches = sum(len(row.starts) for row in runs)
    if sum(row.end - row.start for row in runs) < context.min_batch_bytes * batches:
        return _all_raw(found, batches)
    damaged = [at for row in runs for at in _damaged(frame, row)]
    return _found(_judged(frame, start, end, context, frozenset(damaged)), context) if damaged else found


def _judged(frame: Buffer, start: int, end: int, context: WrapContext, damaged: Collection[int]) -> Iterator[_Judged]:
    """Headers only. A log's offsets ascend; a run takes its first and last offset from that."""
    measure = Measure(context.fetch_offset, context.payload_limit)
    position, is_first = -1, context.first_raw
    for at, stop, magic, base in entries(frame, start, end):
        if magic == 2:
            header: _Fields | None = (fields := read_fields(frame, at))
            last, reason = base + fields[6], None if is_plain(fields, measure) else _judge(fields, measure)
        else:
            header, last, reason = None, base, Reason.OLD_MAGIC
        if base <= position or last > _MAX_OFFSET:
            raise RemoteProtocolError(f"offsets {base}..{last} after {position}")
        position = last
        if at in damaged:
            reason = Reason.BAD_CRC
        if is_first and reason not in DELIVERS_NOTHING:
            is_first, reason = False, reason or Reason.FIRST
        yield at, stop, header, last, reason


def _judge(fields: _Fields, measure: Measure) -> Reason | None:
    header = BatchHeader._make(fields)
    header.require_positive()
    return raw_reason(header, measure)


def _found(judged: Iterator[_Judged], context: WrapContext) -> Found:
    """Cut where raw and wrapped meet, and runs where they may not go on."""
    limit, committed = context.payload_limit, context.read_committed
    rows, raw, last, raw_next = list[Row](), Counter[Reason](), -2, None
    row = Row(0, 0, is_run=False)
    for at, stop, header, last, reason in judged:
        if reason is not None or header is None:
            raw[reason or Reason.OLD_MAGIC] += 1
            raw_next = raw_next if reason in DELIVERS_NOTHING else last + 1
            if row.is_run or not rows:
                rows.append(row := Row(at, stop, is_run=False))
        else:
            if not row.is_run or stop - row.start > limit or (committed and not _may_follow(row.headers[-1], header)):
                rows.append(row := Row(at, stop, is_run=True))
            row.starts.append(at)
            row.headers.append(header)
        row.end = stop
    return Found(rows, raw, last + 1, raw_next)


def _may_follow(one: _Fields, two: _Fields) -> bool:
    """For a reader of committed data: nothing of which it could judge the one by the fate of the other."""
    if not (one[5] | two[5]) & TRANSACTIONAL:
        return True
    same_producer = one[9:11] == two[9:11] and not (one[5] ^ two[5]) & TRANSACTIONAL
    return same_producer and two[0] == one[0] + one[6] + 1  # the base offset is the last one and 1


def _all_raw(found: Found, batches: int) -> Found:
    last = max(row.headers[-1][0] + row.headers[-1][6] for row in found.rows if row.is_run)
    raw = found.raw + Counter({Reason.SMALL: batches})
    return found._replace(rows=(), raw=raw, raw_next=max(last + 1, found.raw_next or 0))


def _damaged(frame: Buffer, row: Row) -> Iterator[int]:
    """The starts of batches whose checksum is wrong: the one pass over the payloads."""
    for at, header in zip(row.starts, row.headers, strict=True):
        if body_crc(frame, at, at + LOG_OVERHEAD + header[1]) != header[4]:
            yield at
