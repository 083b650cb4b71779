"""What the index costs for each batch that passes: the tap alone, in this process, fed as a pump feeds it.

Chunks of 64 KiB of Fetch answers with many small batches, and Produce requests of one small batch with their answers. The sink keeps rows
as the proxy does; packing them into blocks and writing them, which a thread does, is measured on its own.
"""

from __future__ import annotations

import struct
from time import process_time
from typing import TYPE_CHECKING

from bench import frames
from shoal.protocol.capture.blocks import BlockType, encode_block
from shoal.protocol.capture.columns import ROW_SIZE
from shoal.protocol.capture.names import Names
from shoal.protocol.capture.rows import Place
from shoal.protocol.capture.tap import Tap

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.wire import Topic

__all__ = ["fetch_answer", "microseconds_per_batch"]

TOPIC = frames.Topic("orders", bytes(range(16)))
BATCHES = 2_000  # of an answer
REQUESTS = 500
CHUNK = 64 * 1024
ROUNDS = 15  # the fastest counts: whatever disturbs makes it slower only
_NO_TAGS = b"\0"
_VERSION = 11  # of Produce


class _Rows:
    """As proxy/capture.py keeps them."""

    def __init__(self) -> None:
        self._names = Names(lambda _, __: TOPIC.name)
        self.rows: list[bytes] = []

    @property
    def epoch(self) -> int:
        return self._names.epoch

    def number(self, name: str) -> int:
        return self._names.number(name)

    def topic(self, cluster: str, topic: Topic) -> int:
        return self._names.topic(cluster, topic)

    def knows(self, cluster: str, topic: Topic) -> bool:
        return self._names.knows(cluster, topic)

    def add(self, rows: bytes) -> None:
        self.rows.append(rows)

    def drop(self, rows: int) -> None:
        raise AssertionError(f"{rows} rows are too many")


def microseconds_per_batch() -> dict[str, float]:
    small = {name: frames.batch([b"x" * 100] * 3, 1, zstd=zstd) for name, zstd in (("plain", False), ("zstd", True))}
    found = {f"fetched, {name}, {BATCHES} in an answer": _fetched(batch) for name, batch in small.items()}
    found["produced, one in a request"] = _produced(small["plain"], cut=0)
    found["the same, a request in two chunks"] = _produced(small["plain"], cut=40)
    found["a row to its block"] = _packed()
    return {what: round(seconds * 1e6, 2) for what, seconds in found.items()}


def _fetched(batch: bytes) -> float:
    request, answer = frames.fetch("bench", TOPIC, {0: 0}), fetch_answer(batch * BATCHES)

    def once() -> int:
        tap, sink = _tap()
        tap.sent(memoryview(request), 1)
        _feed(tap.received, answer)
        return len(b"".join(sink.rows)) // ROW_SIZE

    return _fastest(once, BATCHES)


def _produced(batch: bytes, cut: int) -> float:
    """`cut`: a request comes in two chunks, and so the walkers read it and not `again.py`."""
    request, answer = frames.produce("bench", TOPIC, {0: batch}, version=_VERSION), _produce_answer()

    def once() -> int:
        tap, sink = _tap()
        chunks = [memoryview(chunk) for chunk in (request[:cut], request[cut:]) if chunk]
        for _ in range(REQUESTS):
            for chunk in chunks:
                tap.sent(chunk, 1)
            tap.received(memoryview(answer), 2)
        return len(b"".join(sink.rows)) // ROW_SIZE

    return _fastest(once, REQUESTS)


def _packed() -> float:
    rows = bytes(range(256)) * (ROW_SIZE * 1024 // 256)

    def once() -> int:
        encode_block(BlockType.ROWS, rows)
        return 1024

    return _fastest(once, 1024)


def _tap() -> tuple[Tap, _Rows]:
    sink = _Rows()
    return Tap(Place(connection=1, listener="bench", cluster="bench"), sink), sink


def _feed(see: Callable[[memoryview, int], None], data: bytes) -> None:
    view = memoryview(data)
    for pos in range(0, len(data), CHUNK):
        see(view[pos : pos + CHUNK], 2)


def _fastest(once: Callable[[], int], rows: int) -> float:
    """Seconds per row. Raises RuntimeError when a row is missing."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = process_time()
        made = once()
        best = min(best, process_time() - start)
        if made != rows:
            raise RuntimeError(f"{made} rows instead of {rows}")
    return best / rows


def fetch_answer(record_set: bytes) -> bytes:
    """Of `frames.FETCH_VERSION`."""
    part = struct.pack(">ihqqq", 0, 0, 1 << 40, 1 << 40, 0) + frames.uvarint(1) + struct.pack(">i", -1)
    part += frames.uvarint(len(record_set) + 1) + record_set + _NO_TAGS
    topic = TOPIC.topic_id + frames.uvarint(2) + part + _NO_TAGS
    return _answer(_NO_TAGS + struct.pack(">ihi", 0, 0, 0) + frames.uvarint(2) + topic + _NO_TAGS)


def _produce_answer() -> bytes:
    part = struct.pack(">ihqqq", 0, 0, 7, -1, 0) + frames.uvarint(1) + frames.uvarint(0) + _NO_TAGS
    name = TOPIC.name.encode()
    topic = frames.uvarint(len(name) + 1) + name + frames.uvarint(2) + part + _NO_TAGS
    return _answer(_NO_TAGS + frames.uvarint(2) + topic + struct.pack(">i", 0) + _NO_TAGS)


def _answer(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 0) + body
