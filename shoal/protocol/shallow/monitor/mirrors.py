"""All mirrors that read through one wrapping listener, and the partitions that each copies.

A mirror is what its consumers have in common: MirrorMaker 2 names them after the flow, the connector, and the number of
the task. Tasks take over each other's partitions, so the number does not count, and neither does the address.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.monitor.gap import Gap
from shoal.protocol.shallow.monitor.partition import Lag, PartitionCopy, Position
from shoal.protocol.wire.types import TopicPartition

__all__ = ["MAX_PARTITIONS", "Copied", "KeptPosition", "MirrorGap", "Mirrors", "mirror_name"]

MAX_PARTITIONS = 20_000
"""Partitions of all mirrors of a listener, ~1.5 kB each while it is behind; further ones are not followed."""
MAX_LEFT_OUT = 10_000  # that are counted
MAX_LIVES = 4096  # consumers whose envelopes may still arrive
FORGET_SECONDS = 24 * 3600.0
"""A partition that a running mirror no longer reads was taken from the mirror's topics; or its task has failed, and an
operator must see that it falls behind. So it counts for a day."""
_RUNNING_SECONDS = 60.0

_TASK = re.compile(r"-\d+(?=(\|replication-consumer)?$)")
_ALIAS = re.compile(r"(?:^|\|)([^|]+)->[^|]+\|")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]")


def mirror_name(client_id: str) -> str:
    """The name of a data consumer's mirror."""
    return _TASK.sub("", client_id)


class MirrorGap(NamedTuple):
    mirror: str
    partition: TopicPartition
    gap: Gap


class Copied(NamedTuple):
    """`lag`: None: unknown."""

    mirror: str
    partition: TopicPartition
    mirrored: int
    lag: Lag | None


class KeptPosition(NamedTuple):
    """`topic_id`: None: unknown."""

    mirror: str
    partition: TopicPartition
    topic_id: bytes | None
    position: Position


class _Mirror:
    """Known from the first partition that is followed to the last, so client ids alone take no memory.

    `is_proven`: records have come back: its producer is the one at the target listener.
    """

    __slots__ = ("copies", "is_proven", "reads_committed", "seen_at")

    def __init__(self) -> None:
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self.is_proven = False
        self.reads_committed = False
        self.seen_at = float("-inf")


