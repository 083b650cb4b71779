"""A token: an extra header on ONE ordinary record, which identifies it when it comes back, and is removed then.

A mirror preserves only data: key, value, headers, timestamp, partition. So a record that only one consumer gets must
differ from the record in its topic, otherwise another client's copy of the topic could replace it (the reason is in
interlock/tokens.py). A header is the smallest difference. The token is in its name, because some converters change
values; the value is empty:

    shoal.interlock/ token: 32 hex digits  / crc: 8 hex digits, CRC-32C of everything before

`put_token` writes it into the first suitable batch of a fetched record set. That batch is encoded again, uncompressed;
offsets, timestamps, producer and attributes are kept. `take_token` removes it on the produce side (plan_record_set.py).
"""

import re
from collections.abc import Callable, Container
from itertools import islice
from typing import NamedTuple

from shoal.protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchHeader,
    require_crc,
    seal_batch,
)
from shoal.protocol.records.record import Headers, Record, read_record_bounds, read_records, write_record
from shoal.protocol.records.scan import NEWEST_MAGIC, ScannedSet
from shoal.protocol.shallow.fingerprint import MAX_SAMPLED_BYTES, Fingerprint, fingerprint
from shoal.protocol.wire.compression import Codec, decompress
from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = [
    "TOKEN_BYTES",
    "Tokened",
    "edited",
    "holds_own_header",
    "put_token",
    "sealed_name",
    "take_token",
    "token_header",
    "token_in",
]

TOKEN_BYTES = 16
_PREFIX = b"shoal.interlock/"
_SEALED_BYTES = 2 * TOKEN_BYTES + 1 + 8  # after the prefix
_TRIED_BATCHES = 4  # per record set
_SEALED = rb"[0-9a-f]{%d}/[0-9a-f]{8}" % (2 * TOKEN_BYTES)
_find_own = re.compile(rb"shoal\.(?:[a-z-]{1,16}/" + _SEALED + rb"|compressed-bytes)").search
# Largest record that gets a token: it must still fit into a request of the mirror (max.request.size, default 1 MiB).
_LARGEST = 256 * 1024


class Tokened(NamedTuple):
    """`record_set` ends with the batch that has the token, on the record at `offset`.

    `mark`: the fingerprint of that record without it.
    """

    record_set: tuple[Buffer, ...]
    batches: int
    offset: int
    next_offset: int
    mark: Fingerprint


def token_header(token: bytes) -> tuple[bytes, bytes]:
    return sealed_name(_PREFIX, token), b""


def sealed_name(prefix: bytes, token: bytes) -> bytes:
    """A header's name: `prefix`, the token and a checksum."""
    stem = prefix + token.hex().encode()
    return stem + b"/%08x" % crc32c(stem)


def holds_own_header(payload: memoryview) -> bool:
    """A fast search: True if the uncompressed records may have a token, a locator (locator.py) or the facts of an
    envelope (facts.py). One search for all, because mirrors bring every byte here.
    """
    return _find_own(payload) is not None


def take_token(headers: Headers) -> tuple[Headers, bytes | None]:
    """-> the headers without a token, and the token. A header with a wrong checksum is ordinary."""
    for at, (name, _) in enumerate(headers):
        if (token := token_in(_PREFIX, name)) is not None:
            return (*headers[:at], *headers[at + 1 :]), token
    return headers, None


def token_in(prefix: bytes, name: Buffer) -> bytes | None:
    """The token of a `sealed_name`; None: it is another name."""
    if len(name) != len(prefix) + _SEALED_BYTES or name[: len(prefix)] != prefix:
        return None
    stem, _, crc = bytes(name).rpartition(b"/")
    if crc != b"%08x" % crc32c(stem):
        return None
    try:
        return bytes.fromhex(stem[len(prefix) :].decode("ascii"))
    except ValueError:
        return None


def put_token(
    frame: Buffer,
    scanned: ScannedSet,
    token: bytes,
    *,
    salt: bytes,
    partition: int,
    fetch_offset: int,
    unseen: Container[int] = (),
) -> Tokened | None:
    """The first batches of a record set of `frame`, up to the one with the token. None: no record is suitable.

    `unseen`: producer ids whose records the consumer may not get.
    """
    try:
        for number, fields in enumerate(islice(scanned.headers, _TRIED_BATCHES)):
            if fields[3] != NEWEST_MAGIC:
                continue
            first, start, end = scanned.starts[0], scanned.starts[number], scanned.ends[number]
            header = BatchHeader._make(fields)
            if found := _marked(frame, (start, end), header, token, salt, partition, fetch_offset, unseen):
                before = (memoryview(frame)[first:start],) if start > first else ()
                return found._replace(record_set=(*before, *found.record_set), batches=number + 1)
    except RemoteProtocolError:
        pass
    return None


def _marked(
    frame: Buffer,
    span: tuple[int, int],
    header: BatchHeader,
    token: bytes,
    salt: bytes,
    partition: int,
    fetch_offset: int,
    unseen: Container[int],
) -> Tokened | None:
    start, end = span
    header.require_positive()
    hidden = header.is_transactional and header.producer_id in unseen
    if header.is_control or hidden or header.last_offset < fetch_offset:
        return None
    require_crc(header, frame, start, end)
    payload = memoryview(frame)[start + HEADER_SIZE : end]
    if header.codec:
        payload = memoryview(decompress(header.codec, payload, MAX_SAMPLED_BYTES))
    chosen: list[Record] = []

    def mark(record: Record) -> Record:
        offset = header.base_offset + record.offset_delta
        if chosen or offset < fetch_offset or header.timestamp(record) < 0 or not _may_carry(record):
            return record
        chosen.append(record)
        return record._replace(headers=(*record.headers, token_header(token)))

    batch = edited(header, payload, mark, Codec.NONE)
    if not chosen:
        return None
    (record,) = chosen
    return Tokened(
        record_set=(batch,),
        batches=1,
        offset=header.base_offset + record.offset_delta,
        next_offset=header.last_offset + 1,
        mark=fingerprint(salt, partition, header.timestamp(record), record),
    )


def _may_carry(record: Record) -> bool:
    """Not a large record; nor one with a stored token, which would be taken on the produce side in place of ours."""
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size <= _LARGEST and take_token(record.headers)[1] is None


def edited(header: BatchHeader, payload: memoryview, edit: Callable[[Record], Record], codec: Codec) -> bytes:
    """The batch with that header and the uncompressed records `payload`, edited.

    A record that `edit` returns unchanged keeps its bytes.
    """
    pieces: list[Buffer] = []
    kept = at = 0
    for record in read_records(payload, header.record_count):
        _, stop = read_record_bounds(payload, at)
        new = edit(record)
        if new is not record:
            pieces += (payload[kept:at], write_record(new))
            kept = stop
        at = stop
    pieces.append(payload[kept:])
    return seal_batch(
        b"".join(pieces),
        codec=codec,
        attributes=header.attributes & ~CODEC_MASK,
        record_count=header.record_count,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_offset_delta=header.last_offset_delta,
    )
