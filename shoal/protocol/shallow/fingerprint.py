"""Fingerprints, by which the interlock recognises records that come back.

A fingerprint covers partition number, timestamp, key, value and headers. A change of any of them between the two
listeners (a transform, a filter that adds a header, another partitioner) changes the fingerprint. It is keyed with a
salt of this process, so clients cannot forge one.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from struct import Struct
from typing import NamedTuple

from shoal.protocol.records.batch import BatchHeader, open_batch
from shoal.protocol.records.record import Record, Slice
from shoal.protocol.records.recordset import split
from shoal.protocol.records.scan import NEWEST_MAGIC, ScannedSet
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MAX_SAMPLED_BYTES", "Fingerprint", "Sample", "fingerprint", "produced_fingerprints", "sample_record_set"]

Fingerprint = bytes

# Samples are taken from few batches, until a flow is proven; records beyond these limits are no evidence.
SAMPLED_BATCHES = 4
SAMPLED_RECORDS = 2  # per batch, so that two batches of one record, or one of two, are enough
COMPARED_RECORDS = 64  # a record that occurs twice among this many is no evidence
MAX_SAMPLED_BYTES = 4 * 1024 * 1024  # per batch, decompressed
TRIED_BATCHES = 8  # of a record set: equal or damaged records give no sample, however many batches have them

_PLACE = Struct(">iqI")  # partition, timestamp, number of headers
_LENGTH = Struct(">i")


class Sample(NamedTuple):
    """A record that a consumer is about to get. `optional`: a read_committed consumer may not get it."""

    fingerprint: Fingerprint
    offset: int
    optional: bool


def fingerprint(salt: bytes, partition: int, timestamp: int, record: Record) -> Fingerprint:
    digest = blake2b(_PLACE.pack(partition, timestamp, len(record.headers)), digest_size=16, key=salt)
    _update(digest, record.key)
    _update(digest, record.value)
    for name, value in record.headers:
        _update(digest, name)
        _update(digest, value)
    return digest.digest()


def _update(digest: blake2b, data: Slice | None) -> None:
    if data is None:
        digest.update(b"\xff\xff\xff\xff")  # -1: null is not empty
    else:
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)


def sample_record_set(
    frame: Buffer, scanned: ScannedSet, *, salt: bytes, partition: int, first_offset: int
) -> tuple[Sample, ...]:
    """Samples from the first batches of a record set of `frame`, from `first_offset` on; none from damaged ones."""
    samples: list[Sample] = []
    batches = tried = 0
    for start, end, fields in zip(scanned.starts, scanned.ends, scanned.headers, strict=True):
        if fields[3] != NEWEST_MAGIC:
            continue
        batch = BatchHeader._make(fields)
        if batch.is_control or batch.last_offset < first_offset:
            continue
        taken = _sample_batch(frame, (start, end), salt, (partition, first_offset))
        samples += taken
        batches, tried = batches + bool(taken), tried + 1
        if batches == SAMPLED_BATCHES or tried == TRIED_BATCHES:
            break
    return tuple(samples)


def produced_fingerprints(frame: Buffer, start: int, end: int, *, salt: bytes, partition: int) -> Iterator[Fingerprint]:
    """The fingerprints of all records of a produced record set, in order. Damaged batches are skipped."""
    try:
        spans = split(frame, start, end).spans
    except RemoteProtocolError:
        return
    for span in spans:
        if span.magic == NEWEST_MAGIC:
            for header, record in _records(frame, span.start, span.end):
                yield fingerprint(salt, partition, header.timestamp(record), record)


def _sample_batch(frame: Buffer, span: tuple[int, int], salt: bytes, wanted: tuple[int, int]) -> list[Sample]:
    partition, first_offset = wanted
    found = [
        Sample(
            fingerprint(salt, partition, header.timestamp(record), record),
            header.base_offset + record.offset_delta,
            header.is_transactional,
        )
        for header, record in islice(_records(frame, *span), COMPARED_RECORDS)
        if header.timestamp(record) >= 0  # a mirror gives other records a new timestamp
    ]
    times = Counter(sample.fingerprint for sample in found)
    unique = (sample for sample in found if sample.offset >= first_offset and times[sample.fingerprint] == 1)
    return list(islice(unique, SAMPLED_RECORDS))


def _records(frame: Buffer, start: int, end: int) -> Iterator[tuple[BatchHeader, Record]]:
    try:
        header, records = open_batch(frame, start, end, limit=MAX_SAMPLED_BYTES)
        for record in records:
            yield header, record
    except RemoteProtocolError:
        return
