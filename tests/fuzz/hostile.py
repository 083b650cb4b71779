"""Valid inputs with a few things wrong: what a peer, a relay or a bad disk could make of them."""

from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz.check import MAX_INPUT

__all__ = ["hostile"]

Mutation = Callable[[Random, bytearray, Sequence[bytes]], None]

# Lengths, counts and varints at the edges of their types.
_EDGES = (
    *(
        value.to_bytes(size, "big", signed=True)
        for size in (2, 4, 8)
        for value in (-1, -2, 0, 1, (1 << 8 * size - 1) - 1)
    ),
    *(bytes([0x80] + [0] * (size - 1)) for size in (1, 2, 4, 8)),
    *(b"\xff" * (size - 1) + b"\x0f" for size in (5, 10)),
    b"\x80" * 5 + b"\x00",
    *(bytes([byte]) for byte in (0, 1, 0x7F, 0xFF)),
)


def _position(random: Random, data: bytes | bytearray) -> int:
    return random.randint(0, len(data))


def _range(random: Random, data: bytearray) -> slice:
    start = _position(random, data)
    return slice(start, start + random.randint(0, 64))


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    position = _position(random, data)
    if position < len(data):
        data[position] ^= random.randint(1, 255)


def _edge(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    position, value = _position(random, data), random.choice(_EDGES)
    data[position : position + len(value)] = value


def _insert(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    position = _position(random, data)
    data[position:position] = random.choice((random.randbytes(random.randint(1, 16)), random.choice(_EDGES)))


def _delete(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_range(random, data)]


def _cut(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_position(random, data) :]


def _repeat(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    piece = _range(random, data)
    data[piece] = data[piece] * random.randint(2, 300)


def _join(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = random.choice(seeds)
    data[_position(random, data) :] = other[_position(random, other) :]


_MUTATIONS: tuple[Mutation, ...] = (_flip, _flip, _edge, _edge, _insert, _delete, _cut, _repeat, _join)


def hostile(random: Random, seeds: Sequence[bytes]) -> bytes:
    """An input of up to MAX_INPUT bytes."""
    if random.random() < 0.05:
        return random.randbytes(random.randint(0, 300))
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 6)):
        random.choice(_MUTATIONS)(random, data, seeds)
    return bytes(data[:MAX_INPUT])
