import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_batch_header,
)
from shoal.protocol.shallow.wrap.eligible import Measure, Reason, Topics, is_plain, raw_reason
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import LocalProtocolError
from tests.support.shallow.world import some_batch

BATCH = some_batch(100, 10, producer_id=5, producer_epoch=0, base_sequence=0)
HEADER = read_batch_header(BATCH, 0, len(BATCH))
ROOMY = Measure(fetch_offset=100, payload_limit=len(BATCH))


def test_an_ordinary_batch_is_wrapped() -> None:
    assert raw_reason(HEADER, ROOMY) is None
    assert raw_reason(HEADER._replace(attributes=HEADER.attributes | TRANSACTIONAL), ROOMY) is None


@pytest.mark.parametrize(
    ("batch", "measure", "reason"),
    [
        (HEADER, ROOMY._replace(fetch_offset=101), Reason.INSIDE),
        (HEADER._replace(last_offset_delta=10), ROOMY, Reason.HOLES),
        (HEADER._replace(attributes=CONTROL | TRANSACTIONAL), ROOMY, Reason.CONTROL),
        (HEADER._replace(attributes=LOG_APPEND_TIME), ROOMY, Reason.LOG_APPEND_TIME),
        (HEADER._replace(attributes=DELETE_HORIZON), ROOMY, Reason.DELETE_HORIZON),
        (HEADER._replace(attributes=5), ROOMY, Reason.CODEC),
        (HEADER._replace(record_count=0, last_offset_delta=0), ROOMY, Reason.EMPTY),
        (HEADER, ROOMY._replace(payload_limit=len(BATCH) - 1), Reason.TOO_LARGE),
    ],
)
def test_each_rule_has_its_reason(batch: BatchHeader, measure: Measure, reason: Reason) -> None:
    assert raw_reason(batch, measure) is reason
    assert not is_plain(batch, measure)


near = st.sampled_from([-1, 0, 1, 2, 3, 99, 100, 101])
headers = st.builds(
    HEADER._replace,
    base_offset=near,
    batch_length=st.integers(len(BATCH) - 14, len(BATCH) - 10),
    attributes=st.integers(-1, 0x17) | st.integers(-0x8000, 0x7FFF),
    last_offset_delta=near,
    record_count=near,
)


@given(headers, st.sampled_from([-1, 0, 100]))
def test_what_is_plain_at_a_glance_is_so_by_the_rules(batch: BatchHeader, fetch_offset: int) -> None:
    measure = ROOMY._replace(fetch_offset=fetch_offset)
    if is_plain(batch, measure):
        batch.require_positive()
        assert raw_reason(batch, measure) is None


@pytest.mark.parametrize("codec", Codec)
def test_ordinary_batches_are_plain_at_a_glance(codec: Codec) -> None:
    for bits in (0, TRANSACTIONAL):
        assert is_plain(HEADER._replace(attributes=codec | bits), ROOMY)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("orders", None),
        ("heartbeats", None),
        ("__consumer_offsets", Reason.INTERNAL_TOPIC),
        ("_schemas", None),
        (".hidden", Reason.INTERNAL_TOPIC),
        ("mm2-offset-syncs.B.internal", Reason.INTERNAL_TOPIC),
        ("A-internal", Reason.INTERNAL_TOPIC),
        ("internal", None),
        ("pii.users", Reason.DEEP_TOPIC),
    ],
)
def test_topics(topic: str, reason: Reason | None) -> None:
    topics = Topics([r"^pii\."])
    assert topics.raw_reason(topic) is reason
    assert topics.raw_reason(topic) is reason


def test_a_wrong_pattern_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="deep-topics"):
        Topics(["("])


def test_remembered_topics_are_bounded() -> None:
    topics = Topics(most=2)
    assert [topics.raw_reason(f"__{n}") for n in range(5)] == [Reason.INTERNAL_TOPIC] * 5
