"""Entries of magic 0 and 1 that lie in the log still: as they are, or from magic 1 to magic 0."""

from zlib import crc32

from shoal.protocol.compression import Codec
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.legacy.counts import Counts
from shoal.protocol.legacy.message import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    OVERHEAD,
    Message,
    write_message,
)
from shoal.protocol.legacy.message_source import MessageSource
from shoal.protocol.legacy.reading import read_messages

__all__ = ["OldEntry", "OldMessages"]

_NO_TIMESTAMP = -1


class OldEntry(MessageSource):
    """One entry, a message or a wrapper, as it is. Its CRC is checked, what is in a wrapper is not looked at."""

    def __init__(self, data: bytes, counts: Counts) -> None:
        if crc32(memoryview(data)[CRC_FROM:]) != int.from_bytes(data[CRC_AT:CRC_FROM], "big"):
            raise RemoteProtocolError("CRC mismatch")
        if data[ATTRIBUTES_AT] & CODEC_MASK > Codec.LZ4:
            raise RemoteProtocolError("a message with a codec that there was not")
        super().__init__(counts, magic=0, codec=Codec.NONE, attributes=0, newest=_NO_TIMESTAMP)
        self._data = data
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
            messages += (self._data, b"")
            self.done = True


class OldMessages(MessageSource):
    """The messages of an entry of magic 1, for clients that know magic 0 only: without their timestamps. A wrapper that gives more than
    `largest` bytes: TooLarge."""

    def __init__(self, data: bytes, counts: Counts, *, codec: Codec, floor: int, largest: int) -> None:
        super().__init__(counts, magic=0, codec=codec, attributes=0, newest=_NO_TIMESTAMP)
        messages = read_messages(data, 0, len(data), limit=largest)
        self._messages = (message for message in messages if message.offset >= floor)
        self._next: Message | None = None
        self._given = floor

    @property
    def next_offset(self) -> int:
        return self._given

    @property
    def given(self) -> int:
        return self._given

    def _gather(self, messages: list[bytes], room: int, must: bool) -> None:
        self.full = False
        while message := self._next or next(self._messages, None):
            self._next = message
            room -= OVERHEAD[0] + len(message.key or b"") + len(message.value or b"")
            if room < 0 and (messages or not must):
                self.full = True
                return
            messages += (write_message(0, message.offset, _NO_TIMESTAMP, 0, message.key, message.value), b"")
            self._given = message.offset + 1
            self._next = None
        self.done = True
