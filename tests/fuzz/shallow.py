"""Targets: envelopes, wrapping, unwrapping, evidence. Most of these promise more: to raise nothing at all."""

from collections.abc import Callable
from itertools import count

from shoal.protocol.crc import crc32c
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key
from shoal.protocol.shallow.fingerprint import produced_fingerprints, sample_record_set
from shoal.protocol.shallow.unwrap import plan_record_set
from shoal.protocol.shallow.wrap import WrapContext, next_offset, wrap_record_set
from tests.fuzz.records import batch_seeds, sealed, set_seeds
from tests.fuzz.target import Target, padded

__all__ = ["TARGETS"]

LIMIT = 1 << 20
SALT = b"salt"


def _context() -> WrapContext:
    serials = count(1)
    return WrapContext(
        cluster="source",
        topic="orders",
        partition=3,
        fetch_offset=0,
        flow=5,
        serials=lambda: next(serials),
        min_batch_bytes=0,
        partitions=8,
    )


def _fetched() -> list[bytes]:
    """Record sets whose batches follow each other, and may be wrapped."""
    return [
        *set_seeds(),
        b"".join(offset.to_bytes(8, "big") + seed[8:] for offset, seed in zip(count(10, 3), batch_seeds())),
    ]


def _enveloped() -> list[bytes]:
    """The same, wrapped."""
    wrapped = [wrap_record_set(seed, 0, len(seed), _context()).parts for seed in _fetched()]
    return [b"".join(parts) for parts in wrapped if parts]


def _produced() -> list[bytes]:
    """As a mirror's producer would send them on: one batch of several records, plain and compressed."""
    envelope = encode_key(_KEY)
    value = encode_batch([NewRecord(1, b"k", b"v" * 50)])
    record = NewRecord(7, envelope, value, ())
    plain = NewRecord(8, b"plain", b"value")
    return [*_enveloped(), encode_batch([plain, record, plain]), *batch_seeds()]


_KEY = EnvelopeKey(
    cluster="source",
    topic="orders",
    partition=3,
    first_offset=10,
    last_offset=12,
    batches=1,
    records=3,
    payload=200,
    payload_crc=1,
    flow=5,
    serial=6,
)


def _resealed(data: bytes) -> bytes:
    """Every batch with a right CRC, so that damage gets past it."""
    try:
        spans, tail = split(data, 0, len(data))
    except RemoteProtocolError:
        return data
    return b"".join(sealed(data[span.start : span.end]) for span in spans) + data[tail:]


def _nothing_raised(call: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        for variant in (data, _resealed(data)):
            try:
                call(variant)
            except RemoteProtocolError as error:
                raise AssertionError("documented to raise nothing") from error

    return run


def _decode_key(data: bytes) -> None:
    for key in (data, data[:-4] + crc32c(data[:-4]).to_bytes(4, "big")):
        try:
            decode_key(key)
        except RemoteProtocolError:
            continue


def _plan(data: bytes) -> None:
    plan_record_set(*padded(data), limit=LIMIT)


def _wrap(data: bytes) -> None:
    wrapped = wrap_record_set(*padded(data), _context())
    if wrapped.parts is not None:
        assert sum(map(len, wrapped.parts)) <= len(data) + 1000 * len(wrapped.envelopes)


def _fingerprints(data: bytes) -> None:
    sample_record_set(*padded(data), salt=SALT, partition=1, first_offset=0)
    list(produced_fingerprints(*padded(data), salt=SALT, partition=1))


TARGETS = [
    Target("envelope.decode_key", _decode_key, lambda: [encode_key(_KEY)]),
    Target("unwrap.plan_record_set", _nothing_raised(_plan), _produced),
    Target("wrap.wrap_record_set", _nothing_raised(_wrap), _fetched),
    Target("wrap.next_offset", _nothing_raised(lambda data: next_offset(*padded(data), 0)), _fetched),
    Target("fingerprint", _nothing_raised(_fingerprints), _produced),
]
