"""Opens one partition of a ProduceRequest: its record set becomes a plan if it has envelopes.

A record set without an envelope is forwarded unchanged, also with keys that only look like one; but a record with
another key and an envelope's headers is one whose key a transform has changed, and is refused. Only tokens (token.py)
are removed from its records, also those of an earlier process; that batch is encoded again. The check costs two memory
searches if the outer batch is uncompressed, otherwise a limited decompression. A batch that cannot be read, or has an
envelope that cannot be opened, is refused before anything of it is appended: an envelope must never be passed on.

The batches of a claim check are with Shoal; if they are not, the caller reads them again, and makes the plan then.

Damage makes the mirror retry: each envelope's value is checked against the checksum in its key, the plain records
against that of their outer batch, and the CRC of inner batches is patched, never recomputed.
"""

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from shoal.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    NewRecord,
    body_crc,
    encode_batch,
    read_batch_header,
)
from shoal.protocol.records.record import Record, read_records
from shoal.protocol.records.recordset import Span, split
from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch
from shoal.protocol.shallow.claim_check import CLAIM_CHECK
from shoal.protocol.shallow.envelope import MAGIC, EnvelopeKey, decode_key
from shoal.protocol.shallow.facts import are_of_envelope
from shoal.protocol.shallow.locator import LocatorRecord, read_locator
from shoal.protocol.shallow.token import edited, holds_own_header, take_token
from shoal.protocol.shallow.unwrap.inner_batches import inner_batches, mirrored_batches
from shoal.protocol.shallow.unwrap.plan import Item, Missing, Plan, Refused, ReturnedToken, Stripped
from shoal.protocol.shallow.unwrap.sequences.mirror import outer_stamp
from shoal.protocol.wire.compression import Codec, decompress
from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge

__all__ = ["MAX_OUTER_BYTES", "MAX_OUTER_RECORDS", "Find", "plan_record_set"]

# Decompressed bytes of an outer batch. max.request.size is 1 MiB by default, and zstd compresses the most repetitive
# JSON 1000 to 1. Above it the answer is MESSAGE_TOO_LARGE: the Java producer then splits the batch and sends halves.
MAX_OUTER_BYTES = 64 * 1024 * 1024
# Records of an outer batch that may have an envelope or a token: decoding one takes 5 us and blocks the process. A
# mirror's batch has far fewer, because envelopes are large; above it the answer is the same.
MAX_OUTER_RECORDS = 100_000


Find: TypeAlias = Callable[[EnvelopeKey], memoryview | Refused | None]
"""The batches of a claim check. None: they are not here, and must be read again."""


def _no_claim_checks(key: EnvelopeKey) -> Refused:
    return Refused(error_code=ErrorCode.INVALID_RECORD, message=f"a claim check without its batches: {key}")


class _Options(NamedTuple):
    """The parameters of `plan_record_set`."""

    plain_codec: Codec | None
    find: Find
    limit: int
    most_records: int


class _Outer(NamedTuple):
    """The outer batch: its position, and the bytes of its records."""

    frame: Buffer
    span: Span
    header: BatchHeader
    payload: memoryview


