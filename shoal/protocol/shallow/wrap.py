"""Fetch side: runs of whole batches become envelopes, in place.

A run is a maximal row of consecutive eligible batches. Offset gaps between its batches are fine, since retention and
compaction remove whole batches too, and each batch is dense in itself. The synthetic batch around the envelope has the
offset of the run's last record, so a consumer's position after it, `last offset + 1`, is where the run ends, and a
committed position is always a batch boundary. Its timestamp is the largest of the run.

Where the consumer reads committed data, it drops the batches of aborted transactions itself, by producer id and
transactional bit (CompletedFetch.java). So there a transactional run is of one producer id and epoch, keeps both and the
bit in its header, and has no gap: a gap may be a transaction marker that compaction removed, and the consumer would judge the
data before it by the fate of the transaction after it. For a consumer that reads uncommitted data these are erased.

One pass over the payload: the CRC of each batch's body is computed once, compared with the batch's own, and then folded
by linearity (crc.py) into the checksum of the value and that of the synthetic batch.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from shoal.protocol.crc import Buffer, combine, crc32c
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.records.batch import (
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    body_crc,
    extend_crc,
    read_batch_header,
    synthetic_header,
)
from shoal.protocol.records.key_sample import KeySampler, has_keys
from shoal.protocol.records.record import encode_single_record_head
from shoal.protocol.records.recordset import Span, split
from shoal.protocol.shallow.eligible import DELIVERS_NOTHING, Measure, Reason, raw_reason
from shoal.protocol.shallow.envelope import EnvelopeKey, Header, encode_key, with_partition_nonce
from shoal.protocol.shallow.facts import facts_of

__all__ = ["WrapContext", "Wrapped", "next_offset", "wrap_record_set"]

# The key but for its two names (85), eight headers with names of up to 22 bytes and up to 25 bytes each, varints.
_OVERHEAD = HEADER_SIZE + 640
_MAX_OFFSET = (1 << 63) - 2  # so that the next one is an int64, too


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """`parts` is the new record set, None = forward it unchanged. Counts of batches; `wrapped_bytes` are of batches.

    `next_offset` is where the consumer will fetch next, `raw_next` the offset after the last record it is given raw
    (None: none is). Both are -1 and None where the record set is unreadable.
    """

    parts: list[Buffer] | None
    envelopes: tuple[EnvelopeKey, ...]
    wrapped_batches: int
    wrapped_records: int
    wrapped_bytes: int
    raw: Mapping[Reason, int]
    next_offset: int
    raw_next: int | None


class _Entry(NamedTuple):
    """A batch in its place. `header` is None below magic 2; `body` is the CRC of the batch's body, once it is known."""

    span: Span
    header: BatchHeader | None
    reason: Reason | None
    body: int = 0


def wrap_record_set(frame: Buffer, start: int, end: int, context: WrapContext) -> Wrapped:
    """Wrap what may be wrapped of the record set `frame[start:end]`. Never raises for its content: damage stays raw."""
    try:
        spans = split(frame, start, end).spans
        entries = _judge(frame, spans, context)
    except RemoteProtocolError:
        return _unchanged({Reason.DAMAGED: 1}, next_offset=-1, raw_next=None)
    position = _next_offset(entries, context.fetch_offset)
    raw = Counter(entry.reason for entry in entries if entry.reason)
    if (len(raw) and raw.total() == len(entries)) or not entries:
        return _unchanged(raw, next_offset=position, raw_next=_raw_next(entries))
    parts: list[Buffer] = []
    keys: list[EnvelopeKey] = []
    view = memoryview(frame)
    for row in _rows(entries, context):
        if row[0].reason:
            parts.append(view[row[0].span.start : row[-1].span.end])
        else:
            key, pieces = _envelope(view, row, context)
            keys.append(key)
            parts += pieces
    return Wrapped(
        parts=parts,
        envelopes=tuple(keys),
        wrapped_batches=sum(key.batches for key in keys),
        wrapped_records=sum(key.records for key in keys),
        wrapped_bytes=sum(key.payload for key in keys),
        raw=raw,
        next_offset=position,
        raw_next=_raw_next(entries),
    )


def next_offset(frame: Buffer, start: int, end: int, fetch_offset: int) -> int:
    """Where a consumer that is given the record set as it is will fetch next; -1 where it is unreadable."""
    try:
        spans = split(frame, start, end).spans
        last = spans[-1] if spans else None
        if last is None:
            return fetch_offset
        return (read_batch_header(frame, *last[:2]).last_offset if last.magic == 2 else last.base_offset) + 1
    except RemoteProtocolError:
        return -1


def _unchanged(raw: Mapping[Reason, int], *, next_offset: int, raw_next: int | None) -> Wrapped:
    return Wrapped(
        parts=None,
        envelopes=(),
        wrapped_batches=0,
        wrapped_records=0,
        wrapped_bytes=0,
        raw=raw,
        next_offset=next_offset,
        raw_next=raw_next,
    )


def _judge(frame: Buffer, spans: Sequence[Span], context: WrapContext) -> list[_Entry]:
    """Headers first, then what the whole partition says, and only for what is left the pass over the payloads."""
    measure = Measure(context.fetch_offset, context.payload_limit)
    entries = [_read(frame, span, measure) for span in spans]
    _check_order(entries)
    if context.first_raw:
        _leave_first(entries)
    sizes = [span.end - span.start for span, _, reason, _ in entries if reason is None]
    if sum(sizes) < context.min_batch_bytes * len(sizes):
        return [entry if entry.reason else entry._replace(reason=Reason.SMALL) for entry in entries]
    return [entry if entry.reason else _check(frame, entry) for entry in entries]


