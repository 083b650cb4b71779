"""Shoal's own Fetch requests to the source: the batches of an envelope once more, over connections of Shoal's own."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING

import trio

from shoal.protocol.records.batch import body_crcs
from shoal.protocol.records.scan import scan
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.shallow.leaders import Leaders

if TYPE_CHECKING:
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cluster.cluster import Cluster

__all__ = ["NotAtSource", "SourceReader"]

# A new broker may not know a topic for some seconds. (If it takes longer, a mirror's task must be restarted, and loses
# nothing.)
_GONE_SECONDS = 60.0
_MAX_MISSING = 1_000  # partitions; a client may name any
_LONGEST_NAME = 249


class NotAtSource(Exception):
    """The source does not have these batches any more; the message says what it has."""


class SourceReader(Leaders):
    """One request at a time to each broker."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._topics: set[str] = set()  # all that were asked for: what is learnt replaces what was known
        self._missing: OrderedDict[TopicPartition, tuple[float, float]] = OrderedDict()  # first and latest seen so
        self._doubtful: set[TopicPartition] = set()  # the leader has not answered as a leader does
        self._questions = 0  # answered ones
        self._last: frozenset[str] = frozenset()  # topics of the last one
        self._free: defaultdict[int | None, trio.Lock] = defaultdict(trio.Lock)  # by node id; None: a bootstrap broker

    async def batches(self, partition: TopicPartition, key: EnvelopeKey) -> bytearray:
        """Those of the envelope, as they were. Raises NoAnswer and NotAtSource.

        The broker's lock is held all the time, so there are never more parts in memory than there are brokers.
        """
        leader = await self._leader_now(partition)
        found, offset = bytearray(), key.first_offset
        async with self._free[leader]:
            while len(found) < key.payload and offset <= key.last_offset:
                record_set = await self._fetch(leader, partition, offset, key.payload - len(found))
                if not record_set:  # below the high watermark; or the log ends here, and nothing follows it
                    await self._fetch(leader, partition, offset + 1, 1)
                first, end, following = _whole(record_set, offset)
                if first != offset and not found:
                    break
                found += memoryview(record_set)[:end]
                offset = following
        del found[key.payload :]
        if len(found) < key.payload or crc32c(found) != key.payload_crc:
            what = f"the source has other batches at {key.first_offset}..{key.last_offset} than the mirror was given"
            raise NotAtSource(what)
        return found

    async def record_set(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """From the batch with this offset on; empty at the end. Raises NoAnswer and NotAtSource."""
        leader = await self._leader_now(partition)
        async with self._free[leader]:
            return await self._fetch(leader, partition, offset, max_bytes)

    async def _fetch(self, leader: int, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        try:
            frame, found = await self.fetch(leader, partition, offset, max_bytes)
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise NotAtSource(f"the source has no offset {offset} any more")
            if found.error_code:
                raise NoAnswer(error_name(found.error_code))
        except NoAnswer:
            self._doubtful.add(partition)
            raise
        return frame[found.start : found.end]

    async def _leader_now(self, partition: TopicPartition) -> int:
        topic = partition.topic
        if len(topic) > _LONGEST_NAME:
            raise NotAtSource("no topic has such a name")
        if self.leader(partition) is None or partition in self._doubtful:
            await self._look_up(partition)
        leader = self.leader(partition)
        if self.has(partition) or topic in self.hidden:
            self._missing.pop(partition, None)
        if leader is not None:
            return leader
        if topic in self.hidden:
            raise NoAnswer(f"the source does not say whether topic {topic} exists (has Shoal's user Describe for it?)")
        if not self.has(partition) and self._missing_for(partition) >= _GONE_SECONDS:
            raise NotAtSource(f"the source has had no {topic}-{partition.partition} for {_GONE_SECONDS:g} s")
        raise NoAnswer(f"no leader of {topic}-{partition.partition} is known")

    def _missing_for(self, partition: TopicPartition) -> float:
        """Seconds in which the source has said again and again that it has no such partition."""
        now = trio.current_time()
        first, latest = self._missing.pop(partition, (now, now))
        first = first if now - latest < _GONE_SECONDS / 2 else now
        self._missing[partition] = first, now
        if len(self._missing) > _MAX_MISSING:
            self._missing.popitem(last=False)
        return now - first

    async def _look_up(self, partition: TopicPartition) -> None:
        """One question for all topics that wait for it."""
        topic, before = partition.topic, self._questions
        is_new = topic not in self._topics
        self._topics.add(topic)
        async with self._free[None]:
            if self._questions == before or topic not in self._last:
                self.ask_again()
                asked = frozenset({topic, *self._topics})
                try:
                    missing = await self.learn(asked) or frozenset[str]()
                except BaseException:
                    if is_new:
                        self._topics.discard(topic)
                    raise
                self._topics -= missing  # a client may name any
                self._questions, self._last = self._questions + 1, asked
            self._doubtful.discard(partition)

    def _is_idle(self, node_id: int | None) -> bool:
        return not self._free[node_id].locked()

    def end(self) -> None:
        """A request in flight is cancelled by its caller, and closes its connection itself."""
        for node_id in list(self._clients):
            if self._is_idle(node_id):
                self._drop(node_id)


def _whole(record_set: bytes, offset: int) -> tuple[int, int, int]:
    """-> the first offset, the end of the last whole batch, and the offset after it. Raises NoAnswer."""
    try:
        scanned = scan(record_set, 0, len(record_set))
        if not scanned.headers or not scanned.is_v2:
            # A leader whose followers are away may be so for hours, and its log end looks like that of a truncated one.
            raise NoAnswer(f"the leader has nothing at offset {offset} (yet)")
        if body_crcs(record_set, scanned.starts, scanned.ends) != [header[4] for header in scanned.headers]:
            raise NoAnswer(f"what the leader has sent from offset {offset} on was damaged")
        following = scanned.next_offset(offset)
    except RemoteProtocolError as error:
        raise NoAnswer(str(error)) from error
    if following <= offset:
        raise NoAnswer(f"the leader has sent offsets below {offset}")
    return scanned.headers[0][0], scanned.ends[-1], following
