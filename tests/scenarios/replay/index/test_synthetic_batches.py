"""Synthetic batches are valid for brokers, as large as requested, and all different."""

import pytest

from shoal.protocol.records.batch import open_batch
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.replay.arrivals import ArrivedBatch
from shoal.scenarios.replay.index.synthetic_batches import Maker

EPOCH = 1_700_000_000_000


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("records", "size"), [(1, 75), (1, 300), (3, 814), (100, 4_000), (350, 31_000)])
def test_a_batch_has_the_wanted_count_size_and_codec(codec: Codec, records: int, size: int) -> None:
    part = ArrivedBatch("t", 0, records, size, 3 * size, codec)

    batch = Maker(EPOCH).batch(part, 17)

    header, found = open_batch(batch, 0, len(batch), limit=10_000_000)
    assert [header.timestamp(record) for record in found] == [EPOCH + 17] * records
    assert (header.record_count, header.codec, header.producer_id) == (records, codec, -1)
    assert abs(len(batch) - size) <= max(40, size // 25)


def test_plain_batches_are_of_exactly_the_wanted_size() -> None:
    for size in range(400, 800, 7):
        batch = Maker(EPOCH).batch(ArrivedBatch("t", 0, 4, size, None, Codec.NONE), 0)
        assert abs(len(batch) - size) <= 2


def test_what_cannot_be_as_small_is_as_small_as_it_can_be() -> None:
    batch = Maker(EPOCH).batch(ArrivedBatch("t", 0, 100, 61, None, Codec.NONE), 0)

    assert len(batch) <= 61 + 100 * 8


def test_batches_of_one_shape_share_their_payload_and_differ_in_time() -> None:
    maker, part = Maker(EPOCH), ArrivedBatch("t", 0, 3, 500, None, Codec.LZ4)

    one, other = maker.batch(part, 1), maker.batch(part, 2)

    assert one != other
    assert one[43:] == other[43:]
    for batch in (one, other):
        open_batch(batch, 0, len(batch), limit=10_000)  # the checksum is right
