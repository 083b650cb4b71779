"""The time range in a report's footer."""

from pathlib import Path

from shoal.scenarios.jobs.source.span import time_span
from tests.scenarios.jobs.captures import one_chunk, write_index


def test_the_range_of_an_index_is_from_its_first_to_its_last_row(tmp_path: Path) -> None:
    chunk = one_chunk(rows=1200)
    write_index(tmp_path, chunk, block=500)

    assert time_span(str(tmp_path)) == (chunk.rows["time_ns"][0], chunk.rows["time_ns"][-1])
