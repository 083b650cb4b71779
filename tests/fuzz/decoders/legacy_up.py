"""Targets: message sets of magic 0 and 1, and the Produce requests that bring them."""

from itertools import product
from zlib import crc32

from shoal.protocol.legacy.lz4_header import as_magic_0, as_standard
from shoal.protocol.legacy.message import Message
from shoal.protocol.legacy.produce.produce import (
    convert,
    encode_for_broker,
    encode_for_client,
    read_legacy_answer,
    read_legacy_produce,
)
from shoal.protocol.legacy.produce.up_conversion import UpConverted, up_convert
from shoal.protocol.legacy.reading import Room, read_messages
from shoal.protocol.messages.produce import encode_produce_response
from shoal.protocol.records.batch import open_batch
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.compression import Codec
from tests.fuzz.decoders.frames import examples
from tests.fuzz.decoders.records import LIMIT, TEXT
from tests.fuzz.target import Target, padded
from tests.support.legacy.produce_frames import produce_frame
from tests.support.legacy.sets import CODECS, wrapped, wrapper

__all__ = ["TARGETS", "message_sets", "resealed"]

MESSAGES = (
    Message(7, 1_500_000_000_000, False, None, None),
    Message(8, 1_500_000_000_009, False, b"key", b""),
    Message(10, -1, False, b"", TEXT),
)


def message_sets() -> list[bytes]:
    """Message sets of both magics and every codec; of one message, of several; several entries; nested wrappers."""
    plain = [wrapped(magic, codec, MESSAGES[:n]) for magic, codec, n in product((0, 1), CODECS, (1, 3))]
    nested = wrapper(1, Codec.GZIP, wrapper(1, Codec.LZ4, plain[0]))
    return [*plain, plain[1] + plain[2], plain[-1] + plain[4][:-5], nested]


def resealed(data: bytes) -> bytes:
    """With right CRCs in its entries, as far as their sizes go, so that damage gets past them."""
    out, pos = bytearray(data), 0
    while len(out) - pos > 16:
        stop = pos + 12 + int.from_bytes(out[pos + 8 : pos + 12], "big", signed=True)
        if not pos + 16 < stop <= len(out):
            break
        out[pos + 12 : pos + 16] = crc32(out[pos + 16 : stop]).to_bytes(4, "big")
        pos = stop
    return bytes(out)


def _read(data: bytes) -> None:
    last = -1
    for message in read_messages(*padded(data), limit=LIMIT):
        assert message.offset > last
        last = message.offset


def _up(data: bytes) -> None:
    """The result is a readable batch."""
    up = up_convert(*padded(data), Room(LIMIT))
    if up.records:
        batch = b"".join(up.parts)
        header, records = open_batch(batch, 0, len(batch), limit=2 * LIMIT)
        assert (len(list(records)), header.codec) == (up.records, up.codec)


def _requests() -> list[bytes]:
    one, *others = message_sets()
    return [
        produce_frame(version, 1, {"t": [(0, one), (1, set_)], "topic": [(7, b"")]}, acks=version - 1)
        for version, set_ in product((0, 1, 2), others[::3])
    ]


def _produce(data: bytes) -> None:
    header = read_request_header(data)
    request = read_legacy_produce(data, header)
    sets = {
        place: one.parts for place, one in convert(data, request, limit=LIMIT).items() if isinstance(one, UpConverted)
    }
    encode_for_broker(header, request, sets)


def _answers() -> list[bytes]:
    made = encode_produce_response(3, 5, [("t", [bytes(22)] * 2), ("u", [bytes(22)])], throttle_ms=9)
    return [b"".join(made), *(frame[1:] for frame in examples("ProduceResponse") if frame[0] == 3)]


def _answer(data: bytes) -> None:
    answer = read_legacy_answer(data)
    for version in (0, 1, 2):
        encode_for_client(version, 1, answer.places.items(), throttle_ms=answer.throttle_ms)


TARGETS = [
    Target("legacy.read_messages", _read, message_sets),
    Target("legacy.read_messages, CRC right", lambda data: _read(resealed(data)), message_sets),
    Target("legacy.up_convert", _up, message_sets),
    Target("legacy.up_convert, CRC right", lambda data: _up(resealed(data)), message_sets),
    Target("legacy.lz4_header", as_standard, lambda: [as_magic_0(b"\x04\x22\x4d\x18\x60\x40\x82" + TEXT)]),
    Target("legacy.produce request", _produce, _requests),
    Target("legacy.produce answer", _answer, _answers),
]