def plan_record_set(
    frame: Buffer,
    start: int,
    end: int,
    *,
    plain_codec: Codec | None = None,
    find: Find = _no_claim_checks,
    limit: int = MAX_OUTER_BYTES,
    most_records: int = MAX_OUTER_RECORDS,
) -> Plan | Stripped | Missing | Refused | BatchHeader | None:
    """The plan for the record set `frame[start:end]`. Without an envelope: the header of its batch, if it has only one.

    Plain records beside envelopes are encoded with the outer batch's codec, or with `plain_codec` if that is
    uncompressed. Per outer batch, at most `limit` bytes are decompressed and at most `most_records` are decoded; and
    the batches of its claim checks are limited likewise.
    """
    options = _Options(plain_codec, find, limit, most_records)
    try:
        spans = split(frame, start, end)
    except RemoteProtocolError as error:
        return _unreadable(frame, start, end, str(error))
    if spans.tail != end and _holds_magic(frame, spans.tail, end):
        return Refused(error_code=ErrorCode.INVALID_RECORD, message="the record set is cut off inside an envelope")
    found: Plan | Stripped | Missing | BatchHeader | None = None
    for span in spans.spans:
        planned = _plan_batch(frame, span, options)
        if isinstance(planned, Refused):
            return planned
        found = found if isinstance(found, Plan | Stripped | Missing) else planned
    if isinstance(found, Plan | Stripped | Missing) and (len(spans.spans) > 1 or spans.tail != end):
        return Refused(
            error_code=ErrorCode.INVALID_RECORD,
            message=f"{len(spans.spans)} batches beside an envelope; Kafka takes one",
        )
    return found if len(spans.spans) == 1 else None


def _plan_batch(
    frame: Buffer, span: Span, options: _Options
) -> Plan | Stripped | Missing | Refused | BatchHeader | None:
    if span.magic != 2:  # has no headers, so no envelopes; Produce v3+ refuses it
        return _unreadable(frame, span.start, span.end, "an envelope in a message format that has no headers")
    try:
        outer = _open(frame, span, options.limit)
    except RemoteProtocolError as error:
        return _unopened(frame, span, error)
    return _plan_opened(outer, options) or outer.header


def _plan_opened(outer: _Outer, options: _Options) -> Plan | Stripped | Missing | Refused | None:
    has_magic = _holds_magic(outer.payload, 0, len(outer.payload))
    if not has_magic and not holds_own_header(outer.payload):
        return None
    if outer.header.record_count > options.most_records:
        found = f"{outer.header.record_count} records in a batch that seems to hold an envelope"
        what = f"{found}: at most {options.most_records} are searched"
        return Refused(error_code=ErrorCode.MESSAGE_TOO_LARGE, message=what)
    located = _locators(outer)
    if located is not None:
        return _vet(outer) or located
    tokens, locators = list[ReturnedToken](), list[LocatorRecord]()
    try:
        items, count = _items(outer, options, tokens, locators)
    except _Damaged as error:
        return Refused(error_code=ErrorCode.CORRUPT_MESSAGE, message=str(error))
    except _NotHere as error:
        return _vet(outer) or error.found
    except RemoteProtocolError as error:
        return _blame(outer, f"an envelope that cannot be opened: {error}")
    if not locators and not any(item.key for item in items):
        return _stripped(outer) if tokens else None
    has_covers = {item.key is not None and item.key.cover is not None for item in items}
    if len(has_covers) > 1:
        return _blame(outer, "envelopes for a mirror topic beside other records")
    left_out = 0
    if has_covers == {False}:  # records from before it was a mirror topic: its mirror gets another locator
        left_out = len(locators)
        locators.clear()
    stamp = outer_stamp(outer.header)
    claimed = sum(item.key.payload for item in items if item.key is not None and item.key.is_claim_check)
    opened = claimed + (len(outer.payload) if outer.header.codec else 0)
    plan = Plan(
        items=tuple(items),
        outer_records=count,
        stamp=stamp,
        tokens=tuple(tokens),
        locators=tuple(locators),
        left_out=left_out,
        opened=opened,
    )
    return _vet(outer) or plan


def _locators(outer: _Outer) -> Plan | None:
    """A batch with locators only; None: it has other records."""
    locators = list[LocatorRecord]()
    try:
        for record in read_records(outer.payload, outer.header.record_count):
            locator = read_locator(record.key, record.value, record.headers)
            if locator is None:
                return None
            locators.append(locator)
    except RemoteProtocolError:
        return None  # the broker refuses it
    stamp = outer_stamp(outer.header)
    return Plan(items=(), outer_records=len(locators), stamp=stamp, locators=tuple(locators)) if locators else None


