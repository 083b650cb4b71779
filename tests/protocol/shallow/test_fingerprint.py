from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.fingerprint import Fingerprint, Sample, produced_fingerprints, sample_record_set
from shoal.protocol.wire.compression import Codec
from tests.protocol.shallow.strategies import log_records, record_sets
from tests.support.batches import damaged
from tests.support.shallow.world import some_batch
from tests.support.strategies import codecs

SALT = b"salt" * 4


def samples(log: bytes, first_offset: int = 0, partition: int = 3) -> tuple[Sample, ...]:
    return sample_record_set(log, scan(log, 0, len(log)), salt=SALT, partition=partition, first_offset=first_offset)


def produced(outer: bytes, partition: int = 3, salt: bytes = SALT) -> list[Fingerprint]:
    return list(produced_fingerprints(outer, 0, len(outer), salt=salt, partition=partition))


def offsets(log: bytes, first_offset: int = 0) -> list[int]:
    return [sample.offset for sample in samples(log, first_offset)]


@given(st.lists(log_records, min_size=1, max_size=8, unique_by=repr), codecs, codecs)
def test_a_copied_record_has_the_fingerprint_of_its_sample(
    records: Sequence[NewRecord], codec: Codec, produced_with: Codec
) -> None:
    taken = samples(encode_batch(records, base_offset=10, codec=codec))
    marks = produced(encode_batch(records, codec=produced_with))
    assert [sample.fingerprint for sample in taken] == marks[:2]
    assert [sample.offset for sample in taken] == [10, 11][: len(records)]


RECORD = NewRecord(1000, b"k", b"v", ((b"h", b"1"), (b"i", None)))


@pytest.mark.parametrize(
    "changed",
    [
        RECORD._replace(timestamp=1001),
        RECORD._replace(key=None),
        RECORD._replace(key=b""),
        RECORD._replace(key=b"kv", value=b""),
        RECORD._replace(value=None),
        RECORD._replace(headers=()),
        RECORD._replace(headers=((b"i", None), (b"h", b"1"))),
        RECORD._replace(headers=((b"h", b"1"), (b"i", b""))),
        RECORD._replace(headers=(*RECORD.headers, (b"x", b""))),
    ],
)
def test_whatever_changes_a_record_changes_it(changed: NewRecord) -> None:
    assert produced(encode_batch([changed])) != produced(encode_batch([RECORD]))


def test_partition_and_salt_count() -> None:
    batch = encode_batch([RECORD])
    assert len({*produced(batch), *produced(batch, partition=4), *produced(batch, salt=b"other")}) == 3


def test_two_records_of_four_batches() -> None:
    log = b"".join(some_batch(base) for base in range(0, 30, 3))
    assert offsets(log) == [0, 1, 3, 4, 6, 7, 9, 10]


def test_only_from_the_asked_offset_on() -> None:
    log = b"".join(some_batch(base) for base in range(0, 9, 3))
    assert offsets(log, 4) == [4, 5, 6, 7]
    assert offsets(log, 100) == []


def test_records_that_occur_twice_are_no_samples() -> None:
    assert offsets(encode_batch([RECORD, RECORD, RECORD._replace(value=b"w"), RECORD])) == [2]


def test_few_batches_are_tried_however_many_give_no_sample() -> None:
    equal = [encode_batch([RECORD, RECORD], base_offset=2 * number) for number in range(8)]
    assert offsets(b"".join(equal[:7]) + some_batch(14, 1)) == [14]
    assert offsets(b"".join(equal) + some_batch(16, 1)) == []
    control = encode_batch([RECORD], attributes=CONTROL | TRANSACTIONAL)
    assert offsets(control * 20 + b"".join(equal[:7]) + some_batch(14, 1)) == [14], "they cost nothing"


def test_records_without_a_timestamp_are_no_samples() -> None:
    assert offsets(encode_batch([RECORD._replace(timestamp=-1), RECORD], base_timestamp=0)) == [1]


def test_a_log_append_time_batch_has_the_time_that_mirrors_copy() -> None:
    batch = encode_batch([RECORD], attributes=LOG_APPEND_TIME, max_timestamp=5555)
    assert samples(batch)[0].fingerprint == produced(encode_batch([RECORD._replace(timestamp=5555)]))[0]


def test_control_batches_hold_no_samples_and_transactional_ones_optional_ones() -> None:
    assert samples(encode_batch([RECORD], attributes=CONTROL | TRANSACTIONAL)) == ()
    assert [sample.optional for sample in samples(encode_batch([RECORD], attributes=TRANSACTIONAL))] == [True]
    assert [sample.optional for sample in samples(encode_batch([RECORD]))] == [False]


def test_what_decompresses_to_too_much_is_passed_over() -> None:
    bomb = encode_batch([NewRecord(1, b"k", bytes(5 << 20))], codec=Codec.ZSTD)
    assert offsets(bomb + some_batch(10, 1)) == [10]
    assert produced(bomb) == []


@given(st.binary(max_size=200) | record_sets(), st.data())
def test_damage_is_passed_over(log: bytes, data: st.DataObject) -> None:
    broken = damaged(log, data.draw(st.integers(0, len(log) - 1))) if log else log
    samples(broken)
    produced(broken)
