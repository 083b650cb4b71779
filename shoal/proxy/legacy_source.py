"""What a legacy client's connection holds of its broker's last answer: the record sets that are not converted to their end, and the
lease that pays for them. When the budget takes the lease back, all of it is dropped in that moment; where each set would have gone
on is still known.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import checkpoint

from shoal.proxy.legacy_budget import GRACE

if TYPE_CHECKING:
    from shoal.protocol.legacy.down import DownConversion
    from shoal.protocol.legacy.failure import Failure
    from shoal.proxy.legacy_budget import Budget, Lease
    from shoal.proxy.legacy_statistics import LegacyTally
    from shoal.proxy.legacy_turns import Place

__all__ = ["Held", "Source"]

_LONG_ENOUGH = 2 * GRACE
_WORKING_SHARE = 4  # decompressing takes a window: of what is small, never more than so many times its size


class Source:
    """The rest of one partition's record set. `offset`: where it goes on, also after it has ended or was dropped."""

    __slots__ = ("_conversion", "_piece", "_tally", "ended", "failure", "magic", "offset")

    def __init__(self, conversion: DownConversion, magic: int, tally: LegacyTally) -> None:
        self.magic = magic
        self.offset = conversion.next_offset
        self.ended = False  # all of it was given, or what follows cannot be
        self.failure: Failure | None = None
        self._conversion: DownConversion | None = conversion
        self._piece = b""  # was made, and waits for an answer with more room
        self._tally = tally

    @property
    def dropped(self) -> bool:
        return self._conversion is None and not self.ended

    @property
    def left(self) -> int:
        """Bytes that are there, about."""
        return 0 if self._conversion is None else self._conversion.left + len(self._piece)

    @property
    def working_bytes(self) -> int:
        """What decompressing holds now."""
        return 0 if self._conversion is None else self._conversion.working_bytes

    def goes_on_at(self, offset: int) -> bool:
        """It lies here, and follows what a client has that asks for this offset."""
        conversion = self._conversion
        if conversion is None:
            return False
        return offset == self.offset if self._piece else conversion.resumes(offset)

    def drop(self) -> None:
        self._conversion, self._piece = None, b""

    async def portion(self, room: int, enough: int, *, whole: bool = False) -> list[bytes]:
        """Pieces for at most `room` bytes, about `enough` of them. `whole`: one at least, however large. Empty: no piece that
        fits, or none at all (`ended`). Others get their turn between two pieces."""
        pieces: list[bytes] = []
        size = 0
        while self._make(room - size):
            if self._piece:
                if len(self._piece) > room - size and not (whole and not pieces):
                    break
                size += len(self._piece)
                largest = len(self._piece)
                pieces.append(self._give())
                if size + largest > enough:
                    break
            await checkpoint()
        return pieces

    def _give(self) -> bytes:
        conversion = self._conversion
        assert conversion is not None
        piece, self._piece = self._piece, b""
        self.offset = conversion.next_offset
        self._tally.chunks += 1
        self._tally.converted_bytes += len(piece)
        return piece

    def _make(self, room: int) -> bool:
        """Have a piece, or have come nearer to it; False: there is none."""
        conversion = self._conversion
        if self._piece or conversion is None:
            return bool(self._piece)
        tally, began = self._tally, perf_counter()
        counts = conversion.counts
        messages, headers = counts.messages, counts.dropped_headers
        made = conversion.piece(max(room, 1))
        tally.seconds += perf_counter() - began
        tally.records += counts.messages - messages
        tally.dropped_headers += counts.dropped_headers - headers
        if made is None:
            self.offset, self.failure = conversion.next_offset, conversion.failure
            self.ended, self._conversion = True, None
            return False
        self._piece = made
        return True


class Held:
    """The sources of one answer, and its lease. One for each connection, used for one answer after the other."""

    def __init__(self, budget: Budget, working_bytes: int) -> None:
        self.sources: dict[Place, Source] = {}
        self._budget = budget
        self._working = working_bytes
        self._lease: Lease | None = None
        self._answer_bytes = 0
        self._dropped = trio.Event()

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for what this connection may have, too."""
        return self._budget.is_waited_for

    async def gate(self, size: int) -> None:
        """An answer of so many bytes wants to come: wait until it may."""
        assert self._lease is None
        self._answer_bytes = size
        self._dropped = trio.Event()
        self._lease = await self._budget.lease(size + min(self._working, _WORKING_SHARE * size), self._drop)

    def idle(self) -> None:
        """The client is waited for."""
        if self._lease is not None:
            self._lease.grow(self._answer_bytes + sum(source.working_bytes for source in self.sources.values()))
            self._lease.idle()

    def busy(self) -> None:
        """The client has moved. What was taken back meanwhile is `dropped`."""
        if self._lease is not None:
            self._lease.busy()

    async def give_way(self) -> None:
        """Be idle for long enough to lose the lease to somebody who waits."""
        self.idle()
        with trio.move_on_after(_LONG_ENOUGH):
            await self._dropped.wait()

    def settle(self) -> None:
        """An answer is done: keep what is left over for the client's next question."""
        self.sources = {place: source for place, source in self.sources.items() if source.left}
        if self.sources:
            self.idle()
        else:
            self.release()

    def release(self) -> None:
        self._drop()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _drop(self) -> None:
        for source in self.sources.values():
            source.drop()
        self.sources = {}
        self._dropped.set()
