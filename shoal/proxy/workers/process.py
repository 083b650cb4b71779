"""One worker, as the supervisor sees it: a process from its start to its end.

    STARTING ── SERVING ──> SERVING ── DRAINING ──> DRAINING ── its end ──> ENDED

It has the interpreter, the modules and the environment of this process, without what is meant for this one alone: a
session of its own (Ctrl-C and `kill` of the group are for the supervisor), and no socket of systemd.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from shoal.proxy.workers.answering import answer_questions
from shoal.proxy.workers.links import Link, Message, Word
from shoal.proxy.workers.questions import NoAnswer, Questions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.proxy.admin.metrics.metric import Snapshot
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.turns import TurnTable

__all__ = ["Program", "WorkerProcess", "WorkerState"]

_CODE: Final = (  # a SIGHUP for all processes is meant for the supervisor, also while the modules load
    "import sys, json, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.path[:] = json.loads(sys.argv.pop()); "
    "from shoal.proxy.cli.serving.worker import main; sys.exit(main(sys.argv[2:]))"
)
_END_SECONDS: Final = 3.0  # for a worker that must end at once, to close its files
_LAST_SECONDS: Final = 2.0  # for the last messages of a worker that has ended
_OF_SUPERVISOR: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")


class WorkerState(Enum):
    STARTING = auto()
    SERVING = auto()
    DRAINING = auto()
    ENDED = auto()


class Program(NamedTuple):
    """What all workers have in common. `lock`: of the state directory, which belongs to all of them."""

    table: TurnTable
    lock: int | None = None

    def command(self, number: int, orders: int, questions: int) -> list[str]:
        descriptors = map(str, (orders, questions, self.table.descriptor))
        numbers = [str(number), str(self.table.workers), *descriptors]
        return [sys.executable, "-P", "-c", _CODE, "worker", *numbers, json.dumps(sys.path)]


class WorkerProcess:
    """`heard` gets each message that is no answer. `listeners`: the supervisor's, of the time."""

    def __init__(
        self,
        number: int,
        program: Program,
        listeners: Callable[[], Mapping[str, Listener]],
        heard: Callable[[WorkerProcess, Message], None],
    ) -> None:
        self.number = number
        self.state = WorkerState.STARTING
        self.loaded = trio.Event()
        self.has_settings = False
        self.has_served = False
        self.counters: Snapshot | None = None  # the latest
        self.answers = True  # it was not silent the last time
        self._program = program
        self._listeners = listeners
        self._heard = heard
        self._process: trio.Process | None = None
        self._link: Link | None = None
        self._questions: Questions | None = None
        self._has_last_counters = False

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def order(self, word: Word, value: object = None) -> None:
        """One that a worker which reads nothing does not get."""
        if self._link is not None:
            self._link.try_to_put(word, value)

    async def ask(self, word: Word, value: object = None, *, within: float) -> Any:
        """Within so many seconds. Raises NoAnswer."""
        if self._questions is None:
            raise NoAnswer
        try:
            found = await self._questions.ask(word, value, within=within)
        except NoAnswer:
            self.answers = False
            raise
        self.answers = True
        return found

    def count(self, counters: Snapshot) -> None:
        """Those that it has answered; an answer that comes after its last ones is older."""
        if not self._has_last_counters:
            self.counters = counters

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def run(self) -> int:
        """-> the exit code; negative: the signal that has ended it. If cancelled, it ends at once.

        Raises OSError if it cannot be started.
        """
        try:
            self._process, orders, questions = await self._start()
        except OSError:
            self.state = WorkerState.ENDED
            raise
        self._link = link = Link(trio.SocketStream(trio.socket.from_stdlib_socket(orders)))
        self._questions = Questions(link)
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, link, over)
            nursery.start_soon(self._answer, trio.socket.from_stdlib_socket(questions))
            try:
                code = await self._process.wait()
            except trio.Cancelled:
                await self._end_at_once()
                raise
            with trio.move_on_after(_LAST_SECONDS):
                await over.wait()
            nursery.cancel_scope.cancel()
        self.state = WorkerState.ENDED
        self._questions.end()
        return code

    async def _start(self) -> tuple[trio.Process, socket.socket, socket.socket]:
        """-> the process, and our ends of its orders and questions. Raises OSError."""
        table, lock = self._program.table.descriptor, self._program.lock
        with ExitStack() as ours, ExitStack() as theirs:
            orders, its_orders = _pair(socket.SOCK_STREAM, ours, theirs)
            questions, its_questions = _pair(socket.SOCK_SEQPACKET, ours, theirs)
            process = await trio.lowlevel.open_process(
                self._program.command(self.number, its_orders, its_questions),
                stdin=subprocess.DEVNULL,
                pass_fds=[its_orders, its_questions, table, *([] if lock is None else [lock])],
                env={name: value for name, value in os.environ.items() if name not in _OF_SUPERVISOR},
                start_new_session=True,
            )
            ours.pop_all()
        return process, orders, questions

    async def _end_at_once(self) -> None:
        assert self._process is not None
        with trio.CancelScope(shield=True):
            with trio.move_on_after(_END_SECONDS):
                self._process.send_signal(signal.SIGUSR1)
                await self._process.wait()
            self._process.kill()
            await self._process.wait()

    async def _listen(self, link: Link, over: trio.Event) -> None:
        await link.run(self.hear)
        over.set()

    async def _answer(self, questions: trio.socket.SocketType) -> None:
        await answer_questions(questions, self._listeners)
        await trio.sleep(_END_SECONDS)  # it ends, or has lost its questions: then it can bind no port
        self.kill()

    def hear(self, message: Message) -> None:
        """From the worker."""
        match message.word:
            case Word.ANSWER:
                assert self._questions is not None
                return self._questions.answered(message.number, message.value)
            case Word.LOADED:
                self.loaded.set()
            case Word.SERVING:
                self.state, self.has_served = WorkerState.SERVING, True
            case Word.DRAINING:
                self.state = WorkerState.DRAINING
            case Word.ENDED:
                self.counters, self._has_last_counters = message.value, True
        self._heard(self, message)


def _pair(kind: int, ours: ExitStack, theirs: ExitStack) -> tuple[socket.socket, int]:
    """-> our end, which does not block, and the descriptor of the worker's."""
    end, other = socket.socketpair(socket.AF_UNIX, kind)
    ours.enter_context(end).setblocking(False)
    return end, theirs.enter_context(other).fileno()
