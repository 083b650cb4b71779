"""Batches without an envelope that a mirror sends again: Shoal cuts them where the target says MESSAGE_TOO_LARGE.

Such a batch is forwarded as it is, and nothing is known of its answer. A Java producer splits one that is too large
into batches of its `batch.size`; with a client of Kafka 3.9 one that is not above this size becomes itself, and comes
again for ever (KAFKA-8350, seen with MirrorMaker 2 3.9.1 and a topic whose `max.message.bytes` is below `batch.size`).
So a batch that comes again is not forwarded but has a plan, whose progress sends it, and cuts it if that is refused
(progress.py). A batch that comes again for another reason is sent as before.

What is appended of it is remembered until all of it is, anything else goes to the partition, or some minutes have
passed: a mirror has one request in flight, and sends it again at once. It must not be remembered longer: equal batches
may follow each other, and a mirror that was restarted may send what came before again, and then this.
"""

from collections import OrderedDict
from collections.abc import Hashable
from hashlib import blake2b
from typing import Final, NamedTuple

from shoal.protocol.records.batch import BatchHeader, body_crc
from shoal.protocol.shallow.unwrap.appended_log import NOTHING, Appended
from shoal.protocol.shallow.unwrap.plan import Plan, plain_plan
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.types import TopicPartition

__all__ = ["MOST_PARTITIONS", "PROGRESS_SECONDS", "RawRetries", "Retried"]

PROGRESS_SECONDS: Final = 300.0  # delivery.timeout.ms of a producer is 120 s
# The last batch is known of as many, 0.5 kB each. One that is forgotten must come a third time.
MOST_PARTITIONS: Final = 16_384


class LastBatch:
    """The ledger of the last raw batch of one partition."""

    def __init__(self, header: BatchHeader, now: float) -> None:
        self.fingerprint = _fingerprint(header)
        self._came_at = now
        self._identity: Hashable = None
        self._appended = NOTHING

    def comes_again(self, now: float) -> None:
        if now - self._came_at >= PROGRESS_SECONDS:
            self._appended = NOTHING
        self._came_at = now

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended:
        return self._appended if identity == self._identity else NOTHING

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None:
        """The plan has one item of one batch."""
        self._identity, self._appended = identity, NOTHING if delivered.batches else delivered


class Retried(NamedTuple):
    """A plan for a batch without an envelope or a stamp, and what is appended of it."""

    plan: Plan
    deliveries: LastBatch


class RawRetries:
    """`limit`: partitions; those unused for the longest time are forgotten."""

    def __init__(self, plain_codec: Codec | None = None, *, limit: int = MOST_PARTITIONS) -> None:
        self._plain_codec = plain_codec
        self._limit = limit
        self._last: OrderedDict[TopicPartition, LastBatch] = OrderedDict()

    def take(
        self,
        partition: TopicPartition,
        frame: Buffer,
        start: int,
        end: int,
        header: BatchHeader,
        now: float,
        *,
        is_answered: bool = True,
    ) -> Retried | None:
        """For `frame[start:end]`, a batch without a producer id. None: it comes for the first time, or is damaged.

        `now` in seconds. `is_answered`: all former requests of the connection are. An equal batch behind one that has
        no answer yet is no retry.
        """
        last = self._last.get(partition)
        if last is None or not is_answered or last.fingerprint != _fingerprint(header):
            self._last[partition] = LastBatch(header, now)
            self._last.move_to_end(partition)
            if len(self._last) > self._limit:
                self._last.popitem(last=False)
            return None
        self._last.move_to_end(partition)
        last.comes_again(now)
        if header.producer_id >= 0 or header.size != end - start or body_crc(frame, start, end) != header.crc:
            self.passed(partition)
            return None
        identity = blake2b(memoryview(frame)[start:end], digest_size=16).digest()
        plan = plain_plan(frame, start, end, header, self._plain_codec, identity)
        return Retried(plan, last)

    def passed(self, partition: TopicPartition) -> None:
        """Anything else goes to this partition."""
        self._last.pop(partition, None)

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for partition in [partition for partition in self._last if partition.topic == topic]:
            del self._last[partition]


def _fingerprint(header: BatchHeader) -> tuple[int, int, int]:
    return header.crc, header.size, header.record_count
