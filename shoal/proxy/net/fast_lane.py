"""Runs a pump's step without waking its trio task, which makes small requests cheap.

A pump that only moves bytes needs no task: recv, scan, send. But each time trio wakes its task for that, a whole turn
of trio's loop runs: deadlines, epoll registration, scheduling, and the stack of awaits. With one small request every
half millisecond, and so with cold caches, two such turns (request and answer) cost 105 us of CPU; HAProxy's two cost
35 us, and the same Python code called from a bare epoll loop 40 us.

So the lane has its own epoll set. A pump waits with `until(watch, step)`: the lane calls `step` whenever the descriptor
is readable, and wakes the task only if `step` returns False (something must be awaited) or raises. The lane runs inside
trio's own wait: trio calls an instrument right before it blocks (`before_io_wait`), and the lane blocks there instead,
on its own set, of which trio's epoll descriptor is a member. As soon as trio has anything to do (one of its descriptors
is ready, a deadline has passed, a step has made a task runnable), the lane returns. There is one thread, and a step
never runs while a task does; a step must not await.

    trio loop: ── run tasks ── before_io_wait ── epoll(trio) ── run tasks ── ...
                                   │    ▲
                                   ▼    │ trio is ready, its deadline has passed, or a task is runnable
                             epoll(lane: pumps' sockets, epoll(trio)) ──► step()

A descriptor remains in the set while its task is awake: most tasks wait again before anything arrives, so no system
call is needed. If something arrives earlier, the lane removes the descriptor at the first event, and the task's next
`until` adds it again. (One-shot events would need a call to arm each of them, even if the step wakes no task.) The
kernel removes a descriptor when its file is closed, and another file may get its number. So a `Watch` is registered
instead of a number. It belongs to one open file; a new file has a new `Watch`, which is registered again.

trio decides how long to block before it calls the lane. If it must no longer block, because a step made a task runnable
or the time passed in the lane (also the time that a step set: `wake_by`), the lane arms its alarm: a descriptor in
trio's epoll that is always readable, for one event. trio finds no task that waits for it, and continues.
(`run_sync_soon` does the same with a byte through a socket pair and one more task to wake.)

trio runs all runnable tasks before it waits. Many at once (new clients of an attacker, each with a TLS handshake)
would delay the requests of all others. So the lane also looks between two tasks, `_PATIENCE` after its last look.

A TLS transport may hold bytes that were read from the descriptor and that no epoll reports. `Watch.buffered` says so;
then the step is called again, before anything waits. Plaintext pays one comparison.

trio's epoll descriptor and run queue are not public: `trio_internals.py` has them. If they are missing (another release
of trio) there is no lane, and `until` is a loop around `trio.lowlevel.wait_readable`: the same behaviour at trio's
cost. trio's test clock and idle detection also work.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import outcome
import trio
from trio.lowlevel import Abort, reschedule, wait_readable, wait_task_rescheduled

from shoal.proxy.net.trio_internals import TrioInternals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FastLane", "Watch", "until", "wake_by"]

_BATCH = 64  # events per poll: limits how long trio waits
_PATIENCE = 0.0005  # seconds of tasks between two looks: five small requests' worth
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class Watch:
    """An open descriptor that one task at a time waits for. `close` it right before or after the descriptor.

    `buffered` says whether bytes have been read from the descriptor that no step has had yet (TLS); None: never.
    """

    __slots__ = ("_lane", "_step", "_task", "buffered", "fd")

    def __init__(self, fd: int, buffered: Callable[[], bool] | None = None) -> None:
        self.fd = fd
        self.buffered = buffered
        self._lane: FastLane | None = None  # where it is registered
        self._step: Callable[[], bool] | None = None  # of the waiting task
        self._task: trio.lowlevel.Task | None = None

    def close(self) -> None:
        if self._lane is not None:
            self._lane._remove(self)

    def _forget(self, _: object = None) -> Abort:
        """The task no longer waits."""
        self._step = self._task = None
        if self._lane is not None:
            self._lane._waiting -= 1
        return Abort.SUCCEEDED


class FastLane(trio.abc.Instrument):
    """Created by `FastLane.open`. Counts its steps, and the tasks that it had to wake."""

    def __init__(self, internals: TrioInternals) -> None:
        self._trio = internals
        self._trio_fd = internals.epoll.fileno()
        self._epoll = select.epoll()
        self._epoll.register(self._trio_fd, select.EPOLLIN)
        self._alarm = os.eventfd(1)
        internals.epoll.register(self._alarm, _ONCE)
        self._watches: dict[int, Watch] = {}  # all that are registered, by descriptor
        self._waiting = 0  # how many of them have a task that waits
        self._users = 0
        self._looked_at = 0.0
        self._deadline = 0.0  # of the wait in the lane
        self.steps = 0
        self.woken = 0

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[FastLane | None]:
        """The lane of the calling task's trio run, shared by all users. None: no lane is possible."""
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
        internals = TrioInternals.find()
        if internals is None:
            return None
        lane = cls(internals)
        _lane.set(lane)
        trio.lowlevel.add_instrument(lane)
        return lane

    def _close(self) -> None:
        _lane.set(None)
        trio.lowlevel.remove_instrument(self)
        for watch in list(self._watches.values()):
            self._remove(watch)
        self._epoll.close()
        self._trio.epoll.unregister(self._alarm)
        os.close(self._alarm)

    async def until(self, watch: Watch, step: Callable[[], bool]) -> None:
        if watch._step is not None:
            raise trio.BusyResourceError("another task waits for this descriptor")
        if watch._lane is not self:
            self._add(watch)
        watch._step = step
        watch._task = trio.lowlevel.current_task()
        self._waiting += 1
        await wait_task_rescheduled(watch._forget)

    def _add(self, watch: Watch) -> None:
        try:
            self._epoll.register(watch.fd, select.EPOLLIN)
        except FileExistsError:
            raise trio.BusyResourceError("this descriptor has a watch already") from None
        former = self._watches.get(watch.fd)
        if former is not None:  # its file was closed without `close`, or the kernel would have refused
            self._release(former)
        self._watches[watch.fd] = watch
        watch._lane = self

    def _remove(self, watch: Watch) -> None:
        """Its file may be open or closed."""
        self._release(watch)
        with suppress(OSError):
            self._epoll.unregister(watch.fd)

    def _release(self, watch: Watch) -> None:
        self._wake(watch, outcome.Error(trio.ClosedResourceError("the descriptor was closed")))
        del self._watches[watch.fd]
        watch._lane = None

    def before_io_wait(self, timeout: float) -> None:
        """Must not raise: trio would drop the instrument."""
        if not self._waiting:
            return
        patient = not (self._trio.autojumps or self._trio.waiting_for_idle)
        self._deadline = time.monotonic() + timeout
        left = timeout if patient else 0.0
        while True:
            events = self._epoll.poll(left, _BATCH)
            trio_is_ready = self._step(events)
            if trio_is_ready or not patient or timeout <= 0:
                break
            left = self._deadline - time.monotonic()
            if self._trio.runnable or left <= 0:
                break
        trio_returns_at_once = timeout <= 0 or (trio_is_ready and len(events) == 1)  # no step came after that look
        if not trio_returns_at_once and (patient or self._trio.runnable):
            self._trio.epoll.modify(self._alarm, _ONCE)
        self._looked_at = time.monotonic()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Must not raise, as above. trio's own descriptors have their turn when its tasks have run."""
        if time.monotonic() - self._looked_at < _PATIENCE or not self._waiting or self._trio.autojumps:
            return
        self._step(self._epoll.poll(0.0, _BATCH))
        self._looked_at = time.monotonic()

    def _step(self, events: list[tuple[int, int]]) -> bool:
        """Run one step for each descriptor that is ready; -> whether trio's is ready."""
        trio_is_ready = False
        for fd, _ in events:
            watch = self._watches.get(fd)
            if watch is None:
                trio_is_ready |= fd == self._trio_fd
                continue
            step = watch._step
            if step is None:  # its task is awake, or an earlier step has cancelled it
                self._remove(watch)
                continue
            self.steps += 1
            try:
                if step() and (watch.buffered is None or _settle(watch, step)):
                    continue
            except BaseException as error:
                self._wake(watch, outcome.Error(error))
            else:
                self._wake(watch, outcome.Value(None))
        return trio_is_ready

    def _wake(self, watch: Watch, result: outcome.Outcome[None]) -> None:
        task = watch._task
        if task is not None:  # None: the step has cancelled its own task, or no task waits
            self.woken += 1
            watch._forget()
            reschedule(task, result)


