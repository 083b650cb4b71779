"""All partitions of one produce request: which record sets share a request to the broker, and their results.

    next_request -> Request, which the caller sends       until it returns None and every request is answered;
    answered     -> findings                              `cuts_due`, `cut_due` and `cut` after them

Nothing is sent or awaited here. A broker accepts a partition once per request, so a request has at most one record set
of each. Its record sets together are at most as large as the mirror's own request, or as the largest request that a
mirror sends by default: the broker accepts this size (socket.request.max.bytes; above it brokers close the connection).
A partition without envelopes is in the first request, and again only if a broker refused a whole request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from shoal.protocol.shallow.batch_row import OutgoingBatch
from shoal.protocol.shallow.unwrap.findings import Finding, Outcome
from shoal.protocol.shallow.unwrap.plan import Item
from shoal.protocol.shallow.unwrap.sequences.own import Stamp
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition

__all__ = ["REQUEST_BYTES", "Answers", "Progress", "Request", "Schedule", "SendableSet"]

REQUEST_BYTES = 1024 * 1024  # max.request.size of a Java producer

Answers: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""Error code and base offset of each partition."""


class SendableSet(Protocol):
    """A record set for one partition; `records` and `size` (bytes) of all its batches."""

    @property
    def batches(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def stamp(self) -> Stamp | None: ...

    def buffers(self) -> Sequence[Buffer]: ...


class Progress(Protocol):
    """A partition of the request, until it has an `outcome` (see `PartitionProgress`)."""

    sets: bool

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def items(self) -> Sequence[Item]: ...

    @property
    def outcome(self) -> Outcome | None: ...

    @property
    def cut_due(self) -> OutgoingBatch | None: ...

    @property
    def unstamped(self) -> bool: ...

    def cut(self, parts: Sequence[OutgoingBatch] | RemoteProtocolError) -> list[Finding]: ...

    def next_record_set(self, room: int | None = None) -> SendableSet | None: ...

    def answered_all(self, answers: Sequence[tuple[int, int]]) -> list[Finding]: ...

    def abandon(self) -> None: ...


class Request(NamedTuple):
    """One request to the broker. `plain`: the record sets of partitions without envelopes."""

    plain: Mapping[TopicPartition, Sequence[Buffer]]
    record_sets: Mapping[TopicPartition, SendableSet]

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return *self.record_sets, *self.plain

    @property
    def has_sets(self) -> bool:
        """Some partition gets several batches."""
        return any(record_set.batches > 1 for record_set in self.record_sets.values())

    def buffers(self) -> list[tuple[TopicPartition, Sequence[Buffer]]]:
        opened = [(partition, record_set.buffers()) for partition, record_set in self.record_sets.items()]
        return [*self.plain.items(), *opened]


class Schedule:
    """`own_bytes`: the size of the mirror's request."""

    def __init__(
        self,
        partitions: Iterable[Progress],
        plain: Mapping[TopicPartition, Sequence[Buffer]] | None = None,
        *,
        own_bytes: int = 0,
    ) -> None:
        self._partitions = {progress.partition: progress for progress in partitions}
        self._plain = dict(plain or {})  # not sent yet
        self._room = max(own_bytes, REQUEST_BYTES)

    @property
    def items(self) -> Mapping[TopicPartition, Sequence[Item]]:
        return {partition: progress.items for partition, progress in self._partitions.items()}

    def cuts_due(self) -> list[TopicPartition]:
        """Partitions with a batch that must be cut before they continue. Scans all: call it once per answer."""
        return [partition for partition, progress in self._partitions.items() if progress.cut_due is not None]

    def cut_due(self, partition: TopicPartition) -> OutgoingBatch | None:
        """The next batch of a partition to cut."""
        return self._partitions[partition].cut_due

    def cut(self, partition: TopicPartition, parts: Sequence[OutgoingBatch] | RemoteProtocolError) -> list[Finding]:
        """The result of `halves` for the batch that was due."""
        return self._partitions[partition].cut(parts)

    def next_request(self, *, sets: bool = True) -> Request | None:
        """None: an answer must arrive first, or all is done. `sets`: the broker is still proven to accept them."""
        room, record_sets = self._room, dict[TopicPartition, SendableSet]()
        for partition, progress in self._partitions.items():
            # Only withdrawn, never granted: a partition that began without sets is stamped, or not, for single batches.
            if not sets:
                progress.sets = False
            record_set = progress.next_record_set(room if record_sets else None)
            if record_set is not None:
                record_sets[partition] = record_set
                room -= record_set.size
        if not record_sets and not self._plain:
            return None
        plain, self._plain = self._plain, {}
        return Request(plain, record_sets)

    def answered(self, taken: Iterable[tuple[Request, Answers]]) -> list[Finding]:
        """The oldest requests, and their answers. What an answer lacks remains in flight."""
        findings, found = list[Finding](), dict[TopicPartition, list[tuple[int, int]]]()
        for request, answers in taken:
            # Brokers before 3.0 refuse the whole request because of a stamp that the client may not use.
            if request.plain and any(record_set.stamp for record_set in request.record_sets.values()):
                for partition, record_set in request.plain.items():
                    if answers.get(partition, (0, -1))[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                        self._plain[partition] = record_set
            for partition in request.record_sets:
                if partition in answers:
                    found.setdefault(partition, []).append(answers[partition])
        for partition, of_partition in found.items():
            findings += self._partitions[partition].answered_all(of_partition)
        return findings

    def abandon(self) -> None:
        """No more answers will arrive: what is in flight is in doubt."""
        for progress in self._partitions.values():
            progress.abandon()

    def unstamped(self) -> list[TopicPartition]:
        """Partitions with something in flight that no retry can resolve."""
        return [partition for partition, progress in self._partitions.items() if progress.unstamped]

    def outcomes(self) -> Mapping[TopicPartition, Outcome]:
        """The partitions that are done."""
        return {partition: progress.outcome for partition, progress in self._partitions.items() if progress.outcome}