def _read(frame: Buffer, span: Span, measure: Measure) -> _Entry:
    if span.magic != 2:
        return _Entry(span, None, Reason.OLD_MAGIC)
    header = read_batch_header(frame, span.start, span.end)
    return _Entry(span, header, raw_reason(header, measure))


def _check_order(entries: Sequence[_Entry]) -> None:
    """A log's offsets ascend; a run takes its first and last offset from that."""
    position = -1
    for span, header, _, _ in entries:
        last = header.last_offset if header else span.base_offset
        if span.base_offset <= position or last > _MAX_OFFSET:
            raise RemoteProtocolError(f"offsets {span.base_offset}..{last} after {position}")
        position = last


def _leave_first(entries: list[_Entry]) -> None:
    for index, entry in enumerate(entries):
        if entry.reason is None:
            entries[index] = entry._replace(reason=Reason.FIRST)
        if entry.reason not in DELIVERS_NOTHING:
            return


def _check(frame: Buffer, entry: _Entry) -> _Entry:
    body = body_crc(frame, entry.span.start, entry.span.end)
    if entry.header is not None and body == entry.header.crc:
        return entry._replace(body=body)
    return entry._replace(reason=Reason.BAD_CRC)


def _next_offset(entries: Sequence[_Entry], fetch_offset: int) -> int:
    if not entries:
        return fetch_offset
    span, header, _, _ = entries[-1]
    return max(fetch_offset, (header.last_offset if header else span.base_offset) + 1)


def _raw_next(entries: Sequence[_Entry]) -> int | None:
    """Control and empty batches deliver no record."""
    for span, header, reason, _ in reversed(entries):
        if reason and reason not in DELIVERS_NOTHING:
            return (header.last_offset if header else span.base_offset) + 1
    return None


def _rows(entries: Sequence[_Entry], context: WrapContext) -> list[list[_Entry]]:
    """Cut where raw and wrapped meet, and wrapped rows where they may not go on."""
    rows, limit = [[entries[0]]], context.payload_limit
    size = entries[0].span.end - entries[0].span.start
    for before, entry in pairwise(entries):
        bytes_more = entry.span.end - entry.span.start
        if _joins(before, entry, context) and (entry.reason or size + bytes_more <= limit):
            rows[-1].append(entry)
            size += bytes_more
        else:
            rows.append([entry])
            size = bytes_more
    return rows


def _joins(before: _Entry, entry: _Entry, context: WrapContext) -> bool:
    if entry.reason or before.reason:
        return bool(entry.reason and before.reason)
    one, two = before.header, entry.header
    if one is None or two is None or not context.read_committed:
        return True
    if not (one.is_transactional or two.is_transactional):
        return True
    return (
        one.is_transactional == two.is_transactional
        and one[9:11] == two[9:11]  # producer id, producer epoch
        and two.base_offset == one.last_offset + 1
    )


def _envelope(view: memoryview, row: Sequence[_Entry], context: WrapContext) -> tuple[EnvelopeKey, list[Buffer]]:
    headers = [entry.header for entry in row if entry.header]
    last = headers[-1]
    value_crc = 0
    for entry in row:
        value_crc = extend_crc(value_crc, view, entry.span.start, entry.span.end, body=entry.body)
    value = view[row[0].span.start : row[-1].span.end]
    key = EnvelopeKey(
        cluster=context.cluster,
        topic=context.topic,
        partition=context.partition,
        first_offset=headers[0].base_offset,
        last_offset=last.last_offset,
        batches=len(row),
        records=sum(header.record_count for header in headers),
        payload=len(value),
        payload_crc=value_crc,
        flow=context.flow,
        serial=context.serials(),
    )
    if context.partitions is not None:
        key = with_partition_nonce(key, context.partitions)
    payloads = [view[entry.span.start + HEADER_SIZE : entry.span.end] for entry in row]
    facts = facts_of(headers, payloads, has_keys=_looked_into(headers, payloads, context.sampler))
    described = facts.headers() + context.tags
    head, tail = encode_single_record_head(key=encode_key(key), value_length=len(value), headers=described)
    body_crc = crc32c(tail, combine(crc32c(head), value_crc, len(value)))
    keep = context.read_committed and last.is_transactional
    header = synthetic_header(
        base_offset=key.last_offset,
        leader_epoch=last.partition_leader_epoch,
        attributes=TRANSACTIONAL if keep else 0,
        max_timestamp=max(header.max_timestamp for header in headers),
        producer_id=last.producer_id if keep else -1,
        producer_epoch=last.producer_epoch if keep else -1,
        body_length=len(head) + len(value) + len(tail),
        crc_of_body=body_crc,
    )
    return key, [header + head, value, tail]


def _looked_into(headers: Sequence[BatchHeader], payloads: Sequence[Buffer], sampler: KeySampler | None) -> bool | None:
    """Whether there are keys, where a batch of the row is one that is looked into."""
    picks = sampler.picks(len(headers)) if sampler is not None else ()
    seen = [has_keys(headers[at].attributes, payloads[at]) for at in picks]
    return any(seen) if any(one is not None for one in seen) else None
