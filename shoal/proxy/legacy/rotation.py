"""What a legacy client's connection remembers of its partitions: their order, offsets to skip, and memory needs.

Order: a broker's answer is small (legacy-options.fetch-bytes), so it may hold one partition of many. Kafka fills
answers in the order of the request; so partitions that had records last time are requested last.

Skips: if an answer has no records for the client (transaction markers, aborted records), an old client does not skip
them, and requests the same offset again at once. The skip is remembered, so that the next request is for the following
offset, which the broker answers when there are records.

Needs: if batches of a partition took more memory than usual, the next answer's lease includes it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from shoal.protocol.wire.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.legacy.fetch.fetch import Wanted

__all__ = ["PartitionRotation"]

_Known = TypeVar("_Known")
_LIMIT = 10_000  # partitions per connection and kind: ~200 bytes each


class _Skip(NamedTuple):
    asked: int
    follows: int


class _Recent(OrderedDict[TopicPartition, _Known]):
    """Forgets the least recently updated entries."""

    def put(self, partition: TopicPartition, what: _Known) -> None:
        self[partition] = what
        self.move_to_end(partition)
        if len(self) > _LIMIT:
            self.popitem(last=False)


class PartitionRotation:
    def __init__(self) -> None:
        self._given: _Recent[int] = _Recent()
        self._skips: _Recent[_Skip] = _Recent()
        self._watermarks: _Recent[int] = _Recent()
        self._needs: _Recent[int] = _Recent()
        self._count = 0

    def in_turn(self, wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
        """Each partition once, the most recently served last, with the offsets for the broker."""
        by_partition = {partition.topic_partition: self._ahead(partition) for partition in wanted}
        return tuple(sorted(by_partition.values(), key=lambda one: self._given.get(one.topic_partition, 0)))

    def _ahead(self, wanted: Wanted) -> Wanted:
        skip = self._skips.get(wanted.topic_partition)
        return wanted._replace(offset=skip.follows) if skip and skip.asked == wanted.offset else wanted

    def gave(self, partition: TopicPartition, needed: int = 0) -> None:
        """`needed`: bytes that it took in addition to the answer."""
        self._count += 1
        self._given.put(partition, self._count)
        self._needs.put(partition, needed)
        self._skips.pop(partition, None)

    def nothing_between(self, partition: TopicPartition, asked: int, follows: int) -> bool:
        """No records from the client's offset up to `following`. Returns whether this is further than known before."""
        known = self._skips.get(partition)
        before = known.follows if known and known.asked == asked else asked
        if follows > before:
            self._skips.put(partition, _Skip(asked, follows))
        return follows > before

    def refused(self, partition: TopicPartition) -> bool:
        """The broker returned an error. Returns whether the request skipped offsets of the client's request."""
        return self._skips.pop(partition, None) is not None

    def learn_need(self, partition: TopicPartition, size: int) -> None:
        """Bytes in addition to the answer that conversion needs."""
        self._needs.put(partition, size)

    def need(self, partitions: Iterable[TopicPartition]) -> int:
        """The maximum of all, since one is converted at a time."""
        return max((self._needs.get(partition, 0) for partition in partitions), default=0)

    def learn_watermark(self, partition: TopicPartition, high_watermark: int) -> None:
        self._watermarks.put(partition, high_watermark)

    def watermark(self, partition: TopicPartition) -> int:
        """-1: unknown. (Old clients use it for statistics, and to detect the end.)"""
        return self._watermarks.get(partition, -1)
