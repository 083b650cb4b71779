"""Converts one batch of magic 2 to messages of magic 0 or 1, piece by piece.

Each piece of a compressed batch is its own wrapper: a large batch becomes several, which an old client opens one by
one. Inner offsets are absolute in magic 0, and relative to the wrapper's first message in magic 1; the wrapper has the
offset of its last (KIP-31). The wrapper's timestamp is the batch's newest: clients read it only for LogAppendTime (bit
3 of the attributes, in the wrapper and in each message).
"""

from typing import Final

from shoal.protocol.legacy.fetch.counts import Counts
from shoal.protocol.legacy.fetch.message_source import MessageSource
from shoal.protocol.legacy.fetch.record_loop import RECORD_LOOPS, skip_records
from shoal.protocol.legacy.fetch.window import Window
from shoal.protocol.legacy.fetch.working import Working
from shoal.protocol.legacy.message import LOG_APPEND_TIME
from shoal.protocol.records.batch import BatchHeader
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.plain_stream import open_plain, working_bytes

__all__ = ["BatchMessages"]

_REFILLS: Final = 4
"""Maximum decompression steps per piece: skipping takes time, too."""
_STEPS: Final = 2
"""Steps in a window: one, and the rest of the previous one."""


class BatchMessages(MessageSource):
    """The records of `payload` from the offset `floor` on.

    `step` bytes are decompressed at a time, with memory from `working`. Raises TooLarge for a record of more than
    `largest` bytes.
    """

    def __init__(
        self,
        header: BatchHeader,
        payload: memoryview,
        counts: Counts,
        *,
        magic: int,
        codec: Codec,
        floor: int,
        step: int,
        largest: int,
        working: Working,
    ) -> None:
        attributes = LOG_APPEND_TIME if magic and header.is_log_append_time else 0
        super().__init__(counts, magic=magic, codec=codec, attributes=attributes, newest=header.max_timestamp)
        self.window = Window(
            header, open_plain(header.codec, payload, step), counts, floor=floor, attributes=attributes
        )
        self._largest = largest if header.codec else max(largest, len(payload))  # the payload is in memory anyway
        self._step = step
        self._working = working
        self._stream = working_bytes(header.codec, payload)
        self._loop = RECORD_LOOPS[magic]
        self._relative = bool(codec and magic)
        self._records = header.record_count
        self._end_offset = header.last_offset + 1
        dense = header.record_count == header.last_offset_delta + 1
        self._to_skip = min(max(floor - header.base_offset, 0), header.record_count) if dense else 0

    @property
    def next_offset(self) -> int:
        return self._end_offset if self.done else self.given

    @property
    def given(self) -> int:
        return self.window.previous + 1

    @property
    def share_left(self) -> float:
        return (self.window.left - self._to_skip) / self._records

    @property
    def working_bytes(self) -> int:
        plain = self.window.plain
        return self._stream + max(len(plain), _STEPS * self._step) if plain else 0

    def _gather(self, messages: list[bytes], room: int, must: bool) -> None:
        window = self.window
        window.first = -1 if self._relative else 0
        if not window.plain and window.left:
            self._working.require(self._stream + _STEPS * self._step)
            self._refill()
        for _ in range(_REFILLS):
            if self._to_skip:
                self._to_skip -= skip_records(window, self._to_skip)
            if not self._to_skip:
                room -= self._loop(window, messages, room, must and not messages)
            self.full = window.full
            if not window.left:
                window.require_end()
                self.done = True
            if self.done or self.full:
                return
            self._refill()

    def _refill(self) -> None:
        self.window.refill(self._step, self._largest, self._stream, self._working)
