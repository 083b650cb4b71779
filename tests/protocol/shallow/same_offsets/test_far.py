"""An envelope of 200 bytes can state any offsets: the batches for what is between must not use up the memory."""

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.envelope import Cover, EnvelopeKey, encode_key
from shoal.protocol.shallow.same_offsets.fenced import NOT_STORED, FencedPartition
from shoal.protocol.shallow.same_offsets.log_ends import LogEnd, LogEnds
from shoal.protocol.shallow.unwrap.findings import CopyStopped
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.wire.types import TopicPartition


@pytest.mark.parametrize("end", [0, 10])
def test_offsets_that_no_source_has_stop_the_partition(end: int) -> None:
    key = EnvelopeKey(
        cluster="c",
        topic="t",
        partition=0,
        first_offset=10,
        last_offset=10,
        batches=0,
        records=0,
        payload=0,
        payload_crc=0,
        flow=1,
        serial=1,
        cover=Cover(0, 1 << 62, fill=True),
    )
    outer = encode_batch([NewRecord(0, encode_key(key), b"")])
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    fenced = FencedPartition(TopicPartition("t", 0), plan, LogEnds(), LogEnd(0, end, end))
    assert [type(found) for found in fenced.findings()] == [CopyStopped]
    assert fenced.outcome == NOT_STORED
