"""A message set as a batch of magic 2, as a broker converts it on its way into the log (LogValidator.java, "up-conversion").

A broker takes ONE batch per partition of a Produce v3 request, so all messages of a set go into one, also those of several wrappers.
Its codec is that of the first wrapper; it is compressed anew. Timestamps are kept, and a message of magic 0 has none: -1, which
LogValidator lets pass and consumers know as "no timestamp". There is no producer id: these clients have none.

Refused as a broker refuses them: timestamps that say the broker set them, or below -1.

Records are written as messages are read, so memory is the plain bytes once and their records once, however small they are (a
record of magic 2 is no larger than its message by more than a few bytes, mostly it is much smaller).
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from shoal.protocol.legacy.message import ATTRIBUTES_AT, CODEC_MASK, Message
from shoal.protocol.legacy.reading import Room, read_produced
from shoal.protocol.records.batch import seal_batch
from shoal.protocol.records.record import int64
from shoal.protocol.records.recordset import entries
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge
from shoal.protocol.wire.types import write_varint, write_varlong

__all__ = ["UpConverted", "up_convert"]

MAX_RECORDS = 1_000_000  # of one set: some 4 s
_NO_TIMESTAMP = -1
_NULL = b"\1"  # a length of -1
_NO_HEADERS = b"\0"


class UpConverted(NamedTuple):
    """`parts`: one batch of `records` records, or nothing where the set is empty."""

    parts: list[Buffer]
    records: int
    codec: Codec


def up_convert(buf: Buffer, start: int, end: int, room: Room) -> UpConverted:
    """The set `buf[start:end]`. More plain bytes out of its wrappers than `room`, or more than MAX_RECORDS: TooLarge. About 4 us per message.

    What a broker would not append: RemoteProtocolError.
    """
    codec = _first_codec(buf, start, end)
    messages = read_produced(buf, start, end, room)
    first = next(messages, None)
    if first is None:
        return UpConverted([], 0, Codec.NONE)
    payload, records, newest = _records(chain((first,), messages), first.timestamp)
    batch = seal_batch(payload, codec=codec, record_count=records, base_timestamp=first.timestamp, max_timestamp=newest)
    return UpConverted([batch], records, codec)


def _first_codec(buf: Buffer, start: int, end: int) -> Codec:
    """What is no codec of old clients is refused by `read_produced`."""
    for at, stop, magic, _ in entries(buf, start, end):
        codec = buf[at + ATTRIBUTES_AT] & CODEC_MASK if magic < 2 and stop - at > ATTRIBUTES_AT else 0
        if 0 < codec <= Codec.LZ4:
            return Codec(codec)
    return Codec.NONE


def _records(messages: Iterator[Message], base: int) -> tuple[bytearray, int, int]:
    """The messages as records of magic 2, how many, and the newest timestamp."""
    out, newest, index = bytearray(), base, -1
    for index, (_, timestamp, late, key, value) in enumerate(messages):
        if late or timestamp < _NO_TIMESTAMP:
            raise RemoteProtocolError(f"a produced message with timestamp {timestamp}{', set by a broker' * late}")
        if index == MAX_RECORDS:
            raise TooLarge(f"more than {MAX_RECORDS} messages in one set")
        newest = max(newest, timestamp)
        body = b"".join(
            (
                b"\0",  # attributes
                write_varlong(int64(timestamp - base)),
                write_varint(index),
                _NULL if key is None else write_varint(len(key)),
                key or b"",
                _NULL if value is None else write_varint(len(value)),
                value or b"",
                _NO_HEADERS,
            )
        )
        out += write_varint(len(body))
        out += body
    return out, index + 1, newest
