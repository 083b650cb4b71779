"""A request that asks again and again is admitted in the end, whatever fills the cache."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.claims.read_queue import PATIENCE, READ_SECONDS, WANTED_SECONDS, ReadQueue


def source(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@dataclass
class Request:
    """For some partitions and bytes; each takes some seconds to read, or cannot be read (None)."""

    wanted: dict[TopicPartition, int]
    takes: int | None
    reading: dict[TopicPartition, float] = field(default_factory=dict)  # when it will have been read
    is_done: bool = False


SIZES = st.lists(st.integers(1, 100), min_size=1, max_size=4)
SECONDS = st.one_of(st.none(), st.integers(1, int(PATIENCE) - 1))


@given(kinds=st.lists(st.tuples(SIZES, SECONDS), min_size=1, max_size=6), room=st.integers(0, 120))
def test_all_that_can_be_read_is_read(kinds: list[tuple[list[int], int | None]], room: int) -> None:
    """Each second, all ask that have not got theirs. What is read takes room until its request has all."""
    queue, now = ReadQueue(), 0.0
    requests = [
        Request({source(10 * number + place): size for place, size in enumerate(sizes)}, takes)
        for number, (sizes, takes) in enumerate(kinds)
    ]
    while any(request.takes is not None and not request.is_done for request in requests):
        now += 1
        assert now < (2 * PATIENCE + WANTED_SECONDS) * (len(kinds) + 1), requests
        for stale in queue.stale(now):
            queue.release(stale)
            for request in requests:
                request.reading.pop(stale, None)
        for request in requests:
            if not request.is_done:
                ask(queue, request, requests, room, now)
        assert sum(is_first(queue, request) for request in requests) <= 1


def test_what_is_being_read_already_neither_takes_a_place_nor_gives_one_up() -> None:
    queue = ReadQueue()
    assert queue.admit({source(0): 10}, 5, 0, 0.0) == set()
    assert queue.admit({source(0): 0, source(1): 1}, 0, 5, 1.0) == {source(0)}
    assert queue.admit({source(2): 1}, 0, 5, 2.0) == set()
    assert queue.admit({source(0): 10}, 0, 10, 3.0) == {source(0)}


def test_the_first_makes_way_if_others_wait_and_later_while_it_is_read() -> None:
    queue = ReadQueue()
    assert queue.admit({source(0): 10}, 0, 0, 0.0) == {source(0)}
    assert queue.stale(READ_SECONDS) == []
    queue.admit({source(1): 10}, 0, 0, READ_SECONDS)
    with queue.reading(source(0)):
        assert queue.stale(READ_SECONDS - 1) == []
        assert queue.stale(READ_SECONDS) == [source(0)]
    assert queue.stale(PATIENCE) == [source(0)]
    queue.was_read(source(0), PATIENCE)
    assert queue.stale(PATIENCE + 1) == []


def ask(queue: ReadQueue, request: Request, requests: list[Request], room: int, now: float) -> None:
    busy, kept = in_cache(queue, requests, now)
    new = {one: 0 if one in request.reading else size for one, size in request.wanted.items()}
    for one in queue.admit(new, busy, room - kept, now):
        request.reading.setdefault(one, now + (request.takes or float("inf")))
        if request.reading[one] == now:
            queue.was_read(one, now)
    request.is_done = len(request.reading) == len(request.wanted) and max(request.reading.values()) <= now
    if request.is_done:
        for one in request.wanted:
            queue.release(one)


def in_cache(queue: ReadQueue, requests: list[Request], now: float) -> tuple[int, int]:
    """Bytes that are being read for it, without those of silent partitions, and that are in it."""
    sizes = [
        (request.takes, at, request.wanted[one])
        for request in requests
        if not request.is_done
        for one, at in request.reading.items()
        if not queue.is_first(one)
    ]
    busy = sum(size for takes, at, size in sizes if takes is not None and at > now)
    return busy, sum(size for _, at, size in sizes if at <= now)


def is_first(queue: ReadQueue, request: Request) -> bool:
    return any(queue.is_first(one) for one in request.reading)
