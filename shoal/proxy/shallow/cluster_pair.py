"""A mirror of a cluster into itself, under the topics' own names, copies its copies for ever: a pair needs two.

Their ids are asked for at the start. The id of a cluster that requires authentication is learned when a client of the
mirror asks for metadata, as clients do on both sides before anything is copied. Until both ids are known nothing is
wrapped; where they are equal, Shoal ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.errors import OperatorError

if TYPE_CHECKING:
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.listener.listener import Listener

__all__ = ["ClusterPair"]


class ClusterPair:
    """A wrapping listener and the unwrapping one that is its pair: each of them has to `join`.

    `differ`: they are two clusters for sure, or the operator says that one is as good.
    """

    def __init__(self, wrap: ListenerSettings) -> None:
        self.differ = self._is_meant = wrap.shallow.same_cluster
        self._wrap = wrap.name
        self._listeners: list[Listener] = []

    def join(self, listener: Listener) -> None:
        self._listeners.append(listener)
        if not self._is_meant:
            listener.cluster.when_identified.append(self._identified)

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
