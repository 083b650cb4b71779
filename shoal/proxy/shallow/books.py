"""What the target side's books (protocol/shallow/unwrap/reconcile.py) found: into the statistics, and mismatches into the log."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.unwrap.reconcile import Reconciler

if TYPE_CHECKING:
    from shoal.protocol.shallow.unwrap.delivery import Target
    from shoal.protocol.shallow.unwrap.reconcile import Mismatch
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.shallow.counters import ShallowTally

__all__ = ["Reconciliation"]

log = logging.getLogger("shoal.unwrap")

# What is wrong with a partition may be wrong with every envelope of it: told at this distance, and all of it counted.
_QUIET_SECONDS = 60.0
_MAX_TOLD = 1000  # partitions


class Reconciliation:
    """One for each unwrapping listener."""

    def __init__(self, tally: ShallowTally) -> None:
        self.reconciler = Reconciler()
        self._tally = tally
        self._told: OrderedDict[tuple[Target, Mismatch], float] = OrderedDict()

    def close_books(self, cluster: Cluster) -> None:
        """At the end of each request."""
        books, tally = self.reconciler.take(), self._tally
        tally.reconciled_envelopes += books.reconciled
        tally.mismatches.update({str(kind): count for kind, count in books.mismatches.items()})
        for kind, target, text in books.told:
            if self._is_due(target, kind):
                what = "%s of cluster %r does not reconcile: %s: %s"
                log.warning(what, cluster.partition_name(target.topic, target.partition), cluster.name, kind, text)

    def _is_due(self, target: Target, kind: Mismatch) -> bool:
        now, about = trio.current_time(), (target, kind)
        if now < self._told.get(about, float("-inf")) + _QUIET_SECONDS:
            return False
        self._told[about] = now
        if len(self._told) > _MAX_TOLD:
            self._told.popitem(last=False)
        return True
