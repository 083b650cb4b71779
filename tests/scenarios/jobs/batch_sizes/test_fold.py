"""Sums and runs of pieces of any size, merged, equal a plain Python count over all rows."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.scenarios.capture.decode import arrow_schema
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.batch_sizes.analysis import count_gaps
from shoal.scenarios.jobs.batch_sizes.fold import COLUMNS, FOLDED, fold
from shoal.scenarios.jobs.batch_sizes.sizes import COUNTED, SUMS, added
from shoal.scenarios.jobs.columns.bins import bins_of, lower_edge
from shoal.scenarios.jobs.columns.groups import grouped, summed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = arrow_schema(chosen(COLUMNS))
Row = dict[str, Any]


def a_row(**different: Any) -> Row:
    row: Row = {
        "time_ns": 10**18, "proxy": "00c0ffee", "connection": 1, "request": 1, "client": "c", "cluster": "a",
        "kind": "batch", "direction": "produced", "handling": "passed", "topic": "t", "partition": 0, "records": 1,
        "batch_bytes": 100, "raw_bytes": None, "codec": "none", "control": False,
    }  # fmt: skip
    return row | different


ROWS = st.builds(
    a_row,
    time_ns=st.integers(0, 9) | st.integers(10**18, 10**18 + 9 * 10**12),
    connection=st.integers(1, 3) | st.just(1 << 40),
    request=st.integers(1, 9),
    client=st.sampled_from(["", "c", "d"]),
    kind=st.sampled_from(["batch", "batch", "request"]),
    direction=st.sampled_from(["produced", "fetched"]),
    handling=st.sampled_from(["passed", "wrapped", "own"]),
    topic=st.none() | st.sampled_from(["t", "u"]),
    partition=st.none() | st.integers(0, 1 << 30),
    records=st.integers(0, 2**31 - 1),
    batch_bytes=st.just(0) | st.integers(1, 2**31 - 1),
    raw_bytes=st.none() | st.integers(0, 2**31 - 1),
    codec=st.none() | st.sampled_from(["none", "zstd"]),
    control=st.booleans(),
)


def folded(rows: list[Row], cuts: list[int]) -> list[Row]:
    edges = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    pieces = [rows[start:end] for start, end in pairwise(edges)]
    found = [each for piece in pieces for each in fold([pa.RecordBatch.from_pylist(piece, schema=SCHEMA)])]
    table: list[Row] = pa.Table.from_batches(found, schema=FOLDED).to_pylist()
    return table


def a_bin(value: float) -> int:
    return math.floor(math.log2(value) * 4) if value >= 1 else -1


@settings(deadline=None)
@given(st.lists(ROWS, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_sums_of_any_pieces_are_those_of_all_rows(rows: list[Row], cuts: list[int]) -> None:
    names = ("cluster", "direction", "client", "topic", "partition", "codec")
    wanted: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["kind"] == "batch" and row["handling"] != "own" and not row["control"] and row["batch_bytes"]:
            bins = (row["time_ns"] // (3600 * 10**9), a_bin(row["batch_bytes"]), a_bin(row["records"]))
            known = row["raw_bytes"] is not None
            values = (
                1,
                row["records"],
                row["batch_bytes"],
                known and row["batch_bytes"] - 61,
                known and row["raw_bytes"],
            )
            wanted[*(row[name] for name in names), *bins].update(dict(zip(SUMS, values, strict=True)))
    keys = (*names, "hour", "bytes_bin", "records_bin")
    counts = [{name: each[name] for name in COUNTED.names} for each in folded(rows, cuts) if each["connection"] is None]
    found: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for each in counts:
        found[*(each[name] for name in keys)].update({name: each[name] for name in SUMS})
    assert found == wanted
    parts = [pa.RecordBatch.from_pylist(counts[at : at + 3], schema=COUNTED) for at in range(0, len(counts), 3)]
    merged = [each for part in added(parts) for each in part.to_pylist()]
    assert len(merged) == len(wanted)
    assert {tuple(each[name] for name in keys): {name: each[name] for name in SUMS} for each in merged} == found


def test_messages_of_old_formats_are_no_batches() -> None:
    assert folded([a_row(batch_bytes=0, records=0, codec=None)], []) == []


def a_history(client: str, chance: random.Random) -> list[Row]:
    """Rows of one client: some connections, each with requests of some batches, often simultaneous, some unordered."""
    rows = []
    for connection in range(chance.randint(1, 3)):
        at = 10**18
        for request in range(1, chance.randint(2, 9)):
            at += chance.choice([0, 1, 999, 1000, 4_000, chance.randrange(10**10)])
            one = a_row(client=client, connection=connection, request=request, time_ns=at)
            rows += [one] * chance.randint(1, 3)
    if chance.random() < 0.5:
        rows.sort(key=lambda row: row["time_ns"])
    for _ in range(chance.choice([0, 0, 1, 3])):
        rows.insert(chance.randrange(len(rows)), rows.pop(chance.randrange(len(rows))))
    return rows


def gaps_of(rows: list[Row]) -> Counter[tuple[str, int | None]]:
    found: Counter[tuple[str, int | None]] = Counter()

    def link(row: Row) -> tuple[str, int]:
        return row["client"], row["connection"]

    ordered = sorted(rows, key=lambda row: (*link(row), row["time_ns"], row["request"]))
    for (client, _), mine in groupby(ordered, link):
        seen = list(mine)
        found[client, None] += 1
        found.update(
            (client, a_bin((later["time_ns"] - earlier["time_ns"]) / 1000))
            for earlier, later in pairwise(seen)
            if earlier["request"] != later["request"]
        )
    return found


def test_gaps_are_those_of_all_rows_in_order_however_files_and_pieces_cut_them(spark: SparkSession) -> None:
    chance = random.Random(5)
    histories = [a_history(f"client-{number}", chance) for number in range(300)]
    runs: list[Row] = []
    for rows in histories:
        runs += folded(rows, [chance.randrange(40) for _ in range(chance.randint(0, 4))])
    chance.shuffle(runs)
    everything = [row for rows in histories for row in rows]
    whole = spark.createDataFrame(pa.Table.from_pylist(everything, schema=SCHEMA)).persist()
    found = count_gaps(spark.createDataFrame(pa.Table.from_pylist(runs, schema=FOLDED)).persist(), whole).to_pylist()
    assert {(row["client"], row["gap_bin"]): row["requests"] for row in found} == gaps_of(everything)


COLUMN = st.lists(st.integers(0, 4), min_size=12, max_size=12)


@given(st.lists(COLUMN, min_size=1, max_size=6))
@settings(deadline=None)
def test_rows_are_in_one_group_where_all_columns_are_equal(columns: list[list[int]]) -> None:
    """With few digits: keys are made dense, as with many names."""
    words = pa.array(["a", "b", None, "", "c"])
    given_columns = [np.array(each) if at % 2 else words.take(pa.array(each)) for at, each in enumerate(columns)]
    groups = grouped(given_columns, most=50, narrow=3)
    keys = list(zip(*columns, strict=True))
    assert len(groups) == len(set(keys))
    assert [keys[first] for first in groups.first] == list(dict.fromkeys(keys))
    assert [keys[groups.first[code]] for code in groups.codes] == keys
    assert summed(groups, np.arange(12)).sum() == 66


@given(st.integers(0, 2**62))
def test_whole_numbers_are_within_the_edges_of_their_bin(value: int) -> None:
    [number] = bins_of(np.array([value]))
    assert lower_edge(number) <= value * (1 + 1e-15)
    assert value < lower_edge(number + 1) * (1 + 1e-15) or value >= 2**52


def test_powers_of_two_are_edges_in_any_unit() -> None:
    for unit in (1, 1000):
        powers = np.array([unit << shift for shift in range(50)])
        assert list(bins_of(powers, unit)) == [4 * shift for shift in range(50)]
        assert list(bins_of(powers[3:] - 1, unit)) == [4 * shift - 1 for shift in range(3, 50)]
