"""Conversions as tests make them."""

from typing import Any

from hypothesis import strategies as st

from shoal.protocol.legacy.fetch.down_conversion import CHUNK, DownConversion
from shoal.protocol.legacy.message import OVERHEAD, Message
from shoal.protocol.records.batch import NewRecord, seal_batch
from shoal.protocol.wire.compression import Codec
from tests.support.legacy.logs import Log, as_magic, seen

FRONT = b"before"
NOW = 1_700_000_000_000


def converting(
    record_set: bytes,
    offset: int = 0,
    magic: int = 1,
    *,
    aborted: list[tuple[int, int]] | tuple[()] = (),
    **options: Any,
) -> DownConversion:
    """The set as in a frame."""
    end = len(FRONT) + len(record_set)
    return DownConversion(
        FRONT + record_set + b"behind", len(FRONT), end, magic=magic, offset=offset, aborted=aborted, **options
    )


def answered(log: Log, offset: int, magic: int, *, keep_codec: bool, chunk: int = CHUNK) -> DownConversion:
    record_set, aborted = log.answer(offset)
    keep_codec = keep_codec and not has_zstd(log)
    return converting(record_set, offset, magic, aborted=aborted, keep_codec=keep_codec, chunk=chunk)


def has_zstd(log: Log) -> bool:
    return any(entry.data[16] == 2 and entry.data[22] & 7 == Codec.ZSTD for entry in log.entries)


def has_old(log: Log) -> bool:
    return any(entry.data[16] < 2 for entry in log.entries)


def asked(data: st.DataObject, log: Log) -> int:
    return data.draw(st.integers(max(log.entries[0].last_offset - 250, 0), log.end))


def pieces(conversion: DownConversion, most: int = CHUNK) -> list[bytes]:
    found = []
    while (piece := conversion.piece(most)) is not None:
        found.append(piece)
    return found


def given_messages(conversion: DownConversion, magic: int = 1) -> list[Message]:
    return [message for piece in pieces(conversion) for message in seen(piece, magic)]


def plain_size(messages: list[Message], magic: int) -> int:
    return sum(OVERHEAD[magic] + len(message.key or b"") + len(message.value or b"") for message in messages)


def after(messages: list[Message], magic: int, offset: int) -> list[Message]:
    return [one for one in as_magic(messages, magic) if one.offset >= offset]


def numbers(count: int, size: int = 100) -> list[NewRecord]:
    return [NewRecord(NOW + index, None, b"%d " % index * (size // 7)) for index in range(count)]


def batch_of(payload: bytes, count: int = 3, codec: Codec = Codec.NONE, last: int | None = None) -> bytes:
    return seal_batch(
        payload,
        codec=codec,
        record_count=count,
        base_timestamp=1,
        max_timestamp=1,
        base_offset=10,
        last_offset_delta=last,
    )
