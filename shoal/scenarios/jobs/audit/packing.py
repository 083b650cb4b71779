"""Captured rows -> the batches that a mirror fetched and sent, packed by source partition, where they are read.

A packed row has up to thousands of batches in one value, so Spark moves few rows, however many batches there are.
Needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shoal.protocol.wire.error_codes import ErrorCode
from shoal.scenarios.jobs.columns.groups import grouped, is_word
from shoal.scenarios.jobs.columns.pieces import encoded, numbers, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    *("BATCH", "COLUMNS", "IS_ABORTED", "IS_CONTROL", "IS_EXACT", "IS_FENCED", "IS_KNOWN", "IS_RAW", "IS_STORED"),
    *("IS_WRAPPED", "NONE", "PACKED", "SEEN", "SEEN_COLUMNS", "pack", "seen"),
]

Columns = dict[str, pa.Array]

_OF_BOTH: Final = {
    *("handling", "topic", "partition", "base_offset", "records", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence"),
}
_OF_SOURCE: Final = {"last_offset", "control"}
_OF_TARGET: Final = {"time_ns", "acks", "error", "source_topic", "source_partition", "source_first"}
COLUMNS: Final = ("cluster", "kind", "direction", *sorted(_OF_BOTH | _OF_SOURCE | _OF_TARGET))
"""All columns that are read."""
SEEN_COLUMNS: Final = ("cluster", "kind", "direction")
SEEN: Final = pa.schema([("cluster", pa.string()), ("direction", pa.string())])
PACKED: Final = pa.schema(
    [
        ("direction", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("target_topic", pa.string()),
        ("target_partition", pa.int32()),
        ("batches", pa.binary()),
    ]
)
"""`direction`: fetched, produced, or probed (where a mirror topic's log ended). `topic`, `partition`: of the source.
`target_...`: the same, if `fetched`. `batches`: an array of BATCH."""
BATCH: Final = np.dtype(
    [
        ("source", np.int64),  # the offset of its first record at the source
        ("other", np.int64),  # of its last record; produced: of the first at the target, by the answer; probed: its end
        ("records", np.int64),
        ("max_timestamp", np.int64),
        ("producer", np.int64),  # probed, and IS_FENCED (which has none): the time of the request
        ("sequence", np.int32),
        ("epoch", np.int16),
        ("flags", np.uint8),
        ("unused", np.uint8),  # 48 bytes, which are copied faster than 47
    ]
)
NONE: Final = -1
"""An unknown offset, and no producer."""
IS_CONTROL, IS_WRAPPED, IS_RAW, IS_EXACT, IS_STORED, IS_KNOWN, IS_FENCED, IS_ABORTED = (1 << bit for bit in range(8))
"""IS_EXACT: it names the source offsets that it carries. IS_STORED: the broker has it, by its answer or because there
is none (acks 0). IS_KNOWN: the broker had it already. IS_FENCED: of a mirror topic. IS_ABORTED: left out of one."""
_INTERNAL: Final = r"^(__|[.])|[-.]internal$"
"""Names of topics that MirrorMaker 2 does not copy (ReplicationPolicy.isInternalTopic)."""
_PIECE: Final = 250_000
_PACKED: Final = 4096
"""Batches in a packed row: a value above half a region is expensive for Java's collector."""


def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Clusters and directions with batches, as SEEN; perhaps several times."""
    for piece in pieces(batches, _PIECE):
        column = encoded(piece)
        found = pa.table(column).filter(pa.array(is_word(column["kind"], "batch"))).select(SEEN.names)
        yield from found.group_by(SEEN.names).aggregate([]).cast(SEEN).to_batches()


def pack(
    source: str, target: str, prefix: str, topics: frozenset[str] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`source`, `target`: clusters. `prefix`: what the mirror puts before a topic's name at the target. `topics`: names
    at the source; None: all. -> PACKED."""
    for piece in pieces(batches, _PIECE):
        column = encoded(piece)
        batch = is_word(column["kind"], "batch") & ~_matching(column["topic"], _INTERNAL)
        own = is_word(column["handling"], "own")
        copied = batch & ~own & (numbers(column["records"]) > 0)
        known = _are_valid(column["base_offset"])
        fetched = is_word(column["direction"], "fetched") & is_word(column["cluster"], source) & known
        produced = is_word(column["direction"], "produced") & is_word(column["cluster"], target)
        probed = batch & own & produced & known & _are_valid(column["source_topic"])
        produced &= ~column["control"].to_numpy(zero_copy_only=False)
        produced &= _begin(column["topic"], prefix) | _are_valid(column["source_topic"])  # others are the target's own
        yield from _packed(_of_source(_only(column, _OF_BOTH | _OF_SOURCE, copied & fetched)), topics)
        yield from _packed(_of_target(_only(column, _OF_BOTH | _OF_TARGET, copied & produced), prefix), topics)
        if probed.any():
            yield from _packed(_of_probes(_only(column, _OF_BOTH | _OF_TARGET, probed), prefix), topics)


def _are_valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _matching(names: pa.DictionaryArray, pattern: str) -> npt.NDArray[np.bool_]:
    """Null matches."""
    found = pc.match_substring_regex(names.dictionary, pattern).to_numpy(zero_copy_only=False)
    places = names.indices.fill_null(len(found)).to_numpy()
    flags: npt.NDArray[np.bool_] = np.append(found, True)[places]
    return flags


def _begin(names: pa.DictionaryArray, prefix: str) -> npt.NDArray[np.bool_]:
    """Null does not."""
    found = pc.starts_with(names.dictionary, prefix).to_numpy(zero_copy_only=False)
    flags: npt.NDArray[np.bool_] = np.append(found, False)[names.indices.fill_null(len(found)).to_numpy()]
    return flags


def _only(column: Columns, names: set[str], wanted: npt.NDArray[np.bool_]) -> Columns:
    return {name: column[name].filter(pa.array(wanted)) for name in names}


def _of_source(column: Columns) -> tuple[Columns, npt.NDArray[np.void]]:
    rows = _rows(column)
    rows["source"], rows["other"] = numbers(column["base_offset"], NONE), numbers(column["last_offset"], NONE)
    rows["flags"] = numbers(column["control"]) * IS_CONTROL
    rows["flags"] |= is_word(column["handling"], "wrapped") * np.uint8(IS_WRAPPED)
    rows["flags"] |= is_word(column["handling"], "raw") * np.uint8(IS_RAW)
    rows["flags"] |= is_word(column["handling"], "aborted") * np.uint8(IS_ABORTED)
    places = {"topic": column["topic"], "partition": column["partition"]}
    return _places("fetched", places, places), rows


def _of_target(column: Columns, prefix: str) -> tuple[Columns, npt.NDArray[np.void]]:
    rows = _rows(column)
    error = numbers(column["error"], NONE)
    is_stored = (error == 0) | (numbers(column["acks"], NONE) == 0)
    is_exact = _are_valid(column["source_first"])
    rows["source"], rows["other"] = numbers(column["source_first"], NONE), numbers(column["base_offset"], NONE)
    rows["flags"] = is_stored * np.uint8(IS_STORED) | is_exact * np.uint8(IS_EXACT)
    rows["flags"] |= (error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER.value) * np.uint8(IS_KNOWN)
    is_fenced = is_word(column["handling"], "fenced")
    if is_fenced.any():
        rows["flags"] |= is_fenced * np.uint8(IS_FENCED)
        rows["producer"] = np.where(is_fenced, numbers(column["time_ns"]), rows["producer"])
    return _places_of_both("produced", column, prefix), rows


def _of_probes(column: Columns, prefix: str) -> tuple[Columns, npt.NDArray[np.void]]:
    rows = _rows(column)
    rows["other"], rows["producer"] = numbers(column["base_offset"]), numbers(column["time_ns"])
    return _places_of_both("probed", column, prefix), rows


def _places_of_both(direction: str, column: Columns, prefix: str) -> Columns:
    theirs = {"topic": column["topic"], "partition": column["partition"]}
    ours = {
        "topic": pc.coalesce(column["source_topic"].cast(pa.string()), _without(theirs["topic"], prefix)),
        "partition": pc.coalesce(column["source_partition"].cast(pa.int32()), theirs["partition"].cast(pa.int32())),
    }
    return _places(direction, ours, theirs)


def _without(topic: pa.Array, prefix: str) -> pa.Array:
    names = topic.dictionary.to_pylist()
    return pa.DictionaryArray.from_arrays(topic.indices, [name.removeprefix(prefix) for name in names]).cast(
        pa.string()
    )


def _rows(column: Columns) -> npt.NDArray[np.void]:
    rows = np.zeros(len(column["topic"]), BATCH)
    rows["records"], rows["max_timestamp"] = numbers(column["records"]), numbers(column["max_timestamp"])
    rows["producer"], rows["epoch"] = numbers(column["producer_id"], NONE), numbers(column["producer_epoch"], NONE)
    rows["sequence"] = numbers(column["base_sequence"], NONE)
    return rows


def _places(direction: str, ours: Columns, theirs: Columns) -> Columns:
    names = {"direction": pa.repeat(direction, len(ours["topic"]))}
    return names | ours | {f"target_{name}": each for name, each in theirs.items()}


def _packed(
    places_and_rows: tuple[Columns, npt.NDArray[np.void]], topics: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    places, rows = places_and_rows
    if not len(rows):
        return
    groups = grouped([places[name] for name in PACKED.names[1:-1]])
    order = np.argsort(groups.codes, kind="stable")
    parts = np.split(rows.take(order), np.flatnonzero(np.diff(groups.codes[order])) + 1)
    wanted = [topics is None or places["topic"][int(first)].as_py() in topics for first in groups.first]
    packed = [
        (code, part[at : at + _PACKED])
        for code, part in enumerate(parts)
        if wanted[code]
        for at in range(0, len(part), _PACKED)
    ]
    if not packed:
        return
    first = pa.array(groups.first[[code for code, _ in packed]])
    found: dict[str, Any] = {name: each.take(first) for name, each in places.items()}
    found["batches"] = pa.array([part.tobytes() for _, part in packed], pa.binary())
    yield pa.RecordBatch.from_arrays([found[field.name].cast(field.type) for field in PACKED], schema=PACKED)
