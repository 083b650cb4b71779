import pytest

from shoal.protocol.records.aborted import AbortedTransactions
from shoal.protocol.records.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, NewRecord, encode_batch, read_batch_header
from shoal.protocol.wire.errors import RemoteProtocolError

ABORT, COMMIT = bytes((0, 0, 0, 0)), bytes((0, 0, 0, 1))


def included(
    aborted: AbortedTransactions, offset: int, producer: int, *, bits: int = TRANSACTIONAL, key: bytes = b"k"
) -> bool:
    batch = encode_batch([NewRecord(1, key, b"v")] * 2, base_offset=offset, attributes=bits, producer_id=producer)
    return aborted.includes(read_batch_header(batch, 0, len(batch)), memoryview(batch)[HEADER_SIZE:])


def marked(aborted: AbortedTransactions, offset: int, producer: int, key: bytes = ABORT) -> bool:
    return included(aborted, offset, producer, bits=TRANSACTIONAL | CONTROL, key=key)


def test_from_its_first_offset_to_its_marker() -> None:
    aborted = AbortedTransactions([(7, 10)])
    assert not included(aborted, 6, 7)
    assert included(aborted, 10, 7)
    assert included(aborted, 20, 7)
    assert not marked(aborted, 30, 7)
    assert not included(aborted, 40, 7)


def test_a_transaction_may_begin_within_a_batch_that_compaction_has_merged() -> None:
    assert included(AbortedTransactions([(7, 11)]), 10, 7)


def test_producers_do_not_end_each_others_transactions() -> None:
    aborted = AbortedTransactions([(8, 5), (7, 3)])
    assert [included(aborted, 5, 8), included(aborted, 7, 7), included(aborted, 9, 9)] == [True, True, False]
    marked(aborted, 11, 8)
    assert [included(aborted, 13, 8), included(aborted, 15, 7)] == [False, True]


def test_one_producer_has_several() -> None:
    aborted = AbortedTransactions([(7, 20), (7, 0)])
    assert included(aborted, 0, 7)
    marked(aborted, 5, 7)
    assert not included(aborted, 10, 7)
    assert included(aborted, 20, 7)


def test_what_is_not_transactional_is_not_aborted() -> None:
    """An idempotent producer may have this id."""
    assert not included(AbortedTransactions([(7, 0)]), 5, 7, bits=0)


def test_a_commit_marker_ends_nothing() -> None:
    aborted = AbortedTransactions([(7, 0)])
    marked(aborted, 3, 7, COMMIT)
    assert included(aborted, 5, 7)


@pytest.mark.parametrize("key", [b"", b"\0\0\0"])
def test_a_marker_without_a_type_is_damage(key: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        marked(AbortedTransactions([(7, 0)]), 5, 7, key)
