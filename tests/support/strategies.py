"""Hypothesis strategies for records and batches, small by default and with the awkward values in reach."""

from hypothesis import strategies as st

from shoal.protocol.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec

__all__ = ["batches", "codecs", "headers", "new_records", "record_lists", "timestamps"]

codecs = st.sampled_from(Codec)
timestamps = st.one_of(
    st.integers(1_600_000_000_000, 1_900_000_000_000),
    st.sampled_from([-1, 0, 1, (1 << 63) - 1, -(1 << 63)]),
)
_blobs = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda chunk, times: chunk * times, st.binary(min_size=1, max_size=20), st.integers(0, 200)),
)
_nullable = st.none() | _blobs
headers = st.lists(st.tuples(st.binary(max_size=12), st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
new_records = st.builds(NewRecord, timestamps, _nullable, _nullable, headers, offset_delta=st.none())


def record_lists(*, min_size: int = 1, max_size: int = 20) -> st.SearchStrategy[list[NewRecord]]:
    return st.lists(new_records, min_size=min_size, max_size=max_size)


@st.composite
def batches(
    draw: st.DrawFn, *, codecs: st.SearchStrategy[Codec] = codecs, with_broker_bits: bool = True
) -> tuple[list[NewRecord], bytes]:
    """Records and their batch, as a log may hold it: any offset, epoch, producer id and (asked for) attribute bits 3,
    4, 6."""
    records = draw(record_lists())
    bits = draw(st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON])) if with_broker_bits else 0
    idempotent = bits == TRANSACTIONAL or draw(st.booleans())
    batch = encode_batch(
        records,
        base_offset=draw(st.integers(0, 1 << 62)),
        codec=draw(codecs),
        attributes=bits,
        leader_epoch=draw(st.integers(-1, 1 << 30)),
        producer_id=draw(st.integers(0, 1 << 62)) if idempotent else -1,
        producer_epoch=draw(st.integers(0, 1 << 14)) if idempotent else -1,
        base_sequence=draw(st.integers(0, 1 << 30)) if idempotent else -1,
    )
    return records, batch
