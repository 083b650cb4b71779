"""Checks that a pair has two clusters: a mirror of a cluster into itself, with unchanged topic names, would copy its
copies forever.

Shoal requests the cluster ids at start-up. If a cluster requires authentication, its id is learned when a client of the
mirror requests metadata, which clients do on both sides before anything is copied. Nothing is wrapped until both ids
are known. If they are equal, Shoal exits; a pair that a reload has brought wraps nothing instead, and logs the error.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.listener.listener import Listener

__all__ = ["ClusterPair"]


class ClusterPair:
    """A wrapping listener and its unwrapping listener; each must `join`.

    `differ`: they are known to be two clusters, or the operator permits one (`same-cluster`).
    """

    def __init__(self, wrap: ListenerSettings) -> None:
        self.differ = self._is_meant = wrap.shallow.same_cluster
        self._wrap = wrap.name
        self._listeners: list[Listener] = []

    def join(self, listener: Listener) -> None:
        self._listeners.append(listener)
        if not self._is_meant:
            listener.cluster.when_identified.append(self._identified)
            if listener.cluster.cluster_id is not None:
                self._identified(listener.cluster.cluster_id)

    @property
    def target(self) -> Cluster | None:
        """The cluster of the unwrapping listener."""
        clusters = [listener.cluster for listener in self._listeners if listener.name != self._wrap]
        return clusters[0] if clusters else None

    def end(self) -> None:
        """The wrapping listener has ended."""
        for listener in self._listeners:
            with suppress(ValueError):
                listener.cluster.when_identified.remove(self._identified)

    def _identified(self, cluster_id: str) -> None:
        ids = [listener.cluster.cluster_id for listener in self._listeners]
        self.differ = None not in ids and len(set(ids)) == 2
        if None not in ids and len(ids) == 2 and not self.differ:
            self._listeners[0].fail(self._error(cluster_id))

    def _error(self, cluster_id: str) -> OperatorError:
        clusters = [f"{x.cluster.name!r} ({', '.join(map(str, x.cluster.bootstrap))})" for x in self._listeners]
        what = (
            f"clusters {' and '.join(clusters)} are one cluster, {cluster_id}: a mirror of it into itself may copy its "
            "copies for ever. Is an address wrong? If it is meant (the copies have other names), or one cluster was "
            "made of the other's disks, say so with same-cluster = true"
        )
        return OperatorError.of(f"listener {self._wrap!r}", what)
