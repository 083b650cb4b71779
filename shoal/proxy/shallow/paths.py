"""Pairs listeners: the paths of the wrapping and unwrapping listeners of one configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.proxy.config.settings import Mode
from shoal.proxy.shallow.cluster_pair import ClusterPair
from shoal.proxy.shallow.interlock import Interlock, Interlocks
from shoal.proxy.shallow.unwrap.path import UnwrapPath
from shoal.proxy.shallow.wrap.path import WrapPath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.proxy.config.settings import Settings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener

__all__ = ["shallow_paths"]


def shallow_paths(
    settings: Settings, *, clock: Callable[[], float] = trio.current_time
) -> Mapping[Mode, Callable[[Listener], Path[Connection]]]:
    """For `serve`. Each wrapping listener shares an interlock with its pair; several may have the same pair."""
    named = {listener.name: listener for listener in settings.listeners}
    interlocks = {
        listener.name: Interlock.of_pair(listener.shallow, named[listener.pair])
        for listener in settings.listeners
        if listener.mode is Mode.WRAP and listener.pair is not None
    }

    clusters = {listener.name: ClusterPair(listener) for listener in settings.listeners if listener.pair is not None}

    def wrap(listener: Listener) -> Path[Connection]:
        interlock = interlocks.get(listener.name) or Interlock.unpaired()
        both = clusters.get(listener.name)
        if both is not None:
            both.join(listener)
        return WrapPath(
            listener, interlock, both, has_keys_sample=settings.capture.has_keys_sample if settings.capture else 0
        )

    def unwrap(listener: Listener) -> Path[Connection]:
        for name, both in clusters.items():
            if named[name].pair == listener.name:
                both.join(listener)
        ours = [interlock for name, interlock in interlocks.items() if named[name].pair == listener.name]
        return UnwrapPath(listener, Interlocks(ours), clock=clock)

    return {Mode.WRAP: wrap, Mode.UNWRAP: unwrap}
