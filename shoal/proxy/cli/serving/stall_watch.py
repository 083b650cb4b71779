"""Detects a blocked event loop, which serves no client and ignores SIGTERM: a thread logs where it hangs, then exits.

    trio:    a task increments a counter, a few times a second
    thread:  checks the counter as often. Unchanged for `report` seconds: log all stacks; for `end` seconds: exit

The thread counts its own checks, not seconds. If the whole process did not run (SIGSTOP, a suspended machine, a
debugger that stops all threads, too little CPU), the thread did not run either, and missed at most one check.

Another thread writes the log, because a log that is no longer read may be what blocks the loop. Tasks are read while
the loop may continue, so unreadable ones are left out. Tasks with the same stack are logged together.

C code that never releases the interpreter's lock is not detected: the thread would not run.
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
from shoal.proxy.events.logs import event, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["StallWatch"]

log = logging.getLogger("shoal.stall")

_LONGEST_PERIOD = 0.5
_CHECKS = 4  # at least, in the shorter of the two times
_STACKS = 30  # different ones that are logged
_FRAMES = 40  # innermost frames of a stack
_LAST_WORDS_SECONDS = 2.0  # for a line, before it counts as written


class StallWatch:
    """`report` and `end` are seconds; 0: never. `exit` does not return. `last_words`: seconds for each line."""

    def __init__(
        self,
        *,
        report: float,
        end: float,
        exit: Callable[[int], object] = os._exit,
        last_words: float = _LAST_WORDS_SECONDS,
    ) -> None:
        self._report, self._end, self._exit, self._last_words = report, end, exit, last_words
        self.period = min([_LONGEST_PERIOD, *(seconds / _CHECKS for seconds in (report, end) if seconds)])
        self.beats = 0
        self._seen = -1
        self._checks = 0  # since the last beat
        self._reported = False
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
            self.check()

    def check(self) -> None:
        if self.beats != self._seen:
            if self._reported:
                self._log(self._recovered, self._checks * self.period)
            self._seen, self._checks, self._reported = self.beats, 0, False
            return
        self._checks += 1
        seconds = self._checks * self.period
        if self._report and seconds >= self._report and not self._reported:
            self._reported = True
            self._log(self._blocked, seconds)
        if self._end and seconds >= self._end and not _is_debugged():
            if not self._reported:
                self._log(self._blocked, seconds)
            self._log(self._exits, seconds)
            self._exit(STALLED)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _log(self, what: Callable[[float], None], seconds: float) -> None:
        writer = Thread(target=what, args=(seconds,), daemon=True)
        writer.start()
        writer.join(self._last_words)

    def _blocked(self, seconds: float) -> None:
        text = f"the event loop is blocked: no client is served seconds={seconds:g}"
        log.error("loop-blocked", extra=event(text, seconds=seconds))
        log.error("stack", extra=fields(task="running", at=_frames(_running())))
        stacks = Counter(_stacks(self._root))
        for (name, stack), tasks in stacks.most_common(_STACKS):
            log.error("stack", extra=fields(task=name, tasks=tasks, at=stack))
        if len(stacks) > _STACKS:
            log.error("stack", extra=fields(left_out=len(stacks) - _STACKS))

    @staticmethod
    def _recovered(seconds: float) -> None:
        log.warning("loop-runs-again", extra=event(f"the event loop runs again seconds={seconds:g}", seconds=seconds))

    @staticmethod
    def _exits(seconds: float) -> None:
        text = f"Shoal exits so that a supervisor can restart it (limits.stall-exit) {seconds=:g} exit_code={STALLED}"
        log.critical("loop-blocked-exit", extra=event(text, seconds=seconds, exit_code=STALLED))


def _running() -> list[FrameType]:
    """The frames of the main thread, the innermost last."""
    frame = sys._current_frames().get(main_thread().ident or 0)
    return [frame for frame, _ in traceback.walk_stack(frame)][::-1]


def _is_debugged() -> bool:
    return any(frame.f_trace is not None for frame in _running())


def _stacks(root: trio.lowlevel.Task | None) -> Iterator[tuple[str, str]]:
    """For each task: its name and its stack."""
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        try:
            name, stack = task.name, _frames([frame for frame, _ in task.iter_await_frames()])
            waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        except Exception as error:  # the loop has continued
            name, stack = task.name, f"cannot be read: {error!r}"
        yield name, stack


def _frames(frames: list[FrameType]) -> str:
    return " > ".join(
        f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
        for frame in frames[-_FRAMES:]
    )
