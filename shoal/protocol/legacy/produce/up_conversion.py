"""Convert a message set to a batch of magic 2, as a broker does before appending it (LogValidator.java,
"up-conversion").

A broker takes ONE batch per partition of a Produce v3 request, so all messages of a set go into one batch, also those
of several wrappers. Its codec is that of the first wrapper; it is recompressed. Timestamps are kept. A message of magic
0 has none: -1, which LogValidator accepts and consumers know as "no timestamp". There is no producer id: these clients
have none.

Refused: timestamps below -1, as by a broker, and LogAppendTime, which only brokers set. (Kafka 3.9.1 appends
such a message to a topic with CreateTime.)

Records are written while messages are read, so memory holds the decompressed bytes and the records once each, however
small the messages are (a record of magic 2 is at most a few bytes larger than its message, usually much smaller).
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

MAX_RECORDS = 1_000_000  # per set: some 4 s
_NO_TIMESTAMP = -1
_NULL = b"\1"  # a length of -1
_NO_HEADERS = b"\0"


class UpConverted(NamedTuple):
    """`parts`: one batch of `records` records, or nothing if the set is empty."""

    parts: list[Buffer]
    records: int
    codec: Codec


def up_convert(buf: Buffer, start: int, end: int, room: Room, *, max_records: int = MAX_RECORDS) -> UpConverted:
    """Convert the set `buf[start:end]`. Takes about 4 us per message.

    Raises TooLarge if wrappers decompress to more than `room`, or for more than `max_records`; RemoteProtocolError for
    messages that a broker would refuse.
    """
    codec = _first_codec(buf, start, end)
    messages = read_produced(buf, start, end, room)
    first = next(messages, None)
    if first is None:
        return UpConverted([], 0, Codec.NONE)
    payload, records, newest = _records(chain((first,), messages), first.timestamp, max_records)
    batch = seal_batch(payload, codec=codec, record_count=records, base_timestamp=first.timestamp, max_timestamp=newest)
    return UpConverted([batch], records, codec)


def _first_codec(buf: Buffer, start: int, end: int) -> Codec:
    """`read_produced` refuses codecs that old clients do not have."""
    for at, stop, magic, _ in entries(buf, start, end):
        codec = buf[at + ATTRIBUTES_AT] & CODEC_MASK if magic < 2 and stop - at > ATTRIBUTES_AT else 0
        if 0 < codec <= Codec.LZ4:
            return Codec(codec)
    return Codec.NONE


def _records(messages: Iterator[Message], base: int, max_records: int) -> tuple[bytearray, int, int]:
    """The messages as records of magic 2, their number, and the newest timestamp."""
    out, newest, index = bytearray(), base, -1
    for index, (_, timestamp, late, key, value) in enumerate(messages):
        if late or timestamp < _NO_TIMESTAMP:
            raise RemoteProtocolError(f"a produced message with timestamp {timestamp}{', set by a broker' * late}")
        if index == max_records:
            raise TooLarge(f"more than {max_records} messages in one set")
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
