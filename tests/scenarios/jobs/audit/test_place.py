"""The audit of packed rows, without Spark: it makes no difference how rows were packed."""

import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shoal.protocol.wire.error_codes import ErrorCode
from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.audit.packing import BATCH, COLUMNS, IS_STORED, IS_WRAPPED, PACKED, pack, seen
from shoal.scenarios.jobs.audit.place import audit_place
from tests.scenarios.jobs.captures import one_chunk
from tests.support.captures.synthetic import Array, Chunk
from tests.support.captures.synthetic_mirror import Faults, Mirrored, mirrored, same_offsets

COPY = mirrored(one_chunk(3_000), Faults(missing=4, doubled=5, reordered=6, retried=7))


def read(chunk: Chunk) -> pa.RecordBatch:
    decoder = Decoder(chosen(), NameTable(dict(enumerate(chunk.names, 1))), "00c0ffee")
    return decoder.decode(chunk.rows).select(COLUMNS)


def packed(*parts: pa.RecordBatch, prefix: str = "", topics: frozenset[str] | None = None) -> list[dict[str, Any]]:
    """Each part is another task's."""
    found = [batch for part in parts for batch in pack("source", "target", prefix, topics, [part])]
    return [row for batch in found for row in batch.to_pylist()]


def audited(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    places = defaultdict(list)
    for row in rows:
        places[row["topic"], row["partition"]].append(row)
    found = [
        audit_place((pa.scalar(topic), pa.scalar(partition)), pa.Table.from_pylist(place), 1)
        for (topic, partition), place in sorted(places.items())
    ]
    judged: list[dict[str, Any]] = pa.concat_tables(found).to_pylist()
    return judged


@pytest.mark.parametrize("size", [7, 100, 2_999])
def test_the_parts_in_which_rows_were_read_make_no_difference(size: int) -> None:
    whole = read(COPY.both)
    rows = packed(*(whole.slice(at, size) for at in range(0, len(whole), size)))
    assert audited(reversed(rows)) == audited(packed(whole))


def test_the_whole_finds_each_fault() -> None:
    counts = [place["counts"] for place in audited(packed(read(COPY.both)))]
    totals = [sum(place[name] for place in counts) for name in ("missing", "doubled", "reordered", "retries")]
    assert totals == [4, 5, 6, 7]


def test_a_partition_of_which_nothing_was_fetched_only_says_that_it_is_written_to() -> None:
    [place, *_] = audited(packed(read(COPY.target)))
    assert (place["is_copied"], place["counts"]) == (True, None)


def test_clusters_are_told_with_the_directions_in_which_they_are_used() -> None:
    found = pa.Table.from_batches(seen([read(COPY.both)])).to_pylist()
    assert {tuple(row.values()) for row in found} == {("source", "fetched"), ("target", "produced")}


def test_the_targets_own_topics_of_the_same_names_are_no_copies() -> None:
    """Between two clusters that mirror each other, with a prefix."""
    copy = mirrored(one_chunk(3_000), wrapped=False)
    names = copy.both.names
    is_copy = copy.target.rows["topic"] != names.index("clicks") + 1
    copy.target.rows["topic"][is_copy] += len(names)
    chunk = Chunk(rows=copy.both.rows, names=(*names, *(f"a.{name}" for name in names)))
    found = audited(packed(read(chunk), prefix="a."))
    assert {place["topic"] for place in found if place["counts"]["short"]} == {"clicks"}
    assert {place["topic"] for place in found if not place["counts"]["target_records"]} == {"clicks"}


def test_chosen_topics_are_compared_with_all_their_copies_and_no_other_topics() -> None:
    """The copy of one has another name at the target, by Shoal's records; and the source itself has a topic with the
    prefix, whose copy has it twice."""
    copy = same_offsets(mirrored(one_chunk(3_000)))
    names = (*copy.both.names, "renamed", "a.clicks", "a.a.clicks")
    clicks, orders, renamed, once, twice = (
        names.index(name) + 1 for name in ("clicks", "orders", "renamed", "a.clicks", "a.a.clicks")
    )
    for column, number, other in (("topic", clicks, renamed), ("topic", orders, twice), ("source_topic", orders, once)):
        copy.target.rows[column][copy.target.rows[column] == number] = other
    copy.fetched.rows["topic"][copy.fetched.rows["topic"] == orders] = once
    rows = np.concatenate([copy.fetched.rows, copy.target.rows])
    places = audited(packed(read(Chunk(rows=rows, names=names)), prefix="a.", topics=frozenset({"clicks"})))
    assert {place["topic"] for place in places} == {"clicks"}
    assert all(place["counts"]["target_records"] == place["counts"]["records"] > 0 for place in places)


def test_a_batch_with_fewer_records_at_the_target_is_missing_some() -> None:
    copy = mirrored(one_chunk(3_000))
    (place,) = np.flatnonzero(copy.target.rows["record_count"] == copy.target.rows["record_count"].max())[:1]
    copy.target.rows["record_count"][place] -= 2
    counts = [place["counts"] for place in audited(packed(read(copy.both)))]
    assert [sum(count[name] for count in counts) for name in ("different", "missing_records")] == [1, 2]


def totals(*chunks: Chunk) -> dict[str, int]:
    """Counts of all partitions."""
    names = chunks[0].names
    rows = np.concatenate([chunk.rows for chunk in chunks])
    counts = [place["counts"] for place in audited(packed(read(Chunk(rows=rows, names=names))))]
    return {name: sum(count[name] or 0 for count in counts) for name in counts[0]}


def in_parts(rows: Array, at: int) -> Array:
    """A target's rows with the one `at` cut into two parts (unwrap/progress.py). It has not an only record."""
    first, rest = rows[at : at + 1].copy(), rows[at : at + 1].copy()
    count = int(rows[at]["record_count"]) // 2
    assert count > 0
    first["record_count"], first["last_offset_delta"] = count, count - 1
    first["source_last"] = first["source_first"] + count - 1
    rest["record_count"] -= count
    rest["last_offset_delta"] -= count
    for column in ("source_first", "log_offset"):
        rest[column] += count
    return np.concatenate([rows[:at], first, rest, rows[at + 1 :]])


@pytest.fixture
def large() -> tuple[Mirrored, int]:
    """A copy, and the number of its row with the most records."""
    copy = mirrored(one_chunk(3_000))
    return copy, int(copy.target.rows["record_count"].argmax())


def test_a_batch_that_was_cut_for_the_target_is_copied(large: tuple[Mirrored, int]) -> None:
    copy, at = large
    parts = in_parts(in_parts(copy.target.rows, at), at)
    refused = copy.target.rows[at : at + 1].copy()  # whole, before it was cut
    refused["error"], refused["log_offset"] = ErrorCode.MESSAGE_TOO_LARGE, -1
    found = totals(copy.fetched, Chunk(rows=np.concatenate([parts, refused]), names=copy.fetched.names))
    assert found == totals(copy.both) | {"retries": found["retries"]}
    assert (found["copied"], found["missing_records"], found["doubled"]) == (3_000, 0, 0)


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, None])
def test_an_attempt_with_fewer_records_that_was_not_stored_is_no_loss(
    large: tuple[Mirrored, int], error: ErrorCode | None
) -> None:
    """A part, or the same batch after compaction; without an answer, too."""
    copy, at = large
    fewer = in_parts(copy.target.rows, at)[at : at + 1].copy()
    fewer["error"], fewer["log_offset"] = -1 if error is None else error, -1
    found = totals(copy.fetched, Chunk(rows=np.concatenate([fewer, copy.target.rows]), names=copy.fetched.names))
    assert (found["copied"], found["different"], found["missing_records"]) == (3_000, 0, 0)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_part_of_a_batch_that_is_lost_is_missing(large: tuple[Mirrored, int], part: int) -> None:
    copy, at = large
    parts = in_parts(in_parts(copy.target.rows, at), at)
    lost = int(parts[at + part]["record_count"])
    found = totals(copy.fetched, Chunk(rows=np.delete(parts, at + part), names=copy.fetched.names))
    assert (found["different"], found["missing_records"], found["doubled"]) == (1, lost, 0)


