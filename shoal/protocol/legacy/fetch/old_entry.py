"""Entries of magic 0 and 1 that are still in the log: unchanged, or converted from magic 1 to magic 0."""

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from shoal.protocol.legacy.fetch.counts import Counts
from shoal.protocol.legacy.fetch.message_source import MessageSource
from shoal.protocol.legacy.fetch.working import COPIES, Working
from shoal.protocol.legacy.message import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    OVERHEAD,
    Message,
    write_message,
)
from shoal.protocol.legacy.reading import read_messages
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge

__all__ = ["OldEntry", "OldMessages"]

_NO_TIMESTAMP: Final = -1
_COPIES: Final = 3  # of an unchanged entry: read, joined, and in the response
_GUESS: Final = 8  # first estimate of a wrapper's decompressed size, in its own sizes; then
_GROWTH: Final = 4  # times as much, until it is enough
_AT_ONCE: Final = 4000  # messages, including skipped ones: some 10 ms


class OldEntry(MessageSource):
    """An unchanged entry, a message or a wrapper. Its CRC is checked; a wrapper's content is not read."""

    def __init__(self, data: memoryview, counts: Counts, working: Working) -> None:
        if crc32(data[CRC_FROM:]) != int.from_bytes(data[CRC_AT:CRC_FROM], "big"):
            raise RemoteProtocolError("CRC mismatch")
        if data[ATTRIBUTES_AT] & CODEC_MASK > Codec.LZ4:
            raise RemoteProtocolError("a message with an unknown codec")
        super().__init__(counts, magic=0, codec=Codec.NONE, attributes=0, newest=_NO_TIMESTAMP)
        self._data = data
        self._working = working
        self._next_offset = int.from_bytes(data[:8], "big") + 1

    @property
    def next_offset(self) -> int:
        return self._next_offset if self.done else 0

    @property
    def given(self) -> int:
        return self._next_offset

    def _gather(self, messages: list[bytes], room: int, must: bool) -> None:
        self.full = len(self._data) > room and not must
        if not self.full:
            self._working.require(_COPIES * len(self._data))
            messages += (bytes(self._data), b"")
            self.done = True


class OldMessages(MessageSource):
    """The messages of an entry of magic 1, without timestamps, for clients that know only magic 0.

    A wrapper is decompressed whole, and does not state its plain size, so growing limits are tried. Raises TooLarge for
    more than `largest` bytes.
    """

    def __init__(
        self, data: memoryview, counts: Counts, *, codec: Codec, floor: int, largest: int, working: Working
    ) -> None:
        super().__init__(counts, magic=0, codec=codec, attributes=0, newest=_NO_TIMESTAMP)
        self._data = data
        self._largest = largest
        self._working = working
        self._limit = min(_GUESS * len(data), largest) if data[ATTRIBUTES_AT] & CODEC_MASK else len(data)
        self._messages: Iterator[Message] | None = None
        self._next: Message | None = None
        self._given = floor

    @property
    def next_offset(self) -> int:
        return self._given

    @property
    def given(self) -> int:
        return self._given

    @property
    def working_bytes(self) -> int:
        return COPIES * self._limit if self._messages else 0

    def _gather(self, messages: list[bytes], room: int, must: bool) -> None:
        self.full = False
        opened = self._messages = self._messages or self._opened()
        for _ in range(_AT_ONCE):
            message, self._next = self._next or next(opened, None), None
            if message is None:
                self.done = True
                return
            if message.offset < self._given:
                continue
            room -= OVERHEAD[0] + len(message.key or b"") + len(message.value or b"")
            if room < 0 and (messages or not must):
                self.full, self._next = True, message
                return
            messages += (write_message(0, message.offset, _NO_TIMESTAMP, 0, message.key, message.value), b"")
            self._given = message.offset + 1

    def _opened(self) -> Iterator[Message]:
        while True:
            self._working.require(COPIES * self._limit)
            messages = read_messages(self._data, 0, len(self._data), limit=self._limit)
            try:
                self._next = next(messages, None)
            except TooLarge:
                if self._limit >= self._largest:
                    raise
                self._limit = min(_GROWTH * self._limit, self._largest)
            else:
                return messages
