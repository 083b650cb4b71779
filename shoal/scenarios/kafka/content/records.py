"""Records for topics: the same in every run, and all different.

`orders` are realistic: JSON of about 410 bytes, of which zstd leaves about 90 in a batch of some hundreds.
`oddities` are edge cases that show whether a copy is exact.
"""

import random
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

Headers = list[tuple[str, str | bytes | None]]
EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z, the timestamp of first records: brokers refuse timestamps an hour ahead of their clock."""

_CUSTOMERS, _BASKETS = 4_000, 16_000
_BLOCK = 4_096  # records whose random parts are drawn together: singly, drawing takes longer than all other work
_COUNTRIES = (b"DE", b"FR", b"PL", b"US", b"IN", b"BR", b"JP", b"NO")
_SEGMENTS = (b"consumer", b"business", b"reseller", b"employee")
_STATES = (b"created", b"paid", b"packed", b"shipped", b"delivered", b"returned", b"cancelled", b"refunded")
_CHANNELS = (b"web", b"ios", b"android", b"store")
_ORDER = (
    b'{"event_id":"%b","type":"order.%b","version":3,"occurred_at":%d,"order":{"id":%d,"customer":%b,%b,'
    b'"currency":"EUR"},"channel":"%b","session":"%b","trace":"%b","source":"checkout"}'
)


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    """Milliseconds; 0 means the time of production."""
    headers: Headers | None = None


def orders(count: int, *, seed: int = 0) -> Iterator[Record]:
    """Order events of a shop, keyed by customer, about a millisecond apart."""
    rng = random.Random(seed)
    customers = [_customer(rng, index) for index in range(_CUSTOMERS)]
    baskets = [_basket(rng) for _ in range(_BASKETS)]
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        drawn = zip(
            _hex_words(rng, size, 32),
            rng.choices(_STATES, k=size),
            rng.choices(customers, k=size),
            rng.choices(baskets, k=size),
            rng.choices(_CHANNELS, k=size),
            _hex_words(rng, size, 16),
            _hex_words(rng, size, 32),
            strict=True,
        )
        for index, (event, state, (key, customer), basket, channel, session, trace) in enumerate(drawn, first):
            at = EPOCH_MS + index
            order = (event, state, at, 7_000_000 + index, customer, basket, channel, session, trace)
            yield Record(_ORDER % order, key, at)


def _hex_words(rng: random.Random, count: int, digits: int) -> list[bytes]:
    text = rng.randbytes(count * digits // 2).hex().encode()
    return [text[start : start + digits] for start in range(0, len(text), digits)]


def _customer(rng: random.Random, index: int) -> tuple[bytes, bytes]:
    number = 100_000 + index * 17
    segment, country = rng.choice(_SEGMENTS), rng.choice(_COUNTRIES)
    return b"customer-%d" % number, b'{"id":%d,"segment":"%b","country":"%b"}' % (number, segment, country)


def _basket(rng: random.Random) -> bytes:
    items = b",".join(_item(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    return b'"items":[%b],"total_cents":%d' % (items, rng.randrange(99, 99_999))


def _item(rng: random.Random) -> bytes:
    return b'{"sku":"SKU-%06d","quantity":%d,"unit_cents":%d}' % (
        rng.randrange(1_000_000),
        rng.randrange(1, 6),
        rng.randrange(99, 49_999),
    )


def oddities(count: int, *, seed: int = 0) -> Iterator[Record]:
    """Null and empty keys and values, tombstones, headers of every kind, bytes that are not text, odd timestamps.

    Unique by timestamp, in milliseconds; every 13th goes back in time.
    """
    rng = random.Random(seed)
    keys = (None, b"", b"key", b"\x00\xff\xfe", "schlüssel-鍵".encode())
    values = (None, b"", b"v", rng.randbytes(300), b"long " * 400)
    headers: tuple[Headers | None, ...] = (
        None,
        [],
        [("one", b"1")],
        [("null", None), ("empty", b"")],
        [("twice", b"a"), ("twice", b"b"), ("überschrift", rng.randbytes(20))],
    )
    for index in range(count):
        value = values[index // 5 % 5]
        yield Record(
            value if value is None else value + b"#%d" % index if index % 3 else value,
            keys[index % 5],
            EPOCH_MS + index - (5_000_000 if index % 13 == 12 else 0),
            headers[index // 25 % 5],
        )


def sized(count: int, size: int, *, seed: int = 0) -> Iterator[Record]:
    """Records with values of exactly `size` incompressible bytes (8 at least: the first 8 are the index)."""
    rng = random.Random(seed)
    for index in range(count):
        yield Record(index.to_bytes(8, "big") + rng.randbytes(size - 8), b"%d" % index, EPOCH_MS + index)


def chunks(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    while chunk := list(islice(records, size)):
        yield chunk