@pytest.mark.parametrize("part", [0, 1])
def test_a_part_of_a_batch_that_is_there_twice_is_doubled(large: tuple[Mirrored, int], part: int) -> None:
    copy, at = large
    parts = in_parts(copy.target.rows, at)
    again = parts[at + part : at + part + 1].copy()
    again["log_offset"] += 10**9
    for rows in (np.concatenate([parts, again]), np.concatenate([copy.target.rows, again])):
        found = totals(copy.fetched, Chunk(rows=rows, names=copy.fetched.names))
        assert (found["doubled"], found["different"], found["missing"]) == (1, 0, 0)


@pytest.mark.parametrize("make", [lambda copy: copy, same_offsets])
def test_a_source_that_was_created_again_is_no_whole_copy(make: Callable[[Mirrored], Mirrored]) -> None:
    """The target has the first one at the same offsets, and nothing of the second one."""
    copy = make(mirrored(one_chunk(3_000)))
    for column, difference in (("max_timestamp", 1), ("last_offset_delta", 1), ("base_sequence", 1)):
        second = copy.fetched.rows[-1:].copy()
        second[column] += difference
        found = totals(copy.both, Chunk(rows=second, names=copy.both.names))
        assert (found["source_changed"], found["copied"], found["missing"]) == (1, 2_999, 0)


