"""Reconciliation with a real mirror: all envelopes reconcile, except one that is changed in transit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from shoal.protocol.messages.produce import read_produce_request
from shoal.protocol.records.batch import body_crc
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.shallow.envelope import MAGIC
from shoal.protocol.shallow.unwrap.reconcile import Mismatch
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, warm_up
from tests.support.kafka.relay import RELAY_HOST, relay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers.mirror.rig.flow import Flow
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

_STATED = b"shoal.records"


def one_record_more(frame: bytes) -> bytes:
    """The same produce request with a changed last digit in each envelope's record count, and correct checksums."""
    forged, at = bytearray(frame), 0
    while (at := forged.find(_STATED, at)) >= 0:
        at += len(_STATED)
        last = at + (forged[at] >> 1)  # a varint: the length of the value
        forged[last] = ord("0") + (forged[last] - ord("0") + 1) % 10
    for _, _, start, end in read_produce_request(forged, read_request_header(forged).api_version).partitions:
        forged[start + 17 : start + 21] = body_crc(forged, start, end).to_bytes(4, "big")
    return bytes(forged)


def captured(directory: Path) -> list[dict[str, Any]]:
    """The unwrapped batches in the index."""
    columns = ["handling", "reason", "topic", "partition", "base_offset", "last_offset", "records", "error"]
    columns += ["source_topic", "source_partition", "source_first", "source_last"]
    batches = (one for file in capture_files(directory) for one in record_batches(IndexReader(path=file.path), columns))
    rows: list[dict[str, Any]] = []
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch), batch
        rows += [row for row in batch.to_pylist() if row["handling"] == "unwrapped" and row["error"] == 0]
    return rows


@pytest.mark.slow
async def test_all_that_a_mirror_copies_reconciles_unless_it_is_changed_on_its_way(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    index = tmp_path / "index"
    index.mkdir()
    wiring = Wiring(topics=topic, host=RELAY_HOST, mismatches=(Mismatch.FACTS,), shoal=("--capture", str(index)))
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        source, target = flow.ports
        async with relay(*source), relay(*target) as to_shoal:
            to_shoal.marked = MAGIC
            await warm_up(pair, topic, flow)
            await put(pair, topic, 12_000, seed=2)
            await flow.check(topic)
            await until(
                lambda: 0 < flow.counts()["opened_envelopes"] == flow.counts()["reconciled_envelopes"],
                within=WITHIN,
                what="all envelopes to be reconciled",
                process=flow.shoal.process,
            )
            assert Mismatch.FACTS not in flow.shoal.log.read_text()

            to_shoal.forge = one_record_more
            await put(pair, topic, 12_000, seed=3)
            await flow.check(topic)  # the key is right, so nothing is missing
            await flow.until_said(f"of cluster 'target' does not reconcile: {Mismatch.FACTS}")
            await flow.until_said(f"/{topic}-")
            await flow.until_said("records are stated")
    check_rows(captured(index), topic, flow)


def check_rows(rows: list[dict[str, Any]], topic: str, flow: Flow) -> None:
    """Batch by batch: as many offsets at the source as at the target, in the same order, and none of them twice."""
    counts = flow.counts("total")
    # Everything in envelopes. (Shoal also appends plain records that share an outer batch with an envelope.)
    assert sum(row["records"] for row in rows) == counts["wrapped_records"] <= counts["unwrapped_records"]
    assert {(row["source_topic"], row["topic"]) for row in rows} == {(topic, flow.remote(topic))}
    assert {row["reason"] for row in rows} == {None, Mismatch.FACTS.value}
    ends: dict[int, tuple[int, int]] = {}
    for row in rows:
        assert row["source_partition"] == row["partition"]
        assert row["source_last"] - row["source_first"] + 1 == row["records"]
        assert row["last_offset"] - row["base_offset"] + 1 == row["records"]
        here, there = ends.get(row["partition"], (-1, -1))
        assert row["base_offset"] > here
        assert row["source_first"] > there
        ends[row["partition"]] = row["last_offset"], row["source_last"]
