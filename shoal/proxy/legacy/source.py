"""The rest of one partition's record set, of a broker's answer to a legacy client.

What converting takes beside the answer is asked of `LeasedAnswer` before it is taken; where it can't be had the source stops, and `wants` it. It
can be dropped at any time, and be made anew from another answer; so can the piece of which a part was given.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from trio.lowlevel import checkpoint

if TYPE_CHECKING:
    from shoal.protocol.legacy.fetch.down import DownConversion
    from shoal.protocol.legacy.fetch.failure import Failure
    from shoal.proxy.legacy.counters import LegacyTally
    from shoal.proxy.legacy.held import LeasedAnswer

__all__ = ["PartitionConversion"]

_LARGE = 2  # chunks: a piece above that is one message, and is given in parts, so that the rest of it can be dropped


class PartitionConversion:
    """`offset`: where it goes on, also after it has ended or was dropped. `wants`: bytes beside the answer, without which there is no
    piece, and `needed_bytes`, with which there was. `owed`: bytes of a message that was begun. `holds`: bytes beside the answer."""

    __slots__ = (
        "_begun",
        "_chunk",
        "_conversion",
        "_given",
        "_held",
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
        self, conversion: DownConversion, magic: int, chunk: int, held: LeasedAnswer, tally: LegacyTally
    ) -> None:
        self.magic = magic
        self.offset = conversion.next_offset
        self.ended = False  # all of it was given, or what follows cannot be
        self.failure: Failure | None = None
        self.wants = self.needed_bytes = 0
        self.holds = 0
        self._conversion: DownConversion | None = conversion
        self._piece = b""  # was made, and waits for an answer with more room, or for its first parts to be taken
        self._given = 0  # bytes of the piece
        self._begun = 0  # its size, once a part was given
        self._chunk = chunk
        self._held = held
        self._tally = tally

    @property
    def dropped(self) -> bool:
        return self._conversion is None and not self.ended

    @property
    def left(self) -> int:
        """Bytes that are there, about."""
        return 0 if self._conversion is None else self._conversion.left + len(self._piece) - self._given

    @property
    def owed(self) -> int:
        return self._begun - self._given

    def goes_on_at(self, offset: int) -> bool:
        """It lies here, and follows what a client has that asks for this offset."""
        conversion = self._conversion
        if conversion is None:
            return False
        return offset == self.offset if self._piece else conversion.resumes(offset)

    def drop(self) -> None:
        self._conversion, self._piece, self.holds = None, b"", 0

    def follow(self, dropped: PartitionConversion) -> None:
        """Go on in the middle of the piece where the other one has stopped."""
        self._begun, self._given = dropped._begun, dropped._given

    async def portion(self, room: int, enough: int, *, whole: bool = False) -> list[bytes]:
        """Pieces for at most `room` bytes, about `enough` of them. `whole`: one at least, however large. Empty: no piece that
        fits, or none at all (`ended`, `wants`). Others get their turn between two pieces. Of a large piece, a part: the rest (`owed`)
        comes next. It ends where the log has something else now than what was begun."""
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
        """Have a piece, or have come nearer to it; False: there is none."""
        conversion = self._conversion
        if self._piece or conversion is None:
            return bool(self._piece)
        made = self._converted(conversion, max(room, 1))
        if made is None and conversion.wants and self._held.afford(conversion.wants, self):
            made = self._converted(conversion, max(room, 1))
        self.wants, self.needed_bytes = conversion.wants, conversion.needed_bytes
        if made is None:
            if not self.wants:
                self._end(conversion)
            return False
        if self._begun and made and len(made) != self._begun:  # the log has something else there now
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
        self._held.beside += size - self.holds
        self.holds = size

    def _converted(self, conversion: DownConversion, room: int) -> bytes | None:
        tally, began = self._tally, perf_counter()
        counts = conversion.counts
        messages, headers = counts.messages, counts.dropped_headers
        made = conversion.piece(room, self._held.allowance(self))
        tally.seconds += perf_counter() - began
        tally.records += counts.messages - messages
        tally.dropped_headers += counts.dropped_headers - headers
        return made
