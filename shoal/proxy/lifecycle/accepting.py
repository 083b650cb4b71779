"""How the Unix sockets of the state directory accept: with no descriptor left they wait, and Shoal goes on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from shoal.proxy.events.logs import LogThrottle

__all__ = ["accept"]

log = logging.getLogger("shoal.server")

_PAUSE_SECONDS: Final = 0.1
_COMPLAINT_SECONDS: Final = 60.0


async def accept(listening: trio.socket.SocketType, throttle: LogThrottle) -> trio.socket.SocketType:
    """The next client."""
    while True:
        try:
            client, _ = await listening.accept()
        except OSError as error:
            if throttle.is_news(error.errno, _COMPLAINT_SECONDS):
                text = f"shoal reload and --takeover wait: {error.strerror}: raise the limit of open files"
                log.error("control-accept-failed", extra=event(text, error=error.strerror))
            await trio.sleep(_PAUSE_SECONDS)
        else:
            return client
