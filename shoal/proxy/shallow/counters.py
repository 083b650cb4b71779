"""The counters of shallow mirroring of one listener, and a frozen snapshot of them for the log.

Bytes are those of the record batches in the log (compressed). A wrap listener counts wrapped and raw batches, an unwrap
listener counts opened envelopes; the fields of the other side are 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from shoal.proxy.config.quantities import codes, counted, increases, megabytes, rate, reasons

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.protocol.shallow.unwrap.reconcile import Mismatch
    from shoal.protocol.shallow.wrap.eligible import Reason
    from shoal.protocol.shallow.wrap.wrap import Wrapped
    from shoal.proxy.statistics import PathStatistics

__all__ = ["ShallowStatistics", "ShallowTally"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShallowStatistics:
    """A snapshot of a `ShallowTally`."""

    envelopes: int = 0  # sent by a wrap listener
    claim_checks: int = 0  # of these, without their batches
    wrapped_batches: int = 0  # source batches inside them
    wrapped_records: int = 0
    wrapped_bytes: int = 0
    raw_batches: Mapping[Reason, int] = field(default_factory=dict)  # sent to the mirror unchanged: reason -> number
    opened_envelopes: int = 0  # by an unwrap listener
    read_again: int = 0  # claim checks whose batches were read from the source again
    unwrapped_batches: int = 0  # acknowledged by the target
    unwrapped_records: int = 0
    unwrapped_bytes: int = 0
    produce_requests: int = 0  # sent to the target
    retries_suppressed: int = 0  # batches of retries that were already appended
    partition_errors: int = 0  # error answers of the target for unwrapped partitions
    reconciled_envelopes: int = 0  # fully appended, with as many target offsets as records
    mismatches: Mapping[Mismatch, int] = field(default_factory=dict)  # what does not reconcile: reason -> number

    def since(self, earlier: PathStatistics | None) -> ShallowStatistics:
        before = earlier if isinstance(earlier, ShallowStatistics) else ShallowStatistics()
        counts = {name: getattr(self, name) - getattr(before, name) for name in _COUNTS}
        return ShallowStatistics(
            **counts,
            raw_batches=increases(self.raw_batches, before.raw_batches),
            mismatches=increases(self.mismatches, before.mismatches),
        )

    @property
    def happened(self) -> bool:
        return any(self.values().values())

    def values(self) -> dict[str, object]:
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "raw_batches": codes(self.raw_batches), "mismatches": codes(self.mismatches)}

    def flow(self, seconds: float) -> Iterator[str]:
        if self.envelopes:
            data = _data(self.wrapped_batches, self.wrapped_records, self.wrapped_bytes, seconds)
            yield f"wrapped {data} in {counted(self.envelopes, 'envelope')}"
        if self.opened_envelopes or self.unwrapped_batches:
            data = _data(self.unwrapped_batches, self.unwrapped_records, self.unwrapped_bytes, seconds)
            requests = counted(self.produce_requests, "request")
            yield f"opened {counted(self.opened_envelopes, 'envelope')}, appended {data} in {requests}"

    def details(self) -> Iterator[str]:
        if self.claim_checks:
            yield f"{counted(self.claim_checks, 'envelope')} without their batches (claim checks)"
        if self.read_again:
            yield f"the batches of {counted(self.read_again, 'claim check')} read from the source again"
        if self.raw_batches:
            yield f"{counted(sum(self.raw_batches.values()), 'batch')} raw ({reasons(self.raw_batches)})"
        if self.retries_suppressed:
            yield f"{counted(self.retries_suppressed, 'batch')} of retries not appended twice"
        if self.partition_errors:
            yield f"{counted(self.partition_errors, 'partition error')} from the target"
        if self.mismatches:
            yield f"{counted(sum(self.mismatches.values()), 'mismatch')} ({reasons(self.mismatches)})"


def _data(batches: int, records: int, size: int, seconds: float) -> str:
    return f"{counted(batches, 'batch')} ({records:,} records, {megabytes(size)}, {rate(size, seconds)})"


_REASONS = ("raw_batches", "mismatches")
_COUNTS = tuple(counter.name for counter in fields(ShallowStatistics) if counter.name not in _REASONS)


@dataclass(slots=True, kw_only=True)
class ShallowTally:
    """The counters. `raw_batches` and `mismatches` have the reason as key (closed lists)."""

    envelopes: int = 0
    claim_checks: int = 0
    wrapped_batches: int = 0
    wrapped_records: int = 0
    wrapped_bytes: int = 0
    raw_batches: Counter[Reason] = field(default_factory=Counter)
    opened_envelopes: int = 0
    read_again: int = 0
    unwrapped_batches: int = 0
    unwrapped_records: int = 0
    unwrapped_bytes: int = 0
    produce_requests: int = 0
    retries_suppressed: int = 0
    partition_errors: int = 0
    reconciled_envelopes: int = 0
    mismatches: Counter[Mismatch] = field(default_factory=Counter)

    def wrapped(self, wrapped: Wrapped) -> None:
        self.envelopes += len(wrapped.envelopes)
        self.claim_checks += sum(key.is_claim_check for key in wrapped.envelopes)
        self.wrapped_batches += wrapped.wrapped_batches
        self.wrapped_records += wrapped.wrapped_records
        self.wrapped_bytes += wrapped.wrapped_bytes
        self.raw_batches.update(wrapped.raw)

    def statistics(self) -> ShallowStatistics:
        counts = {name: getattr(self, name) for name in _COUNTS}
        return ShallowStatistics(**counts, raw_batches=dict(self.raw_batches), mismatches=dict(self.mismatches))
