"""The unconverted rest of one partition's record set, for a legacy client.

Before conversion takes memory, it is paid for by the `MemoryLease`. If that fails, the source stops and `wants` it. A
source can be dropped at any time and made again from another answer; so can a piece that was partly sent.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from trio.lowlevel import checkpoint

if TYPE_CHECKING:
    from shoal.protocol.legacy.fetch.down_conversion import DownConversion
    from shoal.protocol.legacy.fetch.failure import Failure
    from shoal.proxy.legacy.counters import LegacyTally

__all__ = ["PartitionConversion"]

_LARGE = 2  # chunks: a larger piece is one message, which is sent in parts so that its rest can be dropped


class MemoryLease(Protocol):
    """Pays for the memory of conversions. `beside`: bytes that they hold in addition to the answer."""

    beside: int

    def allowance(self, source: PartitionConversion) -> int:
        """Bytes that this source may hold in addition to the answer."""

    def afford(self, wants: int, source: PartitionConversion) -> bool:
        """Pay for `wants` bytes; False if that is not possible at once."""


class PartitionConversion:
    """`offset`: the next one, also after it has ended or was dropped. `wants`: bytes in addition to the answer that the
    next piece needs; `needed_bytes`: what the last one needed. `owed`: missing bytes of an incomplete message. `holds`:
    bytes in addition to the answer.
    """

    __slots__ = (
        "_begun",
        "_chunk",
        "_conversion",
        "_given",
        "_memory",
        "_piece",
        "_tally",
        "ended",
        "failure",
        "holds",
        "magic",
        "needed_bytes",
        "offset",
        "wants",
    )

    def __init__(
        self, conversion: DownConversion, magic: int, chunk: int, memory: MemoryLease, tally: LegacyTally
    ) -> None:
        self.magic = magic
        self.offset = conversion.next_offset
        self.ended = False  # fully sent, or the rest cannot be sent
        self.failure: Failure | None = None
        self.wants = self.needed_bytes = 0
        self.holds = 0
        self._conversion: DownConversion | None = conversion
        self._piece = b""  # made, and waiting for room in an answer, or partly sent
        self._given = 0  # sent bytes of the piece
        self._begun = 0  # its size, once a part was sent
        self._chunk = chunk
        self._memory = memory
        self._tally = tally

    @property
    def dropped(self) -> bool:
        return self._conversion is None and not self.ended

    @property
    def left(self) -> int:
        """Approximate remaining bytes."""
        return 0 if self._conversion is None else self._conversion.left + len(self._piece) - self._given

    @property
    def owed(self) -> int:
        return self._begun - self._given

    def goes_on_at(self, offset: int) -> bool:
        """True if it has the records at this offset."""
        conversion = self._conversion
        if conversion is None:
            return False
        return offset == self.offset if self._piece else conversion.resumes(offset)

    def drop(self) -> None:
        self._conversion, self._piece, self.holds = None, b"", 0

    def follow(self, dropped: PartitionConversion) -> None:
        """Continue in the middle of the piece where the other source stopped."""
        self._begun, self._given = dropped._begun, dropped._given

    async def portion(self, room: int, enough: int, *, whole: bool = False) -> list[bytes]:
        """Pieces for at most `room` bytes, about `enough` of them. `whole`: at least one, regardless of its size.

        Empty: no piece fits, or there is none (`ended`, `wants`). Other tasks run between two pieces. A large piece is
        sent in parts; its rest is `owed`. It ends if the log's content differs from what was partly sent.
        """
        pieces: list[bytes] = []
        size = 0
        while self._make(room - size):
            if self._piece:
                if len(self._piece) - self._given > room - size and not (whole and not pieces):
                    break
                pieces.append(self._give())
                size += len(pieces[-1])
                if self.owed or size + len(pieces[-1]) > enough:
                    break
            await checkpoint()
        return pieces

    def _give(self) -> bytes:
        piece, start = self._piece, self._given
        if len(piece) <= _LARGE * self._chunk:
            self._gave()
            return piece
        self._begun = len(piece)
        self._given = min(start + self._chunk, len(piece))
        part = piece[start : self._given]
        if not self.owed:
            self._gave()
        return part

    def _gave(self) -> None:
        conversion = self._conversion
        assert conversion is not None
        self._tally.chunks += 1
        self._tally.converted_bytes += len(self._piece)
        self._piece, self._given, self._begun = b"", 0, 0
        self.offset = conversion.next_offset
        self._hold(conversion.working_bytes)

    def _make(self, room: int) -> bool:
        """Make progress towards the next piece; False: there is none."""
        conversion = self._conversion
        if self._piece or conversion is None:
            return bool(self._piece)
        made = self._converted(conversion, max(room, 1))
        if made is None and conversion.wants and self._memory.afford(conversion.wants, self):
            made = self._converted(conversion, max(room, 1))
        self.wants, self.needed_bytes = conversion.wants, conversion.needed_bytes
        if made is None:
            if not self.wants:
                self._end(conversion)
            return False
        if self._begun and made and len(made) != self._begun:  # the log has changed
            self._end(conversion)
            return False
        self._piece = made
        self._hold(conversion.working_bytes + len(made))
        return True

    def _end(self, conversion: DownConversion) -> None:
        self.offset, self.failure = conversion.next_offset, conversion.failure
        self.ended, self._conversion = True, None
        self._hold(0)

    def _hold(self, size: int) -> None:
        self._memory.beside += size - self.holds
        self.holds = size

    def _converted(self, conversion: DownConversion, room: int) -> bytes | None:
        tally, began = self._tally, perf_counter()
        counts = conversion.counts
        messages, headers = counts.messages, counts.dropped_headers
        made = conversion.piece(room, self._memory.allowance(self))
        tally.seconds += perf_counter() - began
        tally.records += counts.messages - messages
        tally.dropped_headers += counts.dropped_headers - headers
        return made
