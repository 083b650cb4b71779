"""The budget alone, with trio's test clock: which lease is granted, in which order, and that all memory is returned."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import trio
import trio.testing

from shoal.proxy.legacy.budget import GRACE, Budget, Lease

if TYPE_CHECKING:
    from trio.testing import MockClock


class Owner:
    """A task that wants a lease, and notes when it is granted and when evicted."""

    def __init__(self, budget: Budget, record: list[str], name: str, size: int) -> None:
        self.budget, self.record, self.name, self.size = budget, record, name, size
        self.lease: Lease | None = None
        self.scope = trio.CancelScope()

    async def ask(self) -> None:
        with self.scope:
            self.lease = await self.budget.lease(self.size, lambda: self.record.append(f"{self.name} loses"))
            self.record.append(f"{self.name} gets")

    def gives_back(self) -> None:
        """Returns what it may have got before it was cancelled."""
        if self.lease is not None:
            self.lease.release()

    @property
    def has(self) -> Lease:
        assert self.lease is not None
        return self.lease


class Stage:
    def __init__(self, nursery: trio.Nursery, size: int) -> None:
        self.budget = Budget(size)
        self.record: list[str] = []
        self._nursery = nursery

    async def owner(self, name: str, size: int) -> Owner:
        """It has requested, and has what is available immediately."""
        owner = Owner(self.budget, self.record, name, size)
        self._nursery.start_soon(owner.ask)
        await trio.testing.wait_all_tasks_blocked()
        return owner

    async def told(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        told, self.record[:] = list(self.record), []
        return told

    async def told_at_once(self) -> set[str]:
        """trio wakes tasks that are ready at the same time in any order."""
        return set(await self.told())


async def test_what_is_free_is_granted_without_waiting() -> None:
    budget = Budget(100)
    lease = await budget.lease(60, lambda: None)
    other = await budget.lease(40, lambda: None)
    assert budget.statistics().leased == 100
    assert budget.statistics().waits == 0
    lease.release()
    other.release()
    other.release()
    assert budget.free == 100


async def test_leases_are_granted_in_the_order_of_asking_and_nobody_overtakes(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 100)
        first = await stage.owner("first", 70)
        large = await stage.owner("large", 80)
        small = await stage.owner("small", 10)
        assert await stage.told() == ["first gets"]
        assert stage.budget.statistics().waiting == 2
        first.has.release()
        assert await stage.told_at_once() == {"large gets", "small gets"}
        large.has.release()
        small.has.release()
        assert stage.budget.free == 100


async def test_an_idle_lease_is_taken_back_for_who_waits_the_longest_idle_first(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 90)
        owners = [await stage.owner(name, 30) for name in "abc"]
        for number in (1, 0, 2):
            owners[number].has.idle()
            owners[number].has.idle()  # reported twice: the first time counts
            mock_clock.jump(GRACE / 100)
        await stage.told()
        late = await stage.owner("late", 50)
        assert await stage.told() == []
        mock_clock.jump(GRACE)
        assert await stage.told() == ["b loses", "a loses", "late gets"]
        assert [owner.has.held for owner in owners] == [False, False, True]
        assert not owners[0].has.busy()
        assert owners[2].has.busy()
        assert stage.budget.statistics().evictions == 2
        late.has.release()
        owners[2].has.release()
        assert stage.budget.free == 90


async def test_nothing_is_taken_from_who_is_busy_again_in_time(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 30)
        owner = await stage.owner("a", 30)
        late = await stage.owner("late", 30)
        for _ in range(5):
            owner.has.idle()
            mock_clock.jump(GRACE * 0.9)
            await trio.testing.wait_all_tasks_blocked()
            assert owner.has.busy()
        assert await stage.told() == ["a gets"]
        owner.has.release()
        assert await stage.told() == ["late gets"]
        late.has.release()


async def test_nothing_is_taken_while_nobody_waits(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 60)
        owner, other = await stage.owner("a", 30), await stage.owner("b", 30)
        owner.has.idle()
        other.has.idle()
        mock_clock.jump(1000)
        assert await stage.told() == ["a gets", "b gets"]
        assert (await stage.budget.lease(10, lambda: None)).held  # one is evicted immediately: it was idle long enough
        assert await stage.told() == ["a loses"]
        assert stage.budget.statistics().waits == 0


async def test_what_is_larger_than_the_budget_gets_all_of_it_alone(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 100)
        small = await stage.owner("small", 1)
        giant = await stage.owner("giant", 5000)
        behind = await stage.owner("behind", 1)
        assert await stage.told() == ["small gets"]
        small.has.release()
        assert await stage.told() == ["giant gets"]
        giant.has.idle()
        mock_clock.jump(GRACE)
        assert await stage.told() == ["giant loses", "behind gets"]
        behind.has.release()
        assert stage.budget.free == 100


async def test_a_large_request_is_not_starved_by_readers_that_are_never_idle_for_long(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 100)
        readers = [await stage.owner(f"reader {number}", 25) for number in range(4)]
        giant = await stage.owner("giant", 100)
        again = [await stage.owner(f"again {number}", 25) for number in range(4)]
        await stage.told()
        for reader in readers:  # each reads all of its own, and requests again
            for _ in range(3):
                reader.has.idle()
                mock_clock.jump(GRACE / 2)
                await trio.testing.wait_all_tasks_blocked()
                assert reader.has.busy()
            reader.has.release()
        assert await stage.told() == ["giant gets"]
        giant.has.release()
        assert await stage.told_at_once() == {f"again {number} gets" for number in range(4)}
        for owner in again:
            owner.has.release()


async def test_a_lease_grows_by_what_is_free_where_nobody_waits() -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 100)
        first, other = await stage.owner("first", 40), await stage.owner("other", 40)
        assert not first.has.grow(61)
        assert first.has.grow(50)
        assert first.has.grow(10)  # it never shrinks
        assert stage.budget.statistics().leased == 90
        late = await stage.owner("late", 20)
        assert not first.has.grow(51)  # 10 are free, and the waiting one is first
        assert first.has.grow(50)
        other.has.release()
        assert not other.has.grow(1)  # it has ended
        assert await stage.told() == ["first gets", "other gets", "late gets"]
        first.has.release()
        late.has.release()
        assert stage.budget.free == 100


async def test_who_is_cancelled_while_it_waits_makes_room_for_the_next() -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 100)
        first = await stage.owner("first", 60)
        large = await stage.owner("large", 60)
        await stage.owner("small", 40)
        large.scope.cancel()
        assert await stage.told() == ["first gets", "small gets"]
        assert stage.budget.statistics().waiting == 0
        assert stage.budget.free == 0
        first.has.release()
        assert stage.budget.free == 60


async def test_who_is_cancelled_in_the_moment_of_the_grant_holds_nothing() -> None:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery, 100)
        first = await stage.owner("first", 100)
        second = await stage.owner("second", 100)
        first.has.release()
        second.scope.cancel()
        await stage.told()
        second.gives_back()
        assert stage.budget.free == 100
        second = await stage.owner("third", 100)
        fourth = await stage.owner("fourth", 100)
        fourth.scope.cancel()
        second.has.release()
        await stage.told()
        fourth.gives_back()
        assert stage.budget.free == 100


async def test_many_that_come_go_block_and_are_cancelled_leave_nothing_behind(autojump_clock: MockClock) -> None:
    rng, budget, served, lost = random.Random(6), Budget(1000), [0] * 40, [0]
    held: dict[int, int] = {}

    async def reader(number: int) -> None:
        for _ in range(30):
            with trio.move_on_after(rng.choice((0.001, 0.3, 100, 100, 100))):
                await one_answer(number)
            await trio.sleep(rng.random() / 10)

    async def one_answer(number: int) -> None:
        size = rng.choice((10, 100, 300, 999, 5000))

        def taken() -> None:
            lost[0] += 1
            del held[number]

        lease = await budget.lease(size, taken)
        try:
            held[number] = lease.size
            assert sum(held.values()) <= 1000
            assert 0 <= budget.free <= 1000 - sum(held.values())  # granted, but not run yet
            for _ in range(rng.randrange(4)):
                lease.idle()
                await trio.sleep(rng.choice((0, GRACE / 2, GRACE * 3)))
                if not lease.busy():
                    return
            served[number] += 1
        finally:
            held.pop(number, None)
            lease.release()

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(reader, number)
    statistics = budget.statistics()
    assert (budget.free, statistics.idle, statistics.waiting) == (1000, 0, 0)
    assert min(served) > 0
    assert statistics.evictions == lost[0] > 0
    assert statistics.waited_seconds > 0
