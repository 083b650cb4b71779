"""The spans of a record set that a mirror gets: which offsets are in envelopes, and how many raw records it sees."""

from collections.abc import Sequence
from operator import itemgetter

from shoal.protocol.records.batch import CONTROL, TRANSACTIONAL
from shoal.protocol.records.scan import Fields, ScannedSet
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.monitor.in_transit import Span

__all__ = ["spans_of"]

_attributes, _counts = itemgetter(5), itemgetter(12)


def spans_of(
    scanned: ScannedSet,
    fetch_offset: int,
    next_offset: int,
    envelopes: Sequence[EnvelopeKey] = (),
    aborted: Sequence[tuple[int, int]] = (),
) -> list[Span]:
    """Adjacent from `fetch_offset` to `next_offset`. `envelopes`: those that the mirror does not drop, in order.

    `aborted`: (producer id, first offset) of transactions whose records it drops.
    """
    spans = list[Span]()
    if not scanned.is_v2:
        return [Span(next_offset, 0)]
    if envelopes and len(scanned) == sum(key.batches for key in envelopes):
        return [Span(key.last_offset + 1, None) for key in envelopes]
    dropped = {producer_id for producer_id, _ in aborted}
    if not envelopes and not dropped and _is_plain(scanned, fetch_offset, next_offset):
        return [Span(next_offset, sum(map(_counts, scanned.headers)))]
    start, raw, awaited = fetch_offset, 0, iter(envelopes)
    envelope = next(awaited, None)
    for fields in scanned.headers:
        base, last = fields[0], fields[0] + fields[6]
        if base >= next_offset:
            break
        if envelope is not None and base >= envelope.first_offset:
            if base == envelope.first_offset and base > start:
                spans.append(Span(base, raw))
            if last >= envelope.last_offset:
                start, raw = last + 1, 0
                spans.append(Span(start, None))
                envelope = next(awaited, None)
            continue
        raw += _seen(fields, fetch_offset, dropped)
    if next_offset > start:
        spans.append(Span(next_offset, raw))
    return spans


def _is_plain(scanned: ScannedSet, fetch_offset: int, next_offset: int) -> bool:
    """The mirror produces every record."""
    first, last = scanned.headers[0], scanned.headers[-1]
    has_control = any(attributes & CONTROL for attributes in set(map(_attributes, scanned.headers)))
    return first[0] >= fetch_offset and last[0] < next_offset and not has_control


def _seen(fields: Fields, fetch_offset: int, dropped: set[int]) -> int:
    """At least so many of a batch's records are produced."""
    if fields[5] & CONTROL or (fields[5] & TRANSACTIONAL and fields[9] in dropped):
        return 0
    return max(min(fields[12], fields[0] + fields[6] - fetch_offset + 1), 0)
