"""The audit of one source partition, in numpy: `analysis.py` says what is compared.

packed rows -> source batches, attempts -> the copies of each source batch -> its state
                                        -> sums by minute -> short, over
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shoal.scenarios.jobs.audit.packing import (
    BATCH,
    IS_ABORTED,
    IS_CONTROL,
    IS_EXACT,
    IS_FENCED,
    IS_KNOWN,
    IS_RAW,
    IS_STORED,
    IS_WRAPPED,
    NONE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AUDITED", "audit_place"]

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[Any]
Named = dict[str, Rows]

_MINUTE_MS: Final = 60_000
_NEVER: Final = np.iinfo(np.int64).max
_STATES: Final = (
    *("copied", "doubled", "different", "pending", "unconfirmed", "missing"),
    *("different_offset", "aborted", "below_end", "source_changed"),
)
COPIED, DOUBLED, DIFFERENT, PENDING, UNCONFIRMED, MISSING, DIFFERENT_OFFSET, ABORTED, BELOW_END, CHANGED = range(
    len(_STATES)
)
_COUNTS: Final = (
    *("batches", "records", "offsets_not_seen", "fetched_again", *_STATES, "missing_records", "doubled_records"),
    *("reordered", "retries", "target_records", "short", "over"),
    *("same_offset_records", "wrong_records", "below_end_records"),
)
_LONGS: Final = ("base_offset", "last_offset", "records", "max_timestamp", "fetches", "copies")
_STATED: Final = pa.struct(
    [
        *((name, pa.int64()) for name in _LONGS),
        *(("target_topic", pa.string()), ("target_partition", pa.int32()), ("target_offset", pa.int64())),
        *(("target_records", pa.int64()), ("state", pa.string())),
    ]
)
_MINUTE: Final = pa.struct(
    [(name, pa.int64()) for name in ("number", "source_records", "target_records", "difference", "short", "over")]
)
AUDITED: Final = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int32()), ("is_copied", pa.bool_())),
        ("counts", pa.struct([(name, pa.int64()) for name in _COUNTS])),
        *(("batches", pa.list_(_STATED)), ("minutes", pa.list_(_MINUTE))),
    ]
)
"""A row for a partition. `is_copied`: a mirror fetched or sent something of it. The others are null if nothing was
fetched. `batches`: all but the copied ones. `minutes`: their `number` counts from the beginning of Unix time. The last
three counts are null if it is no mirror topic's."""


class _Source(NamedTuple):
    """Each fetched batch once, in the order of offsets. `changed`: another one was fetched at some of its offsets."""

    first: Longs
    last: Longs
    records: Longs
    max_timestamp: Longs
    flags: Rows  # of all its fetches
    fetches: Longs
    changed: Flags


class _Attempts(NamedTuple):
    rows: Rows  # of BATCH
    place: Longs  # the first packed row with the same topic and partition of the target


class _Copies(NamedTuple):
    """What was sent of each source batch, in the order of their offsets. `offset`, `place`: of the first stored one;
    `records`: of the smallest stored one.

    A batch that is too large for the target is sent in parts, each at its own first offset in the source (`_whole`).
    """

    first: Longs
    copies: Longs
    offset: Longs
    records: Longs
    place: Longs


def audit_place(key: tuple[pa.Scalar, ...], packed: pa.Table, tolerance: int) -> pa.Table:
    """`key`: topic and partition at the source. `packed`: all its rows. -> one row of AUDITED."""
    source = _source(_unpacked(packed, "fetched").rows)
    attempts = _unpacked(packed, "produced")
    is_copied = bool(len(attempts.rows))
    row: dict[str, Any] = {"topic": [key[0].as_py()], "partition": [key[1].as_py()]}
    if len(source.first):
        is_copied |= bool(_are(source.flags, IS_WRAPPED | IS_RAW).any())
        row |= _compared(source, attempts, _unpacked(packed, "probed").rows, packed, tolerance)
    row["is_copied"] = [is_copied]
    return pa.Table.from_pydict({name: row.get(name, [None]) for name in AUDITED.names}, schema=AUDITED)