def test_batches_with_common_offsets_are_of_two_logs() -> None:
    copy = mirrored(one_chunk(3_000))
    place = (copy.fetched.rows["topic"] == copy.fetched.rows[-1]["topic"]) & (
        copy.fetched.rows["partition"] == copy.fetched.rows[-1]["partition"]
    )
    before, last = copy.fetched.rows[place][-2:]
    second = copy.fetched.rows[-1:].copy()
    second["base_offset"] = second["log_offset"] = before["log_offset"] + before["last_offset_delta"]
    second["last_offset_delta"] = 1
    assert second["log_offset"] > before["log_offset"]
    assert second["log_offset"] + 1 == last["log_offset"]
    found = totals(copy.both, Chunk(rows=second, names=copy.both.names))
    assert (found["source_changed"], found["missing_records"], found["offsets_not_seen"]) == (3, 0, 0)


def test_a_batch_that_was_compacted_between_two_fetches_is_the_same() -> None:
    copy = mirrored(one_chunk(3_000))
    at = int(copy.fetched.rows["record_count"].argmax())
    again = copy.fetched.rows[at : at + 1].copy()
    again["record_count"] -= 1
    again["max_timestamp"] -= 5
    found = totals(copy.both, Chunk(rows=again, names=copy.both.names))
    assert found == totals(copy.both) | {"fetched_again": 1}
    assert found["copied"] == 3_000


def test_copies_in_two_partitions_are_two_copies_also_at_one_offset() -> None:
    copy = mirrored(one_chunk(3_000))
    again = copy.target.rows[:1].copy()
    again["partition"] += 1000
    counts = [
        place["counts"]
        for place in audited(packed(read(Chunk(rows=np.concatenate([copy.both.rows, again]), names=copy.both.names))))
    ]
    assert sum(count["doubled"] for count in counts if count) == 1


def test_a_partition_that_is_missing_takes_no_object_for_each_batch() -> None:
    rows = np.zeros(20_000, BATCH)
    rows["source"], rows["other"], rows["records"] = np.arange(len(rows)), np.arange(len(rows)), 1
    rows["max_timestamp"], rows["flags"] = rows["source"] * 60_000, IS_WRAPPED
    place = {"topic": "t", "partition": 0, "target_topic": "t", "target_partition": 0, "batches": rows.tobytes()}
    packed_rows = pa.Table.from_pylist([{"direction": "fetched", **place}], schema=PACKED)
    tracemalloc.start()
    try:
        found = audit_place((pa.scalar("t"), pa.scalar(0, pa.int32())), packed_rows, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pc.list_value_length(found["batches"]).to_pylist() == [20_000]
    assert peak < 20_000 * 500


def of_two_clocks() -> Chunk:
    """Producers whose clocks differ by an hour write to the same partitions in turn."""
    chunk = one_chunk(3_000)
    for name in ("base_timestamp", "max_timestamp"):
        chunk.rows[name][::2] -= 3_600_000
    return chunk


def test_old_timestamps_between_new_ones_are_no_loss() -> None:
    """A mirror that makes its own batches puts old and new records in one, which counts as new."""
    copy = mirrored(of_two_clocks(), wrapped=False)
    found = totals(copy.fetched, copy.target)
    assert (found["short"], found["over"]) == (0, 0)
    assert found["target_records"] == found["records"]


def test_a_loss_between_timestamps_that_are_not_in_order_is_found() -> None:
    copy = mirrored(of_two_clocks(), wrapped=False)
    records = copy.target.rows["record_count"]
    kept = ~np.isin(np.arange(len(records)), np.argsort(records)[-40:])
    found = totals(copy.fetched, Chunk(rows=copy.target.rows[kept], names=copy.target.names))
    assert found["short"] == records[~kept].sum()


def test_one_record_of_a_clock_that_is_ahead_does_not_excuse_a_loss_behind_it() -> None:
    """The sum at the end does not show it either: as many other records are doubled later."""
    minute = np.concatenate([[60], np.arange(200) // 10])
    source = np.zeros(len(minute), BATCH)
    source["source"] = source["other"] = np.arange(len(minute)) * 100
    source["records"], source["max_timestamp"] = 100, minute * 60_000
    target = source[np.concatenate([np.flatnonzero(minute != 3), np.flatnonzero(minute == 15)])]
    target["source"], target["other"], target["flags"] = -1, np.arange(len(target)) * 100, IS_STORED
    place = {"topic": "t", "partition": 0, "target_topic": "t", "target_partition": 0}
    rows = [
        {"direction": direction, **place, "batches": batches.tobytes()}
        for direction, batches in (("fetched", source), ("produced", target))
    ]
    found = audit_place((pa.scalar("t"), pa.scalar(0, pa.int32())), pa.Table.from_pylist(rows, schema=PACKED), 1)
    (counts,) = found["counts"].to_pylist()
    assert (counts["records"], counts["target_records"], counts["short"]) == (20_100, 20_100, 1_000)
