"""All partitions of one produce request: which parcels go together in the requests to the broker, and what became of them.

A broker takes a partition once per request, so a request holds at most one parcel of each. Its record sets together are not
larger than the mirror's own request was, or than the largest that a mirror sends by default: what the mirror could have sent,
the broker takes (socket.request.max.bytes; above it brokers close the connection).
"""

from collections.abc import Iterable, Iterator, Mapping

from shoal.protocol.shallow.unwrap.answers import Outcome
from shoal.protocol.shallow.unwrap.delivery import Target
from shoal.protocol.shallow.unwrap.parcel import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.progress import PartitionProgress

__all__ = ["REQUEST_BYTES", "Schedule"]

REQUEST_BYTES = 1024 * 1024  # max.request.size of a Java producer


class Schedule:
    """`own_bytes`: the size of the mirror's request."""

    def __init__(self, partitions: Iterable[PartitionProgress], own_bytes: int = 0) -> None:
        self.partitions = {progress.target: progress for progress in partitions}
        self._room = max(own_bytes, REQUEST_BYTES)

    def cuts_due(self) -> Iterator[PartitionProgress]:
        """They cannot go on before their `cut_due` is cut."""
        return (progress for progress in self.partitions.values() if progress.cut_due is not None)

    def next_request(self) -> dict[Target, OutgoingRecordSet]:
        """At most one parcel per partition; empty = an answer has to come first, or all is done."""
        room, parcels = self._room, dict[Target, OutgoingRecordSet]()
        for target, progress in self.partitions.items():
            parcel = progress.next_parcel(room if parcels else None)
            if parcel is not None:
                parcels[target] = parcel
                room -= parcel.size
        return parcels

    def answered(self, target: Target, error_code: int, base_offset: int) -> OutgoingRecordSet:
        return self.partitions[target].answered(error_code, base_offset)

    def allow_sets(self, allowed: bool) -> None:
        """It only takes away: a partition that was begun without sets is stamped, or not, for single batches."""
        for progress in self.partitions.values():
            progress.sets = progress.sets and allowed

    def abandon(self) -> None:
        """The connection is lost: what is in flight is in doubt."""
        for progress in self.partitions.values():
            progress.abandon()

    def unstamped(self) -> list[Target]:
        """Where something is in flight that no retry can resolve."""
        return [target for target, progress in self.partitions.items() if progress.unstamped]

    def outcomes(self) -> Mapping[Target, Outcome]:
        """Of the partitions that are done."""
        return {target: done.outcome for target, done in self.partitions.items() if done.outcome}
