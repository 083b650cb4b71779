"""Which source partitions are read now, if more is wanted than there is room for. No I/O, and no clock.

A batch of the mirror can be appended when all its claim checks are here, so what a request wants of a source partition
is read together or not yet: many halves could fill the cache, and none would become whole.

    room for it            admitted, and what is read goes to the cache
    no room, but idle      the `first`: nothing else is read, so all that this request wants is admitted, and what is
                           read of it is held apart from the cache until the request has got all of it
    else                   it waits in a queue, in the order of asking; until its turn, nothing behind it is admitted

So whatever fills the cache, and for how long, one request after the other gets its batches. Held apart are those of one
request at most, which the reader of requests limits to 64 MiB.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.protocol.wire.types import TopicPartition

__all__ = ["PATIENCE", "READ_SECONDS", "WANTED_SECONDS", "ReadQueue"]

WANTED_SECONDS: Final = 30.0  # a mirror tries again within a second or so
PATIENCE: Final = 15.0  # with the first, if none of it can be read and others wait
READ_SECONDS: Final = 60.0  # for one claim check of the first, if others wait


class ReadQueue:
    """`now` in seconds, sizes in bytes."""

    def __init__(self) -> None:
        self._queue: dict[TopicPartition, float] = {}  # when it was asked for, the last time
        self._first: set[TopicPartition] = set()
        self._reading: set[TopicPartition] = set()
        self._progress_at = 0.0  # something of the first was read, or they were admitted

    def is_first(self, source: TopicPartition) -> bool:
        return source in self._first

    @contextmanager
    def reading(self, source: TopicPartition) -> Iterator[None]:
        """While one of its claim checks is being read: one at a time."""
        self._reading.add(source)
        try:
            yield
        finally:
            self._reading.discard(source)

    def was_read(self, source: TopicPartition, now: float) -> None:
        if source in self._first:
            self._progress_at = now

    def release(self, source: TopicPartition) -> None:
        """Nothing of it is read or held apart any more."""
        self._first.discard(source)

    def stale(self, now: float) -> list[TopicPartition]:
        """The first, if they keep the others waiting for nothing."""
        patience = PATIENCE if self._reading.isdisjoint(self._first) else READ_SECONDS
        return list(self._first) if self._queue and now - self._progress_at >= patience else []

    def admit(self, wanted: Mapping[TopicPartition, int], busy: int, room: int, now: float) -> set[TopicPartition]:
        """`wanted`: what one request wants that is not being read yet. `busy`: what is being read for the cache."""
        self._queue = {source: at for source, at in self._queue.items() if now - at < WANTED_SECONDS}
        is_its_turn = not self._queue or wanted.get(next(iter(self._queue)), 0) > 0
        is_idle = is_its_turn and not busy and not self._first
        admitted = {source for source, size in wanted.items() if not size}
        for source, size in wanted.items():
            if source in admitted:
                continue
            if is_its_turn and busy + size <= room:
                busy += size
            elif is_idle:
                self._first.add(source)
                self._progress_at = now
            else:
                continue
            admitted.add(source)
        self._enqueue(wanted, admitted, now)
        return admitted

    def _enqueue(self, wanted: Mapping[TopicPartition, int], admitted: set[TopicPartition], now: float) -> None:
        """One place for a request, however much it wants."""
        for source in admitted:
            if wanted[source]:
                self._queue.pop(source, None)
        rest = [source for source in wanted if source not in admitted]
        for source in [source for source in rest if source in self._queue] or rest[:1]:
            self._queue[source] = now
