"""Tables made by the driver: written beside Spark's, and summed without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.scenarios.jobs.output.tables import summed, written

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "t.parquet" / "part-7.parquet")
    written(pa.table({"b": ["x"]}), tmp_path, "t")
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {"b": ["x"]}


def test_sums_are_over_all_files_and_null_is_a_key(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").mkdir()
    for number, counts in enumerate(([1, 2, 2**60], [4, 5, 6])):
        rows = pa.table({"a": ["x", None, "y"], "b": [1, 1, 1], "n": counts, "other": [0, 0, 0]})
        pq.write_table(rows, tmp_path / "t.parquet" / f"part-{number}.parquet")
    (tmp_path / "t.parquet" / "_SUCCESS").touch()
    found = summed(tmp_path, "t", ["a", "b"], ["n"])
    assert found.column_names == ["a", "b", "n"]
    assert {(row["a"], row["n"]) for row in found.to_pylist()} == {("x", 5), (None, 7), ("y", 2**60 + 6)}