class Mirrors:
    def __init__(self, *, most: int = MAX_PARTITIONS) -> None:
        self._most = most
        self._known: dict[str, _Mirror] = {}
        self._count = 0
        self._lives: OrderedDict[int, str] = OrderedDict()
        self._topic_ids: dict[str, bytes] = {}
        self._topics = set[str]()
        self._origins: dict[str, tuple[tuple[str, str], ...]] = {}  # target topic -> mirrors and source topics
        self._learned: dict[str, tuple[str, str]] = {}  # the same, by envelopes
        self._last_crc: dict[TopicPartition, int] = {}
        self._left_out = set[tuple[str, TopicPartition]]()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, PartitionCopy]]:
        for name, mirror in self._known.items():
            for partition, copy in mirror.copies.items():
                yield name, partition, copy

    def get(self, mirror: str, partition: TopicPartition) -> PartitionCopy | None:
        known = self._known.get(mirror)
        return None if known is None else known.copies.get(partition)

    @property
    def left_out(self) -> int:
        """Partitions that are not followed, up to a limit."""
        return len(self._left_out)

    # -- state -------------------------------------------------------------------------------------------------------

    def restore(self, kept: Iterable[KeptPosition], now: float, *, is_exact: bool) -> None:
        """`is_exact`: it was written when all connections had ended."""
        for mirror, partition, topic_id, position in kept:
            copy = PartitionCopy(position, is_exact=is_exact)
            copy.seen_at = now
            if self._enter(mirror, partition, copy) and topic_id is not None:
                self._topic_ids[partition.topic] = topic_id

    def positions(self) -> list[KeptPosition]:
        return [
            KeptPosition(mirror, partition, self._topic_ids.get(partition.topic), copy.position)
            for mirror, partition, copy in self
            if copy.is_known
        ]

    def _enter(self, mirror: str, partition: TopicPartition, copy: PartitionCopy) -> bool:
        if self._count >= self._most:
            if len(self._left_out) < MAX_LEFT_OUT:
                self._left_out.add((mirror, partition))
            return False
        if (known := self._known.get(mirror)) is None:
            known = self._known[mirror] = _Mirror()
            self._origins.clear()
        known.copies[partition] = copy
        self._count += 1
        if partition.topic not in self._topics:
            self._topics.add(partition.topic)
            self._origins.clear()
        return True

    # -- fetch side --------------------------------------------------------------------------------------------------

    def connected(self, mirror: str, life: int) -> None:
        """`life`: the flow's token, which its envelopes bear."""
        self._lives[life] = mirror
        self._lives.move_to_end(life)
        if len(self._lives) > MAX_LIVES:
            self._lives.popitem(last=False)

    def knows(self, life: int) -> bool:
        return life in self._lives

    def requested(self, mirror: str, *, read_committed: bool, is_proven: bool) -> None:
        """One of its consumers has sent a request, whose partitions were asked for by `ask`."""
        known = self._known.get(mirror)
        if known is not None:
            known.reads_committed = read_committed
            known.is_proven |= is_proven

    def reads_committed(self, mirror: str) -> bool:
        """By its latest request."""
        known = self._known.get(mirror)
        return known is not None and known.reads_committed

    def ask(
        self, mirror: str, life: int, partition: TopicPartition, offset: int, now: float, *, elsewhere: bool = False
    ) -> None:
        """`elsewhere`: what a former consumer has left may have been copied through another Shoal."""
        copy = self.get(mirror, partition)
        if copy is None or (elsewhere and life != copy.life and offset > copy.given):
            self._count -= copy is not None
            copy = PartitionCopy()
            if not self._enter(mirror, partition, copy):
                return
        self._known[mirror].seen_at = now
        copy.ask(offset, life, now)

    def asked(self, mirror: str, life: int, partition: TopicPartition, offset: int) -> PartitionCopy | None:
        """The partition, if `offset` is what this consumer asks for: an answer may be late."""
        copy = self.get(mirror, partition)
        return copy if copy is not None and copy.life == life and copy.asked == offset else None

    def identify(self, topic: str, topic_id: bytes) -> list[MirrorGap]:
        """The topic has this id now."""
        known = self._topic_ids.get(topic)
        if known == topic_id or topic not in self._topics:
            return []
        self._topic_ids[topic] = topic_id
        if known is None:
            return []
        found = [(mirror, partition, copy.make_anew()) for mirror, partition, copy in self if partition.topic == topic]
        return [MirrorGap(mirror, partition, gap) for mirror, partition, gap in found if gap is not None]

    # -- produce side ------------------------------------------------------------------------------------------------

    def appended(self, key: EnvelopeKey, target: str, now: float) -> None:
        """An envelope is appended to the topic `target`."""
        partition = TopicPartition(key.topic, key.partition)
        mirror = self._lives.get(key.flow)
        if mirror is not None:
            if (known := self._known.get(mirror)) is not None:
                known.is_proven = True
            if len(self._learned) < self._most and self._learned.get(target) != (mirror, key.topic):
                self._learned[target] = mirror, key.topic
                self._origins.clear()
        for name in (mirror,) if mirror is not None else tuple(self._known):  # of a life before this process
            copy = self.get(name, partition)
            if copy is not None:
                copy.appended(key.last_offset + 1, now)

    def arrived(self, target: TopicPartition, records: int, crc: int, now: float) -> None:
        """Plain records for a topic of the target, in one batch. `crc`: its checksum; a retry has the same."""
        origins = self._origins_of(target.topic)
        if not origins or self._last_crc.get(target) == crc:
            return
        for mirror, topic in origins:
            known = self._known.get(mirror)
            copy = None if known is None else known.copies.get(TopicPartition(topic, target.partition))
            if known is not None and copy is not None:
                copy.counts = copy.counts or known.is_proven
                copy.arrived(records, now)
                if len(self._last_crc) >= self._most and target not in self._last_crc:
                    self._last_crc.clear()  # clients name the targets
                self._last_crc[target] = crc

    def _origins_of(self, target: str) -> tuple[tuple[str, str], ...]:
        """Mirrors and source topics of which a topic is the copy: what its envelopes said, or else its name."""
        found = self._origins.get(target)
        if found is None:
            if len(self._origins) >= self._most:
                self._origins.clear()
            if target in self._learned:
                found = (self._learned[target],)
            else:
                named = ((mirror, _origin(target, self._topics, mirror)) for mirror in self._known)
                found = tuple((mirror, topic) for mirror, topic in named if topic is not None)
            self._origins[target] = found
        return found

    # -- regularly ---------------------------------------------------------------------------------------------------

    def watched(self, mirror: str, partitions: Iterable[TopicPartition], now: float) -> None:
        """An answered fetch session covers these partitions: their ends are as reported last."""
        known = self._known.get(mirror)
        if known is None:
            return
        known.seen_at = now
        for partition in partitions:
            copy = known.copies.get(partition)
            if copy is not None:
                copy.seen_at = now
                if copy.log.end >= 0 and not copy.doubtful:
                    copy.log.observed_at = now

    def settle(self, now: float) -> None:
        """The mirrors' producer is connected."""
        for _, _, copy in self:
            copy.settle(now)

    def forget(self, now: float, *, elsewhere: bool = False) -> set[tuple[str, TopicPartition]]:
        """What running mirrors no longer read; if they may read it `elsewhere`, after a minute -> mirrors and
        partitions.
        """
        longest = _RUNNING_SECONDS if elsewhere else FORGET_SECONDS
        gone = {
            (name, partition)
            for name, partition, copy in self
            if now - copy.seen_at > longest and (elsewhere or self.is_running(name, now))
        }
        for name, partition in gone:
            copies = self._known[name].copies
            del copies[partition]
            if not copies:
                del self._known[name]
        self._count -= len(gone)
        if gone:
            self._forget_topics()
        return gone

    def _forget_topics(self) -> None:
        """Those of which no partition is followed any more."""
        left = self._topics - {partition.topic for _, partition, _ in self}
        self._topics -= left
        for topic in left:
            self._topic_ids.pop(topic, None)
        self._origins.clear()

    def unobserved(self, before: float) -> list[tuple[str, TopicPartition, PartitionCopy]]:
        """Partitions whose ends were last reported before then, or are in doubt."""
        return [found for found in self if found[2].log.observed_at < before or found[2].doubtful]

    def is_running(self, mirror: str, now: float) -> bool:
        known = self._known.get(mirror)
        return known is not None and now - known.seen_at <= _RUNNING_SECONDS

    def copied(self, now: float) -> list[Copied]:
        return [Copied(mirror, partition, copy.mirrored, copy.lag(now)) for mirror, partition, copy in self]


def _origin(target: str, topics: set[str], mirror: str) -> str | None:
    """The longest topic of the same name, or of that name after the mirror's source alias and a separator."""
    alias = _ALIAS.search(mirror)
    found = [topic for topic in topics if target.endswith(topic) and _fits(target[: -len(topic)], alias)]
    return max(found, key=len, default=None)


def _fits(prefix: str, alias: re.Match[str] | None) -> bool:
    if not prefix or alias is None:
        return not prefix or _SEPARATOR.fullmatch(prefix[-1]) is not None
    rest = prefix.removeprefix(alias[1])
    return rest != prefix and (not rest or _SEPARATOR.match(rest) is not None)
