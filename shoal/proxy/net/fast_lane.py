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

A step that may wait (`Watch.patience`) costs less if others run right before it: nothing wakes the process for it
(docs/performance.md). Descriptors of such watches are in a second set. After a look at it that found
something, the next one follows when the shortest patience of its watches has passed. After one that found nothing, its
own descriptor, which is a member of the lane's set, says when something arrives.

A TLS transport may hold bytes that were read from the descriptor and that no epoll reports. `Watch.buffered` says so;
then the step is called again, before anything waits. Plaintext pays one comparison.

trio's epoll descriptor and run queue are not public: `trio_internals.py` has them. If they are missing (another release
of trio) there is no lane, and `until` is a loop around `trio.lowlevel.wait_readable`: the same behaviour at trio's
cost. trio's test clock and idle detection also work.
"""

from __future__ import annotations

import math
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

__all__ = ["FastLane", "Watch", "begin", "until", "waited", "wake_by"]

_BATCH = 64  # events per poll: limits how long trio waits
_PATIENCE = 0.0005  # seconds of tasks between two looks: five small requests' worth
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class Watch:
    """An open descriptor that one task at a time waits for. `close` it right before or after the descriptor.

    `buffered` says whether bytes have been read from the descriptor that no step has had yet (TLS); None: never.
    `patience`: seconds for which a step may wait for others.
    """

    __slots__ = ("_lane", "_set", "_step", "_task", "buffered", "fd", "patience")

    def __init__(self, fd: int, buffered: Callable[[], bool] | None = None) -> None:
        self.fd = fd
        self.buffered = buffered
        self.patience = 0.0
        self._lane: FastLane | None = None  # where it is registered
        self._set: select.epoll | None = None  # the same
        self._step: Callable[[], bool] | None = None  # of the waiting task
        self._task: trio.lowlevel.Task | None = None

    def be_patient(self, seconds: float) -> None:
        self.patience = seconds
        if self._lane is not None:
            self._lane._place(self)

    def close(self) -> None:
        if self._lane is not None:
            self._lane._remove(self)

    def forget(self, _: object = None) -> Abort:
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
        self._later = select.epoll()
        self._later_fd = self._later.fileno()
        self._epoll.register(self._later_fd, _ONCE)
        self._gathering = False  # `_later` says nothing until the next look at it
        self._look_at = 0.0
        self._looked_later_at = 0.0  # 0: after that look, `_later` says when something arrives
        self.waited = 0.0  # in a step: for how long its bytes may have waited for others
        self._patience = math.inf
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
        self._later.close()
        self._trio.epoll.unregister(self._alarm)
        os.close(self._alarm)

    def wait(self, watch: Watch, step: Callable[[], bool]) -> None:
        """For the task that calls it, which is then to wait until it is rescheduled."""
        if watch._step is not None:
            raise trio.BusyResourceError("another task waits for this descriptor")
        if watch._lane is not self:
            self._add(watch)
        watch._step = step
        watch._task = trio.lowlevel.current_task()
        self._waiting += 1

    def _add(self, watch: Watch) -> None:
        try:
            self._place(watch)
        except FileExistsError:
            raise trio.BusyResourceError("this descriptor has a watch already") from None
        former = self._watches.get(watch.fd)
        if former is not None:  # its file was closed without `close`, or the kernel would have refused
            self._release(former)
            former._set = None
        self._watches[watch.fd] = watch
        watch._lane = self

    def _place(self, watch: Watch) -> None:
        """In the set that its patience calls for."""
        chosen = self._later if watch.patience else self._epoll
        if watch.patience:
            self._patience = min(self._patience, watch.patience)
        if chosen is not watch._set or watch._lane is None:
            chosen.register(watch.fd, select.EPOLLIN)
            self._unregister(watch)
            watch._set = chosen

    def _unregister(self, watch: Watch) -> None:
        """Its file may be open or closed."""
        if watch._set is not None:
            with suppress(OSError):
                watch._set.unregister(watch.fd)
            watch._set = None

    def _remove(self, watch: Watch) -> None:
        self._release(watch)
        self._unregister(watch)

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
            if self._gathering:
                left = max(min(left, self._look_at - time.monotonic()), 0.0)
            events = self._epoll.poll(left, _BATCH)
            trio_is_ready = self._step(events)
            if self._gathering and (not patient or time.monotonic() >= self._look_at):
                events += self._look()
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

    def _look(self) -> list[tuple[int, int]]:
        """Run the steps that may wait; -> their events."""
        events, now = self._later.poll(0.0, _BATCH), time.monotonic()
        self.waited = now - self._looked_later_at if self._looked_later_at else 0.0
        self._step(events)
        self.waited = 0.0
        if not events:
            self._gathering, self._looked_later_at = False, 0.0
            self._epoll.modify(self._later_fd, _ONCE)
        elif len(events) < _BATCH:
            self._looked_later_at, self._look_at = now, now + self._patience
        return events

    def _step(self, events: list[tuple[int, int]]) -> bool:
        """Run one step for each descriptor that is ready; -> whether trio's is ready."""
        trio_is_ready = False
        for fd, _ in events:
            watch = self._watches.get(fd)
            if watch is None:
                trio_is_ready |= fd == self._trio_fd
                self._gathering |= fd == self._later_fd
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
            watch.forget()
            reschedule(task, result)


_lane: trio.lowlevel.RunVar[FastLane | None] = trio.lowlevel.RunVar("shoal fast lane", default=None)


def waited() -> float:
    """In a step: the seconds for which its bytes may have waited for others."""
    lane = _lane.get()
    return 0.0 if lane is None else lane.waited


def wake_by(deadline: float) -> None:
    """From a step that has set this deadline of a task: the lane blocks no longer. In trio's time."""
    lane = _lane.get()
    if lane is not None:
        lane._deadline = min(lane._deadline, time.monotonic() + deadline - trio.current_time())


def begin(watch: Watch, step: Callable[[], bool]) -> bool:
    """`until` without its coroutine, of which an idle connection would hold two.

    True: the calling task must await `wait_task_rescheduled(watch.forget)` at once. False: it must await `until`.
    """
    lane = _lane.get()
    if lane is None or (watch.buffered is not None and watch.buffered()):
        return False
    lane.wait(watch, step)
    return True


async def until(watch: Watch, step: Callable[[], bool]) -> None:
    """Call `step` each time the descriptor is readable, until it returns False. Raises what `step` raises."""
    if watch.buffered is not None and watch.buffered():
        await trio.lowlevel.checkpoint_if_cancelled()
        if not _settle(watch, step):
            return
    if begin(watch, step):
        await wait_task_rescheduled(watch.forget)
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
