"""Fetch side: runs of whole batches (runs.py) become envelopes, in place.

The synthetic batch around the envelope has the offset of the run's last record. So a consumer's next position, `last
offset + 1`, is the end of the run, and a committed position is always a batch boundary. Its timestamp is the largest of
the run. For a read_committed consumer its header keeps the producer id, epoch and transactional bit of the run.

If the batches may stay with Shoal (`WrapContext.keep`), the value is a claim check.

The checksum of the value is computed once over the whole run, and combined (wire/crc.py) into that of the synthetic
batch.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shoal.protocol.records.aborted import AbortedTransactions
from shoal.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, synthetic_header
from shoal.protocol.records.key_sample import KeySampler, has_keys
from shoal.protocol.records.record import Headers, encode_single_record_head
from shoal.protocol.records.scan import ScannedSet
from shoal.protocol.shallow.claim_check import CLAIM_CHECK
from shoal.protocol.shallow.envelope import EnvelopeKey, encode_key, with_partition_nonce
from shoal.protocol.shallow.facts import facts_of
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.shallow.wrap.runs import Found, Run, WrapContext, find_rows
from shoal.protocol.wire.crc import Buffer, combine, crc32c
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["Stamps", "WrapContext", "Wrapped", "delivered", "synthetic_batch", "wrap"]


class Stamps(NamedTuple):
    """What the synthetic batch around an envelope gets; `timestamp`: ms."""

    base_offset: int
    leader_epoch: int
    timestamp: int
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """`parts` is the new record set; None: forward it unchanged. Counts of batches; `wrapped_bytes` are of batches.

    `next_offset` is the next fetch offset, `raw_next` the offset after the last raw record (None: none is raw). If the
    record set is unreadable they are -1 and None.
    """

    parts: list[Buffer] | None
    envelopes: tuple[EnvelopeKey, ...]
    wrapped_batches: int
    wrapped_records: int
    wrapped_bytes: int
    raw: Mapping[Reason, int]
    next_offset: int
    raw_next: int | None


def wrap(frame: Buffer, scanned: ScannedSet, context: WrapContext) -> Wrapped:
    """Wrap the eligible batches of a record set of `frame`. Never raises for its content: damage remains raw."""
    rows, raw, following, raw_next = _rows(frame, scanned, context)
    parts: list[Buffer] = []
    keys: list[EnvelopeKey] = []
    view = memoryview(frame)
    for row in rows:
        if row.is_run:
            key, pieces = _envelope(view, row, context)
            keys.append(key)
            parts += pieces
        else:
            parts.append(view[row.start : row.end])
    return Wrapped(
        parts=parts if keys else None,
        envelopes=tuple(keys),
        wrapped_batches=sum(key.batches for key in keys),
        wrapped_records=sum(key.records for key in keys),
        wrapped_bytes=sum(key.payload for key in keys),
        raw=raw,
        next_offset=following,
        raw_next=raw_next,
    )


def delivered(
    frame: Buffer, scanned: ScannedSet, envelopes: Sequence[EnvelopeKey], aborted: Sequence[tuple[int, int]]
) -> Sequence[EnvelopeKey]:
    """The envelopes of a record set that its consumer does not drop.

    `aborted`: transactions (producer id, first offset).
    """
    if not aborted or not envelopes:
        return envelopes
    transactions, dropped, view = AbortedTransactions(aborted), set[int](), memoryview(frame)
    try:
        for at, stop, header in scanned.batches():
            if transactions.includes(header, view[at + HEADER_SIZE : stop]):
                dropped.add(header.base_offset)
    except RemoteProtocolError:
        pass
    return [key for key in envelopes if key.first_offset not in dropped]


def _rows(frame: Buffer, scanned: ScannedSet, context: WrapContext) -> Found:
    try:
        if scanned.is_readable:
            found = find_rows(frame, scanned, context)
            return found._replace(next_offset=max(found.next_offset, context.fetch_offset))
    except RemoteProtocolError:
        pass
    return Found((), Counter({Reason.DAMAGED: 1}), -1, None)


def _envelope(view: memoryview, row: Run, context: WrapContext) -> tuple[EnvelopeKey, list[Buffer]]:
    first, last = row.headers[0], BatchHeader._make(row.headers[-1])
    payloads = (view[at + HEADER_SIZE : stop] for at, stop in zip(row.starts, row.ends, strict=True))
    fields = list(zip(*row.headers, strict=True))
    facts = facts_of(fields, payloads, has_keys=_have_keys(view, row, context.sampler))
    value = view[row.start : row.end]
    value_crc = crc32c(value)
    key = EnvelopeKey(
        cluster=context.cluster,
        topic=context.topic,
        partition=context.partition,
        first_offset=first[0],
        last_offset=last.last_offset,
        batches=len(row.headers),
        records=sum(fields[12]),
        payload=len(value),
        payload_crc=value_crc,
        flow=context.flow,
        serial=context.serials(),
        is_claim_check=context.keep is not None,
    )
    if context.partitions is not None:
        key = with_partition_nonce(key, context.partitions)
    keep = context.read_committed and last.is_transactional
    stamps = Stamps(
        base_offset=key.last_offset,
        leader_epoch=last.partition_leader_epoch,
        attributes=TRANSACTIONAL if keep else 0,
        timestamp=max(fields[8]),
        producer_id=last.producer_id if keep else -1,
        producer_epoch=last.producer_epoch if keep else -1,
    )
    headers = facts.headers() + context.tags
    if context.keep is not None:
        context.keep(key, value)
    carried = value if context.keep is None else CLAIM_CHECK
    return key, synthetic_batch(key, [carried], headers, stamps)


def synthetic_batch(key: EnvelopeKey, value: Sequence[Buffer], headers: Headers, stamps: Stamps) -> list[Buffer]:
    """The batch with the envelope's record; `value` has the bytes that `key` describes, or is that of a claim check."""
    length, crc = key.payload, key.payload_crc
    if key.is_claim_check:
        length, crc = len(value[0]), crc32c(value[0])
    head, tail = encode_single_record_head(key=encode_key(key), value_length=length, headers=headers)
    header = synthetic_header(
        base_offset=stamps.base_offset,
        leader_epoch=stamps.leader_epoch,
        attributes=stamps.attributes,
        max_timestamp=stamps.timestamp,
        producer_id=stamps.producer_id,
        producer_epoch=stamps.producer_epoch,
        body_length=len(head) + length + len(tail),
        crc_of_body=crc32c(tail, combine(crc32c(head), crc, length)),
    )
    return [header + head, *value, tail]


def _have_keys(view: memoryview, row: Run, sampler: KeySampler | None) -> bool | None:
    """Whether there are keys; None: no batch of the row is inspected."""
    picks = sampler.picks(len(row.starts)) if sampler is not None else ()
    spans = [(row.headers[at][5], row.starts[at] + HEADER_SIZE, row.ends[at]) for at in picks]
    seen = [has_keys(attributes, view[start:end]) for attributes, start, end in spans]
    return any(seen) if any(found is not None for found in seen) else None
