"""Fetch side: which batches share an envelope, and why the others are raw.

A run is a maximal sequence of consecutive eligible batches. Offset gaps between its batches are fine: retention and
compaction remove whole batches, too, and each batch is dense.

A read_committed consumer itself drops the batches of aborted transactions, by producer id and transactional bit
(CompletedFetch.java). So for it a transactional run has one producer id and epoch, keeps both and the bit in its
header, and has no gap: a gap may be a transaction marker that compaction removed, and the consumer would treat the data
before it as part of the transaction after it. For a read_uncommitted consumer these fields are erased.

Batches may be tiny, so every tenth of a microsecond per batch counts. Nearly all record sets have no special batch;
these are checked as a whole (`are_plain`) and only cut into runs here. In the others each header is checked, with
`is_plain` for most batches and the rules for the rest. Checksums of payloads are computed only for batches to be
wrapped. If one is wrong, which is rare, the runs are made again without that batch.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from shoal.protocol.records.batch import TRANSACTIONAL, BatchHeader, body_crcs
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.records.scan import NEWEST_MAGIC, Fields, ScannedSet
from shoal.protocol.shallow.envelope import EnvelopeKey, Header
from shoal.protocol.shallow.refused import Offsets, overlaps
from shoal.protocol.shallow.wrap.eligible import (
    DELIVERS_NOTHING,
    MAX_OFFSET,
    Measure,
    Reason,
    are_plain,
    is_plain,
    raw_reason,
)
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["Found", "Run", "WrapContext", "find_rows", "rows_by_rules"]

# The key without its two names (85), eight headers with names of up to 22 bytes and values of up to 25 bytes, varints,
# and the header of the synthetic batch (61).
_OVERHEAD = 61 + 640

# A batch: start, end, fields, last offset, and why it is raw.
_Judged: TypeAlias = tuple[int, int, Fields, int, Reason | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrapContext:
    """One partition of one response. `serials` returns a new envelope serial at each call; sizes in bytes."""

    cluster: str
    topic: str
    partition: int
    fetch_offset: int
    flow: int
    serials: Callable[[], int]
    read_committed: bool = False
    first_raw: bool = False  # the first response after a start or seek: mirrors need an offset sync at its first batch
    run_limit: int = 512 * 1024
    largest_batch: int = 1 << 20  # of a mirror topic, which gets an envelope for itself above `run_limit`
    min_batch_bytes: int = 4096
    partitions: int | None = None  # number of partitions, for a mirror that chooses the partition by key hash
    tags: tuple[Header, ...] = ()  # headers of all envelopes: application tags, provenance
    sampler: KeySampler | None = None  # which batches are inspected for keys; None: none
    refused: Sequence[Offsets] = ()  # ranges of this partition that the target refuses
    # Keeps an envelope's batches, and the mirror gets a claim check; None: it gets the batches.
    keep: Callable[[EnvelopeKey, memoryview], None] | None = None

    @property
    def payload_limit(self) -> int:
        """Most bytes of batches in one envelope: the synthetic batch must fit into `run_limit`."""
        tags = sum(len(name) + len(value) + 4 for name, value in self.tags)
        names = len(self.cluster.encode()) + len(self.topic.encode())
        return self.run_limit - _OVERHEAD - names - tags


@dataclass(slots=True, eq=False)
class Run:
    """Adjacent batches: a run, or raw batches. For a run, the start and the header of each are known."""

    start: int
    end: int
    is_run: bool
    starts: list[int] = field(default_factory=list)
    headers: list[Fields] = field(default_factory=list)

    @property
    def ends(self) -> list[int]:
        """The end of each batch."""
        return [*self.starts[1:], self.end]


class Found(NamedTuple):
    """`next_offset`: -1 without batches; `raw_next`: the offset after the last raw record (None: none is raw)."""

    rows: Sequence[Run]
    raw: Counter[Reason]
    next_offset: int
    raw_next: int | None


def find_rows(frame: Buffer, scanned: ScannedSet, context: WrapContext) -> Found:
    """The rows of a record set of `frame`, in order. RemoteProtocolError if its offsets or counts are impossible."""
    found = _uniform_rows(scanned, context) or rows_by_rules(scanned, context, ())
    runs = [row for row in found.rows if row.is_run]
    batches = sum(len(row.starts) for row in runs)
    if sum(row.end - row.start for row in runs) < context.min_batch_bytes * batches:
        return _all_raw(found, batches)
    damaged = [at for row in runs for at in _damaged(frame, row)]
    return rows_by_rules(scanned, context, frozenset(damaged)) if damaged else found


def _uniform_rows(scanned: ScannedSet, context: WrapContext) -> Found | None:
    """None: the rules must decide."""
    measure = Measure(context.fetch_offset, context.payload_limit)
    if not are_plain(scanned, measure, committed=context.read_committed):
        return None
    first, last = scanned.headers[0], scanned.headers[-1]
    following = last[0] + last[6] + 1
    if overlaps(context.refused, first[0], following - 1):
        return None
    if not context.first_raw:
        return Found(list(_runs(scanned, 0, measure.payload_limit)), Counter(), following, None)
    rows = [Run(scanned.starts[0], scanned.ends[0], is_run=False), *_runs(scanned, 1, measure.payload_limit)]
    return Found(rows, Counter({Reason.FIRST: 1}), following, first[0] + first[6] + 1)


def _runs(scanned: ScannedSet, at: int, limit: int) -> Iterator[Run]:
    """All batches from number `at` on, in as few runs as the limit allows."""
    starts, ends, headers, *_ = scanned
    while at < len(starts):
        stop = bisect_right(ends, starts[at] + limit)
        yield Run(starts[at], ends[stop - 1], is_run=True, starts=starts[at:stop], headers=headers[at:stop])
        at = stop


def rows_by_rules(scanned: ScannedSet, context: WrapContext, damaged: Collection[int]) -> Found:
    """Batch by batch. Those that start at `damaged` are raw; no other checksum is checked."""
    return _found(_judged(scanned, context, damaged), context)


def _judged(scanned: ScannedSet, context: WrapContext, damaged: Collection[int]) -> Iterator[_Judged]:
    """Headers only. The offsets of a log ascend, which gives a run's first and last offset."""
    measure = Measure(context.fetch_offset, context.payload_limit)
    position, is_first = -1, context.first_raw
    for at, stop, fields in zip(scanned.starts, scanned.ends, scanned.headers, strict=True):
        base = last = fields[0]
        reason: Reason | None = Reason.OLD_MAGIC
        if fields[3] == NEWEST_MAGIC:
            last, reason = base + fields[6], None if is_plain(fields, measure) else _judge(fields, measure)
        if base <= position or last > MAX_OFFSET:
            raise RemoteProtocolError(f"offsets {base}..{last} after {position}")
        position = last
        if reason is None and overlaps(context.refused, base, last):
            reason = Reason.REFUSED
        if at in damaged:
            reason = Reason.BAD_CRC
        if is_first and reason not in DELIVERS_NOTHING:
            is_first, reason = False, reason or Reason.FIRST
        yield at, stop, fields, last, reason


