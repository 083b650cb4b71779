"""After SIGTERM, with drain = "until-clients-gone": wait until no client is left, and say who is waited for.

A sidecar gets SIGTERM together with its main container, which may still have records to send.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from shoal.proxy.events.logs import event
from shoal.proxy.lifecycle.clients import Presence, Seen, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.proxy.connection.connection import Connection

__all__ = ["until_clients_gone"]

log = logging.getLogger("shoal.server")

_LOOK_SECONDS: Final = 0.25
_REPORT_SECONDS: Final = 5.0  # between two log lines


async def until_clients_gone(connections: Callable[[], Iterable[Connection]], most: float) -> None:
    """Returns when the clients have gone, or after `most` seconds."""
    began = reported = trio.current_time()
    presence = Presence(began)
    presence.look(_seen(connections()), began)
    _log_waiting(presence, most)
    while True:
        await trio.sleep(min(_LOOK_SECONDS, most))
        now = trio.current_time()
        presence.look(_seen(connections()), now)
        if presence.gone(now):
            text = f"the clients have gone, after {now - began:.1f} s"
            return log.info("clients-gone", extra=event(text, seconds=round(now - began, 1)))
        if now >= began + most:
            return _log_too_late(presence, most)
        if now >= reported + _REPORT_SECONDS:
            reported = now
            _log_waiting(presence, began + most - now)


def _seen(connections: Iterable[Connection]) -> Iterator[Seen]:
    for connection in connections:
        client = "a client" if connection.client_id is None else repr(connection.client_id)
        received = connection.traffic().from_client
        yield Seen(connection.number, f"{client} at {connection.peer.host}", received, connection.unanswered)


def _log_waiting(presence: Presence, seconds: float) -> None:
    clients = presence.clients
    who = f"{_counted(len(clients))}: {named(clients)}" if clients else "no client, for a moment"
    text = f"serving until the clients have gone, for at most {seconds:.0f} s more: {who}"
    log.info("waiting-for-clients", extra=event(text, clients=len(clients), most_seconds=round(seconds, 1)))


def _log_too_late(presence: Presence, most: float) -> None:
    clients = presence.clients
    text = f"{_counted(len(clients))} still there after {most:g} s (limits.drain-wait-seconds): {named(clients)}"
    log.warning("clients-stay", extra=event(text, clients=len(clients), seconds=most))


def _counted(count: int) -> str:
    return f"{count} client{'s' * (count != 1)}"
