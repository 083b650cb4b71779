"""Possible source logs (gaps, holes, control batches, broker bits, any codec), as record sets of a fetch."""

from hypothesis import strategies as st

from shoal.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    NewRecord,
    encode_batch,
)
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.wire.compression import Codec
from tests.support.strategies import headers

__all__ = ["envelope_keys", "log_records", "record_sets"]

# Control and EMPTY deliver nothing to an application; DENSE ones may be wrapped.
KINDS = ("dense", "dense", "dense", "transactional", "holes", "control", "empty", "append-time", "horizon")

log_records = st.builds(
    NewRecord,
    st.integers(0, 1 << 41),
    st.none() | st.binary(max_size=10),
    st.none() | st.binary(max_size=60),
    headers,
    offset_delta=st.none(),
)
u64 = st.integers(0, (1 << 64) - 1)


@st.composite
def log_batches(draw: st.DrawFn, base_offset: int, kinds: tuple[str, ...] = KINDS) -> tuple[bytes, int]:
    """A batch and the offset after it."""
    kind = draw(st.sampled_from(kinds))
    records = [] if kind == "empty" else draw(st.lists(log_records, min_size=1, max_size=5))
    bits = {"transactional": TRANSACTIONAL, "append-time": LOG_APPEND_TIME, "horizon": DELETE_HORIZON}.get(kind, 0)
    if kind == "control":
        records, bits = [NewRecord(5, b"\0\0\0\0", b"\0" * 6)], CONTROL | TRANSACTIONAL
    if kind == "holes":
        records = [record._replace(offset_delta=2 * index + 1) for index, record in enumerate(records)]
    stamped = draw(st.booleans()) or bool(bits & TRANSACTIONAL)
    delta = len(records) if kind != "holes" else 2 * len(records)
    batch = encode_batch(
        records,
        base_offset=base_offset,
        codec=draw(st.sampled_from(Codec)),
        attributes=bits,
        leader_epoch=draw(st.integers(0, 5)),
        producer_id=draw(st.integers(0, 2)) if stamped else -1,
        producer_epoch=0 if stamped else -1,
        base_sequence=draw(st.integers(0, 9)) if stamped else -1,
        last_offset_delta=max(delta - 1, 0),
    )
    return batch, base_offset + max(delta, 1)


@st.composite
def record_sets(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS, max_size: int = 8) -> bytes:
    offset, pieces = draw(st.integers(0, 100)), []
    for _ in range(draw(st.integers(0, max_size))):
        offset += draw(st.sampled_from([0, 0, 0, 3]))
        batch, offset = draw(log_batches(offset, kinds))
        pieces.append(batch)
    return b"".join(pieces)


@st.composite
def envelope_keys(draw: st.DrawFn) -> EnvelopeKey:
    batches = draw(st.integers(1, 1000))
    first = draw(st.integers(0, 1 << 62))
    return EnvelopeKey(
        cluster=draw(st.text(max_size=22)),
        topic=draw(st.text(min_size=1, max_size=60)),
        partition=draw(st.integers(0, 49)),
        first_offset=first,
        last_offset=first + draw(st.integers(0, 1 << 40)),
        batches=batches,
        records=batches + draw(st.integers(0, 1 << 40)),
        payload=61 * batches + draw(st.integers(0, 1 << 20)),
        payload_crc=draw(st.integers(0, (1 << 32) - 1)),
        flow=draw(u64),
        serial=draw(u64),
        nonce=draw(st.integers(0, (1 << 32) - 1)),
        is_claim_check=draw(st.booleans()),
    )
