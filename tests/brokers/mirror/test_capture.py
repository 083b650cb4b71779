"""The index of a mirror's two sides: each batch once as fetched from the source, once as appended to the target, with
the relation between both."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.capture.index.columns import Direction, Handling, Kind
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.support.captures.capture_index import whole_index

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

Row = dict[str, Any]
Range = tuple[int, int, int]  # partition, first offset, last offset


def batches(rows: list[Row], cluster: str, direction: Direction, topic: str) -> list[Row]:
    wanted = (cluster, direction, topic, Kind.BATCH)
    return [row for row in rows if (row["cluster"], row["direction"], row["topic"], row["kind"]) == wanted]


def placed(rows: list[Row]) -> list[Range]:
    """The offsets of the batches in the source's or the target's log."""
    return sorted((row["partition"], row["log_offset"], row["log_offset"] + row["last_offset_delta"]) for row in rows)


def check_every_offset_once(ranges: list[Range], records: int) -> None:
    ends: dict[int, int] = defaultdict(int)
    for partition, first, last in ranges:
        assert first == ends[partition]
        ends[partition] = last + 1
    assert sum(ends.values()) == records


@pytest.mark.slow
async def test_source_and_target_rows_match(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await Topics(pair.source.bootstrap).create(topic, 2)
    index = tmp_path / "index"
    index.mkdir()
    total = 0
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, shoal=("--capture", str(index)))) as flow:
        for seed, codec in enumerate(("zstd", "none", "gzip")):
            layout = Layout(partitions=2, run=100)
            await fill(pair.source.bootstrap, topic, orders(8_000, seed=seed), layout=layout, compression_type=codec)
            total += 8_000
            await flow.check(topic)
        counts, remote = flow.counts(), flow.remote(topic)
    rows = whole_index(index)
    given = batches(rows, "source", Direction.FETCHED, topic)
    taken = batches(rows, "target", Direction.PRODUCED, remote)
    check_every_offset_once(placed(given), total)
    check_every_offset_once(placed(taken), total)
    assert sum(row["record_count"] for row in given) == sum(row["record_count"] for row in taken) == total
    wrapped = [row for row in given if row["handling"] is Handling.WRAPPED]
    unwrapped = [row for row in taken if row["handling"] is Handling.UNWRAPPED]
    assert sum(row["record_count"] for row in wrapped) >= counts["wrapped_records"] > 0
    sources = [(row["source_partition"], row["source_first"], row["source_last"]) for row in unwrapped]
    assert sorted(sources) == placed(wrapped)
    assert {row["source_topic"] for row in unwrapped} == {topic}
    assert all(row["error"] == 0 and row["partition"] == row["source_partition"] for row in unwrapped)
    sizes = {(row["partition"], row["log_offset"]): (row["batch_length"], row["record_count"]) for row in wrapped}
    for row in unwrapped:
        assert sizes[row["source_partition"], row["source_first"]] == (row["batch_length"], row["record_count"])
    assert {row["handling"] for row in given} <= {Handling.WRAPPED, Handling.RAW}
    assert all(row["reason"] for row in (*given, *taken) if row["handling"] is Handling.RAW)
    assert not batches(rows, "target", Direction.PRODUCED, topic)