def _stripped(outer: _Outer) -> Stripped | Refused | None:
    """The outer batch without tokens."""
    header, tokens = outer.header, list[ReturnedToken]()
    if body_crc(outer.frame, outer.span.start, outer.span.end) != header.crc:
        return _blame(outer, "CRC mismatch")

    def strip(record: Record) -> Record:
        headers, token = take_token(record.headers)
        if token is None:
            return record
        stripped = record._replace(headers=tuple(headers))
        tokens.append(ReturnedToken(token, header.timestamp(record), stripped))
        return strip(stripped)

    try:
        batch = edited(header, outer.payload, strip, header.codec)
    except RemoteProtocolError:
        return None  # the broker refuses it
    return Stripped(record_set=batch, tokens=tuple(tokens)) if tokens else None


def _unreadable(frame: Buffer, start: int, end: int, problem: str) -> Refused | None:
    """The broker would refuse it, too, but some brokers append what precedes the damage."""
    return Refused(error_code=ErrorCode.INVALID_RECORD, message=problem) if _holds_magic(frame, start, end) else None


def _open(frame: Buffer, span: Span, limit: int) -> _Outer:
    header = read_batch_header(frame, span.start, span.end)
    payload = memoryview(frame)[span.start + HEADER_SIZE : span.end]
    if header.codec:
        payload = memoryview(decompress(header.codec, payload, limit))
    return _Outer(frame, span, header, payload)


def _unopened(frame: Buffer, span: Span, error: RemoteProtocolError) -> Refused:
    """The mirror retries a damaged batch, and sends halves of one that is too large; retrying any other is useless."""
    if body_crc(frame, span.start, span.end) != int.from_bytes(frame[span.start + 17 : span.start + 21], "big"):
        return Refused(
            error_code=ErrorCode.CORRUPT_MESSAGE, message=f"damaged on its way from the mirror to Shoal: {error}"
        )
    code = ErrorCode.MESSAGE_TOO_LARGE if isinstance(error, TooLarge) else ErrorCode.INVALID_RECORD
    return Refused(error_code=code, message=f"cannot be searched for envelopes: {error}")


def _blame(outer: _Outer, problem: str) -> Refused:
    if body_crc(outer.frame, outer.span.start, outer.span.end) != outer.header.crc:
        return Refused(
            error_code=ErrorCode.CORRUPT_MESSAGE, message=f"damaged on its way from the mirror to Shoal: {problem}"
        )
    return Refused(error_code=ErrorCode.INVALID_RECORD, message=problem)


def _vet(outer: _Outer) -> Refused | None:
    """Check the outer batch itself."""
    header = outer.header
    if body_crc(outer.frame, outer.span.start, outer.span.end) != header.crc:
        return _blame(outer, "CRC mismatch")
    if header.is_control or (header.producer_id < 0 and header.is_transactional):
        return Refused(
            error_code=ErrorCode.INVALID_RECORD,
            message="envelopes in a control batch, or in a transaction without a producer id",
        )
    if header.producer_id >= 0 and header.record_count != header.last_offset_delta + 1:
        return Refused(
            error_code=ErrorCode.INVALID_RECORD, message="an idempotent producer's batch that leaves out offsets"
        )
    return None


_KEY_CHANGED = "the mirror has changed or removed its key (a transform does?): list the topic in deep-topics"
_find_magic = re.compile(re.escape(MAGIC)).search


def _holds_magic(buf: Buffer, start: int, end: int) -> bool:
    if isinstance(buf, memoryview):
        return _find_magic(buf, start, end) is not None
    return buf.find(MAGIC, start, end) >= 0


class _Damaged(Exception):
    """The value of an envelope does not match its key."""


class _NotHere(Exception):
    """The batches of claim checks are not here (yet)."""

    def __init__(self, found: Missing | Refused) -> None:
        super().__init__()
        self.found = found


