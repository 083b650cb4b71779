"""Packed batches against a plain Python loop over the same rows, for rows in any pieces."""

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shoal.scenarios.capture.decode import arrow_schema
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.coalescing.arrivals import IS_ALONE, IS_ERROR, IS_LONE
from shoal.scenarios.jobs.coalescing.gather import BROKER, LOGIN_READS, READS, logins, pack, unpacked

Row = dict[str, Any]
SECOND = 1_000_000_000
SLICE = 10
SCHEMA = arrow_schema(chosen(READS))
LOGGED_IN = {"00c0ffee": np.array([2, 5])}

ROWS = st.fixed_dictionaries(
    {
        "time_ns": st.integers(0, 25 * SECOND),
        "latency_ns": st.none() | st.integers(0, 1 << 40),
        "proxy": st.sampled_from(["00c0ffee", "00facade"]),
        "connection": st.integers(1, 3),
        "request": st.integers(1, 1 << 31),
        "client": st.sampled_from(["", "a", "b"]),
        "listener": st.just("plain"),
        "cluster": st.sampled_from(["source", "target"]),
        "node": st.none() | st.integers(0, 2),
        "kind": st.sampled_from(["batch", "batch", "batch", "request"]),
        "direction": st.sampled_from(["produced", "produced", "produced", "fetched"]),
        "handling": st.sampled_from(["passed", "passed", "raw", "coalesced", "own"]),
        "api_version": st.integers(2, 12),
        "topic": st.none() | st.sampled_from(["t", "u"]),
        "partition": st.integers(0, 3),
        "records": st.integers(0, 1 << 30),
        "batch_bytes": st.integers(0, 100_000),
        "codec": st.none() | st.sampled_from(["none", "lz4", "zstd"]),
        "producer_id": st.none() | st.integers(0, 9) | st.integers(0, 1 << 40),
        "producer_epoch": st.none() | st.integers(0, 3),
        "base_sequence": st.none() | st.integers(0, (1 << 31) - 1),
        "transactional": st.booleans(),
        "control": st.booleans(),
        "acks": st.none() | st.sampled_from([-1, 0, 1]),
        "error": st.none() | st.sampled_from([0, 0, 7]),
        "request_bytes": st.none() | st.integers(0, 100_000),
    }
)


def _flags(row: Row) -> int:
    alone = (
        row["transactional"]
        or row["control"]
        or row["node"] is None
        or row["api_version"] < (7 if row["codec"] == "zstd" else 3)
        or (row["batch_bytes"] if row["request_bytes"] is None else row["request_bytes"]) > 64 * 1024
        or (row["proxy"], row["connection"]) == ("00c0ffee", 2)
    )
    return IS_ALONE * alone + IS_LONE * (row["producer_id"] is not None) + IS_ERROR * (row["error"] not in (None, 0))


def _is_sent(row: Row) -> bool:
    return (row["kind"], row["direction"]) == ("batch", "produced") and row["handling"] in {"passed", "raw"}


@given(rows=st.lists(ROWS, max_size=30), cut=st.integers(0, 30))
def test_batches_are_packed_by_broker_and_slice_of_time(rows: list[Row], cut: int) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    parts = [part for part in (table[:cut], table[cut:]) if len(part)]
    wanted: dict[Hashable, list[Row]] = defaultdict(list)
    for row in filter(_is_sent, rows):
        wanted[*(row[name] for name in BROKER), row["time_ns"] // (SLICE * SECOND)].append(row)
    found: dict[Hashable, list[pa.BinaryScalar]] = defaultdict(list)
    for part in parts:
        for batch in pack(LOGGED_IN, SLICE, part.to_batches()):
            for *broker, number, arrivals in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found[*broker, number].append(pa.scalar(arrivals))
    assert found.keys() == wanted.keys()
    for key, batches in wanted.items():
        _check(unpacked(found[key]), batches)


def _check(packed: Any, batches: list[Row]) -> None:
    plain = {"time_ns": "time_ns", "source": "connection", "size": "batch_bytes", "records": "records"}
    for name, column in plain.items():
        assert packed[name].tolist() == [row[column] for row in batches]
    assert packed["latency_ns"].tolist() == [-1 if row["latency_ns"] is None else row["latency_ns"] for row in batches]
    assert packed["sequence"].tolist() == [row["base_sequence"] or 0 for row in batches]
    assert packed["flags"].tolist() == list(map(_flags, batches))
    assert (packed["producer"] == 0).tolist() == [row["producer_id"] is None for row in batches]
    _same_where(packed["request"], batches, lambda row: (row["connection"], row["request"]))
    _same_where(packed["kind"], batches, lambda row: (row["api_version"], row["acks"]))
    _same_where(packed["client"], batches, lambda row: row["client"])
    _same_where(packed["target"], batches, lambda row: (row["topic"], row["partition"]))
    with_id = [(number, row) for number, row in zip(packed["producer"], batches, strict=True) if number]
    names = ("producer_id", "producer_epoch", "topic", "partition")
    _same_where([number for number, _ in with_id], [row for _, row in with_id], lambda row: tuple(map(row.get, names)))


def _same_where(numbers: Any, batches: list[Row], key: Callable[[Row], Hashable]) -> None:
    """Two batches have the same number if, and only if, they have the same key."""
    pairs = {(int(number), key(row)) for number, row in zip(numbers, batches, strict=True)}
    assert len(pairs) == len({number for number, _ in pairs}) == len({name for _, name in pairs})


def test_clients_that_log_in_are_found_but_not_shoal_itself() -> None:
    rows = [
        {"proxy": "00c0ffee", "connection": connection, "handling": handling, "api_key": api_key}
        for connection, handling, api_key in [(1, "passed", 0), (2, "passed", 17), (3, "own", 17), (4, "passed", 36)]
    ]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(chosen(LOGIN_READS)))
    found = [row for batch in logins(table.to_batches()) for row in batch.to_pylist()]
    assert found == [{"proxy": "00c0ffee", "connection": 2}, {"proxy": "00c0ffee", "connection": 4}]
