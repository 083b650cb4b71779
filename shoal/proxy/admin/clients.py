"""/clients: the table of clients (connection/clients.py), made in slices of the loop's share."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from shoal.protocol.schema.used_versions import OTHERS, ranges, refused_by_kafka_4
from shoal.proxy.admin.http import Response
from shoal.proxy.admin.share import Turn
from shoal.proxy.config.quantities import utc

if TYPE_CHECKING:
    from shoal.proxy.admin.http import Request
    from shoal.proxy.admin.share import LoopShare
    from shoal.proxy.connection.clients import ClientEntry, Clients

__all__ = ["ClientsPage"]

_SLICE: Final = 20  # clients: about half a millisecond


class ClientsPage:
    def __init__(self, clients: Clients, share: LoopShare) -> None:
        self._clients = clients
        self._share = share

    async def show(self, request: Request) -> Response:
        entries = await self._share.run(lambda: list(self._clients), turn=Turn.PAGE)
        rows: list[bytes] = []
        for first in range(0, len(entries), _SLICE):
            rows += await self._share.run(partial(_rows, entries[first : first + _SLICE]), turn=Turn.PAGE)
        clients = self._clients
        others = _row(clients.others) | {"clients": clients.forgotten} if clients.forgotten else None
        body = b'{"clients": [\n' + b",\n".join(rows) + b'\n], "others": ' + msgspec.json.encode(others) + b"}\n"
        return Response(body, "application/json")


def _rows(entries: list[ClientEntry]) -> list[bytes]:
    return [msgspec.json.encode(_row(entry)) for entry in entries]


def _row(entry: ClientEntry) -> dict[str, object]:
    name, traffic, used = entry.name, entry.total(), entry.used
    blocking = refused_by_kafka_4(used)
    return {
        "listener": name.listener,
        "client_id": name.client_id,
        "host": name.host,
        "principal": name.principal,
        "software": None if name.software is None else name.software.name,
        "software_version": None if name.software is None else name.software.version,
        "connections": len(entry.connections),
        "opened": entry.opened,
        "first_seen": _wall(entry.first_seen),
        "last_seen": _wall(entry.seen()),
        "requests": traffic.requests,
        "received_bytes": traffic.from_client,
        "sent_bytes": traffic.to_client,
        "blocks_kafka_4": bool(blocking),
        "blocking": [str(versions) for versions in ranges(blocking)],
        "apis": [
            {"api": versions.api, "oldest": versions.oldest, "newest": versions.newest} for versions in ranges(used)
        ],
        "other_apis": bool(used & OTHERS),
    }


def _wall(at: float) -> str:
    """`at`: in trio's time."""
    return utc(time.time() - (trio.current_time() - at))
