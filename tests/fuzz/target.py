"""One decoder, and valid inputs to start from."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Target", "padded"]


class Target(NamedTuple):
    """`run` feeds the decoder; whatever else it needs (a version, a limit) it takes out of the input."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]


PADDING = b"\x5a" * 9


def padded(data: bytes) -> tuple[bytes, int, int]:
    """A buffer with `data` inside of it, as in a frame: buffer, start, end."""
    return PADDING + data + PADDING, len(PADDING), len(PADDING) + len(data)