def _items(
    outer: _Outer, options: _Options, tokens: list[ReturnedToken], locators: list[LocatorRecord]
) -> tuple[list[Item], int]:
    """-> items in the order of the records, and the number of records. Tokens are removed from plain records."""
    header, items, plain, is_missing, count = outer.header, list[Item](), list[NewRecord](), False, 0
    codec = header.codec or options.plain_codec or Codec.NONE
    room, batches_left = options.limit, options.most_records  # of claim checks
    for record in read_records(outer.payload, header.record_count):
        count += 1
        key = decode_key(record.key) if record.key is not None else None
        if key is None:
            locator = read_locator(record.key, record.value, record.headers)
            if locator is not None and locator.is_intact:
                locators.append(locator)
                continue
            if are_of_envelope(record.headers):
                raise RemoteProtocolError(_KEY_CHANGED)
            headers, token = take_token(record.headers)
            if token is not None:
                tokens.append(ReturnedToken(token, header.timestamp(record), record._replace(headers=tuple(headers))))
            plain.append(NewRecord(header.timestamp(record), record.key, record.value, headers))
            continue
        if plain:
            items.append(_plain_item(outer, plain, codec, len(items)))
            plain = []
        if key.cover is not None:
            items.append(_mirrored_item(key, record))
            continue
        room, batches_left = room - key.payload * key.is_claim_check, batches_left - key.batches * key.is_claim_check
        if min(room, batches_left) < 0:
            raise _NotHere(_too_much(options))
        value = _value(key, record, options.find)
        if value is None:
            is_missing = True  # all of them are asked for
            continue
        batches = inner_batches(key, value)
        items.append(Item(identity=key, key=key, batches=batches, headers=record.headers))
    if is_missing:
        raise _NotHere(Missing())
    if plain and (items or locators):
        items.append(_plain_item(outer, plain, codec, len(items)))
    return items, count


def _too_much(options: _Options) -> Refused:
    """A few bytes may claim much, also several times."""
    what = f"claim checks for more than {options.limit} bytes, or {options.most_records} batches"
    return Refused(error_code=ErrorCode.MESSAGE_TOO_LARGE, message=what)


def _plain_item(outer: _Outer, records: Sequence[NewRecord], codec: Codec, at: int) -> Item:
    """Consecutive records beside an envelope or a locator.

    Its identity is the outer batch's bytes and the position `at` in it.

    The position matters, because equal records may be on both sides of an envelope, and both must be appended.
    """
    batch = encode_batch(records, codec=codec)
    digest = blake2b(memoryview(outer.frame)[outer.span.start : outer.span.end], digest_size=16)
    digest.update(at.to_bytes(4, "big"))
    source = f"plain records at {records[0].timestamp} ms beside an envelope"
    sub = OutgoingBatch((batch,), len(records), codec, source)
    return Item(identity=digest.digest(), key=None, batches=BatchSlice.of((sub,)))


def _mirrored_item(key: EnvelopeKey, record: Record) -> Item:
    batches = mirrored_batches(key, _carried(key, record))
    return Item(identity=key, key=key, batches=BatchSlice.of(()), headers=record.headers, mirrored=batches)


def _value(key: EnvelopeKey, record: Record, find: Find) -> memoryview | None:
    """The bytes of the envelope's batches; None: they must be read from the source again."""
    if not key.is_claim_check:
        return _carried(key, record)
    if record.value != CLAIM_CHECK:
        raise _Damaged(f"the claim check of {key} was damaged or changed on its way")
    found = find(key)
    if isinstance(found, Refused):
        raise _NotHere(found)
    return found


def _carried(key: EnvelopeKey, record: Record) -> memoryview:
    value = memoryview(record.value or b"")
    if len(value) != key.payload or crc32c(value) != key.payload_crc:
        raise _Damaged(f"the envelope of {key} was damaged or changed on its way: {len(value)} bytes")
    return value