def _compared(source: _Source, attempts: _Attempts, probes: Rows, packed: pa.Table, tolerance: int) -> dict[str, Any]:
    """The last three columns of AUDITED. Their lists are made from arrays: a batch as a dict takes 1 kB."""
    keeps_offsets = bool(len(probes)) or bool(_are(attempts.rows["flags"], IS_FENCED).any())
    seen = _are(attempts.rows["flags"], IS_EXACT, False) | (attempts.rows["source"] >= source.first[0])
    attempts = _Attempts(attempts.rows[seen], attempts.place[seen])
    data = _without(source, IS_CONTROL | IS_ABORTED)
    copies = _whole(_copies(attempts), data)
    if keeps_offsets:
        exact = _exact_by_offset(_without(source, IS_CONTROL), attempts.rows, copies, probes, tolerance)
    else:
        exact = _exact(data, copies, tolerance)
    timed = _minutes(data, _stored_once(attempts), tolerance)
    if keeps_offsets or source.changed.any():
        timed["short"][:] = timed["over"][:] = 0  # each batch is judged by itself, or there is more than one log
    counts = {
        "batches": len(data.first),
        "records": data.records.sum(),
        "offsets_not_seen": (source.first[1:] - np.maximum.accumulate(source.last)[:-1] - 1).clip(0).sum(),
        "fetched_again": (source.fetches - 1).sum(),
        **_counted(exact),
        "reordered": _reordered(exact),
        "retries": _retries(attempts),
        "target_records": timed["target_records"].sum(),
        **{name: _worst(timed[name]) for name in ("short", "over")},
        **(_counted_by_offset(exact) if keeps_offsets else {}),
    }
    return {
        "counts": [{name: int(counts[name]) if name in counts else None for name in _COUNTS}],
        "batches": _one_list(_stated(exact, packed), _STATED),
        "minutes": _one_list(timed, _MINUTE),
    }


def _are(flags: Rows, bits: int, wanted: bool = True) -> Flags:
    """Those with one of the bits; not `wanted`: with none of them."""
    found: Flags = ((flags & bits) != 0) == wanted
    return found


def _unpacked(packed: pa.Table, direction: str) -> _Attempts:
    parts, places = [np.empty(0, BATCH)], [np.empty(0, np.int64)]
    first: dict[tuple[str, int], int] = {}
    names = packed.select(["direction", "target_topic", "target_partition"]).to_pylist()
    for number, (name, data) in enumerate(zip(names, packed["batches"], strict=True)):
        if name.pop("direction") == direction:
            parts.append(np.frombuffer(data.as_buffer(), BATCH))
            places.append(np.full(len(parts[-1]), first.setdefault(tuple(name.values()), number)))
    return _Attempts(np.concatenate(parts), np.concatenate(places))


def _starts(*sorted_columns: Rows) -> Longs:
    """Where a group of equal rows begins."""
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in sorted_columns])
    return np.flatnonzero(np.append(len(sorted_columns[0]) > 0, differs))


def _source(rows: Rows) -> _Source:
    rows = rows[np.lexsort((rows["records"], rows["source"]))]
    at = _starts(rows["source"])
    last, records, newest = (np.maximum.reduceat(rows[name], at) for name in ("other", "records", "max_timestamp"))
    flags = np.bitwise_or.reduceat(rows["flags"], at)
    first, fetches = rows["source"][at], np.diff(np.append(at, len(rows)))
    return _Source(first, last, records, newest, flags, fetches, _changed(rows, at, fetches, last))


def _changed(rows: Rows, at: Longs, fetches: Longs, last: Longs) -> Flags:
    """`rows`: in the order of offsets and records. A log has a batch as it was written, until compaction removes
    records of it. So two batches with common offsets are of two logs: one was truncated, or the topic created again.
    """
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for name in ("other", "producer", "epoch", "sequence"):
        same &= rows[name][1:] == rows[name][:-1]
    same &= (rows["records"][1:] != rows["records"][:-1]) | (rows["max_timestamp"][1:] == rows["max_timestamp"][:-1])
    differs = np.append(False, ~same)
    differs[at] = False  # from another offset's
    found: Flags = np.add.reduceat(differs, at) > 0 if len(at) else np.zeros(0, np.bool_)
    reach = np.maximum.accumulate(last)[:-1] >= rows["source"][at[1:]]
    found[1:] |= reach
    found[:-1] |= last[:-1] >= rows["source"][at[1:]]
    return found


