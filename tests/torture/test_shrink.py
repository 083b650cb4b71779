"""The shortest part that still fails is found, in order, and within the time limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from .shrink import shortest


def never() -> bool:
    return False


@given(st.data())
def test_only_what_matters_is_left(data: st.DataObject) -> None:
    import trio

    count = data.draw(st.integers(1, 12))
    matters = data.draw(st.sets(st.integers(0, count - 1), min_size=1))

    async def fails(items: tuple[int, ...]) -> bool:
        return matters <= set(items)

    assert trio.run(shortest, range(count), fails, never) == tuple(sorted(matters))


async def test_it_ends_when_the_time_is_over() -> None:
    asked: list[tuple[int, ...]] = []

    async def fails(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return 7 in items

    found = await shortest(range(16), fails, lambda: len(asked) == 3)
    assert len(asked) == 3
    assert 7 in found
    assert len(found) < 16
