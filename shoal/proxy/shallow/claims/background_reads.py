"""Reads batches of claim checks from the source, in the background: a request waits for them only a while.

    request ── `wait` ──> a task for each source partition, until all that is wanted of it is read:
       │                    one try of each, then a pause if none was read
       └── answered after `_WAIT_SECONDS` at the latest: the mirror tries again, and finds what has been read meanwhile

So a slow source needs no long requests, and nothing that is under way is given up. A partition of which nothing came
while a request waited is `silent`: the next requests do not wait for it, because they may have others, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.plan import Refused
from shoal.proxy.shallow.leaders import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.listener.listener import Listener

    Found = memoryview | Refused

__all__ = ["BackgroundReads"]

_WAIT_SECONDS = 10.0  # a mirror gives up after 30 s (request.timeout.ms)
_WANTED_SECONDS = 30.0  # a mirror tries again within a second or so
_PAUSE_SECONDS = 0.25  # twice as long each time: a claim check may be forged, so that it reads much
_LONGEST_PAUSE = 4.0
_MAX_PARTITIONS = 1_000  # tasks of some KiB
_MAX_READS = 10_000  # claim checks of 600 bytes
_MAX_BYTES = 64 * 1024 * 1024  # of batches that are being read, or one claim check: a forged one may state any size


@dataclass(slots=True, eq=False)
class _Read:
    key: EnvelopeKey
    asked_at: float
    done: trio.Event = field(default_factory=trio.Event)
    found: Found | None = None
    why: str = "the source does not answer"


@dataclass(slots=True, eq=False)
class _Partition:
    reads: dict[EnvelopeKey, _Read] = field(default_factory=dict)
    read_at: float = float("-inf")  # something of it, the last time
    is_silent: bool = False


class BackgroundReads:
    """`read` gets the batches of one claim check, or says that they are gone; it may raise NoAnswer."""

    def __init__(self, listener: Listener, read: Callable[[EnvelopeKey], Awaitable[Found]]) -> None:
        self._listener = listener
        self._read = read
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._count = self._bytes = 0
        self._scopes: set[trio.CancelScope] = set()

    async def wait(self, keys: Sequence[EnvelopeKey]) -> dict[EnvelopeKey, Found]:
        """What has been read when all is, or when the time is over; the rest is refused for now."""
        began = trio.current_time()
        reads = {key: self._begin(key, began) for key in keys}
        with trio.move_on_after(_WAIT_SECONDS) as scope:
            for key, read in reads.items():
                partition = self._partitions.get(key.source)
                if read is not None and not (partition is not None and partition.is_silent):
                    await read.done.wait()
        if scope.cancelled_caught:
            self._note_silence(keys, began)
        return {key: _found(key, read) for key, read in reads.items()}

    def _note_silence(self, keys: Iterable[EnvelopeKey], began: float) -> None:
        for key in keys:
            partition = self._partitions.get(key.source)
            if partition is not None and partition.read_at < began:
                partition.is_silent = True

    def _begin(self, key: EnvelopeKey, now: float) -> _Read | None:
        """None: there is no room for more, or Shoal ends."""
        partition = self._partitions.get(key.source)
        if partition is not None and key in partition.reads:
            read = partition.reads[key]
            read.asked_at = now
            return read
        is_full = (
            (self._bytes and self._bytes + key.payload > _MAX_BYTES)
            or self._count >= _MAX_READS
            or (partition is None and len(self._partitions) >= _MAX_PARTITIONS)
        )
        if is_full or not self._listener.may_spawn:
            return None
        if partition is None:
            partition = self._partitions[key.source] = _Partition()
            self._listener.spawn(partial(self._run, key.source, partition))
        read = partition.reads[key] = _Read(key, now)
        self._count, self._bytes = self._count + 1, self._bytes + key.payload
        return read

    async def _run(self, source: TopicPartition, partition: _Partition) -> None:
        pause = _PAUSE_SECONDS
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                while partition.reads:
                    if await self._try_all(partition):
                        pause = _PAUSE_SECONDS
                    elif partition.reads:
                        await trio.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                self._scopes.discard(scope)
                del self._partitions[source]
                for read in list(partition.reads.values()):
                    read.why = "Shoal ends"
                    self._end(partition, read)

    async def _try_all(self, partition: _Partition) -> bool:
        """-> whether any was read."""
        some = False
        for read in list(partition.reads.values()):
            if trio.current_time() - read.asked_at > _WANTED_SECONDS:
                self._end(partition, read)
                continue
            try:
                read.found = await self._read(read.key)
            except NoAnswer as error:
                read.why = str(error)
                continue
            some, partition.is_silent, partition.read_at = True, False, trio.current_time()
            self._end(partition, read)
        return some

    def _end(self, partition: _Partition, read: _Read) -> None:
        del partition.reads[read.key]
        self._count, self._bytes = self._count - 1, self._bytes - read.key.payload
        read.done.set()

    def end(self) -> None:
        for scope in self._scopes:
            scope.cancel()


def _found(key: EnvelopeKey, read: _Read | None) -> Found:
    if read is not None and read.found is not None:
        return read.found
    why = "Shoal ends, or much is missing" if read is None else read.why
    what = f"{key}: its batches are not here any more, and not read from the source yet: {why}"
    return Refused(error_code=TRY_AGAIN, message=what)
