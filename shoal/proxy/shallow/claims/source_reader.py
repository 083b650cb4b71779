"""Shoal's own Fetch requests to the source: the batches of an envelope once more, over a connection of Shoal's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.fetch import OLDEST, encode_fetch_request, read_fetch_response
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


class NotAtSource(Exception):
    """The source does not have these batches any more; the message says what it has."""


class SourceReader(Leaders):
    """One request at a time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._topics: set[str] = set()  # all that were asked for: what is learnt replaces what was known
        self._is_free = trio.Lock()

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
        async with self._is_free:
            frame = await self._ask(partition, offset, max_bytes)
        try:
            fetched = read_fetch_response(frame, OLDEST).partitions
        except RemoteProtocolError as error:
            raise NoAnswer(str(error)) from error
        answered = [one for one in fetched if (one.topic, one.partition) == partition]
        if len(answered) != 1:
            raise NoAnswer(f"an answer about {len(fetched)} partitions, not about {partition.topic}")
        (one,) = answered
        if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise NotAtSource(f"the source has no offset {offset} any more")
        if one.error_code:
            self.ask_again()  # the leader has moved, most likely
            raise NoAnswer(error_name(one.error_code))
        return frame[one.start : one.end]

    async def _ask(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        self._topics.add(partition.topic)
        if self.leader(partition) is None:
            self.ask_again()
        self._topics -= await self.learn(self._topics) or frozenset()  # a client may name any
        leader = self.leader(partition)
        if leader is None:
            raise NoAnswer(f"no leader of {partition.topic}-{partition.partition} is known")
        request = encode_fetch_request(CLIENT_ID, partition.topic, partition.partition, offset, max_bytes=max_bytes)
        return await self.exchange(leader, request)

    def end(self) -> None:
        """A request in flight is cancelled by its caller, and closes its connection itself."""
        if not self._is_free.locked():
            self.close()
