"""Steps run inside trio's own wait, and do not delay trio."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel
import trio.testing

from shoal.proxy.net.fast_lane import FastLane, Watch, until, waited, wake_by
from shoal.proxy.net.trio_internals import TrioInternals

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


async def test_the_trio_that_is_pinned_has_what_the_lane_needs() -> None:
    with FastLane.open() as lane:
        assert lane is not None


async def test_steps_wake_no_task_until_one_says_so(pair: Pair) -> None:
    left, right = pair
    seen: list[bytes] = []

    def step() -> bool:
        seen.append(left.recv(10))
        if seen[-1] != b"end":
            right.send(b"end" if len(seen) == 100 else b"more")
        return seen[-1] != b"end"

    with FastLane.open() as lane:
        assert lane is not None
        right.send(b"more")
        with trio.fail_after(5):
            await until(Watch(left.fileno()), step)
        assert (lane.steps, lane.woken) == (101, 1)
    assert seen == [b"more"] * 100 + [b"end"]


async def test_an_error_in_a_step_is_raised_in_its_task_and_ends_no_other(pair: Pair) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    with FastLane.open() as lane:
        for _ in range(2):
            right.send(b"x")
            with pytest.raises(ZeroDivisionError):
                await until(watch, lambda: 1 // (len(left.recv(1)) - 1) == 0)
        assert lane is not None
        assert lane.woken == 2


async def test_deadlines_and_other_tasks_run_on_time_beside_a_busy_lane(pair: Pair) -> None:
    """Two sockets that keep each other busy forever do not delay timers, events, or sockets of trio."""
    left, right = pair

    def bounce(sock: socket.socket) -> bool:
        sock.send(sock.recv(10))
        return True

    with FastLane.open():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until, Watch(left.fileno()), lambda: bounce(left))
            nursery.start_soon(until, Watch(right.fileno()), lambda: bounce(right))
            right.send(b"ball")
            started = trio.current_time()
            for _ in range(5):
                await trio.sleep(0.02)
            assert trio.current_time() - started < 2
            a, b = trio.socket.socketpair()
            with a, b, trio.fail_after(5):
                await a.send(b"trio's own")
                assert await b.recv(100) == b"trio's own"
                assert await trio.to_thread.run_sync(lambda: 3) == 3
            nursery.cancel_scope.cancel()


async def test_a_task_that_a_step_wakes_runs_at_once(pair: Pair) -> None:
    left, right = pair
    event = trio.Event()

    def step() -> bool:
        left.recv(10)
        event.set()
        return True

    with FastLane.open():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until, Watch(left.fileno()), step)
            await trio.lowlevel.checkpoint()
            right.send(b"x")
            with trio.fail_after(5):
                await event.wait()
            nursery.cancel_scope.cancel()


async def test_a_deadline_that_a_step_sets_ends_the_wait(pair: Pair) -> None:
    left, right = pair
    timer, steps = trio.CancelScope(), list[bytes]()

    def step() -> bool:
        steps.append(left.recv(1))
        if len(steps) < 3:  # the first one may come before trio waits
            right.send(b"x")
        else:
            timer.deadline = trio.current_time() + 0.01
            wake_by(timer.deadline)
        return True

    with FastLane.open(), trio.fail_after(5):
        right.send(b"x")
        with timer:
            await until(Watch(left.fileno()), step)
        assert timer.cancelled_caught


async def test_after_a_patient_step_the_next_one_waits_and_knows_how_long(pair: Pair) -> None:
    left, right = pair
    watch, seen = Watch(left.fileno()), list[float]()
    watch.be_patient(0.02)

    def step() -> bool:
        left.recv(1)
        seen.append(waited())
        right.send(b"x")
        return len(seen) < 3

    with FastLane.open(), trio.fail_after(5):
        right.send(b"x")
        await until(watch, step)
    assert seen[0] == 0
    assert min(seen[1:]) >= 0.02


async def test_a_patient_step_delays_no_other_until_it_is_patient_no_more(pair: Pair) -> None:
    left, right = pair
    near, far = socket.socketpair()
    watch, seen = Watch(left.fileno()), list[str]()
    watch.be_patient(3600)

    def patient() -> bool:
        left.recv(1)
        seen.append("patient")
        right.send(b"x")
        return len(seen) == 1

    def bounce() -> bool:
        far.send(near.recv(1))
        seen.append("bounce")
        if len(seen) == 100:
            watch.be_patient(0)
        return True

    with near, far, FastLane.open(), trio.fail_after(5):
        right.send(b"x")
        far.send(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until, Watch(near.fileno()), bounce)
            await until(watch, patient)
            nursery.cancel_scope.cancel()
    first = seen.index("patient")
    again = seen.index("patient", first + 1)
    assert again >= 100
    assert len(seen) == again + 1


async def test_many_tasks_of_one_pass_delay_no_step(pair: Pair) -> None:
    left, right = pair
    order: list[str] = []
    start = trio.Event()

    def step() -> bool:
        order.append(left.recv(10).decode())
        return True

    async def busy() -> None:
        await start.wait()
        if not order:
            right.send(b"step")
        until_then = time.monotonic() + 0.001
        while time.monotonic() < until_then:
            pass
        order.append("task")

    with FastLane.open():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until, Watch(left.fileno()), step)
            async with trio.open_nursery() as tasks:
                for _ in range(10):
                    tasks.start_soon(busy)
                await trio.testing.wait_all_tasks_blocked()
                start.set()
            nursery.cancel_scope.cancel()
    assert order == ["task", "step", *["task"] * 9]


async def test_a_cancelled_task_is_stepped_no_more(pair: Pair) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    with FastLane.open() as lane:
        assert lane is not None
        for _ in range(3):
            with trio.move_on_after(0.01) as scope:
                await until(watch, lambda: True)
            assert scope.cancelled_caught
        right.send(b"x")
        await trio.sleep(0.01)
        assert lane.steps == 0


@pytest.mark.parametrize("missing", [True, False])
async def test_without_a_lane_trio_wakes_the_task_for_each_step(
    missing: bool, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = pair
    if missing:
        monkeypatch.setattr(trio._core._run.GLOBAL_RUN_CONTEXT.runner, "io_manager", object())
    left_over = []
    assert (TrioInternals.find() is None) == missing
    monkeypatch.undo()
    monkeypatch.setattr(TrioInternals, "find", lambda: None)
    with FastLane.open() as lane:
        assert lane is None
        right.send(b"abc")
        with trio.fail_after(5):
            await until(Watch(left.fileno()), lambda: left_over.append(left.recv(1)) or len(left_over) < 3)  # type: ignore[func-returns-value]
    assert left_over == [b"a", b"b", b"c"]


async def test_a_lane_is_shared_until_its_last_user_leaves(pair: Pair) -> None:
    left, right = pair
    with FastLane.open() as lane:
        with FastLane.open() as same:
            assert same is lane
        right.send(b"x")
        with trio.fail_after(5):
            await until(Watch(left.fileno()), lambda: not left.recv(1))
        assert lane is not None
        assert lane.woken == 1
    with FastLane.open() as other:
        assert other is not lane


@pytest.mark.parametrize("result", [True, False, None])
async def test_a_step_may_cancel_its_own_task_and_others(result: bool | None, pair: Pair) -> None:
    left, right = pair

    def cancel_all() -> bool:
        right.recv(1) if left_first else left.recv(1)
        nursery.cancel_scope.cancel()
        if result is None:
            raise ZeroDivisionError
        return result

    left_first = False
    watches = Watch(left.fileno()), Watch(right.fileno())
    with FastLane.open() as lane:
        for left_first in (False, True):
            async with trio.open_nursery() as nursery:
                for watch in watches:
                    nursery.start_soon(until, watch, cancel_all)
                await trio.lowlevel.checkpoint()
                (left if left_first else right).send(b"x")
            assert nursery.cancel_scope.cancelled_caught
        right.send(b"x")
        with trio.fail_after(5):
            await until(watches[0], lambda: not left.recv(1))
        assert lane is not None
        assert lane.woken == 1
