"""The process of one worker (shoal/proxy/workers), which the supervisor starts.

run ──┬── orders of the supervisor; without it, the worker drains
      ├── the Server (when it has settings)
      ├── signals: SIGTERM and SIGINT drain (then the supervisor starts another worker); SIGUSR1 ends at once
      ├── stall watch, ticks
      └── the pages and counters that the supervisor asks for
"""

from __future__ import annotations

import logging
import signal
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from shoal.proxy.admin.http import Request
from shoal.proxy.admin.lag import LoopLag
from shoal.proxy.admin.metrics.page import MetricsPage
from shoal.proxy.admin.pages import pages_of
from shoal.proxy.admin.share import LoopShare
from shoal.proxy.cli.exit_codes import OK, WRONG_INPUT, operator_problems
from shoal.proxy.cli.serving.run import PathsOfModes, tick, tune_garbage_collection, watch_stalls
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event, set_up_logs
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.lifecycle.state import ServerState
from shoal.proxy.net.turns import TurnTable
from shoal.proxy.workers.asking import SharedSockets
from shoal.proxy.workers.links import Link, Message, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.proxy.admin.listener import Page
    from shoal.proxy.config.settings import Address, Settings

__all__ = ["main"]

log = logging.getLogger("shoal.workers")

_PATIENCE: Final = 0.5  # for clusters that are asked for /readyz: the supervisor waits a little longer
_LAST_SECONDS: Final = 2.0  # for the last messages


def main(arguments: Sequence[str]) -> int:
    """`arguments`: the worker's number, the number of all, and descriptors: orders, questions, table of turns."""
    number, workers, orders, questions, table = map(int, arguments)
    tune_garbage_collection()
    worker = _Worker(number, TurnTable(table, workers), socket.socket(fileno=questions))
    return trio.run(worker.run, socket.socket(fileno=orders))


class _Worker:
    def __init__(self, number: int, table: TurnTable, questions: socket.socket) -> None:
        self._number = number
        self._table = table
        self._questions = questions
        self._paths = PathsOfModes()
        self._server: Server | None = None
        self._reloaded = trio.Event()  # another one after each reload
        self._over = trio.Event()
        self._code = OK

    async def run(self, orders: socket.socket) -> int:
        orders.setblocking(False)
        self._link = Link(trio.SocketStream(trio.socket.from_stdlib_socket(orders)))
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1) as signals:
            async with trio.open_nursery() as self._tasks:
                self._tasks.start_soon(self._obey_signals, signals)
                self._tasks.start_soon(self._obey)
                self._link.put(Word.LOADED)
                await self._over.wait()
                with trio.move_on_after(_LAST_SECONDS):
                    await self._link.finish()
                self._tasks.cancel_scope.cancel()
        return self._code

    # -- orders --------------------------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        await self._link.run(self._hear)
        if not self._over.is_set():
            text = "the supervisor has ended: draining"
            log.error("supervisor-lost", extra=event(text))
            self._drain()

    def _hear(self, message: Message) -> None:
        value: Any = message.value
        match message.word, self._server:
            case Word.START, None:
                self._start(value)
            case Word.LEARN, Server() as server:
                _learn(server, *value)
            case Word.USE, Server() as server:
                self._tasks.start_soon(self._use, server, value, message.number)
            case Word.REREAD, Server() as server:
                self._tasks.start_soon(server.reread_files)
            case Word.PAGE, Server():
                self._tasks.start_soon(self._show, value, message.number)
            case Word.COUNTERS, Server():
                self._answer(message.number, self._metrics.snapshot())
            case Word.WAIT, Server() as server:
                server.stop(value)
            case Word.DRAIN, _:
                self._drain()

    def _answer(self, number: int, value: object) -> None:
        self._link.try_to_put(Word.ANSWER, value, number)

    def _drain(self) -> None:
        if self._server is None:
            self._over.set()
        elif self._server.state.accepts:
            self._server.drain()

    # -- the server ----------------------------------------------------------------------------------------------------

    def _start(self, settings: Settings) -> None:
        set_up_logs(settings.log, worker=self._number)
        sockets = SharedSockets(self._questions, self._table, self._number, self._broker_changed)
        try:
            self._server = server = Server(settings, self._paths.of(settings), sockets=sockets, leads=False)
        except OperatorError as error:
            self._fail(error)
            return
        for cluster in server.clusters.values():
            cluster.when_identified.append(partial(self._cluster_identified, cluster.name))
        lag, share = LoopLag(), LoopShare()  # the supervisor may ask at once
        self._metrics = MetricsPage(server, lag, share)
        self._pages: dict[str, Page] = pages_of(server, lag, share, self._tasks, patience=_PATIENCE)
        self._tasks.start_soon(self._serve, server, lag)

    async def _serve(self, server: Server, lag: LoopLag) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lag.run)
            nursery.start_soon(watch_stalls, server, lambda: self._reloaded)
            nursery.start_soon(tick, server)
            nursery.start_soon(self._report_states, server)
            try:
                await server.run()
            except* OperatorError as errors:
                self._fail(OperatorError(tuple(operator_problems(errors))))
            nursery.cancel_scope.cancel()
        self._link.try_to_put(Word.ENDED, self._metrics.snapshot())
        self._over.set()

    async def _report_states(self, server: Server) -> None:
        await server.started.wait()
        self._link.try_to_put(Word.SERVING)
        await server.draining.wait()
        self._link.try_to_put(Word.DRAINING)
        await server.until_released()
        self._link.try_to_put(Word.RELEASED)

    def _fail(self, error: OperatorError) -> None:
        self._link.try_to_put(Word.FAILED, list(error.problems))
        self._code = WRONG_INPUT
        self._over.set()

    def _broker_changed(self, listener: str, node_id: int, port: int, address: Address) -> None:
        self._link.try_to_put(Word.BROKER, (listener, node_id, port, address))

    def _cluster_identified(self, name: str, cluster_id: str) -> None:
        self._link.try_to_put(Word.CLUSTER, (name, cluster_id))

    async def _use(self, server: Server, settings: Settings, number: int) -> None:
        await server.started.wait()
        former = server.settings
        used = await server.reconfigure(lambda: settings, self._paths.of)
        findings = server.last_reload.get("findings", []) if used is None and server.state.is_ready else []
        if settings.log != former.log:
            set_up_logs(settings.log, worker=self._number)
        self._reloaded.set()
        self._reloaded = trio.Event()
        self._answer(number, findings)

    async def _show(self, path: str, number: int) -> None:
        response = await self._pages[path](Request(path))
        self._answer(number, response.body)

    # -- signals -------------------------------------------------------------------------------------------------------

    async def _obey_signals(self, signals: object) -> None:
        async for number in signals:  # type: ignore[attr-defined]
            server = self._server
            if server is None:
                self._over.set()
            elif number == signal.SIGUSR1:
                server.end()
            else:
                server.stop(signal.Signals(number).name)


def _learn(server: Server, name: str, node_id: int, port: int, address: Address) -> None:
    """A broker that another worker, or the supervisor, has seen."""
    listener = server.listeners.get(name)
    if listener is None or server.state not in (ServerState.STARTING, ServerState.SERVING):
        return
    try:
        listener.ports.learn(node_id, port, address)
    except OSError as error:
        text = f"listener {name!r}: port {port} of broker {node_id} is not open here: {error.strerror}"
        log.warning("broker-port-missing", extra=event(text, listener=name, node_id=node_id, port=port))
