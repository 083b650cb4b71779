"""The batches of claim checks that have not been appended to the target: a bounded cache, in the bytes of the answers.

What is not here can be read from the source again, so everything may be forgotten; but reading again takes time. There
is room for an answer if

- all answers whose batches are here have at most `limit` bytes together (a batch keeps its whole answer in memory);
- of its mirror's task at most `FLOW_BYTES` here are yet to be appended, or nothing. A task has one produce request in
  flight, with all that it has got. That request must be answered before the mirror gives up (request.timeout.ms, 30 s),
  also if the target is slow.

Batches that are appended stay until their request has succeeded: if a later part of it fails, the mirror sends all of
it again, and the rules that append nothing twice must see the same batches (appended_log.py, sequences/mirror.py).

What has not been asked for within `_KEPT_SECONDS` is forgotten: a mirror that was restarted reads it again, or a
transform has left the record out. What is asked for stays: its request may need others that a slow source gives later.
What a task has not produced counts for its limit also when it is forgotten, until something else of the task is
appended: while a target is away for an hour, a task must not get 8 MiB more every two minutes, and need them all again.
If only a partition of the target is away, its claim checks come together in one batch of the mirror's producer: a
partition of which so much was forgotten gets no more, until something of it is appended.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.wire.types import TopicPartition

__all__ = ["FLOW_BYTES", "KeptBatches"]

_T = TypeVar("_T")

FLOW_BYTES = 8 * 1024 * 1024
_KEPT_SECONDS = 120.0
_MAX_OWING = 10_000  # tasks, and partitions of tasks; 100 bytes each
_LEAST_RESTORED = 64 * 1024 * 1024  # also if the setting was lowered


@dataclass(slots=True, eq=False)
class _Kept:
    batches: memoryview
    at: float
    is_appended: bool = False


class KeptBatches:
    """All sizes in bytes. `limit` may change at any time; 0: nothing more is kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0  # of all answers
        self._kept: OrderedDict[EnvelopeKey, _Kept] = OrderedDict()
        self._answers: dict[int, int] = {}  # by id of their buffers: how many envelopes' batches are of each
        self._flows: dict[int, int] = {}  # bytes that are yet to be appended, by `EnvelopeKey.flow`
        # The same, of what was forgotten since something of the flow was appended.
        self._owing: OrderedDict[int, int] = OrderedDict()
        # By flow and source partition, since something of the partition was appended: a mirror may still have their
        # claim checks, all in one batch of its producer. It gets no further ones of this partition.
        self._overdue: OrderedDict[tuple[int, TopicPartition], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def has_room(self, flow: int, answer: int) -> bool:
        """For the batches of an answer of so many bytes."""
        kept = self._flows.get(flow, 0) + self._owing.get(flow, 0)
        return self.held + answer <= self.limit and (not kept or kept + answer <= FLOW_BYTES)

    def is_overdue(self, flow: int, partition: TopicPartition) -> bool:
        """The mirror may have so many claim checks of this source partition that it gets no more."""
        return self._overdue.get((flow, partition), 0) >= FLOW_BYTES // 2

    def has_any(self, flow: int) -> bool:
        return flow in self._flows or flow in self._owing

    def keep(self, key: EnvelopeKey, batches: memoryview, now: float) -> None:
        """`batches` are of the buffer of an answer, which must not change any more. Only where there is room for it."""
        self.forget(key)  # a forged key may be here
        answer, size = _answer(batches)
        self._kept[key] = _Kept(batches, now)
        if answer not in self._answers:
            self._answers[answer] = 0
            self.held += size
        self._answers[answer] += 1
        self._flows[key.flow] = self._flows.get(key.flow, 0) + len(batches)

    def restore(self, key: EnvelopeKey, batches: memoryview, now: float) -> None:
        """What was read again; as much may be here as of answers, and what is more is not kept."""
        if key not in self._kept and len(batches) <= self.restorable:
            self.keep(key, batches, now)

    @property
    def restorable(self) -> int:
        """So many bytes may be restored."""
        return 2 * max(self.limit, _LEAST_RESTORED) - self.held

    def find(self, key: EnvelopeKey, now: float) -> memoryview | None:
        found = self._kept.get(key)
        if found is None:
            return None
        found.at = now
        self._kept.move_to_end(key)
        return found.batches

    def appended(self, key: EnvelopeKey) -> bool:
        """Its batches are appended. False: they were not here, or that was known."""
        self._owing.pop(key.flow, None)
        if self._overdue:
            self._overdue.pop((key.flow, TopicPartition(key.topic, key.partition)), None)
        return self._settle(key)

    def _settle(self, key: EnvelopeKey) -> bool:
        """They are not to be appended any more. False as above."""
        found = self._kept.get(key)
        if found is None or found.is_appended:
            return False
        found.is_appended = True
        self._flows[key.flow] -= len(found.batches)
        if not self._flows[key.flow]:
            del self._flows[key.flow]
        return True

    def forget(self, key: EnvelopeKey) -> bool:
        """They will not be asked for any more. False: they were not here."""
        self._settle(key)
        found = self._kept.pop(key, None)
        if found is None:
            return False
        answer, size = _answer(found.batches)
        self._answers[answer] -= 1
        if not self._answers[answer]:
            del self._answers[answer]
            self.held -= size
        return True

    def expire(self, now: float) -> None:
        """Call it about every second."""
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if now - kept.at < _KEPT_SECONDS:
                break
            if not kept.is_appended:
                self._owe(key, len(kept.batches))
            self.forget(key)

    def _owe(self, key: EnvelopeKey, size: int) -> None:
        _add(self._owing, key.flow, size)
        _add(self._overdue, (key.flow, TopicPartition(key.topic, key.partition)), size)

    def clear(self) -> None:
        for key in list(self._kept):
            self.forget(key)
        self._owing.clear()
        self._overdue.clear()


def _add(sums: OrderedDict[_T, int], key: _T, size: int) -> None:
    sums[key] = sums.get(key, 0) + size
    sums.move_to_end(key)
    if len(sums) > _MAX_OWING:
        sums.popitem(last=False)


def _answer(batches: memoryview) -> tuple[int, int]:
    """The buffer that they are a part of: its id, which is its own as long as they are here, and its bytes."""
    buffer = batches.obj
    return id(buffer), memoryview(buffer).nbytes
