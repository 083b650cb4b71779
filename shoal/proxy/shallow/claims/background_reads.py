"""Reads batches of claim checks from the source, in the background: a request waits for them only a while.

    request ── `wait` ──> a task for each source partition, until all that is wanted of it is read:
       │                    one try of each, then a pause if none was read
       └── answered after some seconds at the latest: the mirror tries again, and finds what has been read meanwhile

So a slow source needs no long requests, and nothing that is under way is given up. A partition of which nothing came
while a request waited is `silent`: the next requests do not wait for it, because they may have others, too.

`queue` says what is read if more is wanted than there is room for. A silent partition takes no room from others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

import trio

from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.plan import Refused
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.shallow.claims.read_queue import WANTED_SECONDS, ReadQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.types import TopicPartition

__all__ = ["BackgroundReads", "Found"]

Found: TypeAlias = memoryview | Refused

_PAUSE_SECONDS = 0.25  # twice as long each time: a claim check may be forged, so that it reads much
_LONGEST_PAUSE = 4.0
_MAX_PARTITIONS = 1_000  # tasks of some KiB
_MAX_READS = 10_000  # claim checks of 600 bytes
_MAX_WAITED = 64 * 1024 * 1024  # bytes; a request does not wait for more
_LEAST_WAIT = 1.0  # seconds; after less, silence means nothing


@dataclass(slots=True, eq=False)
class _Read:
    key: EnvelopeKey
    asked_at: float
    done: trio.Event = field(default_factory=trio.Event)
    found: Found | None = None
    why: str = "the source does not answer"


@dataclass(slots=True, eq=False)
class _Partition:
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    reads: dict[EnvelopeKey, _Read] = field(default_factory=dict)
    wanted: int = 0  # bytes of their batches
    read_at: float = float("-inf")  # something of it, the last time
    is_silent: bool = False


class Spawner(Protocol):
    """A listener."""

    @property
    def may_spawn(self) -> bool: ...

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None: ...


class BackgroundReads:
    """`read` gets the batches of one claim check and keeps them if there is `room` (bytes), or says that they are gone;
    it may raise NoAnswer."""

    def __init__(
        self,
        listener: Spawner,
        read: Callable[[EnvelopeKey], Awaitable[Found]],
        room: Callable[[], int],
        *,
        max_reads: int = _MAX_READS,
        max_partitions: int = _MAX_PARTITIONS,
    ) -> None:
        self._listener = listener
        self._read = read
        self._room = room
        self._max_reads = max_reads
        self._max_partitions = max_partitions
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._count = 0
        self._queue = ReadQueue()
        self._waited = 0  # bytes of batches that requests wait for, and hold until all of theirs are read

    async def wait(self, keys: Sequence[EnvelopeKey], deadline: float) -> dict[EnvelopeKey, Found]:
        """What has been read when all is, or at the deadline; the rest is refused for now."""
        began, before = trio.current_time(), self._waited
        found: dict[EnvelopeKey, Found] = {}
        waited: dict[EnvelopeKey, _Read] = {}
        grouped, is_full = _by_source(keys), False
        admitted = self._admit(grouped, began)
        for source, wanted in grouped.items():
            for key in wanted:
                read = self._begin(key, began, is_admitted=source in admitted)
                if read is not None and self._may_wait(read):
                    waited[key] = read
                    self._waited += key.payload
                else:  # it is not held here, but may be kept when it has been read
                    found[key] = _found(key, read)
            if source in admitted and source not in self._partitions:
                self._queue.release(source)
                is_full = True
        if is_full:
            self._make_room()
        taken = self._waited - before
        try:
            with trio.move_on_at(deadline) as scope:
                for read in waited.values():
                    await read.done.wait()
        finally:
            self._waited -= taken
        if scope.cancelled_caught and trio.current_time() - began >= _LEAST_WAIT:
            self._note_silence(waited, began)
        found |= {key: _found(key, read) for key, read in waited.items()}
        if not any(isinstance(result, Refused) and result.error_code == TRY_AGAIN for result in found.values()):
            self.release(found)
        return found

    def _may_wait(self, read: _Read) -> bool:
        partition, size = self._partitions.get(read.key.source), read.key.payload
        has_room = not self._waited or self._waited + size <= _MAX_WAITED
        return has_room and not (partition is not None and partition.is_silent)

    def _note_silence(self, waited: Mapping[EnvelopeKey, _Read], began: float) -> None:
        for key, read in waited.items():
            partition = self._partitions.get(key.source)
            if partition is not None and partition.reads.get(key) is read and partition.read_at < began:
                partition.is_silent = True

    def _admit(self, grouped: Mapping[TopicPartition, Sequence[EnvelopeKey]], now: float) -> set[TopicPartition]:
        for source in self._queue.stale(now):
            self._queue.release(source)
            if (partition := self._partitions.get(source)) is not None:
                self.release(list(partition.reads))
        busy = sum(
            reads.wanted
            for source, reads in self._partitions.items()
            if not reads.is_silent and not self._queue.is_first(source)
        )
        wanted = {source: sum(key.payload for key in keys if self._is_new(key)) for source, keys in grouped.items()}
        return self._queue.admit(wanted, busy, self._room(), now)

    def _is_new(self, key: EnvelopeKey) -> bool:
        partition = self._partitions.get(key.source)
        return partition is None or key not in partition.reads

    def release(self, keys: Iterable[EnvelopeKey]) -> None:
        """What is held apart of these: a request has got it, or it is appended."""
        for key in keys:
            partition = self._partitions.get(key.source)
            read = None if partition is None else partition.reads.get(key)
            if partition is not None and read is not None and read.done.is_set():
                self._end(partition, read)

    def _begin(self, key: EnvelopeKey, now: float, *, is_admitted: bool) -> _Read | None:
        """None: there is no room for more, or Shoal ends."""
        partition = self._partitions.get(key.source)
        if partition is not None and key in partition.reads:
            read = partition.reads[key]
            read.asked_at = now
            return read
        if self._is_full(partition) or not is_admitted or not self._listener.may_spawn:
            return None
        if partition is None:
            partition = self._partitions[key.source] = _Partition()
            self._listener.spawn(partial(self._run, key.source, partition))
        read = partition.reads[key] = _Read(key, now)
        self._count += 1
        partition.wanted += key.payload
        return read

    def _is_full(self, partition: _Partition | None) -> bool:
        """A partition may have as many reads as it leaves room for others."""
        if partition is None:
            return self._count >= self._max_reads or len(self._partitions) >= self._max_partitions
        return self._count + len(partition.reads) >= self._max_reads

    def _make_room(self) -> None:
        """Soon: what is wanted of a partition that cannot be read must be asked for again."""
        silent = next((partition for partition in self._partitions.values() if partition.is_silent), None)
        if silent is not None:
            silent.scope.cancel()

    async def _run(self, source: TopicPartition, partition: _Partition) -> None:
        try:
            with partition.scope:
                await self._read_all(partition)
        finally:
            del self._partitions[source]
            self._queue.release(source)
            for read in list(partition.reads.values()):
                self._end(partition, read)

    async def _read_all(self, partition: _Partition) -> None:
        pause = _PAUSE_SECONDS
        while partition.reads:
            if await self._try_all(partition):
                pause = _PAUSE_SECONDS
            elif partition.reads:
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _try_all(self, partition: _Partition) -> bool:
        """-> whether any was read."""
        some = False
        for read in list(partition.reads.values()):
            if partition.reads.get(read.key) is not read:
                continue  # a request has got it meanwhile
            if trio.current_time() - read.asked_at > WANTED_SECONDS:
                self._end(partition, read)
                continue
            if read.done.is_set():
                continue  # it is held apart
            try:
                with self._queue.reading(read.key.source):
                    read.found = await self._read(read.key)
            except NoAnswer as error:
                read.why = str(error)
                continue
            if partition.reads.get(read.key) is not read:
                continue
            some, partition.is_silent, partition.read_at = True, False, trio.current_time()
            self._queue.was_read(read.key.source, partition.read_at)
            if self._queue.is_first(read.key.source) and not isinstance(read.found, Refused):
                read.done.set()
            else:
                self._end(partition, read)
        return some

    def _end(self, partition: _Partition, read: _Read) -> None:
        del partition.reads[read.key]
        self._count -= 1
        partition.wanted -= read.key.payload
        if not partition.reads:
            self._queue.release(read.key.source)
        read.done.set()

    def end(self) -> None:
        for partition in self._partitions.values():
            for read in partition.reads.values():
                read.why = "Shoal ends"
            partition.scope.cancel()


def _by_source(keys: Iterable[EnvelopeKey]) -> Mapping[TopicPartition, list[EnvelopeKey]]:
    grouped: dict[TopicPartition, list[EnvelopeKey]] = {}
    for key in keys:
        grouped.setdefault(key.source, []).append(key)
    return grouped


def _found(key: EnvelopeKey, read: _Read | None) -> Found:
    if read is not None and read.found is not None:
        return read.found
    why = "Shoal ends, or much is missing" if read is None else read.why
    what = f"{key}: its batches are not here any more, and not read from the source yet: {why}"
    return Refused(error_code=TRY_AGAIN, message=what)
