"""Rows become columns: each as documented for one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.index.columns import FIELDS, ROW_SIZE
from shoal.scenarios.capture.decode import Decoder, arrow_schema
from shoal.scenarios.capture.rows import NameTable, as_rows, row_dtype
from shoal.scenarios.capture.schema import COLUMNS, chosen
from shoal.scenarios.capture.selection import Selection
from tests.support.captures.index_files import NAMES, PROXY, encode_row, rows, shown

if TYPE_CHECKING:
    import pyarrow as pa

_SOME = st.lists(rows, min_size=1, max_size=4)


def _decoded(payload: bytes, names: dict[int, str], columns: list[str] | None = None) -> pa.RecordBatch:
    return Decoder(chosen(columns), NameTable(names), PROXY).decode(as_rows(payload, ROW_SIZE))


@given(_SOME)
def test_every_column_is_what_the_row_says(some: list[dict[str, int]]) -> None:
    batch = _decoded(b"".join(encode_row(**row) for row in some), NAMES)

    assert batch.to_pylist() == [shown(row) for row in some]
    batch.validate(full=True)


@given(_SOME, st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True))
def test_only_the_columns_that_are_asked_for_in_their_order(some: list[dict[str, int]], columns: list[str]) -> None:
    batch = _decoded(b"".join(encode_row(**row) for row in some), NAMES, columns)

    assert batch.to_pylist() == [{name: shown(row)[name] for name in columns} for row in some]
    assert batch.schema == arrow_schema(chosen(columns))


def test_names_that_no_block_has_told_are_shown_by_number() -> None:
    payload = b"".join(encode_row(topic=number, client=number) for number in (0, 1, 7, 4_000_000_000))
    batch = _decoded(payload, NAMES, ["topic", "client"])

    assert batch["topic"].to_pylist() == [None, "orders", "?7", "?4000000000"]
    assert batch["client"].to_pylist() == ["", "orders", "?7", "?4000000000"]


def test_a_name_with_a_huge_number_takes_no_huge_table() -> None:
    payload = b"".join(encode_row(topic=number) for number in (1, 4_294_967_295))

    assert _decoded(payload, {1: "a", 4_294_967_295: "b"}, ["topic"])["topic"].to_pylist() == ["a", "b"]


def test_names_that_are_told_later_are_known_then() -> None:
    names = {1: "a"}
    decoder = Decoder(chosen(["topic"]), NameTable(names), PROXY)
    row = as_rows(encode_row(topic=2), ROW_SIZE)
    before = decoder.decode(row)["topic"].to_pylist()
    names[2] = "b"

    assert (before, decoder.decode(row)["topic"].to_pylist()) == (["?2"], ["b"])


@given(rows, st.binary(min_size=1, max_size=9))
def test_what_a_later_version_appends_to_a_row_is_passed_over(row: dict[str, int], more: bytes) -> None:
    found = as_rows((encode_row(**row) + more) * 2, ROW_SIZE + len(more))

    assert [{field.name: int(one[field.name]) for field, _ in FIELDS} for one in found] == [row, row]
    assert row_dtype(ROW_SIZE).itemsize == ROW_SIZE


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"no such column: topics, bytes \(there are time_ns, "):
        chosen(["topics", "topic", "bytes"])


_WANTED = st.none() | st.frozensets(st.sampled_from(["orders", "payments", "small-producer", "nobody"]))
_TIMES = st.none() | st.integers(0, 5)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))), _WANTED, _WANTED, _TIMES, _TIMES)
def test_rows_that_are_not_wanted_are_left_out(
    some: list[tuple[int, int, int]],
    topics: frozenset[str] | None,
    clients: frozenset[str] | None,
    from_ns: int | None,
    to_ns: int | None,
) -> None:
    payload = b"".join(encode_row(time_ns=time, topic=topic, client=client) for time, topic, client in some)
    wanted = Selection(topics=topics, clients=clients, from_ns=from_ns, to_ns=to_ns)
    found = wanted.of(as_rows(payload, ROW_SIZE), NameTable(NAMES))

    assert [tuple(map(int, row)) for row in found[["time_ns", "topic", "client"]]] == [
        (time, topic, client)
        for time, topic, client in some
        if (topics is None or NAMES.get(topic) in topics)
        and (clients is None or NAMES.get(client) in clients)
        and (from_ns is None or time >= from_ns)
        and (to_ns is None or time < to_ns)
    ]
