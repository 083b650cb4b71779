"""Which target offsets Shoal's appends gave to which source offsets: ranges in which the difference is the same.

A range is `records` source offsets from `source_first` on, without holes, that have the target offsets from
`target_first` on. Ranges that continue each other on both sides become one, so a topic without holes needs one range
for each start of its mirror, whatever its size. A hole (a transaction marker, a batch that compaction removed) begins
another one.

A target partition gives an offset once. So a range whose target offsets another one has with other records shows that
the partition was cut off there (an unclean leader election): everything known from there on is gone. So does one that
begins below what has fallen off: Shoal appends at the end of a log, except for what is in doubt, the last few batches.

The order of the target offsets is the order in which records were appended, which is all that `question` needs to know
about records that were copied twice.
"""

from bisect import bisect_right
from collections.abc import Iterator, Set
from typing import NamedTuple

from shoal.protocol.wire.types import TopicPartition

__all__ = ["MAX_PARTITIONS", "MAX_RANGES", "MAX_RANGES_OF_PARTITION", "AppendedRange", "OffsetMap", "SourcePartition"]

MAX_RANGES_OF_PARTITION = 20_000
"""About 120 bytes each. A topic whose transactions have 100 records keeps the latest two million; others never need so
many."""
MAX_RANGES = 200_000  # of all partitions: 24 MB
MAX_PARTITIONS = 20_000  # of the target, each with at least one range
_DROPPED_AT_ONCE = 8  # the oldest 1/8 of the ranges of a partition