def _judge(fields: Fields, measure: Measure) -> Reason | None:
    header = BatchHeader._make(fields)
    header.require_positive()
    return raw_reason(header, measure)


def _found(judged: Iterator[_Judged], context: WrapContext) -> Found:
    """Cut between raw and wrapped batches, and where a run must end."""
    limit, committed = context.payload_limit, context.read_committed
    rows, raw, last, raw_next = list[Run](), Counter[Reason](), -2, None
    row = Run(0, 0, is_run=False)
    for at, stop, header, last, reason in judged:
        if reason is not None:
            raw[reason] += 1
            raw_next = raw_next if reason in DELIVERS_NOTHING else last + 1
            if row.is_run or not rows:
                rows.append(row := Run(at, stop, is_run=False))
        else:
            if not row.is_run or stop - row.start > limit or (committed and not _may_follow(row.headers[-1], header)):
                rows.append(row := Run(at, stop, is_run=True))
            row.starts.append(at)
            row.headers.append(header)
        row.end = stop
    return Found(rows, raw, last + 1, raw_next)


def _may_follow(one: Fields, two: Fields) -> bool:
    """For a read_committed consumer: both batches are committed or aborted together, or neither is transactional."""
    if not (one[5] | two[5]) & TRANSACTIONAL:
        return True
    same_producer = one[9:11] == two[9:11] and not (one[5] ^ two[5]) & TRANSACTIONAL
    return same_producer and two[0] == one[0] + one[6] + 1  # no gap


def _all_raw(found: Found, batches: int) -> Found:
    last = max(row.headers[-1][0] + row.headers[-1][6] for row in found.rows if row.is_run)
    raw = found.raw + Counter({Reason.SMALL: batches})
    return found._replace(rows=(), raw=raw, raw_next=max(last + 1, found.raw_next or 0))


def _damaged(frame: Buffer, row: Run) -> list[int]:
    """The starts of batches with a wrong checksum; the only pass over the payloads."""
    stated = [header[4] for header in row.headers]
    found = body_crcs(frame, row.starts, row.ends)
    return [] if found == stated else [at for at, is_, be in zip(row.starts, found, stated, strict=True) if is_ != be]
