"""Fetch side: a record set in which every batch may be wrapped, seen at a glance. Nearly all are of that kind.

Batches may be tiny, and then what is done for each of them is what a mirror's copy costs. So there is one loop that reads headers,
and looks at nothing but where the next one is. All other questions are put to the headers by column, in loops that are not
Python's. Where one of the answers is not a plain yes, nothing is concluded: runs.py asks the rules, batch by batch, and what is
damaged is found there.
"""

from collections.abc import Sequence
from operator import add, lt, sub
from typing import NamedTuple, TypeAlias

from shoal.protocol.records.batch import HEADER_SIZE, read_fields
from shoal.protocol.records.recordset import LOG_OVERHEAD, MIN_LENGTHS, entries
from shoal.protocol.shallow.wrap.eligible import PLAIN_ATTRIBUTES, Measure
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer

__all__ = ["MAX_OFFSET", "UniformScan", "scan_uniform"]

MAX_OFFSET = (1 << 63) - 2  # so that the next one is an int64, too
_LEAST, _NEWEST = MIN_LENGTHS[2], 2
_CODECS = frozenset(Codec)  # of attributes: no other bit

_Fields: TypeAlias = tuple[int, ...]  # those of a BatchHeader, by its order


class UniformScan(NamedTuple):
    """The batches of a record set, one at least, by column: where each starts and ends, and the fields of its header."""

    starts: list[int]
    ends: list[int]
    headers: list[_Fields]


def scan_uniform(buf: Buffer, start: int, end: int, measure: Measure, *, committed: bool) -> UniformScan | None:
    """The batches of `buf[start:end]`; None where it is not clear that no rule (eligible.py) names any of them, that their offsets
    ascend, or (`committed`) that none is of a transaction. Of a tail, and of checksums, nothing is said."""
    found = _read(buf, start, end)
    return found if found and _is_plain(found.headers, measure, committed=committed) else None


def _read(buf: Buffer, start: int, end: int) -> UniformScan | None:
    starts, headers, at, last = list[int](), list[_Fields](), start, end - HEADER_SIZE
    while at <= last:
        fields = read_fields(buf, at)
        length = fields[1]
        if length < _LEAST or fields[3] != _NEWEST:
            return None
        stop = at + LOG_OVERHEAD + length
        if stop > end:
            break
        starts.append(at)
        headers.append(fields)
        at = stop
    return UniformScan(starts, [*starts[1:], at], headers) if headers and _is_tail(buf, at, end) else None


def _is_tail(buf: Buffer, at: int, end: int) -> bool:
    """No whole entry, of any format. Raises RemoteProtocolError where it is not even the beginning of one."""
    return next(entries(buf, at, end), None) is None


def _is_plain(headers: Sequence[_Fields], measure: Measure, *, committed: bool) -> bool:
    """`eligible.is_plain` of all of them, and that their offsets ascend."""
    bases, lengths, _, _, _, attributes, deltas, _, _, _, _, _, counts = zip(*headers, strict=True)
    lasts = list(map(add, bases, deltas))
    return (
        bases[0] >= measure.fetch_offset >= 0
        and set(attributes) <= (_CODECS if committed else PLAIN_ATTRIBUTES)
        and max(lengths) + LOG_OVERHEAD <= measure.payload_limit
        and min(counts) > 0
        and set(map(sub, counts, deltas)) == {1}
        and all(map(lt, lasts, bases[1:]))
        and lasts[-1] <= MAX_OFFSET
    )
