"""The table of pages, and the task that serves it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import trio

from shoal.proxy.admin.clients import ClientsPage
from shoal.proxy.admin.health import PATIENCE_SECONDS, Health
from shoal.proxy.admin.http import Response, plain
from shoal.proxy.admin.json import as_json
from shoal.proxy.admin.lag import LoopLag
from shoal.proxy.admin.masked import effective
from shoal.proxy.admin.metrics.page import MetricsPage
from shoal.proxy.admin.share import Turn
from shoal.proxy.admin.status import Status

if TYPE_CHECKING:
    from shoal.proxy.admin.http import Request
    from shoal.proxy.admin.listener import AdminPort, Page
    from shoal.proxy.admin.share import LoopShare
    from shoal.proxy.lifecycle.server import Server

__all__ = ["pages_of", "serve_admin"]


def pages_of(
    server: Server, lag: LoopLag, share: LoopShare, tasks: trio.Nursery, *, patience: float = PATIENCE_SECONDS
) -> dict[str, Page]:
    """`patience`: for clusters that are asked."""
    status = Status(server, lag)

    async def show_status(request: Request) -> Response:
        return await share.run(lambda: as_json(status.document()), turn=Turn.PAGE)

    async def show_config(request: Request) -> Response:
        return await share.run(lambda: as_json(effective(server.settings)), turn=Turn.PAGE)

    async def show_pages(request: Request) -> Response:
        return plain(HTTPStatus.OK, "\n".join(pages))

    health = Health(server, lag, tasks, patience=patience)
    pages: dict[str, Page] = {
        "/": show_pages,
        "/livez": health.live,
        "/readyz": health.ready,
        "/status": show_status,
        "/clients": ClientsPage(server.clients, share).show,
        "/config": show_config,
        "/metrics": MetricsPage(server, lag, share).show,
    }
    return pages


async def serve_admin(port: AdminPort, server: Server) -> None:
    """Until cancelled."""
    async with trio.open_nursery() as tasks:
        lag = LoopLag()
        tasks.start_soon(lag.run)
        await port.run(pages_of(server, lag, port.share, tasks))