class SourcePartition(NamedTuple):
    """`cluster`: its id, as in the key of an envelope."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AppendedRange(NamedTuple):
    """Ordered by target offset."""

    target_first: int
    source_first: int
    records: int
    source: SourcePartition

    @property
    def target_end(self) -> int:
        return self.target_first + self.records

    @property
    def source_end(self) -> int:
        return self.source_first + self.records

    @property
    def difference(self) -> int:
        return self.target_first - self.source_first

    def same_as(self, other: "AppendedRange") -> bool:
        """The same source offsets have the same target offsets."""
        return self.difference == other.difference and self.source == other.source

    def until(self, target: int) -> "AppendedRange":
        return self._replace(records=target - self.target_first)

    def joined(self, other: "AppendedRange") -> "AppendedRange":
        """Both overlap or touch, and are the same."""
        first = min(self, other)
        return first._replace(records=max(self.target_end, other.target_end) - first.target_first)


class _Log:
    """The ranges of a target partition, ascending; none overlap. `begins`: older ones have fallen off below it."""

    __slots__ = ("begins", "ranges")

    def __init__(self) -> None:
        self.ranges: list[AppendedRange] = []
        self.begins = 0

    def add(self, new: AppendedRange) -> None:
        if new.target_first < self.begins:  # the log was cut off
            self.ranges, self.begins = [], new.target_first
        ranges = self.ranges
        if not ranges or new.target_first > ranges[-1].target_end:
            ranges.append(new)
            return
        if new.target_first == ranges[-1].target_end:
            if new.same_as(ranges[-1]):
                ranges[-1] = ranges[-1]._replace(records=ranges[-1].records + new.records)
            else:
                ranges.append(new)
            return
        self._insert(new)

    def _insert(self, new: AppendedRange) -> None:
        """Not behind all others: a batch in doubt that the broker had appended before, or the log was cut off."""
        ranges = self.ranges
        at = max(bisect_right(ranges, (new.target_first,)) - 1, 0)
        while at < len(ranges) and ranges[at].target_end <= new.target_first:
            at += 1
        stop = at
        while stop < len(ranges) and ranges[stop].target_first < new.target_end:
            stop += 1
        if any(not new.same_as(known) for known in ranges[at:stop]):
            del ranges[at + 1 :]
            ranges[at] = ranges[at].until(new.target_first)
            if ranges[at].records <= 0:
                del ranges[at]
            return self.add(new)
        before = ranges[at - 1 : at]
        if before and before[0].target_end == new.target_first and before[0].same_as(new):
            at -= 1
        behind = ranges[stop : stop + 1]
        if behind and behind[0].target_first == new.target_end and behind[0].same_as(new):
            stop += 1
        for known in ranges[at:stop]:
            new = new.joined(known)
        ranges[at:stop] = [new]
        return None

    def drop_oldest(self) -> int:
        """-> how many."""
        count = max(len(self.ranges) // _DROPPED_AT_ONCE, 1)
        self.begins = self.ranges[count - 1].target_end
        del self.ranges[:count]
        return count

    def forget(self, sources: Set[SourcePartition]) -> int:
        """-> how many."""
        before = len(self.ranges)
        self.ranges = [known for known in self.ranges if known.source not in sources]
        return before - len(self.ranges)


class OffsetMap:
    """Above a limit, the oldest ranges fall off: of that partition, or of the one with most."""

    def __init__(
        self,
        *,
        most_of_partition: int = MAX_RANGES_OF_PARTITION,
        most: int = MAX_RANGES,
        most_partitions: int = MAX_PARTITIONS,
    ) -> None:
        self._most_of_partition = most_of_partition
        self._most = most
        self._most_partitions = most_partitions
        self._logs: dict[TopicPartition, _Log] = {}
        self._count = 0

    def __len__(self) -> int:
        """The number of ranges."""
        return self._count

    def add(
        self, target: TopicPartition, source: SourcePartition, source_first: int, target_first: int, records: int
    ) -> None:
        """These records are appended. Partitions above the limit are left out."""
        log = self._logs.get(target)
        if log is None:
            if len(self._logs) >= self._most_partitions:
                return
            log = self._logs[target] = _Log()
        self._count -= len(log.ranges)
        log.add(AppendedRange(target_first, source_first, records, source))
        self._count += len(log.ranges)
        while len(log.ranges) > self._most_of_partition:
            self._count -= log.drop_oldest()
        while self._count > self._most:
            longest = max(self._logs.values(), key=lambda one: len(one.ranges))
            self._count -= longest.drop_oldest()

    def begin(self, target: TopicPartition, offset: int) -> None:
        """What was below this target offset has fallen off before."""
        if target in self._logs or len(self._logs) < self._most_partitions:
            log = self._logs.setdefault(target, _Log())
            log.begins = max(log.begins, offset)

    def forget_target(self, topic: str) -> bool:
        """The topic was deleted; -> whether anything was known."""
        gone = [target for target in self._logs if target.topic == topic]
        for target in gone:
            self._count -= len(self._logs.pop(target).ranges)
        return bool(gone)

    def forget_source(self, cluster: str, topic: str) -> bool:
        """The topic was deleted, and its offsets start again; -> whether anything was known."""
        return self.forget_partitions({source for _, source in self.pairs() if source[:2] == (cluster, topic)})

    def forget_partitions(self, sources: Set[SourcePartition]) -> bool:
        """They have other records at their offsets since an unclean leader election; -> whether anything was known.

        All at once: each call goes through all ranges.
        """
        gone = sum(log.forget(sources) for log in self._logs.values())
        self._count -= gone
        return gone > 0

    # -- what is known -----------------------------------------------------------------------------------------------

    def begins(self, target: TopicPartition) -> int:
        """Ranges below this target offset have fallen off; 0: none."""
        log = self._logs.get(target)
        return log.begins if log is not None else 0

    def ranges(self, target: TopicPartition) -> list[AppendedRange]:
        """Ascending by target offset."""
        log = self._logs.get(target)
        return list(log.ranges) if log is not None else []

    def targets(self) -> Iterator[TopicPartition]:
        yield from self._logs

    def pairs(self) -> Iterator[tuple[TopicPartition, SourcePartition]]:
        """Each target partition with each source partition of which it has records."""
        for target, log in self._logs.items():
            for source in dict.fromkeys(known.source for known in log.ranges):
                yield target, source
