"""Targets: envelopes, wrapping, unwrapping, evidence. Most of these promise more: to raise nothing at all."""

from collections.abc import Callable
from itertools import count

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key
from shoal.protocol.shallow.fingerprint import produced_fingerprints, sample_record_set
from shoal.protocol.shallow.unwrap.mirror_producers import MirrorProducers, Prepared
from shoal.protocol.shallow.unwrap.plan import Missing, Plan, Refused, Stripped
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE, SlotTable
from shoal.protocol.shallow.wrap.wrap import WrapContext
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from tests.fuzz.decoders.records import batch_seeds, sealed, set_seeds
from tests.fuzz.target import Target, padded
from tests.support.shallow.wrapping import next_offset, wrap_record_set

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
    """Every batch with a correct CRC, so that damage passes the check."""
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
    buf, start, end = padded(data)
    sample_record_set(buf, scan(buf, start, end), salt=SALT, partition=1, first_offset=0)
    list(produced_fingerprints(*padded(data), salt=SALT, partition=1))


def _stamped(data: bytes) -> None:
    """From an idempotent mirror, twice: accepted batches can be stored, and a retry is recognised."""
    frame, start, end = padded(data)
    slots = bytearray(2 * SLOT_SIZE)
    producers, place = MirrorProducers(slots), TopicPartition("orders", 3)
    plan = plan_record_set(frame, start, end, limit=LIMIT)
    if isinstance(plan, Refused | Stripped | Missing):
        return
    first = producers.prepare(place, frame, start, end, plan)
    again = MirrorProducers(slots).prepare(place, frame, start, end, plan)
    assert isinstance(first, Prepared) == isinstance(again, Prepared)
    if isinstance(first, Prepared) and isinstance(again, Prepared):
        assert _joined(first.plan) == _joined(again.plan)


def _joined(plan: Plan) -> bytes:
    return b"".join(bytes(part) for item in plan.items for batch in item.batches for part in batch.buffers)


def _of_a_mirror() -> list[bytes]:
    """What is produced, with the stamps of an idempotent mirror."""
    return [seed[:43] + bytes(14) + seed[57:] for seed in _produced() if len(seed) > 61]


def _slots(data: bytes) -> None:
    whole = data[: len(data) // SLOT_SIZE * SLOT_SIZE]
    versions = (whole[at : at + 256] for at in range(0, len(whole), 256))
    sealed_ones = b"".join(crc32c(version[4:]).to_bytes(4, "big") + version[4:] for version in versions)
    for variant in (whole, sealed_ones):
        SlotTable(bytearray(variant)).load()


def _some_slots() -> list[bytes]:
    slots = bytearray(2 * SLOT_SIZE)
    for seed in _of_a_mirror():
        MirrorProducers(slots).prepare(TopicPartition("orders", len(seed)), seed, 0, len(seed), None)
    return [bytes(slots)]


TARGETS = [
    Target("envelope.decode_key", _decode_key, lambda: [encode_key(_KEY)]),
    Target("unwrap.plan_record_set", _nothing_raised(_plan), _produced),
    Target("wrap.wrap_record_set", _nothing_raised(_wrap), _fetched),
    Target("wrap.next_offset", _nothing_raised(lambda data: next_offset(*padded(data), 0)), _fetched),
    Target("mirror_producers.prepare", _nothing_raised(_stamped), _of_a_mirror),
    Target("sequences.slots.load", _nothing_raised(_slots), _some_slots),
    Target("fingerprint", _nothing_raised(_fingerprints), _produced),
]
