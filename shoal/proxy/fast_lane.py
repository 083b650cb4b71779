"""Waking a pump without waking trio: what makes a small request cheap.

A pump that only moves bytes needs no task: recv, look, send. Yet each time trio wakes its task for that, a whole turn of trio's
loop is run: deadlines, epoll registration, scheduling, and the way down through the awaits. Measured on a lone small request
every half millisecond, which finds the caches cold, two such turns (request and answer) cost 105 us of CPU; HAProxy's two
cost 35 us, and the same Python code called from a bare epoll loop 40 us.

So the lane has an epoll set of its own. A pump waits by `until(fd, step)`: the lane calls `step` whenever the descriptor is
readable, and wakes the task only when `step` returns False (something has to be awaited) or raises. The lane runs inside
trio's own wait: trio calls an instrument right before it blocks (`before_io_wait`), and there the lane blocks in its place, on
its own set, in which trio's epoll descriptor is one more member. As soon as trio has anything to do (one of its descriptors is
ready, a deadline has come, a step has made a task runnable), the lane steps aside. There is one thread, and a step never runs
while a task does; a step must not await.

    trio loop: ── run tasks ── before_io_wait ── epoll(trio) ── run tasks ── ...
                                   │    ▲
                                   ▼    │ trio is ready, its deadline has come, or a task is runnable
                             epoll(lane: pumps' sockets, epoll(trio)) ──► step()

trio has no public name for its epoll descriptor or its run queue; `_Internals` reads them from the one release that the package
is pinned to. Where they are missing (another release, another system) there is no lane, and `until` is a loop around
`trio.lowlevel.wait_readable`: the same behaviour, at trio's price. So it is under trio's test clock and idle detection.
"""

from __future__ import annotations

import math
import select
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

import outcome
import trio
from trio.lowlevel import Abort, reschedule, wait_readable, wait_task_rescheduled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

__all__ = ["FastLane", "until"]

_BATCH = 64  # events per look: bounds how long trio waits for its turn


class _Internals(NamedTuple):
    """What the lane must know of trio's loop (trio/_core/_run.py and _io_epoll.py)."""

    epoll: select.epoll
    runnable: Sized  # tasks
    waiting_for_idle: Sized  # trio.testing.wait_all_tasks_blocked
    autojumps: bool  # trio.testing.MockClock

    @classmethod
    def find(cls) -> _Internals | None:
        try:
            runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
            epoll = cast("object", runner.io_manager._epoll)
            found = cls(
                cast("select.epoll", epoll),
                runner.runq,
                runner.waiting_for_idle,
                runner.clock_autojump_threshold < math.inf,
            )
        except AttributeError:
            return None
        return found if isinstance(found.epoll, select.epoll) else None


class FastLane(trio.abc.Instrument):
    """Use `FastLane.open`. Counts the steps it has made, and the tasks that it had to wake."""

    def __init__(self, internals: _Internals) -> None:
        self._trio = internals
        self._trio_fd = internals.epoll.fileno()
        self._token = trio.lowlevel.current_trio_token()
        self._epoll = select.epoll()
        self._epoll.register(self._trio_fd, select.EPOLLIN)
        self._steps: dict[int, Callable[[], bool]] = {}
        self._tasks: dict[int, trio.lowlevel.Task] = {}
        self._users = 0
        self.steps = 0
        self.woken = 0

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[FastLane | None]:
        """For the trio run of the calling task; whoever opens it meanwhile gets the same one. None where there can be no lane."""
        lane = _lane.get() or cls._new()
        if lane is None:
            yield None
            return
        lane._users += 1
        try:
            yield lane
        finally:
            lane._users -= 1
            if not lane._users:
                lane._close()

    @classmethod
    def _new(cls) -> FastLane | None:
        internals = _Internals.find()
        if internals is None:
            return None
        lane = cls(internals)
        _lane.set(lane)
        trio.lowlevel.add_instrument(lane)
        return lane

    def _close(self) -> None:
        _lane.set(None)
        trio.lowlevel.remove_instrument(self)
        self._epoll.close()

    async def until(self, fd: int, step: Callable[[], bool]) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._steps[fd] = step
        self._tasks[fd] = trio.lowlevel.current_task()

        def abort(_: object) -> Abort:
            self._forget(fd)
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def _forget(self, fd: int) -> trio.lowlevel.Task:
        self._epoll.unregister(fd)
        del self._steps[fd]
        return self._tasks.pop(fd)

    def before_io_wait(self, timeout: float) -> None:
        """Must not raise: trio would drop the instrument."""
        if not self._steps:
            return
        patient = not (self._trio.autojumps or self._trio.waiting_for_idle)
        deadline = time.monotonic() + timeout
        left = timeout if patient else 0.0
        while True:
            events = self._epoll.poll(left, _BATCH)
            trio_is_ready = self._step(events)
            if trio_is_ready or not patient or timeout <= 0:
                break
            left = deadline - time.monotonic()
            if self._trio.runnable or left <= 0:
                break
        if timeout > 0 and (patient or trio_is_ready or self._trio.runnable):
            # trio is about to wait for `timeout`, all of which may have passed, and would not see the lane's descriptors.
            self._token.run_sync_soon(_nothing, idempotent=True)

    def _step(self, events: list[tuple[int, int]]) -> bool:
        """Make one step for each descriptor that is ready; -> whether trio's is."""
        trio_is_ready = False
        for fd, _ in events:
            step = self._steps.get(fd)
            if step is None:  # or a step before this one has cancelled it
                trio_is_ready |= fd == self._trio_fd
                continue
            self.steps += 1
            try:
                if step():
                    continue
            except BaseException as error:
                self._wake(fd, outcome.Error(error))
            else:
                self._wake(fd, outcome.Value(None))
        return trio_is_ready

    def _wake(self, fd: int, result: outcome.Outcome[None]) -> None:
        if fd in self._steps:  # the step has not cancelled its own task
            self.woken += 1
            reschedule(self._forget(fd), result)


_lane: trio.lowlevel.RunVar[FastLane | None] = trio.lowlevel.RunVar("shoal fast lane", default=None)


def _nothing() -> None:
    pass


async def until(fd: int, step: Callable[[], bool]) -> None:
    """Call `step` each time that `fd` is readable, until it returns False. Raises what `step` raises."""
    lane = _lane.get()
    if lane is not None:
        await lane.until(fd, step)
        return
    await wait_readable(fd)
    while step():
        await wait_readable(fd)
