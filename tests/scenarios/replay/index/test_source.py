"""Arrivals from index files: every batch of every client's produce request, in time order, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from shoal.protocol.capture.index.columns import Direction, Handling
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.replay.index.source import Recorded, read_index
from tests.support.captures.synthetic import Chunk, Client, Traffic, chunks
from tests.support.captures.synthetic_files import IndexFiles

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.captures.synthetic import Array

CLIENTS = (
    Client(name="many", topic="orders", weight=10, records=2, record_bytes=200, connections=3),
    Client(name="wide", topic="clicks", weight=3, records=50, record_bytes=200, batches=4, codec=4, ratio=0.2),
)
TRAFFIC = Traffic(rows=3_000, seconds=60, partitions=8, clients=CLIENTS)


def written(tmp_path: Path, rows: Array, names: tuple[str, ...] = TRAFFIC.names) -> Recorded:
    (tmp_path / "x").mkdir()
    files = IndexFiles(directory=tmp_path / "x", rows_per_file=1_000)
    files.write([Chunk(rows=rows, names=names)])
    return read_index(tmp_path / "x", "again-")


@pytest.fixture
def rows() -> Array:
    (chunk,) = chunks(TRAFFIC)
    return chunk.rows


def test_every_batch_arrives_once_and_in_time(rows: Array, tmp_path: Path) -> None:
    recorded = written(tmp_path, rows)
    arrivals = list(recorded.arrivals())

    times = [arrival.at for arrival in arrivals]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-1] == pytest.approx((rows["time_ns"].max() - rows["time_ns"].min()) / 1e9)
    parts = [part for arrival in arrivals for part in arrival.parts]
    assert len(parts) == recorded.batches == len(rows)
    assert sum(part.records for part in parts) == rows["record_count"].sum()
    assert sum(part.size for part in parts) == (rows["batch_length"] + 12).sum()
    assert recorded.partitions == {"again-orders": 8, "again-clicks": 8}
    assert {part.codec for part in parts if part.topic == "again-clicks"} == {Codec.ZSTD}


def test_connections_and_clients_stay_apart(rows: Array, tmp_path: Path) -> None:
    arrivals = list(written(tmp_path, rows).arrivals())

    by_client: dict[str | None, set[int]] = {}
    for arrival in arrivals:
        by_client.setdefault(arrival.client_id, set()).add(arrival.connection)
    assert {client: len(found) for client, found in by_client.items()} == {"many": 3, "wide": 1}
    assert not by_client["many"] & by_client["wide"]


def test_a_set_of_one_partition_becomes_requests_one_behind_the_other(rows: Array, tmp_path: Path) -> None:
    one = rows[:3].copy()
    one["time_ns"], one["connection"], one["request"] = one["time_ns"][0], 1, 1
    one["topic"], one["partition"] = one["topic"][0], np.array([5, 5, 6])

    arrivals = list(written(tmp_path, one).arrivals())

    assert [[part.partition for part in arrival.parts] for arrival in arrivals] == [[5, 6], [5]]


def test_what_cannot_come_again_is_left_out_and_counted(rows: Array, tmp_path: Path) -> None:
    some = rows[:10].copy()
    some["direction"][0] = Direction.FETCHED
    some["handling"][1] = Handling.OWN
    some["attributes"][2] |= 0x10  # transactional
    some["kind"][3] = 0

    recorded = written(tmp_path, some)

    assert recorded.batches == 6
    assert +recorded.left_out == Counter({"not produced by a client": 2, "transactional": 1, "without records": 1})


def test_an_empty_directory_holds_nothing(tmp_path: Path) -> None:
    recorded = read_index(tmp_path, "")

    assert (recorded.batches, list(recorded.arrivals())) == (0, [])


def test_names_are_such_as_brokers_take(rows: Array, tmp_path: Path) -> None:
    some = rows[:4].copy()
    some["topic"] = 77  # a number without a name

    assert list(written(tmp_path, some).partitions) == ["again-_77"]
