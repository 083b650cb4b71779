"""Entries of magic 0 and 1 that lie in the log still: as they are, or from magic 1 to magic 0."""

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
_COPIES: Final = 3  # of an entry as it is: read, joined, and its answer's
_GUESS: Final = 8  # what a wrapper gives, of its own size; then
_GROWTH: Final = 4  # times as much, until it is enough
_AT_ONCE: Final = 4000  # messages, those that are skipped too: some 10 ms


class OldEntry(MessageSource):
    """One entry, a message or a wrapper, as it is. Its CRC is checked, what is in a wrapper is not looked at."""

    def __init__(self, data: memoryview, counts: Counts, working: Working) -> None:
        if crc32(data[CRC_FROM:]) != int.from_bytes(data[CRC_AT:CRC_FROM], "big"):
            raise RemoteProtocolError("CRC mismatch")
        if data[ATTRIBUTES_AT] & CODEC_MASK > Codec.LZ4:
            raise RemoteProtocolError("a message with a codec that there was not")
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
    """The messages of an entry of magic 1, for clients that know magic 0 only: without their timestamps. A wrapper that gives more than
    `largest` bytes: TooLarge. A wrapper is opened whole, and does not say what it gives: it is tried with more and more."""

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
