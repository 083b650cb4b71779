"""One answer to a legacy client: its size is sent before most of it exists (KIP-283).

    fill    make a first portion of each partition in turn, about a chunk in total; partitions not reached get an
            empty set, and are first next time
    promise size of a set = its first portion plus what its source may still give, within the client's limits
    send    heads and portions; the next portion is made when the kernel has taken the previous one
    pad     the missing rest of a set is an incomplete message, which clients drop (protocol/legacy/fetch/overflow.py)

A client's first answer is short if others wait for the budget: one piece, then its source goes to the next client. So
after a restart all clients get something within seconds, instead of one client everything.

For a client that does not read, one portion and its source are held. The source is dropped when others need the memory
(budget.py); then the broker is asked again when the client has read the portion. If a set cannot be completed (the
leader has moved, a later batch is damaged, the broker is gone), it ends early: the client has whole messages up to some
offset, requests the next, and gets the error then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from shoal.protocol.legacy.fetch.overflow import overflow
from shoal.proxy.net.upstream import UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.protocol.legacy.fetch.fetch import Wanted
    from shoal.proxy.legacy.conversion import PartitionConversion
    from shoal.proxy.legacy.counters import LegacyTally
    from shoal.proxy.legacy.leased import LeasedAnswer
    from shoal.proxy.net.transport import Buffer, SendSide

__all__ = ["AnswerPartition", "AnswerWriter", "ClientLeft", "Sources", "fill"]


class ClientLeft(Exception):
    """The client has disconnected."""


@dataclass(slots=True, kw_only=True, eq=False)
class AnswerPartition:
    """One partition of an answer. `size`: the promised size of its record set."""

    wanted: Wanted
    error_code: int = 0
    high_watermark: int = -1
    source: PartitionConversion | None = None
    portion: list[bytes] = field(default_factory=list)
    size: int = 0


async def fill(parts: Iterable[AnswerPartition], *, chunk: int, max_bytes: int, hurry: bool = False) -> None:
    """Make first portions and promises, part by part. The first part with records gets at least one message, regardless
    of limits. In a `hurry`, one piece is enough.
    """
    made = 0
    for part in parts:
        if part.source is None or made >= (1 if hurry else chunk):
            continue
        limit = max(min(part.wanted.max_bytes, max_bytes), 0)
        room = min(limit, chunk - made) if made else limit
        part.portion = await part.source.portion(room, 0 if hurry else chunk - made, whole=not made)
        size = sum(map(len, part.portion))
        if size:
            made += size
            part.size = max(size + part.source.owed, min(limit, size + part.source.left))
            max_bytes -= part.size
        elif not part.source.ended:  # its next piece exceeds the remaining room
            return


class Sources(Protocol):
    async def again(self, part: AnswerPartition) -> PartitionConversion | None:
        """A source for the rest of a part whose source was dropped or `wants` more; None if there is none."""

    async def stay(self) -> None:
        """Keep the broker's connection from becoming idle."""


class AnswerWriter:
    """Sends one answer. A checkpoint if the client must read first. UpstreamLost: a message stays incomplete."""

    def __init__(self, outlet: SendSide, held: LeasedAnswer, sources: Sources, chunk: int, tally: LegacyTally) -> None:
        self._outlet = outlet
        self._held = held
        self._sources = sources
        self._chunk = chunk
        self._tally = tally
        self._out: list[Buffer] = []  # made, and not yet taken by the kernel
        self._gives_way = False

    async def send(self, heads: Sequence[bytes], parts: Sequence[AnswerPartition], *, gives_way: bool = False) -> None:
        """`gives_way`: end after the first portion. Raises ClientLeft, UpstreamLost."""
        self._gives_way = gives_way
        for head, part in zip(heads, parts, strict=True):
            self._out.append(head)
            await self._send(part)
        await self._flush()

    async def _send(self, part: AnswerPartition) -> None:
        portion, part.portion = part.portion, []
        left = part.size
        while portion:
            self._out += portion
            left -= sum(map(len, portion))
            portion.clear()  # do not keep sent bytes while waiting for the next portion
            if left:
                await self._flush()
            portion = await self._next(part, left) if left else []
        if left:
            self._tally.padding_bytes += left
            self._out += overflow(left)

    async def _next(self, part: AnswerPartition, room: int) -> list[bytes]:
        """Raises UpstreamLost if a message cannot be completed."""
        await self._sources.stay()
        owed = 0 if part.source is None else part.source.owed
        portion: list[bytes] = []
        if part.source is not None and part.source.dropped:
            await self._resume(part)
        while part.source is not None:
            portion = await part.source.portion(room, self._chunk)
            if portion or not part.source.wants:
                break
            await self._resume(part)
        if owed and not portion:
            place = f"{part.wanted.topic!r}-{part.wanted.partition}"
            raise UpstreamLost(f"a message of {place} is incomplete, and its last {owed} bytes are no longer available")
        return portion

    async def _resume(self, part: AnswerPartition) -> None:
        self._tally.resumed += 1
        part.source = await self._sources.again(part)

    async def _flush(self) -> None:
        out, self._out = self._out, []
        self._held.idle()
        await self._outlet.send_all(out)
        if self._gives_way:
            self._gives_way = False
            await self._held.give_way()
        self._held.busy()
        if self._outlet.discarding:
            raise ClientLeft