_lane: trio.lowlevel.RunVar[FastLane | None] = trio.lowlevel.RunVar("shoal fast lane", default=None)


def wake_by(deadline: float) -> None:
    """From a step that has set this deadline of a task: the lane blocks no longer. In trio's time."""
    lane = _lane.get()
    if lane is not None:
        lane._deadline = min(lane._deadline, time.monotonic() + deadline - trio.current_time())


async def until(watch: Watch, step: Callable[[], bool]) -> None:
    """Call `step` each time the descriptor is readable, until it returns False. Raises what `step` raises."""
    if watch.buffered is not None and watch.buffered():
        await trio.lowlevel.checkpoint_if_cancelled()
        if not _settle(watch, step):
            return
    lane = _lane.get()
    if lane is not None:
        await lane.until(watch, step)
        return
    await wait_readable(watch.fd)
    while step() and (watch.buffered is None or _settle(watch, step)):
        await wait_readable(watch.fd)


def _settle(watch: Watch, step: Callable[[], bool]) -> bool:
    """Call `step` while there are buffered bytes; -> whether to wait for more.

    Each step takes buffered bytes first: the number of steps is bounded by what one read has brought.
    """
    assert watch.buffered is not None
    waiting = watch._step
    while watch.buffered() and watch._step is waiting:  # else a step has cancelled its own task
        if not step():
            return False
    return True
