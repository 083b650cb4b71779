"""One consumer that reads a topic from its beginning to its end at full speed.

While the clock runs it only finds its next offset; the messages are verified afterwards, one by one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.legacy.check import check
from bench.legacy.fetching import AnswerReader, fetch, record_set
from bench.legacy.message_sets import Damaged, skim
from bench.load import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.legacy.stage import Kind
    from bench.load import Address

__all__ = ["FastRead", "read_all", "verify"]

_EMPTY_IN_A_ROW = 20  # answers; each takes half a second at most


@dataclass(frozen=True, slots=True, kw_only=True)
class FastRead:
    seconds: float
    answers: Sequence[tuple[int, bytes]]  # the requested offset, the whole frame

    @property
    def received(self) -> int:
        return sum(len(frame) for _, frame in self.answers)


def read_all(address: Address, kind: Kind) -> FastRead:
    """Raises Damaged when no more messages arrive."""
    answers: list[tuple[int, bytes]] = []
    with Wire(address) as wire:
        begin, offset, empty = time.perf_counter(), 0, 0
        while offset < kind.end:
            wire.send(fetch(kind.topic, offset))
            frame = wire.answer()
            answers.append((offset, frame))
            last = skim(record_set(frame, kind.topic))
            empty = empty + 1 if last is None else 0
            if empty > _EMPTY_IN_A_ROW:
                raise Damaged(f"{kind.topic}: nothing but empty answers at offset {offset}")
            offset = offset if last is None else last + 1
        return FastRead(seconds=time.perf_counter() - begin, answers=answers)


def verify(read: FastRead, kind: Kind) -> None:
    """Every message is there, once, in order, as it was written. Raises Damaged."""
    due = 0
    for offset, frame in read.answers:
        if offset != due:
            raise Damaged(f"{kind.topic}: the reader went on at {offset}, its messages end before {due}")
        reader = AnswerReader(kind.topic, offset, check)
        head = reader.wanted
        reader.feed(frame[:head])
        reader.feed(memoryview(frame)[head:])
        due = reader.next_offset
    if due != kind.end:
        raise Damaged(f"{kind.topic}: {due} messages of {kind.end}")