def _without(source: _Source, bits: int) -> _Source:
    rows = _are(source.flags, bits, False) | source.changed
    return _Source._make(column[rows] for column in source)


def _copies(attempts: _Attempts) -> _Copies:
    is_exact = _are(attempts.rows["flags"], IS_EXACT)
    rows, place = attempts.rows[is_exact], attempts.place[is_exact]
    is_stored = _are(rows["flags"], IS_STORED)
    has_offset = is_stored & (rows["other"] != NONE)
    # in each group the first stored one comes first
    order = np.lexsort((place, rows["other"], ~has_offset, rows["source"]))
    rows, place, is_stored, has_offset = rows[order], place[order], is_stored[order], has_offset[order]
    at = _starts(rows["source"])
    is_new = np.zeros(len(rows), np.bool_)
    is_new[_starts(rows["source"], rows["other"], has_offset, place)] = True
    copies = np.add.reduceat(np.where(has_offset, is_new, is_stored).astype(np.int64), at)
    is_known = np.logical_or.reduceat(_are(rows["flags"], IS_KNOWN), at)
    is_there = _are(rows["flags"], IS_STORED | IS_KNOWN)
    fewest = np.minimum.reduceat(np.where(is_there, rows["records"], _NEVER), at)
    return _Copies(
        rows["source"][at],
        np.where(is_known & (copies == 0), 1, copies),
        np.where(has_offset, rows["other"], NONE)[at],
        np.where(fewest < _NEVER, fewest, np.minimum.reduceat(rows["records"], at)),
        place[at],
    )


def _whole(copies: _Copies, data: _Source) -> _Copies:
    """The parts of a batch as one copy: as many records as those that are stored have."""
    at = np.searchsorted(data.first, copies.first, side="right") - 1
    is_part = (at >= 0) & (copies.first <= np.append(data.last, NONE)[at])
    first = np.where(is_part, np.append(data.first, NONE)[at], copies.first)
    starts = _starts(first)
    if len(starts) == len(first):
        return copies._replace(first=first)
    parts = np.diff(np.append(starts, len(first)))
    stored = np.add.reduceat(np.where(copies.copies > 0, copies.records, 0), starts)
    beyond = stored > np.append(data.records, _NEVER)[at[starts]]  # another cut of it was stored, too
    return _Copies(
        first[starts],
        np.maximum(np.maximum.reduceat(copies.copies, starts), np.where((parts > 1) & beyond, 2, 0)),
        copies.offset[starts],
        np.where((parts > 1) & (stored > 0), stored, copies.records[starts]),
        copies.place[starts],
    )


def _exact(data: _Source, copies: _Copies, tolerance: int) -> Named:
    """Each source batch that must be covered, or is. A batch that was fetched both wrapped and raw may have been copied
    either way: if it is not here, only the sums can show it."""
    at = np.searchsorted(copies.first, data.first)
    was_sent = np.append(copies.first, NONE - 1)[at] == data.first
    wanted = was_sent | (_are(data.flags, IS_WRAPPED) & _are(data.flags, IS_RAW, False)) | data.changed
    found = _paired(data, copies, np.where(was_sent, at, -1), wanted)
    state = _with_pending(found, _states(found, was_sent[wanted]), tolerance)
    return found | {"state": np.where(data.changed[wanted], CHANGED, state)}


def _paired(data: _Source, copies: _Copies, at: Longs, wanted: Flags) -> Named:
    """The wanted source batches, with their copies. `at`: where those are; -1: nowhere."""
    at = at[wanted]
    ours = {"base_offset": data.first, "last_offset": data.last, "records": data.records}
    ours |= {"max_timestamp": data.max_timestamp, "fetches": data.fetches}
    theirs = {"target_offset": copies.offset, "target_records": copies.records, "place": copies.place}
    return {
        **{name: column[wanted] for name, column in ours.items()},
        "copies": np.append(copies.copies, 0)[at],
        **{name: np.append(column, NONE)[at] for name, column in theirs.items()},
    }


def _states(found: Named, was_sent: Flags) -> Rows:
    copies = found["copies"]
    state = np.where(was_sent, UNCONFIRMED, MISSING)
    state[copies == 1] = COPIED
    state[(copies == 1) & (found["records"] != found["target_records"])] = DIFFERENT
    state[copies > 1] = DOUBLED
    return state


