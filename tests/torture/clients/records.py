"""The producers' records. Each carries its identity, `~producer.number~`, in its value, its key or a header, so that a
copy can be identified even if its bytes were changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping

    from shoal.scenarios.kafka.content.records import Headers

_IDENTITY = re.compile(rb"~(\d+\.\d+)~")
_WHOLE = re.compile(rb"\d+\.\d+")  # the value of Java's VerifiableProducer
_WORDS = (b"created", b"paid", b"packed", b"shipped", b"delivered", b"returned", b"cancelled", b"refunded")
_KEYS = 40  # of compacted topics


class Written(NamedTuple):
    """A record that a producer writes."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def mark(producer: int, number: int) -> bytes:
    return b"~%d.%d~" % (producer, number)


def identity_of(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, str | bytes | None]]
) -> bytes | None:
    """None for a record without an identity: no producer of this round wrote it."""
    for part in (value, key, *(text for _, text in headers)):
        if isinstance(part, bytes) and (found := _IDENTITY.search(part[:200])):
            return found[1]
    return value if value is not None and _WHOLE.fullmatch(value[:40]) else None


def content_of(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    return hash((key, value, tuple(headers)))


def _order(draw: random.Random, sign: bytes) -> Written:
    word, number = draw.choice(_WORDS), draw.randrange(100_000)
    value = b'{"id":"%b","type":"order.%b","customer":{"id":%d,"segment":"consumer"},"currency":"EUR","trace":"%032x"}'
    return Written(b"customer-%d" % number, value % (sign, word, number, draw.getrandbits(128)), [])


def _odd(draw: random.Random, sign: bytes) -> Written:
    """Null and empty keys and values, headers of every kind. A header carries the identity where nothing else can."""
    key = draw.choice((None, b"", b"key", b"\x00\xff\xfe", "schlüssel-鍵".encode()))
    value = draw.choice((None, b"", sign, sign + draw.randbytes(300), sign + b"long " * 400))
    several: tuple[Headers, ...] = (
        [],
        [("one", b"1")],
        [("null", None), ("empty", b"")],
        [("twice", b"a"), ("twice", b"b"), ("überschrift", draw.randbytes(20))],
    )
    headers = draw.choice(several)
    return Written(key, value, [*headers, ("id", sign)] if not value else list(headers))


def _tiny(draw: random.Random, sign: bytes) -> Written:
    return Written(None, sign, [])


def _large(draw: random.Random, sign: bytes) -> Written:
    return Written(None, sign + draw.randbytes(draw.choice((1_000, 60_000, 300_000))), [])


def _keyed(draw: random.Random, sign: bytes) -> Written:
    """For compacted topics: few keys, and occasional tombstones."""
    key = b"key-%d" % draw.randrange(_KEYS)
    return Written(key, None, [("id", sign)]) if draw.random() < 0.1 else Written(key, sign + draw.randbytes(100), [])


SHAPES: Mapping[str, Callable[[random.Random, bytes], Written]] = {
    "orders": _order,
    "odd": _odd,
    "tiny": _tiny,
    "large": _large,
    "keyed": _keyed,
    "verifiable": _tiny,
}
