"""Rate limits by delayed reading: the rate is right, shares are equal, small requests do not wait for large ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel

from shoal.proxy.config.security import AccessSettings
from shoal.proxy.connection.pace import Limit, Pacing
from tests.support.rig import DEADLINE, TLS, Tls, request, response, rig, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from shoal.proxy.connection.pace import Pace

RATE = 1_000_000


async def greedy(pace: Pace, name: str, read: Counter[str]) -> None:
    """Always has bytes to read."""
    while True:
        await pace.turn()
        now = trio.current_time()
        size = pace.allowance(now)
        read[name] += size
        pace.charge(size, now)
        await trio.lowlevel.checkpoint()


async def during(seconds: float, *tasks: Callable[[], object]) -> None:
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)  # type: ignore[arg-type]


@pytest.mark.parametrize("clients", [1, 2, 50])
async def test_the_rate_is_right_and_shares_are_equal(autojump_clock: MockClock, clients: int) -> None:
    pacing, read = Pacing(RATE, None), Counter[str]()

    def client(name: str) -> Callable[[], object]:
        pace = pacing.pace()
        assert pace is not None
        return lambda: greedy(pace, name, read)

    await during(10, *(client(str(number)) for number in range(clients)))
    assert abs(sum(read.values()) - 10 * RATE) < 0.1 * 10 * RATE + clients * 20_000
    assert max(read.values()) - min(read.values()) <= 0.15 * 10 * RATE / clients


async def test_clients_with_one_id_share_and_others_do_not(autojump_clock: MockClock) -> None:
    pacing, read = Pacing(None, RATE), Counter[str]()

    def client(name: str, client_id: str) -> Callable[[], object]:
        pace = pacing.pace()
        assert pace is not None
        pace.belongs_to(client_id)
        return lambda: greedy(pace, name, read)

    await during(10, client("a1", "a"), client("a2", "a"), client("b", "b"))
    assert abs(read["a1"] + read["a2"] - 10 * RATE) < RATE
    assert abs(read["b"] - 10 * RATE) < RATE


async def test_the_smaller_of_two_limits_counts(autojump_clock: MockClock) -> None:
    pacing, read = Pacing(3 * RATE, RATE), Counter[str]()

    def client(name: str) -> Callable[[], object]:
        pace = pacing.pace()
        assert pace is not None
        pace.belongs_to(name)
        return lambda: greedy(pace, name, read)

    await during(10, *(client(str(number)) for number in range(5)))
    assert abs(sum(read.values()) - 30 * RATE) < 3 * RATE


async def test_small_requests_wait_for_one_large_read_at_most(autojump_clock: MockClock) -> None:
    pacing, read, waits = Pacing(RATE, None), Counter[str](), list[float]()

    async def small() -> None:
        pace = pacing.pace()
        assert pace is not None
        await trio.sleep(1)  # 50 clients have begun at once
        for _ in range(100):
            before = trio.current_time()
            await pace.turn()
            waits.append(trio.current_time() - before)
            pace.charge(100, trio.current_time())
            await trio.sleep(0.05)

    def large(name: str) -> Callable[[], object]:
        pace = pacing.pace()
        assert pace is not None
        return lambda: greedy(pace, name, read)

    await during(8, small, *(large(str(number)) for number in range(50)))
    assert len(waits) == 100
    assert sorted(waits)[90] < 0.05
    assert max(waits) < 0.3
    assert sum(read.values()) > 0.9 * 8 * RATE


async def test_a_cancelled_client_leaves_the_queue_to_the_others(autojump_clock: MockClock) -> None:
    limit = Limit(RATE)
    flows = [limit.flow() for _ in range(10)]
    limit.charge(flows[0], RATE, trio.current_time())
    done = []

    async def wait(number: int, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await limit.turn(flows[number])
            done.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(wait, number, 0.1 if number % 2 == 0 else 5)
    assert sorted(done) == [1, 3, 5, 7, 9]
    assert not limit._sparse
    assert not limit._greedy


@pytest.mark.parametrize("rate", [10 * RATE, None])
async def test_a_higher_rate_counts_for_what_was_read_before(autojump_clock: MockClock, rate: int | None) -> None:
    """50 clients have read: at the former rate, the last one would wait for 51 s."""
    slow = 4096
    pacing, done = Pacing(slow, slow), Counter[str]()

    async def reads_once() -> None:
        pace = pacing.pace()
        assert pace is not None
        pace.belongs_to("a")
        pace.charge(slow, trio.current_time())
        pace.charge(slow, trio.current_time())
        await pace.turn()
        done["clients"] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(reads_once)
        await trio.sleep(3)
        assert done["clients"] <= 4
        changed = trio.current_time()
        pacing.use(rate, rate)
    assert done["clients"] == 50
    assert trio.current_time() - changed < 0.2


async def test_a_lower_rate_counts_for_what_was_read_before(autojump_clock: MockClock) -> None:
    pacing = Pacing(RATE, None)
    pace = pacing.pace()
    assert pace is not None
    pace.charge(RATE, began := trio.current_time())
    pacing.use(RATE // 10, None)
    await pace.turn()
    assert trio.current_time() - began == pytest.approx(10, rel=0.1)


async def test_client_ids_without_number_take_bounded_memory() -> None:
    pacing = Pacing(None, RATE)
    for number in range(20_000):
        pacing.of_client(str(number))
    assert len(pacing._clients) == 10_000


async def test_of_a_long_client_id_only_the_beginning_is_kept() -> None:
    pacing = Pacing(None, RATE)
    assert pacing.of_client("x" * 20_000 + "a") is pacing.of_client("x" * 20_000 + "b")
    assert pacing.of_client("a") is not pacing.of_client("b")


async def test_without_limits_there_is_no_pace() -> None:
    assert Pacing(None, None).pace() is None


@pytest.mark.usefixtures("lane")
@pytest.mark.parametrize("tls", [TLS, Tls.BOTH])
@pytest.mark.parametrize("access", [{"bytes_per_second": 2_000_000}, {"client_bytes_per_second": 2_000_000}])
async def test_a_connection_is_slowed_and_nothing_is_lost(access: dict[str, int], tls: Tls) -> None:
    frames = [request(300, 0, number, bytes([number]) * 100_000) for number in range(6)]
    async with rig(access=AccessSettings(**access), tls=tls) as r:  # type: ignore[arg-type]
        client = await r.client()
        await client.send(request(300, 0, 99))
        await client.frame()
        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, b"".join(frames))
            for number, frame in enumerate(frames):
                assert await client.frame() == response(number, frame[12:])
        assert trio.current_time() - before > 0.2
        assert r.broker.received[1:] == frames


@pytest.mark.usefixtures("lane")
async def test_a_slowed_connection_is_not_a_slow_frame_and_can_be_drained() -> None:
    frame = request(300, 0, 1, bytes(60_000))
    async with rig(access=AccessSettings(bytes_per_second=200_000)) as r:
        client = await r.client()
        await client.send(frame)
        await until(lambda: r.connection.connected and r.connection.requests.is_paced)
        assert not r.connection._progress().request_begun
        r.server.drain()
        assert await client.frame() == response(1, frame[12:])


@pytest.mark.usefixtures("lane")
async def test_a_drain_does_not_wait_for_another_request_of_a_slowed_client() -> None:
    frame = request(300, 0, 1, bytes(4000))  # forty seconds' worth, in one read
    async with rig(access=AccessSettings(bytes_per_second=100)) as r:
        client = await r.client()
        await client.send(frame)
        assert await client.frame() == response(1, frame[12:])
        await until(lambda: r.connection.requests.is_paced)
        r.server.drain()
        assert await client.at_end(within=DEADLINE)