def _with_pending(found: Named, state: Rows, tolerance: int) -> Rows:
    """`pending`: one of the last `tolerance` of the missing ones, behind all that are covered."""
    missing = np.flatnonzero(state == MISSING)
    last = found["base_offset"][found["copies"] > 0].max(initial=NONE)
    newest = missing[max(len(missing) - tolerance, 0) :]
    state[newest[found["base_offset"][newest] > last]] = PENDING
    return state


def _exact_by_offset(data: _Source, attempts: Rows, copies: _Copies, probes: Rows, tolerance: int) -> Named:
    """`_exact` for a mirror topic: each batch that the mirror was given, or passed over. `probes`: of BATCH.

    Another consumer may have fetched what the mirror has not come to yet.
    """
    at = np.searchsorted(copies.first, data.first)
    was_sent = np.append(copies.first, NONE - 1)[at] == data.first
    is_aborted, was_given = _are(data.flags, IS_ABORTED), _are(data.flags, IS_WRAPPED)
    seen = is_aborted | was_given
    is_passed = np.logical_or.accumulate(seen) & np.logical_or.accumulate(seen[::-1])[::-1]
    wanted = was_sent | ((was_given | is_passed) & ~is_aborted) | data.changed
    found = _paired(data, copies, np.where(was_sent, at, -1), wanted)
    state, offset = _states(found, was_sent[wanted]), found["target_offset"]
    state[(found["copies"] > 0) & (offset == NONE)] = UNCONFIRMED
    state[(found["copies"] == 1) & (offset != NONE) & (offset != found["base_offset"])] = DIFFERENT_OFFSET
    unknown = (state == MISSING) | (state == UNCONFIRMED)
    state[unknown & _are_below_end(found["last_offset"], attempts, probes)] = BELOW_END
    state[is_aborted[wanted] & (found["copies"] > 0)] = ABORTED
    state = _with_pending(found, state, tolerance)
    return found | {"state": np.where(data.changed[wanted], CHANGED, state)}


def _are_below_end(last: Longs, attempts: Rows, probes: Rows) -> Flags:
    """Whether the target's log was known to end behind a batch before any answer for a later batch was known. So the
    answers for both may have been lost, when Shoal or a connection stopped.
    """
    answered = attempts[_are(attempts["flags"], IS_STORED)]
    found: Flags = _earliest_behind(last, probes["other"] - 1, probes["producer"]) < _earliest_behind(
        last, answered["source"], answered["producer"]
    )
    return found


def _earliest_behind(last: Longs, offset: Longs, time: Longs) -> Longs:
    """For each offset of `last`: the earliest time of an equal or larger offset; _NEVER if there is none."""
    order = np.argsort(offset)
    earliest = np.minimum.accumulate(np.append(time[order], _NEVER)[::-1])[::-1]
    found: Longs = earliest[np.searchsorted(offset[order], last)]
    return found


def _counted(exact: Named) -> Mapping[str, int]:
    state, records = exact["state"], exact["records"]
    doubled, different = state == DOUBLED, state == DIFFERENT
    lost = (records[different] - exact["target_records"][different]).clip(0)
    return {
        **dict(zip(_STATES, np.bincount(state, minlength=len(_STATES)), strict=True)),
        "missing_records": records[(state == MISSING) | (state == UNCONFIRMED)].sum() + lost.sum(),
        "doubled_records": (records[doubled] * (exact["copies"][doubled] - 1)).sum(),
    }


def _counted_by_offset(exact: Named) -> Mapping[str, int]:
    state, records = exact["state"], exact["records"]
    wrong = np.isin(state, (DOUBLED, DIFFERENT, DIFFERENT_OFFSET, ABORTED))
    return {
        "same_offset_records": records[state == COPIED].sum(),
        "wrong_records": records[wrong].sum(),
        "below_end_records": records[state == BELOW_END].sum(),
    }


def _reordered(exact: Named) -> int:
    """First copies that were appended after a later batch, in the same partition of the target."""
    known = np.flatnonzero((exact["target_offset"] != NONE) & (exact["state"] != CHANGED))
    order = known[np.lexsort((exact["target_offset"][known], exact["place"][known]))]
    place, offset = exact["place"][order], exact["base_offset"][order]
    return int(((place[1:] == place[:-1]) & (offset[1:] < offset[:-1])).sum())


