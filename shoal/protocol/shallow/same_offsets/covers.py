"""Fetch side of mirror topics: envelopes that cover the source without a gap, whatever its batches look like.

A mirror topic takes batches at their own offsets, so nothing must be raw: tiny batches, holes, LogAppendTime. Aborted
records and transaction markers are left out: their offsets are gaps. Each envelope says which offsets it covers; the
first one begins where the target ends, the next one where the one before ends.

Batches that the target has already may go along, to be compared with the target's log: they differ if the source was
truncated or created again. Not a batch with holes: compaction may have changed it since.

The offset of the synthetic batch is that of the last covered record, or the mirror's next one, if that is higher: a
mirror may be ahead of what the target has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.protocol.records.aborted import AbortedTransactions
from shoal.protocol.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, body_crc
from shoal.protocol.records.scan import ScannedSet
from shoal.protocol.shallow.envelope import Cover, EnvelopeKey
from shoal.protocol.shallow.facts import facts_of
from shoal.protocol.shallow.wrap.eligible import MAX_OFFSET
from shoal.protocol.shallow.wrap.runs import WrapContext
from shoal.protocol.shallow.wrap.wrap import Stamps, Wrapped, synthetic_batch
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["Covered", "Since", "cover", "cover_nothing"]

_LAST_CODEC = max(Codec)


class Since(NamedTuple):
    """Where the copy ends (`covered`), and what was asked for from the source (`offset`, at least `covered`).

    `compare`: batches before `offset` go along. `end`: where the source ends for a read_committed consumer.
    """

    covered: int
    offset: int
    end: int
    compare: bool


class Covered(NamedTuple):
    """`position` is the mirror's next offset, `wrapped.next_offset` that of the source.

    `problem`: why the next batch cannot be mirrored. `compares`: a batch of before goes along. `aborted`: base offsets
    of batches that were left out.
    """

    wrapped: Wrapped
    position: int
    problem: str | None
    compares: bool
    aborted: Sequence[int] = ()


@dataclass(slots=True)
class _Run:
    """Batches for one envelope: positions and headers."""

    start: int
    end: int
    timestamp: int
    leader_epoch: int
    spans: list[tuple[int, int, BatchHeader]] = field(default_factory=list)
    size: int = 0

    def extend(self, header: BatchHeader) -> None:
        self.end = header.last_offset + 1
        self.timestamp = max(self.timestamp, header.max_timestamp)
        self.leader_epoch = header.partition_leader_epoch


class _Unusable(Exception):
    """A batch that no mirror topic can take."""


def cover(
    frame: Buffer, scanned: ScannedSet, aborted: Sequence[tuple[int, int]], since: Since, context: WrapContext
) -> Covered:
    """Envelopes for the batches of a record set of `frame`. `context.fetch_offset` is the mirror's next offset."""
    runs, left_out, problem = list[_Run](), list[int](), None
    try:
        for run in _runs(frame, scanned, aborted, since, context, left_out):
            if not runs or runs[-1] is not run:
                runs.append(run)
    except (_Unusable, RemoteProtocolError) as error:
        problem = str(error)
    return _enveloped(memoryview(frame), runs, problem, since, context)._replace(aborted=left_out)


def cover_nothing(since: Since, context: WrapContext) -> Covered:
    """An envelope without a batch up to the source's end. Only if the source has no record at all any more."""
    return _enveloped(memoryview(b""), [_Run(since.covered, since.end, 0, -1)], None, since, context)


def _enveloped(
    view: memoryview, runs: Sequence[_Run], problem: str | None, since: Since, context: WrapContext
) -> Covered:
    parts, keys, position = list[Buffer](), list[EnvelopeKey](), context.fetch_offset
    covered = since.covered
    for number, run in enumerate(runs, 1):
        is_last = number == len(runs) and problem is None
        first = run.spans[0][2].base_offset if run.spans else run.start
        span = Cover(min(covered, first), run.end, fill=is_last and run.end >= since.end)
        position = max(run.end - 1, position)
        key, pieces = _envelope(view, run, span, position, context)
        keys.append(key)
        parts += pieces
        covered, position = run.end, position + 1
    wrapped = Wrapped(
        parts=parts,
        envelopes=tuple(keys),
        wrapped_batches=sum(key.batches for key in keys),
        wrapped_records=sum(key.records for key in keys),
        wrapped_bytes=sum(key.payload for key in keys),
        raw={},
        next_offset=covered,
        raw_next=None,
    )
    compares = any(header.last_offset < since.offset for run in runs for _, _, header in run.spans)
    return Covered(wrapped, position, problem, compares)


