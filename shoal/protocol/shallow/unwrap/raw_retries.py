"""Batches without an envelope that a mirror sends again: Shoal cuts them where the target says MESSAGE_TOO_LARGE.

Such a batch is forwarded as it is, and nothing is known of its answer. A Java producer splits one that is too large
into batches of its `batch.size`; with a client of Kafka 3.9 one that is not above this size becomes itself, and comes
again for ever (KAFKA-8350, seen with MirrorMaker 2 3.9.1 and a topic whose `max.message.bytes` is below `batch.size`).
So a batch that comes again is not forwarded but has a plan, whose progress sends it, and cuts it if that is refused
(progress.py). A batch that comes again for another reason is sent as before.

It is recognised also if others wrote the partition meanwhile: the last batch of each connection is known. What is
appended of it is remembered only until all of it is, anything else goes to the partition, or a minute has passed: a
mirror has one request in flight, and sends it again at once. It must not be remembered longer: equal batches may follow
each other, and a mirror that was restarted may send what came before again, and then this.
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

__all__ = ["MOST_PARTITIONS", "PROGRESS_SECONDS", "RECENT", "RawRetries", "Retried"]

PROGRESS_SECONDS: Final = 60.0  # request.timeout.ms of a producer is 30 s
# The last raw batches are known of as many, 1.7 kB each at most. One that is forgotten must come a third time.
MOST_PARTITIONS: Final = 16_384
RECENT: Final = 8  # connections that write a partition at once
_LONGEST_NAME: Final = 249  # a topic's, characters; with a longer one, it does not exist


class LastBatch:
    """The ledger of the last batch of one partition, a raw one that came again."""

    __slots__ = ("_appended", "_came_at", "identity")

    def __init__(self, identity: Hashable, now: float) -> None:
        self.identity = identity
        self._came_at = now
        self._appended = NOTHING

    def comes_again(self, now: float) -> None:
        if now - self._came_at >= PROGRESS_SECONDS:
            self._appended = NOTHING
        self._came_at = now

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended:
        return self._appended if identity == self.identity else NOTHING

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None:
        """The plan has one item of one batch."""
        assert identity == self.identity
        self._appended = NOTHING if delivered.batches else delivered


class Retried(NamedTuple):
    """A plan for a batch without an envelope or a stamp, and what is appended of it."""

    plan: Plan
    deliveries: LastBatch


class _Arrivals:
    """The raw batches of one partition that came last."""

    __slots__ = ("_recent", "last")

    def __init__(self) -> None:
        self._recent: dict[Hashable, int] = {}  # by connection: the fingerprint of its last one
        self.last: LastBatch | None = None  # None: anything else came last

    def knows(self, fingerprint: int) -> bool:
        return fingerprint in self._recent.values()

    def note(self, origin: Hashable, fingerprint: int) -> None:
        self._recent.pop(origin, None)
        self._recent[origin] = fingerprint
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

    def again(self, identity: Hashable, now: float) -> LastBatch:
        if self.last is None or self.last.identity != identity:
            self.last = LastBatch(identity, now)
        self.last.comes_again(now)
        return self.last


class RawRetries:
    """`limit`: partitions; those unused for the longest time are forgotten."""

    def __init__(self, plain_codec: Codec | None = None, *, limit: int = MOST_PARTITIONS) -> None:
        self._plain_codec = plain_codec
        self._limit = limit
        self._arrivals: OrderedDict[TopicPartition, _Arrivals] = OrderedDict()

    def take(
        self,
        partition: TopicPartition,
        frame: Buffer,
        start: int,
        end: int,
        header: BatchHeader,
        now: float,
        *,
        origin: Hashable,
        is_answered: bool = True,
    ) -> Retried | None:
        """For `frame[start:end]`, a batch without a producer id. None: it comes for the first time, or is damaged.

        `now` in seconds. `origin`: the connection. `is_answered`: all its former requests are. An equal batch behind
        one that has no answer yet is no retry.
        """
        if len(partition.topic) > _LONGEST_NAME:
            return None
        arrivals, fingerprint = self._arrivals_of(partition), _fingerprint(header)
        comes_again = is_answered and arrivals.knows(fingerprint)
        arrivals.note(origin, fingerprint)
        is_damaged = header.size != end - start or (comes_again and body_crc(frame, start, end) != header.crc)
        if not comes_again or is_damaged or header.producer_id >= 0:
            arrivals.last = None
            return None
        identity = blake2b(memoryview(frame)[start:end], digest_size=16).digest()
        plan = plain_plan(frame, start, end, header, self._plain_codec, identity)
        return Retried(plan, arrivals.again(identity, now))

    def _arrivals_of(self, partition: TopicPartition) -> _Arrivals:
        if partition not in self._arrivals:
            self._arrivals[partition] = _Arrivals()
            if len(self._arrivals) > self._limit:
                self._arrivals.popitem(last=False)
        self._arrivals.move_to_end(partition)
        return self._arrivals[partition]

    def passed(self, partition: TopicPartition) -> None:
        """Anything else goes to this partition."""
        if partition in self._arrivals:
            self._arrivals[partition].last = None

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for partition in [partition for partition in self._arrivals if partition.topic == topic]:
            del self._arrivals[partition]


def _fingerprint(header: BatchHeader) -> int:
    return header.crc | header.size << 32 | header.record_count << 64
