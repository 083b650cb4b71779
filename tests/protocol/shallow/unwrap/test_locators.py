"""Locators beside other records of the same outer batch: never stored, whatever else is there."""

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch, open_batch
from shoal.protocol.shallow.envelope import Cover, EnvelopeKey, encode_key
from shoal.protocol.shallow.locator import locator_batch
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.findings import Outcome
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.types import TopicPartition
from tests.support.shallow.world import Broker

PLAIN = NewRecord(1, b"k", b"v", ((b"h", None),))
INNER = encode_batch([NewRecord(1, b"k", b"v")], base_offset=5)


def locator() -> NewRecord:
    made = locator_batch(b"t" * 16, 0)
    (record,) = open_batch(made, 0, len(made), limit=1 << 20)[1]
    return NewRecord(0, None, record.value, record.headers)


def envelope(cover: Cover | None) -> NewRecord:
    key = EnvelopeKey(
        cluster="c",
        topic="t",
        partition=0,
        first_offset=5,
        last_offset=5,
        batches=1,
        records=1,
        payload=len(INNER),
        payload_crc=crc32c(INNER),
        flow=1,
        serial=1,
        cover=cover,
    )
    return NewRecord(0, encode_key(key), INNER)


@pytest.mark.parametrize("is_first", [True, False])
def test_one_beside_an_envelope_for_a_mirror_topic_comes_back(is_first: bool) -> None:
    records = [locator(), envelope(Cover(5, 6, fill=False))]
    plan = planned(records if is_first else records[::-1])
    assert plan.keeps_offsets
    assert len(plan.locators) == len(plan.items) == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_one_beside_an_envelope_for_an_ordinary_topic_is_left_out(is_first: bool) -> None:
    """The setting was changed while the envelope was in the mirror."""
    records = [locator(), envelope(None)]
    plan = planned(records if is_first else records[::-1])
    assert not plan.keeps_offsets
    assert len(plan.items) == 1
    assert plan.outer_records == 2
    assert plan.left_out == 1


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_one_beside_ordinary_records_is_left_out(producer_id: int, is_first: bool) -> None:
    """They were in the mirror when Shoal began to copy with offsets. The answer has no offset: a mirror would count the
    locator."""
    records = [locator(), PLAIN, PLAIN]
    plan = planned(records if is_first else records[::-1], producer_id)
    assert not plan.keeps_offsets
    assert (len(plan.items), plan.outer_records) == (1, 3)
    broker = Broker()
    progress = PartitionProgress(TopicPartition("copy", 0), plan, AppendedLog())
    while (sent := progress.next_record_set()) is not None:
        (batch,) = sent.ranges[0].batches
        progress.answered(*broker.produce(batch))
    assert broker.log == [PLAIN, PLAIN]
    assert progress.outcome == Outcome(error_code=0, base_offset=-1)


def planned(records: list[NewRecord], producer_id: int = -1) -> Plan:
    number = min(producer_id, 0)
    outer = encode_batch(records, producer_id=producer_id, producer_epoch=number, base_sequence=number)
    plan = plan_record_set(outer, 0, len(outer))
    assert isinstance(plan, Plan)
    return plan