def _retries(attempts: _Attempts) -> int:
    is_known = (attempts.rows["producer"] != NONE) & _are(attempts.rows["flags"], IS_FENCED, False)
    rows, place = attempts.rows[is_known], attempts.place[is_known]
    columns = [place, *(rows[name] for name in ("producer", "epoch", "sequence"))]
    order = np.lexsort(columns)
    return len(rows) - len(_starts(*(column[order] for column in columns)))


def _stored_once(attempts: _Attempts) -> Rows:
    """One row per offset in the broker's answer. Batches without one were sent with acks 0: each counts as stored."""
    is_stored = _are(attempts.rows["flags"], IS_STORED)
    rows, place = attempts.rows[is_stored], attempts.place[is_stored]
    order = np.lexsort((rows["other"], place))
    rows, place = rows[order], place[order]
    once = rows["other"] == NONE
    once[_starts(place, rows["other"])] = True
    found: Rows = rows[once]
    return found


def _minutes(data: _Source, stored: Rows, tolerance: int) -> Named:
    """`short`, `over`: see `analysis.py`. In the order of time."""
    source, target = _minute(data.max_timestamp), _minute(stored["max_timestamp"])
    number = np.union1d(source, target)
    records, largest = zip(
        *(_by_minute(number, at, of) for at, of in ((source, data.records), (target, stored["records"]))), strict=True
    )
    allowed = np.full(len(number), max(tolerance, 1))
    allowed[-1:] = tolerance
    difference = np.cumsum(records[0] - records[1])
    allowed *= max(largest)
    return {
        "number": number,
        "source_records": records[0],
        "target_records": records[1],
        "difference": difference,
        "short": np.where(difference > allowed + _late(number, source, data.records, max(largest)), difference, 0),
        "over": np.where(-difference > allowed, -difference, 0),
    }


def _late(number: Longs, minute: Longs, records: Longs, most: int) -> Longs:
    """For each minute: records of it and before that follow a later one closely in the source's log. The mirror may put
    each into a batch with that one. `minute`, `records`: of the batches in the order of the log; the log is seen as
    blocks of `most` records, the largest batch. A batch of the mirror begins at most two blocks before its end.
    """
    at = np.searchsorted(number, minute)
    block = (np.cumsum(records) - records) // max(most, 1)
    of_block = np.zeros(len(at) + 2, np.int64)  # its newest; two empty ones go first
    np.maximum.at(of_block, block + 2, at)
    begun = np.maximum.accumulate(block * len(number) + at) - block * len(number)
    newest = np.maximum.reduce([begun, of_block[block + 1], of_block[block]])
    late = np.zeros(len(number), np.int64)
    np.add.at(late, at, records)
    np.subtract.at(late, newest, records)
    found: Longs = np.cumsum(late)
    return found


def _minute(timestamp: Rows) -> Longs:
    found: Longs = np.sign(timestamp) * (np.abs(timestamp) // _MINUTE_MS)
    return found


def _by_minute(number: Longs, minute: Longs, records: Rows) -> tuple[Longs, int]:
    sums = np.zeros(len(number), np.int64)
    np.add.at(sums, np.searchsorted(number, minute), records)
    return sums, int(records.max(initial=0))


def _worst(values: Rows) -> int:
    """The shortfall at the end; if there is none, the largest before."""
    return int(values[-1] or values.max()) if len(values) else 0


def _stated(exact: Named, packed: pa.Table) -> Mapping[str, pa.Array]:
    """Columns of _STATED: all but the copied ones."""
    rows = np.flatnonzero(exact["state"] != COPIED)
    column = {name: each[rows] for name, each in exact.items()}
    place = pa.array(column["place"], mask=column["place"] == NONE)
    return {
        **{name: pa.array(column[name]) for name in _LONGS},
        **{name: packed[name].combine_chunks().take(place) for name in ("target_topic", "target_partition")},
        **{name: pa.array(column[name], mask=column[name] == NONE) for name in ("target_offset", "target_records")},
        "state": pa.array(_STATES).take(pa.array(column["state"])),
    }


def _one_list(columns: Mapping[str, Any], kind: pa.StructType) -> pa.ListArray:
    """A list of all rows, as the only value."""
    values = pa.StructArray.from_arrays([pa.array(columns[at.name]).cast(at.type) for at in kind], fields=list(kind))
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
