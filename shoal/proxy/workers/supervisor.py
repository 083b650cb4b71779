"""The process that has the workers: a Server that accepts nothing.

    Supervisor.run ──┬── services: brokers, TLS files, counters of the workers every few seconds
                     └── one task for each worker: start it ── its end ── pause ── start it again

A worker that ends is started again at once; if it ends again within `_STEADY_SECONDS`, after 1, 2, 4 ... seconds. If a
worker finds a fault of the settings while Shoal starts, Shoal ends with it, as a single process does; later it is
logged, and tried again.

Drain: the supervisor closes its sockets, each worker its own, and the process ends when all workers have. With drain =
"until-clients-gone" each worker waits for its own clients, and the sockets stay open until the last worker drains.
"""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.shares import PINNED, is_pinned, share_of
from shoal.proxy.events.logs import event
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.lifecycle.state import ServerEvent, ServerState
from shoal.proxy.listener.syn_filter import remove_filter
from shoal.proxy.net.turns import TurnTable
from shoal.proxy.workers.answering import sockets_of
from shoal.proxy.workers.links import Message, Word
from shoal.proxy.workers.process import Program, WorkerProcess, WorkerState
from shoal.proxy.workers.questions import NoAnswer
from shoal.proxy.workers.totals import added, added_statistics, kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.proxy.admin.metrics.metric import Snapshot
    from shoal.proxy.config.problems import Problem
    from shoal.proxy.config.settings import Address, Settings
    from shoal.proxy.lifecycle.server import Paths
    from shoal.proxy.lifecycle.tenure import Tenure
    from shoal.proxy.statistics import ServerStatistics

__all__ = ["ANSWER_SECONDS", "Supervisor", "pause_after"]

log = logging.getLogger("shoal.workers")

ANSWER_SECONDS: Final = 0.7  # for a page of a worker; Kubernetes waits for a second
_COUNTERS_SECONDS: Final = 5.0  # between two looks at the counters: what an ended worker has counted since is lost
_USE_SECONDS: Final = 30.0  # for a worker to use other settings: it may ask issuers of keys
_LOAD_SECONDS: Final = 30.0  # for the workers' programs, before a takeover
_STEADY_SECONDS: Final = 60.0
_MOST_PAUSE: Final = 30.0
_GRACE_SECONDS: Final = 2.0  # a worker's own drain begins later, and may last as long


def pause_after(ends: int) -> float:
    """Before the next start. `ends`: in a row, each soon after its start except the first."""
    return 0.0 if ends == 1 else min(2.0 ** (ends - 2), _MOST_PAUSE)


