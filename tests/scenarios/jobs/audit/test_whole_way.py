"""A mirror topic from a source of any shape, with faults and rows that are lost: the audit of its index proves it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.capture.index.pending import Request
from shoal.protocol.capture.index.record_sets import PartitionRows
from shoal.protocol.capture.index.rows import Answered, ConnectionInfo, RowMaker, row_of
from shoal.protocol.capture.index.sink import MemorySink
from shoal.protocol.mirror_topics.probe import PROBE_BATCH
from shoal.protocol.records.scan import scan
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.same_offsets.place import Place, PlaceState
from shoal.protocol.shallow.unwrap.findings import CopyStopped
from shoal.protocol.wire.types import PartitionRef, TopicPartition
from shoal.proxy.connection.topic_names import Naming
from shoal.proxy.shallow.annotations import Judgement, Unwrapped, probed
from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable, as_rows
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.audit.packing import COLUMNS, pack
from shoal.scenarios.jobs.audit.place import audit_place
from tests.protocol.shallow.same_offsets.source_log import SourceLog, source_logs
from tests.protocol.shallow.same_offsets.target_log import TargetLog
from tests.protocol.shallow.same_offsets.test_whole_way import STEPS, TARGET, Way

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.protocol.capture.index.pending import FetchOutcome, RequestAnnotation
    from shoal.protocol.capture.index.tap import Tap
    from shoal.protocol.shallow.same_offsets.covers import Covered
    from shoal.protocol.shallow.same_offsets.fenced import FencedSet
    from shoal.protocol.shallow.unwrap.plan import Plan
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection
    from tests.support.captures.synthetic import Array

SOURCE = TopicPartition("t", 0)
NAMING = Naming(cast("Connection", None), ())
FAULTS = st.lists(st.sampled_from(("crash", "fetch", "produce")), max_size=30)


class Indexed(Way):
    """With the rows that the two taps make. A crash loses the last ones."""

    def __init__(self, source: SourceLog, data: st.DataObject) -> None:
        self.sink = MemorySink()
        self.rows: list[bytes] = []
        self._fetches = RowMaker(ConnectionInfo(connection=1, listener="from", cluster="source"), self.sink)
        self._requests = RowMaker(ConnectionInfo(connection=2, listener="to", cluster="target"), self.sink)
        self._clock = count(1)
        super().__init__(source, TargetLog(), count(1), data)

    def given(self, frame: bytes, covered: Covered) -> None:
        if covered.wrapped.envelopes:
            judgement = Judgement()
            judgement.covered(PartitionRef(*SOURCE), covered)
            self._fetched = PartitionRows(SOURCE.topic, SOURCE.partition, 0, _tails(frame))
            judgement.give(cast("Tap", self), 0)

    def judge(self, _: int, outcomes: Mapping[tuple[Topic, int], FetchOutcome]) -> None:
        request = self._request(ApiKey.FETCH)
        self._fetches.judged(request, Answered(request.sent_ns), self._fetched, outcomes[SOURCE])
        self._flush()

    def asked(self) -> None:
        self._produced(PROBE_BATCH, probed({TARGET: SOURCE}), 0, self.target.end)

    def answered(self, plan: Plan, sent: FencedSet, code: int) -> None:
        note = Unwrapped({TARGET: plan.items}, NAMING).note({TARGET: sent})
        self._produced(b"".join(sent.buffers()), note, code, -1 if code else sent.made[0].base)

    def _produced(self, record_set: bytes, note: RequestAnnotation, code: int, base_offset: int) -> None:
        request = self._request(ApiKey.PRODUCE)
        request.note = note
        request.partitions = [PartitionRows(TARGET.topic, TARGET.partition, 0, _tails(record_set))]
        place = (TARGET.topic, TARGET.partition)
        self._requests.produced(request, Answered(request.sent_ns), {place: (code, base_offset)})
        self._flush()

    def _request(self, key: ApiKey) -> Request:
        request = Request(key, 9, 1, 0, 1)
        request.sent_ns, request.acks = next(self._clock), -1
        return request

    def _flush(self) -> None:
        rows = self.sink.take()
        self.rows += [rows[at : at + ROW_SIZE] for at in range(0, len(rows), ROW_SIZE)]

    def crash(self) -> None:
        """Shoal is killed, and the mirror goes on with the next one."""
        kept = len(self.rows) - self._data.draw(st.integers(0, min(len(self.rows), 6)))
        del self.rows[kept:]
        self.ends.forget(TARGET)
        self.place = Place()

    def array(self) -> Array:
        return as_rows(b"".join(self.rows), ROW_SIZE).copy()

    def audit(self, rows: Array) -> dict[str, Any]:
        decoded = Decoder(chosen(), NameTable(self.sink.names), "00c0ffee").decode(rows).select(COLUMNS)
        packed = pa.Table.from_batches(pack("source", "target", "", None, [decoded]))
        assert packed["topic"].unique().to_pylist() == [SOURCE.topic]
        [place] = audit_place((pa.scalar(SOURCE.topic), pa.scalar(SOURCE.partition)), packed, 0).to_pylist()
        return dict(place)


def _tails(record_set: bytes) -> list[bytes]:
    view = memoryview(record_set)
    return [row_of(view[at:end], header.base_offset) for at, end, header in scan(record_set, 0, len(view)).batches()]


@given(source_logs(), STEPS, FAULTS, st.data())
def test_nothing_is_found_in_a_whole_copy(
    source: SourceLog, steps: list[str], faults: list[str], data: st.DataObject
) -> None:
    way = Indexed(source, data)
    for step in (*steps, *faults):
        getattr(way, step)()
        assert not any(isinstance(found, CopyStopped) for found in way.findings)
    way.drain()
    while way.place.standing is not PlaceState.KNOWN:
        way.fetch()  # a mirror whose Shoal was killed comes again
    rows = way.array()
    place = way.audit(rows)
    if place["counts"] is None:  # nothing that was fetched is in the index
        return
    assert {batch["state"] for batch in place["batches"]} <= {"below_end"}
    counts = place["counts"]
    assert (counts["short"], counts["over"], counts["missing_records"], counts["wrong_records"]) == (0, 0, 0, 0)
    assert counts["same_offset_records"] + counts["below_end_records"] <= len(source.committed)
    if "crash" not in faults:
        assert counts["same_offset_records"] == len(source.committed)
    fenced = np.flatnonzero((rows["source_first"] >= 0) & (rows["log_offset"] >= 0))
    if len(fenced):
        moved = rows["source_first"][fenced[data.draw(st.integers(0, len(fenced) - 1))]]
        rows["log_offset"][(rows["source_first"] == moved) & (rows["log_offset"] >= 0)] += 1
        found = [(one["state"], one["base_offset"]) for one in way.audit(rows)["batches"]]
        was_fetched = (rows["source_first"] < 0) & (rows["log_offset"] == moved) & (rows["record_count"] > 0)
        assert (("different_offset", moved) in found) == bool(was_fetched.any())
