"""An event loop that does not turn any more serves nobody and obeys no SIGTERM: a thread notices, says where, and ends the process.

    trio:    a task counts, a few times a second
    thread:  looks as often whether that has moved; if not for `report` seconds: the stacks of all tasks; for `end` seconds: exit

The thread counts its own looks, not seconds. Where the whole process did not run (SIGSTOP, a suspended machine, a debugger that
stops all threads), the thread did not either: it has missed one look, and not a thousand. So has one that gets too little CPU.

What is said is said by one more thread, for a log that nobody reads any more may be what the loop hangs on. Tasks are read while
the loop may go on: what cannot be read then is left out. Tasks that stand at the same place are told together.

It cannot notice C code that keeps the interpreter's lock for ever: the thread would not run.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections import Counter
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING

import trio

from shoal.proxy.cli.exit_codes import STALLED
from shoal.proxy.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["StallWatch"]

log = logging.getLogger("shoal.stall")

_LONGEST_PERIOD = 0.5
_LOOKS = 4  # in the shorter of the times, at least
_STACKS = 30  # of different places
_FRAMES = 40  # of a stack, the innermost
_LAST_WORDS_SECONDS = 2.0


class StallWatch:
    """Seconds; 0: never. `exit` does not return."""

    def __init__(self, *, report: float, end: float, exit: Callable[[int], object] = os._exit) -> None:
        self._report, self._end, self._exit = report, end, exit
        self.period = min([_LONGEST_PERIOD, *(seconds / _LOOKS for seconds in (report, end) if seconds)])
        self.beats = 0
        self._seen = -1
        self._looks = 0  # since the last beat
        self._told = False
        self._root: trio.lowlevel.Task | None = None
        self._over = Event()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._report and not self._end:
            return
        self._root = trio.lowlevel.current_root_task()
        Thread(target=self._watch, name="stall watch", daemon=True).start()
        try:
            while True:
                self.beats += 1
                await trio.sleep(self.period)
        finally:
            self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self.period):
            self.look()

    def look(self) -> None:
        if self.beats != self._seen:
            if self._told:
                self._say(self._turns_again, self._looks * self.period)
            self._seen, self._looks, self._told = self.beats, 0, False
            return
        self._looks += 1
        seconds = self._looks * self.period
        if self._report and seconds >= self._report and not self._told:
            self._told = True
            self._say(self._stands, seconds)
        if self._end and seconds >= self._end and not _is_debugged():
            if not self._told:
                self._say(self._stands, seconds)
            self._say(self._ends, seconds)
            self._exit(STALLED)

    # -- what is said ----------------------------------------------------------------------------------------------

    @staticmethod
    def _say(what: Callable[[float], None], seconds: float) -> None:
        teller = Thread(target=what, args=(seconds,), daemon=True)
        teller.start()
        teller.join(_LAST_WORDS_SECONDS)

    def _stands(self, seconds: float) -> None:
        log.error("the event loop stands still, nobody is served", extra=fields(seconds=seconds))
        log.error("stack", extra=fields(task="running", at=_said(_running())))
        stacks = Counter(_stacks(self._root))
        for (name, stack), tasks in stacks.most_common(_STACKS):
            log.error("stack", extra=fields(task=name, tasks=tasks, at=stack))
        if len(stacks) > _STACKS:
            log.error("stack", extra=fields(more=len(stacks) - _STACKS))

    @staticmethod
    def _turns_again(seconds: float) -> None:
        log.warning("the event loop turns again", extra=fields(seconds=seconds))

    @staticmethod
    def _ends(seconds: float) -> None:
        what = "Shoal ends, for a supervisor to start it again (limits.stall-exit)"
        log.critical(what, extra=fields(seconds=seconds, exit_code=STALLED))


def _running() -> list[FrameType]:
    """The frames of the main thread, the innermost last."""
    frame = sys._current_frames().get(main_thread().ident or 0)
    return [frame for frame, _ in traceback.walk_stack(frame)][::-1]


def _is_debugged() -> bool:
    return any(frame.f_trace is not None for frame in _running())


def _stacks(root: trio.lowlevel.Task | None) -> Iterator[tuple[str, str]]:
    """Of each task: its name, and where it waits."""
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        try:
            name, stack = task.name, _said([frame for frame, _ in task.iter_await_frames()])
            waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        except Exception as error:  # the loop has gone on
            name, stack = task.name, f"cannot be read: {error!r}"
        yield name, stack


def _said(frames: list[FrameType]) -> str:
    return " > ".join(
        f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
        for frame in frames[-_FRAMES:]
    )