class Supervisor(Server):
    """For `settings.workers` workers. Raises OperatorError."""

    def __init__(self, settings: Settings, paths: Paths | None, held: Tenure) -> None:
        self.ends = 0  # of workers that were started again
        self._kept: list[Snapshot] = []  # at most one
        self._table = TurnTable.create(settings.workers)
        lock = None if held.directory is None else held.directory.lock
        self._program = Program(self._table, lock)
        self._may_serve = trio.Event()  # until then, workers only load
        self._may_mirror = trio.Event()
        self._released = trio.Event()  # the files of mirrors are closed
        numbers = range(1, settings.workers + 1)
        self.workers = {number: self._new(number) for number in numbers}
        self._loaded = {number: trio.Event() for number in numbers}
        self._begun = {number: trio.Event() for number in numbers}
        self._all_drain = trio.Event()
        held.sockets.changed = self._broker_changed
        super().__init__(settings, {}, sockets=held.sockets, taking=held.taking, accepts=False)

    async def run(self, *, task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await super().run(task_status=task_status)
        finally:
            self._table.close()

    def _new(self, number: int) -> WorkerProcess:
        return WorkerProcess(number, self._program, lambda: self.listeners, self._hear)

    # -- workers -------------------------------------------------------------------------------------------------------

    async def _start(self, services: trio.Nursery, serving: trio.Nursery, task_status: trio.TaskStatus[Server]) -> None:
        """Raises OperatorError."""
        taking, has_mirrors = self._taking, any(map(is_pinned, self.settings.listeners))
        for number in self._begun:
            serving.start_soon(self._keep, number)
        with self._starting:
            if taking is not None:
                await self._load()
                await taking.commit()
            self._may_serve.set()
            if taking is None or not has_mirrors:
                self._may_mirror.set()
            for listener in self.listeners.values():
                serving.start_soon(self._run, listener)
                if self._learns:
                    services.start_soon(listener.ports.ask_for_brokers)
            with trio.move_on_after(_LOAD_SECONDS):
                for number, begun in self._begun.items():
                    if number != PINNED or self._may_mirror.is_set():
                        await begun.wait()
            self._table.open()
            for number, begun in self._begun.items():
                if number != PINNED or self._may_mirror.is_set():
                    await begun.wait()
        task_status.started(self)
        if self._is_stopping():
            return
        services.start_soon(self._count)
        if taking is not None:
            if has_mirrors:
                self._starting = trio.CancelScope()
                with self._starting:
                    await taking.released(self.settings.locked_files)
                    self._may_mirror.set()
                    await self._begun[PINNED].wait()
                if self._is_stopping():
                    return
            services.start_soon(taking.ended)
        self._report(ServerEvent.STARTED)
        self.started.set()

    async def _load(self) -> None:
        with trio.move_on_after(_LOAD_SECONDS):
            for loaded in self._loaded.values():
                await loaded.wait()

    def _replaces(self) -> bool:
        """A worker that ends is started again."""
        return self.state in (ServerState.STARTING, ServerState.SERVING)

    async def _keep(self, number: int) -> None:
        ends = 0
        while True:
            worker = self.workers[number] = self._new(number)
            began = trio.current_time()
            code = await self._run_worker(worker)
            self._ended(worker)
            if not self._replaces():
                return
            ends = 1 if trio.current_time() - began >= _STEADY_SECONDS else ends + 1
            pause = pause_after(ends)
            if code is not None:
                self.ends += 1
                self._log_end(worker, code, pause)
            with trio.move_on_after(pause):
                await self.draining.wait()
            if not self._replaces():  # nothing would ask the next one to end
                return

    async def _run_worker(self, worker: WorkerProcess) -> int | None:
        """-> its exit code; None: it cannot be started, and the log says why."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_settings, worker)
            try:
                return await worker.run()
            except OSError as error:
                self._log_failed(worker, [f"no process can be started: {error.strerror}"])
                return None
            finally:
                nursery.cancel_scope.cancel()

    async def _give_settings(self, worker: WorkerProcess) -> None:
        await worker.loaded.wait()
        await self._may_serve.wait()
        if worker.number == PINNED:
            await self._may_mirror.wait()
        if not self._replaces():
            worker.kill()
            return
        worker.has_settings = True
        worker.order(Word.START, share_of(self.settings, worker.number))

    def _hear(self, worker: WorkerProcess, message: Message) -> None:
        value: Any = message.value
        match message.word:
            case Word.LOADED:
                self._loaded[worker.number].set()
            case Word.SERVING:
                self._table.note(worker.number, serves=True, ports=[])
                self._begun[worker.number].set()
                text = f"worker {worker.number} serves (process {worker.pid})"
                log.info("worker-serves", extra=event(text, worker=worker.number, pid=worker.pid))
            case Word.DRAINING:
                self._table.note(worker.number, serves=False, ports=[])
                self._look_whether_all_drain()
            case Word.FAILED:
                self._failed(worker, value)
            case Word.RELEASED if worker.number == PINNED and not self._replaces():  # the others have no files
                self._released.set()
            case Word.BROKER:
                name, node_id, port, address = value
                self._learned(name, node_id, port, address)
            case Word.CLUSTER:
                name, cluster_id = value
                if name in self.clusters:
                    self.clusters[name].identify(cluster_id)

    def _failed(self, worker: WorkerProcess, problems: Sequence[Problem]) -> None:
        error = OperatorError(tuple(problems))
        if worker.has_served or self.state is ServerState.STARTING:
            return self._fail(error)
        if self._is_stopping():
            return None  # most often because another worker has found the same
        return self._log_failed(worker, [str(problem) for problem in problems])

    def _log_failed(self, worker: WorkerProcess, findings: list[str]) -> None:
        text = f"worker {worker.number} cannot begin: {'; '.join(findings)}"
        log.error("worker-failed", extra=event(text, worker=worker.number, findings=findings))

    def _ended(self, worker: WorkerProcess) -> None:
        """Its clients are gone, and no filter of its own stays in the sockets."""
        if worker.counters is not None:
            self._kept = [added([*self._kept, kept(worker.counters)])]
        sockets = list(sockets_of(self.listeners.values()).values())
        ports = [sock.getsockname()[1] for sock in sockets if sock.fileno() >= 0]
        self._table.note(worker.number, serves=False, ports=ports)
        for sock in sockets:
            remove_filter(sock)
        if worker.number == PINNED and self._is_stopping():
            self._released.set()
        self._look_whether_all_drain()

    def _log_end(self, worker: WorkerProcess, code: int, pause: float) -> None:
        cause = f"exit code {code}" if code >= 0 else _signal_name(-code)
        connections = 0 if worker.counters is None else sum(x.active for x in worker.counters.listeners)
        again = f"in {pause:g} s" if pause else "at once"
        text = (
            f"worker {worker.number} (process {worker.pid}) has ended ({cause}), and with it some {connections} "
            f"connections: it is started again {again}"
        )
        log.error(
            "worker-ended",
            extra=event(
                text,
                worker=worker.number,
                pid=worker.pid,
                ended_by=cause,
                connections=connections,
                seconds=pause,
            ),
        )

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _broker_changed(self, listener: str, node_id: int, port: int, address: Address) -> None:
        """All workers are to have it; the one that has asked has it anyway."""
        for worker in self.workers.values():
            if worker.has_settings:
                worker.order(Word.LEARN, (listener, node_id, port, address))

    def _learned(self, name: str, node_id: int, port: int, address: Address) -> None:
        """A worker has seen another address of a broker."""
        listener = self.listeners.get(name)
        if listener is not None and port in [x.port for x in listener.ports.bound.values()]:
            with suppress(NoPort):  # it was closed meanwhile
                listener.ports.advertise(address, node_id, "")

    # -- reload --------------------------------------------------------------------------------------------------------

    async def _share(self, *, or_end: bool = False) -> list[str]:
        findings: list[str] = []

        async def use(worker: WorkerProcess) -> None:
            found = await self._use(worker)
            findings.extend(found)
            if found and or_end:
                self._end_worker(worker)

        async with trio.open_nursery() as nursery:
            for worker in self.workers.values():
                if worker.has_settings:
                    nursery.start_soon(use, worker)
        return list(dict.fromkeys(findings))

    async def _use(self, worker: WorkerProcess) -> list[str]:
        try:
            found: list[str] = await worker.ask(Word.USE, share_of(self.settings, worker.number), within=_USE_SECONDS)
        except NoAnswer:
            if worker.state is not WorkerState.ENDED:
                self._end_worker(worker)
            return []
        return found

    def _end_worker(self, worker: WorkerProcess) -> None:
        """The next one begins with the settings in force."""
        text = f"worker {worker.number} (process {worker.pid}) does not use the settings in force: it is ended"
        log.error("worker-silent", extra=event(text, worker=worker.number, pid=worker.pid))
        worker.kill()

    async def reread_files(self) -> None:
        await super().reread_files()
        for worker in self.workers.values():
            worker.order(Word.REREAD)

    # -- the end -------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        accepted = self.state.accepts
        super().drain()
        self._scope.deadline += _GRACE_SECONDS
        for worker in self.workers.values() if accepted else ():
            if worker.has_settings:
                worker.order(Word.DRAIN)
            else:
                worker.kill()
        if self.workers[PINNED].state is WorkerState.ENDED:  # it will not be started again
            self._released.set()

    async def _drain_without_clients(self, signal_name: str) -> None:
        self._all_drain = trio.Event()  # all may have ended before, and were started again
        for worker in self.workers.values():
            worker.order(Word.WAIT, signal_name)
        self._look_whether_all_drain()
        await self._all_drain.wait()
        if self.state is ServerState.WAITING_FOR_CLIENTS:
            self._drain_after(signal_name)

    def _look_whether_all_drain(self) -> None:
        if all(worker.state in (WorkerState.DRAINING, WorkerState.ENDED) for worker in self.workers.values()):
            self._all_drain.set()

    async def until_released(self) -> None:
        if any(map(is_pinned, self.settings.listeners)):
            await self._released.wait()

    # -- counters ------------------------------------------------------------------------------------------------------

    async def _count(self) -> None:
        while True:
            await trio.sleep(_COUNTERS_SECONDS)
            await self.collect()

    async def collect(self) -> None:
        """The counters of all workers that answer in time."""
        for worker, found in (await self.ask_all(Word.COUNTERS)).items():
            worker.count(found)

    async def ask_all(self, word: Word, value: object = None) -> Mapping[WorkerProcess, Any]:
        """-> the answers of those that have answered, which may have ended since."""
        answers: dict[WorkerProcess, Any] = {}

        async def ask(worker: WorkerProcess) -> None:
            with suppress(NoAnswer):
                answers[worker] = await worker.ask(word, value, within=ANSWER_SECONDS)

        async with trio.open_nursery() as nursery:
            for worker in self.workers.values():
                if worker.has_settings:
                    nursery.start_soon(ask, worker)
        return answers

    def snapshots(self) -> list[Snapshot]:
        """The last of each worker that runs, and then the sum of those that have ended."""
        running = [x for x in self.workers.values() if x.state is not WorkerState.ENDED and x.counters is not None]
        return [*(x.counters for x in running if x.counters is not None), *self._kept]

    def statistics(self) -> ServerStatistics:
        names = [listener.name for listener in self.settings.listeners]
        own = super().statistics()  # for a listener that no worker has counted yet
        return added_statistics(names, [*(snapshot.server for snapshot in self.snapshots()), own])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
