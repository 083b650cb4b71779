"""Another configuration while Shoal runs: all of it, or nothing.

    Reload(...)   all that can fail: files are read, ports are bound, listeners are made. An error undoes it
    apply         nothing fails, and nothing awaits

Listeners and clusters that stay get new settings. A listener that is `Applied.REOPENED` is replaced by a new one, which
takes over its sockets; the former one drains, so the two of them serve at the same time. An unwrapping listener hands
on what it knows of appended batches and of mirrors; a wrapping one does not: its flows prove themselves again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from shoal.proxy.config.changes import Applied, diff, in_force
from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.rules.consistency import check_settings
from shoal.proxy.config.toml import where_in_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.changes import Change
    from shoal.proxy.config.settings import ClusterSettings, ListenerSettings, Settings
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.listener.sockets import ListeningSockets

__all__ = ["Prepared", "Reload", "Serving", "as_fields", "as_text", "checked_in_force"]


class Prepared(Protocol):
    """A part of a reload outside of the server: all that can fail is done."""

    def apply(self) -> None: ...
    def undo(self) -> None: ...


@dataclass(kw_only=True)
class Serving:
    """What a server runs. `leaving`: listeners that drain, and are no longer in `listeners`."""

    settings: Settings
    clusters: dict[str, Cluster]
    listeners: dict[str, Listener]
    sockets: ListeningSockets
    leaving: list[Listener] = field(default_factory=list)


def checked_in_force(old: Settings, new: Settings) -> Settings:
    """`new`, as far as it needs no restart. Raises OperatorError if the rest does not fit together."""
    used = in_force(old, new)
    problems = check_settings(used, where_in_toml)
    if problems:
        kept = ", ".join(change.what for change in diff(old, new) if change.applied is Applied.RESTART)
        waits = f" (as long as this waits for a restart: {kept})" if kept else ""
        raise OperatorError(tuple(Problem(problem.where, f"{problem.what}{waits}") for problem in problems))
    return used


class Reload:
    """Raises OperatorError, and then nothing has changed."""

    def __init__(
        self,
        serving: Serving,
        settings: Settings,
        *,
        make_cluster: Callable[[ClusterSettings], Cluster],
        make_listener: Callable[[ListenerSettings, Cluster, Listener | None], Listener],
    ) -> None:
        self._serving = serving
        self.settings = settings
        self.changes = diff(serving.settings, settings)
        self._reopened = {change.listener for change in self.changes if change.applied is Applied.REOPENED}
        self._steps: list[Callable[[], None]] = []
        self._clusters = dict(serving.clusters)
        self._made: dict[str, Listener] = {}
        try:
            self._prepare_clusters(make_cluster)
            self._prepare_listeners(make_listener)
        except BaseException:
            self._undo()
            raise

    def _prepare_clusters(self, make: Callable[[ClusterSettings], Cluster]) -> None:
        for cluster in self.settings.clusters:
            if cluster.name in self._clusters:
                self._steps.append(self._clusters[cluster.name].prepare(cluster, self.settings.limits))
            else:
                self._clusters[cluster.name] = make(cluster)

    def _prepare_listeners(self, make: Callable[[ListenerSettings, Cluster, Listener | None], Listener]) -> None:
        for listener in self._serving.listeners.values():
            listener.ports.offer()
        for settings in self.settings.listeners:
            former = self._serving.listeners.get(settings.name)
            if former is not None and settings.name not in self._reopened:
                self._steps.append(former.prepare(settings, self.settings.limits))
                continue
            if any(x.name == settings.name for x in self._serving.leaving) and former is None:
                what = "the former listener of this name has connections that drain: reload again when they have ended"
                raise OperatorError.of(f"listener {settings.name!r}", what)
            made = self._made[settings.name] = make(settings, self._clusters[settings.cluster], former)
            made.bind()

    def _undo(self) -> None:
        for listener in self._made.values():
            listener.close()
        for listener in self._serving.listeners.values():
            listener.ports.undo()
        self._serving.sockets.withdraw()

    def apply(self) -> Sequence[Listener]:
        """-> the listeners that begin now. Those that end drain."""
        serving, names = self._serving, [listener.name for listener in self.settings.listeners]
        for step in self._steps:
            step()
        ends = [x for name, x in serving.listeners.items() if name in self._made or name not in names]
        serving.settings = self.settings
        serving.clusters = {cluster.name: self._clusters[cluster.name] for cluster in self.settings.clusters}
        serving.listeners = {name: self._made.get(name) or serving.listeners[name] for name in names}
        serving.leaving += ends
        for listener in self._made.values():
            listener.succeed()
        for listener in ends:
            listener.drain(self.settings.limits.drain_seconds)
        serving.sockets.withdraw()
        return list(self._made.values())


def as_fields(wanted: Sequence[Change], applied: Sequence[Change], settings: Settings) -> dict[str, list[str]]:
    """For the log: what is changed by how it is applied, and the listeners and clusters without any change.

    `wanted`: all changes; `applied`: without those of listeners that need a restart.
    """
    by_way = defaultdict[Applied, list[str]](list)
    for change in (*applied, *(change for change in wanted if change.applied is Applied.RESTART)):
        by_way[change.applied].append(change.what)
    changed = {(change.listener, change.cluster) for change in wanted}
    unchanged = [f"cluster {x.name!r}" for x in settings.clusters if (None, x.name) not in changed]
    unchanged += [f"listener {x.name!r}" for x in settings.listeners if (x.name, None) not in changed]
    return {
        "applied": _once(by_way[Applied.LIVE]),
        "new_connections": _once(by_way[Applied.NEW_CONNECTIONS]),
        "reopened": _once(by_way[Applied.REOPENED]),
        "needs_restart": _once(by_way[Applied.RESTART]),
        "untouched": unchanged,
    }


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))  # host and port are one key


_WORDS = {
    "applied": "applied",
    "new_connections": "for new connections",
    "reopened": "reopened",
    "needs_restart": "needs a restart",
    "untouched": "unchanged",
}


def as_text(values: dict[str, list[str]]) -> str:
    """`reloaded: applied: log.level; needs a restart: state-dir; unchanged: cluster 'kafka', listener 'clients'`"""
    parts = [f"{words}: {', '.join(values[key])}" for key, words in _WORDS.items() if values[key]]
    return f"reloaded: {'; '.join(parts)}"
