"""Shoal's own Fetch requests to the source: the batches of an envelope once more, over connections of Shoal's own."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.fetch import OWN_VERSION, encode_fetch_request, read_fetch_response
from shoal.protocol.records.batch import body_crcs
from shoal.protocol.records.scan import scan
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.shallow.leaders import CLIENT_ID, Leaders, NoAnswer

if TYPE_CHECKING:
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cluster.cluster import Cluster

__all__ = ["NotAtSource", "SourceReader"]

# A new broker may not know a topic for some seconds. (If it takes longer, a mirror's task must be restarted, and loses
# nothing.)
_GONE_SECONDS = 60.0
_MAX_MISSING = 1_000  # partitions; a client may name any


class NotAtSource(Exception):
    """The source does not have these batches any more; the message says what it has."""


class SourceReader(Leaders):
    """One request at a time to each broker."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._topics: set[str] = set()  # all that were asked for: what is learnt replaces what was known
        self._missing: OrderedDict[TopicPartition, float] = OrderedDict()  # since when the source has had none
        self._doubtful: set[TopicPartition] = set()  # the leader has not answered as a leader does
        self._questions = 0  # answered ones
        self._free: defaultdict[int | None, trio.Lock] = defaultdict(trio.Lock)  # by node id; None: a bootstrap broker

    async def batches(self, partition: TopicPartition, key: EnvelopeKey) -> bytearray:
        """Those of the envelope, as they were. Raises NoAnswer and NotAtSource."""
        found, offset = bytearray(), key.first_offset
        while len(found) < key.payload and offset <= key.last_offset:
            record_set = await self.record_set(partition, offset, key.payload - len(found))
            scanned = scan(record_set, 0, len(record_set))
            if not scanned.headers or not scanned.is_v2:
                raise NoAnswer(f"the leader has nothing at offset {offset} (yet)")
            if body_crcs(record_set, scanned.starts, scanned.ends) != [header[4] for header in scanned.headers]:
                raise NoAnswer(f"what the leader has sent from offset {offset} on was damaged")
            following = scanned.next_offset(offset)
            if scanned.headers[0][0] != offset and not found:
                break
            if following <= offset:
                raise NoAnswer(f"the leader has sent offsets below {offset}")
            found += memoryview(record_set)[: scanned.ends[-1]]
            offset = following
        del found[key.payload :]
        if len(found) < key.payload or crc32c(found) != key.payload_crc:
            what = f"the source has other batches at {key.first_offset}..{key.last_offset} than the mirror was given"
            raise NotAtSource(what)
        return found

    async def record_set(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """From the batch with this offset on; empty at the end. Raises NoAnswer and NotAtSource."""
        leader = await self._leader_now(partition)
        request = encode_fetch_request(CLIENT_ID, partition.topic, partition.partition, offset, max_bytes=max_bytes)
        try:
            async with self._free[leader]:
                frame = await self.exchange(leader, request)
            fetched = read_fetch_response(frame, OWN_VERSION)
            answered = [one for one in fetched.partitions if (one.topic, one.partition) == partition]
            if len(answered) != 1:
                raise NoAnswer(f"an answer about {len(fetched.partitions)} partitions, not about {partition.topic}")
            (one,) = answered
            if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise NotAtSource(f"the source has no offset {offset} any more")
            if one.error_code:
                raise NoAnswer(error_name(one.error_code))
        except RemoteProtocolError as error:
            raise NoAnswer(str(error)) from error
        except NoAnswer:
            self._doubtful.add(partition)
            raise
        return frame[one.start : one.end]

    async def _leader_now(self, partition: TopicPartition) -> int:
        topic = partition.topic
        if self.leader(partition) is None or partition in self._doubtful:
            await self._look_up(partition)
        leader, now = self.leader(partition), trio.current_time()
        if leader is not None:
            return leader
        if topic in self.hidden:
            raise NoAnswer(f"the source does not say whether topic {topic} exists (has Shoal's user Describe for it?)")
        if now - self._missing.get(partition, now) >= _GONE_SECONDS:
            raise NotAtSource(f"the source has had no {topic}-{partition.partition} for {_GONE_SECONDS:g} s")
        raise NoAnswer(f"no leader of {topic}-{partition.partition} is known")

    async def _look_up(self, partition: TopicPartition) -> None:
        """One question for all topics that wait for it."""
        self._topics.add(partition.topic)
        before = self._questions
        async with self._free[None]:
            if self._questions != before and self.leader(partition) is not None:
                return
            self.ask_again()
            try:
                missing = await self.learn({partition.topic, *self._topics}) or frozenset[str]()
            except NoAnswer:
                self._topics.discard(partition.topic)
                raise
            self._questions += 1
        self._topics -= missing  # a client may name any
        self._doubtful.discard(partition)
        if self.has(partition) or partition.topic in self.hidden:
            self._missing.pop(partition, None)
        else:
            self._missing.setdefault(partition, trio.current_time())
            if len(self._missing) > _MAX_MISSING:
                self._missing.popitem(last=False)

    def _is_idle(self, node_id: int | None) -> bool:
        return not self._free[node_id].locked()

    def end(self) -> None:
        """A request in flight is cancelled by its caller, and closes its connection itself."""
        for node_id in list(self._clients):
            if self._is_idle(node_id):
                self._drop(node_id)
