"""Which listener is paired with which: the paths of the wrapping and unwrapping listeners of one configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.fetch_path import WrapPath
from shoal.proxy.interlock import Interlock
from shoal.proxy.produce_path import UnwrapPath
from shoal.proxy.settings import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.proxy.listeners import Listener
    from shoal.proxy.plain_path import Path
    from shoal.proxy.settings import Settings

__all__ = ["shallow_paths"]


def shallow_paths(settings: Settings) -> Mapping[Mode, Callable[[Listener], Path]]:
    """For `serve`. A pair shares one interlock; listeners without a pair have one each, which vouches for nothing."""
    named = {listener.name: listener for listener in settings.listeners}
    paired = {
        listener.pair: Interlock.of_pair(listener.shallow, named[listener.pair])
        for listener in settings.listeners
        if listener.mode is Mode.WRAP and listener.pair is not None
    }

    def wrap(listener: Listener) -> Path:
        pair = listener.settings.pair
        interlock = Interlock.unpaired() if pair is None else paired[pair]
        return WrapPath(
            listener, interlock, has_keys_sample=settings.capture.has_keys_sample if settings.capture else 0
        )

    def unwrap(listener: Listener) -> Path:
        return UnwrapPath(listener, paired.get(listener.name) or Interlock.unpaired())

    return {Mode.WRAP: wrap, Mode.UNWRAP: unwrap}
