"""The shortest schedule that still fails: delta debugging (Zeller's ddmin) over the faults of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")


async def shortest(
    items: Sequence[T], fails: Callable[[tuple[T, ...]], Awaitable[bool]], is_over: Callable[[], bool]
) -> tuple[T, ...]:
    """A subsequence of `items` that still fails and from which no item can be removed, or the best one when `is_over`.

    `items` as a whole fails; `fails` is called for each candidate.
    """
    current = tuple(items)
    pieces = 2
    while len(current) > 1 and not is_over():
        size = -(-len(current) // pieces)
        for start in range(0, len(current), size):
            if is_over():
                return current
            without = current[:start] + current[start + size :]
            if without and await fails(without):
                current, pieces = without, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                return current
            pieces = min(pieces * 2, len(current))
    return current
