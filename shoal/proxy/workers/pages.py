"""The admin pages of a Shoal with workers: each asks all workers at once, for at most `ANSWER_SECONDS`.

A worker that does not answer is left out of /clients, is a reason not to be ready, and has its last counters in
/metrics and /status. What one says a little later is for the next page (`questions`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from shoal.proxy.admin.health import closed_listeners
from shoal.proxy.admin.http import Response
from shoal.proxy.admin.json import as_json
from shoal.proxy.admin.lag import LoopLag
from shoal.proxy.admin.metrics.page import MetricsPage
from shoal.proxy.admin.pages import pages_of
from shoal.proxy.admin.status import Status
from shoal.proxy.workers.documents import joined_clients, joined_readiness, joined_status
from shoal.proxy.workers.links import Word
from shoal.proxy.workers.process import WorkerState
from shoal.proxy.workers.processes import Processes
from shoal.proxy.workers.supervisor import Supervisor
from shoal.proxy.workers.totals import with_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.registry import Collector

    from shoal.proxy.admin.http import Request
    from shoal.proxy.admin.listener import AdminPort, Page
    from shoal.proxy.admin.metrics.metric import Snapshot
    from shoal.proxy.lifecycle.server import Server
    from shoal.proxy.workers.process import WorkerProcess

__all__ = ["WorkerPages", "serve_admin"]

_SILENT = "it does not answer"


async def serve_admin(port: AdminPort, server: Server) -> None:
    """Until cancelled."""
    assert isinstance(server, Supervisor)
    async with trio.open_nursery() as tasks:
        lag = LoopLag()
        tasks.start_soon(lag.run)
        table = pages_of(server, lag, port.share, tasks)
        await port.run({**table, **WorkerPages(server, lag, port).table()})


class WorkerPages:
    def __init__(self, supervisor: Supervisor, lag: LoopLag, port: AdminPort) -> None:
        self._supervisor = supervisor
        self._status = Status(supervisor, lag)
        self._metrics = _Metrics(supervisor, lag, port.share)

    def table(self) -> Mapping[str, Page]:
        return {
            "/readyz": self.ready,
            "/status": self.status,
            "/clients": self.clients,
            "/metrics": self.metrics,
        }

    async def metrics(self, request: Request) -> Response:
        await self._supervisor.collect()
        return await self._metrics.show(request)

    async def ready(self, request: Request) -> Response:
        documents = await self._documents("/readyz")
        workers = self._supervisor.workers
        reasons = {number: documents.get(number) or _why_missing(worker) for number, worker in workers.items()}
        document = joined_readiness(self._own_readiness(), reasons)
        return as_json(document, HTTPStatus.OK if document["ready"] else HTTPStatus.SERVICE_UNAVAILABLE)

    def _own_readiness(self) -> dict[str, Any]:
        server = self._supervisor
        return {
            "ready": server.state.is_ready,
            "state": server.state.name.lower(),
            "clusters": dict.fromkeys(server.clusters),
            "listeners": closed_listeners(server),
        }

    async def status(self, request: Request) -> Response:
        await self._supervisor.collect()
        documents = await self._documents("/status")
        rows = [_row(worker, documents.get(number)) for number, worker in self._supervisor.workers.items()]
        own: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._status.document(), enc_hook=str))
        return as_json(joined_status(own, list(documents.values()), rows))

    async def clients(self, request: Request) -> Response:
        documents = await self._documents("/clients")
        body = await trio.to_thread.run_sync(partial(_encoded_clients, documents))
        return Response(body, "application/json")

    async def _documents(self, path: str) -> dict[int, dict[str, Any]]:
        """Those of the workers that answer."""
        answers = await self._supervisor.ask_all(Word.PAGE, path)
        return {worker.number: msgspec.json.decode(found) for worker, found in answers.items()}


def _encoded_clients(documents: Mapping[int, dict[str, Any]]) -> bytes:
    joined = joined_clients(documents)
    rows = b",\n".join(map(msgspec.json.encode, joined["clients"]))
    return b'{"clients": [\n' + rows + b'\n], "others": ' + msgspec.json.encode(joined["others"]) + b"}\n"


def _why_missing(worker: WorkerProcess) -> str:
    return _SILENT if worker.state is WorkerState.SERVING else f"its state is {worker.state.name.lower()}"


def _row(worker: WorkerProcess, document: Mapping[str, Any] | None) -> dict[str, Any]:
    found = document or {}
    return {
        "worker": worker.number,
        "pid": worker.pid,
        "state": found.get("state", worker.state.name.lower()),
        "answers": document is not None,
        "started": found.get("started"),
        "connections": _connections(worker),
        "loop_lag_seconds": found.get("loop_lag_seconds"),
    }


def _connections(worker: WorkerProcess) -> int:
    if worker.counters is None or worker.state is WorkerState.ENDED:
        return 0
    return sum(listener.active for listener in worker.counters.listeners)


class _Metrics(MetricsPage):
    def __init__(self, supervisor: Supervisor, *arguments: Any) -> None:
        self._supervisor = supervisor
        super().__init__(supervisor, *arguments)

    def _process_collector(self) -> Collector:
        return Processes(self._pids)

    def _pids(self) -> Iterable[int]:
        return [worker.pid for worker in self._supervisor.workers.values() if worker.state is not WorkerState.ENDED]

    def snapshot(self) -> Snapshot:
        workers = self._supervisor.workers
        states = dict.fromkeys([*(state.name.lower() for state in WorkerState), "silent"], 0)
        states |= Counter(
            "silent" if worker.state is WorkerState.SERVING and not worker.answers else worker.state.name.lower()
            for worker in workers.values()
        )
        return replace(
            with_workers(super().snapshot(), self._supervisor.snapshots()),
            workers=states,
            worker_connections={str(number): _connections(worker) for number, worker in workers.items()},
            worker_ends=self._supervisor.ends,
        )
