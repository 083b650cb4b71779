"""Pairs listeners: the paths of wrapping and unwrapping listeners.

Each wrapping listener has an interlock, which begins with nothing proven. In a reload, a new wrapping listener joins an
unwrapping one that serves already; one that ends leaves it, when its last connection has ended.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.proxy.config.settings import Mode
from shoal.proxy.shallow.claims.claim_checks import ClaimChecks
from shoal.proxy.shallow.cluster_pair import ClusterPair
from shoal.proxy.shallow.interlock import Interlock, Interlocks
from shoal.proxy.shallow.monitor.monitor import MirrorMonitor, MirrorMonitors
from shoal.proxy.shallow.unwrap.path import UnwrapPath
from shoal.proxy.shallow.wrap.path import WrapPath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.proxy.config.settings import Settings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener

__all__ = ["ShallowPaths"]


class _Pair(NamedTuple):
    target: str | None  # the name of the unwrapping listener
    interlock: Interlock
    clusters: ClusterPair | None
    monitor: MirrorMonitor


class ShallowPaths:
    """The pairs of all configurations of one process."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._pairs: list[_Pair] = []
        self._unwraps: dict[str, tuple[Listener, UnwrapPath]] = {}

    def of(self, settings: Settings) -> Mapping[Mode, Callable[[Listener], Path[Connection]]]:
        """For `serve`, and for a reload. Several wrapping listeners may have the same pair."""
        return {Mode.WRAP: partial(self._wrap, settings), Mode.UNWRAP: self._unwrap}

    def _wrap(self, settings: Settings, listener: Listener) -> WrapPath:
        pair = self._pair(listener, settings)
        self._pairs.append(pair)
        if pair.clusters is not None:
            pair.clusters.join(listener)
        if pair.target in self._unwraps:
            unwrapping, path = self._unwraps[pair.target]
            path.interlocks.join(pair.interlock)
            path.monitors.join(pair.monitor)
            if pair.clusters is not None:
                pair.clusters.join(unwrapping)
        return WrapPath(
            listener,
            pair.interlock,
            pair.clusters,
            pair.monitor,
            has_keys_sample=settings.capture.has_keys_sample if settings.capture else 0,
            ended=partial(self._wrap_ended, pair),
        )

    @staticmethod
    def _pair(listener: Listener, settings: Settings) -> _Pair:
        wrap, monitor = listener.settings, MirrorMonitor(listener)
        if wrap.pair is None:
            return _Pair(None, Interlock.unpaired(), None, monitor)
        target = next(listener for listener in settings.listeners if listener.name == wrap.pair)
        interlock = Interlock.of_pair(wrap.shallow, target)
        interlock.checks = ClaimChecks(listener)
        return _Pair(wrap.pair, interlock, ClusterPair(wrap), monitor)

    def _wrap_ended(self, pair: _Pair) -> None:
        if pair in self._pairs:
            self._pairs.remove(pair)
            if pair.clusters is not None:
                pair.clusters.end()
            if pair.target in self._unwraps:
                self._unwraps[pair.target][1].interlocks.leave(pair.interlock)
                self._unwraps[pair.target][1].monitors.leave(pair.monitor)

    def _unwrap(self, listener: Listener) -> UnwrapPath:
        pairs = [pair for pair in self._pairs if pair.target == listener.name]
        for pair in pairs:
            if pair.clusters is not None:
                pair.clusters.join(listener)
        monitors = MirrorMonitors()
        for pair in pairs:
            monitors.join(pair.monitor)
        path = UnwrapPath(
            listener,
            Interlocks([pair.interlock for pair in pairs]),
            monitors,
            clock=self._clock,
            ended=partial(self._unwrap_ended, listener),
        )
        self._unwraps[listener.name] = listener, path
        return path

    def _unwrap_ended(self, listener: Listener) -> None:
        if self._unwraps.get(listener.name, (None,))[0] is listener:
            del self._unwraps[listener.name]
