"""What stays in the lane's epoll set while tasks are awake, and which file a descriptor refers to."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.proxy.net.fast_lane import FastLane, Watch, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = new_pair()
    with left, right:
        yield left, right


@pytest.fixture
async def lane() -> AsyncIterator[FastLane]:
    with FastLane.open() as lane:
        assert lane is not None
        yield lane


FIRST_NUMBER = 700
"""No other file of this process has such a high number, so the next pair has that of the last one."""


def new_pair() -> Pair:
    low, right = socket.socketpair()
    left = socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FIRST_NUMBER))
    low.close()
    left.setblocking(False)
    right.setblocking(False)
    return left, right


def in_the_set(lane: FastLane) -> set[int]:
    """According to the kernel."""
    lines = Path(f"/proc/self/fdinfo/{lane._epoll.fileno()}").read_text().splitlines()
    return {int(line.split()[1]) for line in lines if line.startswith("tfd:")}


async def receive(watch: Watch, sock: socket.socket) -> bytes:
    received = []

    def step() -> bool:
        received.append(sock.recv(100))
        return False

    with trio.fail_after(5):
        await until(watch, step)
    return received[0]


async def look(lane: FastLane) -> None:
    """Let the lane poll its whole set once: a socket of its own is ready."""
    left, right = new_pair()
    with left, right:
        right.send(b"x")
        watch = Watch(left.fileno())
        await receive(watch, left)
        watch.close()


async def test_the_descriptor_of_a_task_that_was_woken_stays_in_the_set(lane: FastLane, pair: Pair) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    for _ in range(3):
        right.send(b"x")
        assert await receive(watch, left) == b"x"
        assert left.fileno() in in_the_set(lane)
        await look(lane)
        assert left.fileno() in in_the_set(lane)


async def test_what_arrives_while_the_task_is_awake_takes_the_descriptor_out_until_it_waits_again(
    lane: FastLane, pair: Pair
) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    right.send(b"first")
    assert await receive(watch, left) == b"first"
    right.send(b"second")
    await look(lane)
    assert left.fileno() not in in_the_set(lane)
    assert await receive(watch, left) == b"second"
    assert left.fileno() in in_the_set(lane)


async def test_a_peer_that_hangs_up_while_the_task_is_awake_is_seen_by_the_next_wait(
    lane: FastLane, pair: Pair
) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    right.send(b"first")
    assert await receive(watch, left) == b"first"
    right.close()
    await look(lane)
    assert await receive(watch, left) == b""


async def test_what_arrives_for_a_cancelled_task_takes_the_descriptor_out(lane: FastLane, pair: Pair) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    with trio.CancelScope() as scope:
        scope.cancel()
        await until(watch, lambda: True)
    assert left.fileno() in in_the_set(lane)
    right.send(b"late")
    await look(lane)
    assert left.fileno() not in in_the_set(lane)
    assert await receive(watch, left) == b"late"


async def test_nothing_is_looked_at_while_no_task_waits(lane: FastLane, pair: Pair) -> None:
    """A readable descriptor in the set does not keep trio from sleeping."""
    left, right = pair
    watch = Watch(left.fileno())
    right.send(b"x")
    assert await receive(watch, left) == b"x"
    right.send(b"y")
    await trio.sleep(0.01)
    assert left.fileno() in in_the_set(lane)
    assert lane.steps == 1


def _close_first(watch: Watch, sock: socket.socket) -> None:
    watch.close()
    sock.close()


def _close_last(watch: Watch, sock: socket.socket) -> None:
    sock.close()
    watch.close()


def _never_close(_: Watch, sock: socket.socket) -> None:
    sock.close()


@pytest.mark.parametrize("close", [_close_first, _close_last, _never_close])
async def test_a_number_that_comes_back_with_another_file_is_registered_anew(
    lane: FastLane, close: Callable[[Watch, socket.socket], None]
) -> None:
    number = None
    for text in (b"one", b"two", b"three"):
        left, right = new_pair()
        with left, right:
            assert number in (None, left.fileno())
            number = left.fileno()
            watch = Watch(number)
            right.send(text)
            assert await receive(watch, left) == text
            assert number in in_the_set(lane)
            close(watch, left)
            assert number not in in_the_set(lane)


async def test_closing_a_watch_late_does_not_take_out_the_next_file_with_its_number(lane: FastLane) -> None:
    left, right = new_pair()
    number, first = left.fileno(), Watch(left.fileno())
    right.send(b"x")
    assert await receive(first, left) == b"x"
    left.close()
    right.close()
    left, right = new_pair()
    with left, right:
        assert left.fileno() == number
        second = Watch(number)
        right.send(b"x")
        assert await receive(second, left) == b"x"
        first.close()
        assert number in in_the_set(lane)
        right.send(b"y")
        assert await receive(second, left) == b"y"


async def test_closing_the_watch_wakes_a_task_that_waits(lane: FastLane, pair: Pair) -> None:
    watch = Watch(pair[0].fileno())
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError), trio.fail_after(5):
                await until(watch, lambda: True)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        watch.close()
    assert pair[0].fileno() not in in_the_set(lane)


async def test_a_task_whose_file_was_closed_is_woken_when_the_number_comes_back(lane: FastLane) -> None:
    left, right = new_pair()
    number = left.fileno()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError), trio.fail_after(5):
                await until(Watch(number), lambda: True)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        left.close()
        right.close()
        left, right = new_pair()
        with left, right:
            assert left.fileno() == number
            right.send(b"x")
            assert await receive(Watch(number), left) == b"x"


async def test_two_tasks_may_not_wait_for_one_file(lane: FastLane, pair: Pair) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive, watch, left)
        await trio.testing.wait_all_tasks_blocked()
        for other in (watch, Watch(left.fileno())):
            with pytest.raises(trio.BusyResourceError):
                await until(other, lambda: True)
        right.send(b"x")


async def test_a_watch_goes_with_its_task_to_another_lane(pair: Pair) -> None:
    left, right = pair
    watch = Watch(left.fileno())
    for _ in range(2):
        with FastLane.open() as lane:
            assert lane is not None
            right.send(b"x")
            assert await receive(watch, left) == b"x"
            assert left.fileno() in in_the_set(lane)
    watch.close()


async def test_a_lane_leaves_nothing_behind(pair: Pair) -> None:
    left, right = pair
    before = len(os.listdir("/proc/self/fd"))
    with FastLane.open():
        right.send(b"x")
        await receive(Watch(left.fileno()), left)
    assert len(os.listdir("/proc/self/fd")) == before
