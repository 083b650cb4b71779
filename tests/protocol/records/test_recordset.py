from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.records.batch import NewRecord, encode_batch, read_batch_header
from shoal.protocol.records.recordset import RecordSet, Span, split
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.strategies import batches

SMALL = encode_batch([NewRecord(1, None, b"v")], base_offset=42)
sets = st.lists(batches().map(lambda made: made[1]), max_size=5)


@given(sets, st.binary(max_size=30), st.binary(max_size=30))
def test_spans_are_the_batches(entries: list[bytes], before: bytes, after: bytes) -> None:
    start = len(before)
    edges = list(accumulate(map(len, entries), initial=start))
    buf = before + b"".join(entries) + after
    spans, tail = split(buf, start, edges[-1])
    assert [(span.start, span.end) for span in spans] == list(pairwise(edges))
    assert [span.base_offset for span in spans] == [
        read_batch_header(buf, span.start, span.end).base_offset for span in spans
    ]
    assert tail == edges[-1]


@given(sets, batches(), st.data())
def test_a_cut_entry_is_the_tail(
    entries: list[bytes], last: tuple[list[NewRecord], bytes], data: st.DataObject
) -> None:
    whole = b"".join(entries)
    cut = data.draw(st.integers(0, len(last[1]) - 1))
    record_set = split(whole + last[1], 0, len(whole) + cut)
    assert len(record_set.spans) == len(entries)
    assert record_set.tail == len(whole)


def test_an_empty_set() -> None:
    assert split(b"anything", 3, 3) == RecordSet([], 3)


def test_a_tail_is_not_looked_for_beyond_the_end() -> None:
    assert split(SMALL * 2, 0, len(SMALL) + 16) == RecordSet([Span(0, len(SMALL), 2, 42)], len(SMALL))


@pytest.mark.parametrize(
    ("magic", "length"), [(0, 13), (1, 21), (2, 48), (2, 0), (2, -1), (0, -(1 << 31)), (3, 100), (-1, 100)]
)
def test_an_entry_that_cannot_be_is_refused(magic: int, length: int) -> None:
    entry = bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(4) + magic.to_bytes(1, "big", signed=True)
    buf = SMALL + entry + bytes(200)
    with pytest.raises(RemoteProtocolError, match=f"magic {magic} and {length} bytes"):
        split(buf, 0, len(buf))


def test_a_length_beyond_the_set_is_a_tail_however_large() -> None:
    entry = bytes(8) + b"\x7f\xff\xff\xff" + bytes(4) + b"\2" + bytes(100)
    assert split(entry, 0, len(entry)) == RecordSet([], 0)
