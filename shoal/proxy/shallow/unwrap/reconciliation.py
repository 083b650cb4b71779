"""Results of reconciliation (protocol/shallow/unwrap/reconcile.py): counted in the statistics, and logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shoal.protocol.shallow.unwrap.reconcile import Mismatch, Reconciler, mismatch
from shoal.proxy.events.logs import LogThrottle, event, more_of_this_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.shallow.unwrap.findings import EnvelopeAppended
    from shoal.protocol.shallow.unwrap.plan import Plan
    from shoal.protocol.shallow.unwrap.reconcile import Discrepancy
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.shallow.counters import ShallowTally

__all__ = ["Reconciliation"]

log = logging.getLogger("shoal.unwrap")

# A mismatch may affect every envelope of a partition: all are counted, and one per this many seconds is logged.
_QUIET_SECONDS = 60.0
_MAX_LOGGED = 1000  # partitions and kinds


class Reconciliation:
    """One for each unwrapping listener."""

    def __init__(self, tally: ShallowTally) -> None:
        self._reconciler = Reconciler()
        self._tally = tally
        self._throttle = LogThrottle(_MAX_LOGGED)

    def forget(self, topic: str) -> None:
        self._reconciler.forget(topic)

    def refused(self) -> None:
        """A record set has an envelope that cannot be opened. The mirror's error states the reason."""
        self._tally.mismatches[Mismatch.REFUSED] += 1

    def planned(self, plan: Plan) -> list[Discrepancy]:
        """Compare the headers of the envelopes with their keys, before anything is sent."""
        found = (mismatch(item.headers, item.key) for item in plan.items if item.key is not None)
        return [self._counted(discrepancy) for discrepancy in found if discrepancy is not None]

    def appended(self, envelope: EnvelopeAppended) -> Discrepancy | None:
        """Compare the source's offset range with the target's."""
        if not envelope.has_offsets:
            return None
        discrepancy = self._reconciler.appended(envelope)
        if discrepancy is not None:
            return self._counted(discrepancy)
        self._tally.reconciled_envelopes += 1
        return None

    def _counted(self, discrepancy: Discrepancy) -> Discrepancy:
        self._tally.mismatches[discrepancy.kind] += 1
        return discrepancy

    def log(self, cluster: Cluster, found: Iterable[tuple[TopicPartition, Discrepancy]]) -> None:
        for partition, (kind, text) in found:
            if self._throttle.is_news((partition, kind), _QUIET_SECONDS, kind):
                left_out = self._throttle.left_out(kind)
                topic, number = partition
                name = cluster.partition_name(*partition)
                values = event(
                    f"{name} of cluster {cluster.name!r} does not reconcile: {kind}: {text}"
                    + more_of_this_kind(left_out),
                    cluster=cluster.name,
                    topic=cluster.shown_topic(topic),
                    partition=number,
                    mismatch=kind.name.lower(),
                    detail=text,
                    left_out=left_out or None,
                )
                log.warning("envelope-mismatch", extra=values)