def _runs(
    frame: Buffer,
    scanned: ScannedSet,
    aborted: Sequence[tuple[int, int]],
    since: Since,
    context: WrapContext,
    left_out: list[int],
) -> Iterator[_Run]:
    """Each run again whenever it has grown. `left_out` gets the aborted ones. Raises _Unusable, RemoteProtocolError."""
    if not scanned.is_readable:
        raise _Unusable("the record set cannot be read")
    if not scanned.is_v2:
        raise _Unusable("message format older than v2: mirror topics need v2 batches")
    transactions, view, limit = AbortedTransactions(aborted), memoryview(frame), context.payload_limit
    run: _Run | None = None
    position = -1
    for start, end, header in scanned.batches():
        if header.base_offset <= position or header.last_offset > MAX_OFFSET:
            raise _Unusable(f"offsets {header.base_offset}..{header.last_offset} after {position}")
        position = header.last_offset
        is_aborted = transactions.includes(header, view[start + HEADER_SIZE : end])
        if is_aborted:
            left_out.append(header.base_offset)
        is_data = not (is_aborted or header.is_control or header.record_count == 0)
        is_known = header.last_offset < since.offset
        if is_known and not (is_data and since.compare and _is_whole(header)):
            continue
        if is_data:
            _require_usable(frame, start, end, header)
            if end - start > max(limit, context.largest_batch):
                raise _Unusable(
                    f"the source's batch at offset {header.base_offset} has {end - start} bytes: raise run-limit above "
                    "it, and the mirror's max.request.size above that"
                )
        if run is None or (is_data and run.spans and run.size + end - start > limit):
            begin = run.end if run is not None else since.covered
            run = _Run(begin, begin, 0, header.partition_leader_epoch)
        run.extend(header)
        if is_data:
            run.spans.append((start, end, header))
            run.size += end - start
        yield run


def _is_whole(header: BatchHeader) -> bool:
    return header.record_count == header.last_offset_delta + 1 and not header.has_delete_horizon


def _require_usable(frame: Buffer, start: int, end: int, header: BatchHeader) -> None:
    where = f"the source's batch at offset {header.base_offset}"
    if header.attributes & CODEC_MASK > _LAST_CODEC:
        raise _Unusable(f"{where} has an unknown codec")
    if header.record_count > header.last_offset_delta + 1:
        raise _Unusable(f"{where} has {header.record_count} records in {header.last_offset_delta + 1} offsets")
    if body_crc(frame, start, end) != header.crc:
        raise _Unusable(f"{where} is damaged: CRC mismatch")


def _envelope(
    view: memoryview, run: _Run, span: Cover, position: int, context: WrapContext
) -> tuple[EnvelopeKey, list[Buffer]]:
    headers = [header for _, _, header in run.spans]
    value = [view[start:end] for start, end, _ in run.spans]
    crc = 0
    for piece in value:
        crc = crc32c(piece, crc)
    key = EnvelopeKey(
        cluster=context.cluster,
        topic=context.topic,
        partition=context.partition,
        first_offset=headers[0].base_offset if headers else span.end - 1,
        last_offset=headers[-1].last_offset if headers else span.end - 1,
        batches=len(headers),
        records=sum(header.record_count for header in headers),
        payload=run.size,
        payload_crc=crc,
        flow=context.flow,
        serial=context.serials(),
        cover=span,
    )
    payloads = (piece[HEADER_SIZE:] for piece in value)
    facts = facts_of(list(zip(*headers, strict=True)), payloads).headers() if headers else ()
    stamps = Stamps(position, run.leader_epoch, run.timestamp)
    return key, synthetic_batch(key, value, facts + context.tags, stamps)
