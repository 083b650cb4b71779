"""The index's cost per batch: its part of the proxy alone, in this process, fed like a pump feeds it.

Chunks of 64 KiB of Fetch answers with many small batches, passed to the tap; and Produce requests of one batch with
their answers, through a tapped transport around a no-op one, minus the cost without the tap. Such a request leaves a
copy on the hot path (`hot path`) and is parsed later (`afterwards`), as in the proxy; a long one is parsed at once. The
sink keeps rows as the proxy
does; packing them into blocks and writing them, which a thread does, is measured separately.
"""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.capture.index.blocks import BlockType, encode_block
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.sink import MemorySink
from shoal.protocol.capture.index.tap import Tap
from shoal.proxy.capture.backlog import LIMITS, Backlog
from shoal.proxy.capture.tapped import TappedTransport
from tests.support import frames
from tests.support.no_transport import NoTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.net.transport import Transport

__all__ = ["microseconds_per_batch"]

TOPIC = frames.Topic("orders", bytes(range(16)))
BATCHES = 2_000  # of an answer
REQUESTS = LIMITS.chunks // 4  # with their answers; all are deferred
SIZES = range(40, 140, 5)  # bytes of a value: no two requests in a row have the same length
PRODUCED = (
    (1, "small", 3, 0),
    (1, "of 16 kB", 170, 0),
    (2, "of 16 kB", 170, 0),
    (3, "of 16 kB", 170, 0),
    (10, "small", 3, 0),
    (10, "of 16 kB", 170, 0),
    (10, "of 16 kB, in pieces of 64 KiB,", 170, 64 * 1024),
)
"""Batches of a request, their kind, values in each, bytes of the chunks in which the request arrives (0: whole)."""
WARM_UP = 2  # requests that are not counted: the first ones are parsed on the hot path
CHUNK = 64 * 1024
ROUNDS = 15  # the fastest counts: noise only makes a round slower
REPEATS = 100  # the same, for operations of 100 microseconds
_VERSION = 11  # of Produce
_PLACE = ConnectionInfo(connection=1, listener="bench", cluster="bench")


class _Rows(MemorySink):
    """As in proxy/capture/index.py."""

    def __init__(self) -> None:
        super().__init__(lambda _, __: TOPIC.name)

    def drop(self, rows: int) -> None:
        raise AssertionError(f"{rows} rows are too many")


def microseconds_per_batch() -> dict[str, float]:
    small = {name: frames.batch([b"x" * 100] * 3, 1, zstd=zstd) for name, zstd in (("plain", False), ("zstd", True))}
    found = {f"fetched, {name}, {BATCHES} in an answer": _fetched(batch) for name, batch in small.items()}
    for partitions, name, values, piece in PRODUCED:
        costs = _produced([frames.batch([b"x" * size] * values, 1) for size in SIZES], partitions, piece)
        what = f"produced, {partitions} {name} in a request, with its answer"
        found |= {f"{what}: hot path": costs.hot, f"{what}: afterwards": costs.later}
    found["produced, as no request before"] = _read_by_walkers(small["plain"])
    found["a row to its block"] = _packed()
    return {what: round(seconds * 1e6, 2) for what, seconds in found.items()}


def _fetched(batch: bytes) -> float:
    request, answer = frames.fetch("bench", TOPIC, {0: 0}), frames.fetch_answer(TOPIC, batch * BATCHES)

    def once() -> int:
        tap, sink = _tap()
        tap.sent(memoryview(request), 1)
        _feed(tap.received, answer)
        return sink.size // ROW_SIZE

    return _fastest(once, BATCHES)


class _Watcher:
    def broken(self, tap: Tap) -> None:
        raise RuntimeError("the tap has raised")

    def ended(self, tap: Tap) -> None:
        pass


class _Costs(NamedTuple):
    """Seconds per batch."""

    hot: float
    later: float


def _produced(batches: list[bytes], partitions: int, piece: int) -> _Costs:
    sets = [dict.fromkeys(range(partitions), batch) for batch in batches]
    requests = [frames.produce("bench", TOPIC, records, version=_VERSION) for records in sets]
    answer = frames.produce_answer(TOPIC, partitions)
    chunks = [_cut(bytearray(requests[at % len(requests)]), piece) for at in range(REQUESTS)]
    buffer = memoryview(bytearray(CHUNK))
    buffer[: len(answer)] = answer
    bare = min(_exchange(NoTransport(len(answer)), chunks, buffer) for _ in range(REPEATS))
    runs = [_put_off(NoTransport(len(answer)), chunks, buffer, partitions) for _ in range(REPEATS)]
    hot, later = (min(costs) / REQUESTS / partitions for costs in zip(*runs, strict=True))
    return _Costs(hot - bare / REQUESTS / partitions, later)


def _cut(frame: bytearray, piece: int) -> list[memoryview]:
    view = memoryview(frame)
    return [view[pos : pos + piece] for pos in range(0, len(view), piece)] if piece else [view]


def _put_off(nothing: NoTransport, chunks: list[list[memoryview]], buffer: memoryview, partitions: int) -> _Costs:
    """The costs of all requests. Raises RuntimeError when a row is missing."""
    sink = _Rows()
    backlog = Backlog()
    transport = TappedTransport(nothing, Tap(_PLACE, sink), _Watcher(), backlog)
    _exchange(transport, chunks[:WARM_UP], buffer)
    backlog.settle()
    hot = _exchange(transport, chunks, buffer)
    start = process_time()
    backlog.settle()
    later = process_time() - start
    _check_rows(sink.size // ROW_SIZE, (WARM_UP + len(chunks)) * partitions)
    return _Costs(hot, later)


def _exchange(transport: Transport, chunks: list[list[memoryview]], buffer: memoryview) -> float:
    start = process_time()
    for pieces in chunks:
        for piece in pieces:
            transport.send(piece)
        transport.recv_into(buffer)
    return process_time() - start


def _read_by_walkers(batch: bytes) -> float:
    """Requests that arrive in two chunks each."""
    request, answer = frames.produce("bench", TOPIC, {0: batch}, version=_VERSION), frames.produce_answer(TOPIC)

    def once() -> int:
        tap, sink = _tap()
        for _ in range(REQUESTS):
            for chunk in (request[:40], request[40:]):
                tap.sent(memoryview(chunk), 1)
            tap.received(memoryview(answer), 2)
        return sink.size // ROW_SIZE

    return _fastest(once, REQUESTS)


def _packed() -> float:
    rows = bytes(range(256)) * (ROW_SIZE * 1024 // 256)

    def once() -> int:
        encode_block(BlockType.ROWS, rows)
        return 1024

    return _fastest(once, 1024)


def _tap() -> tuple[Tap, _Rows]:
    sink = _Rows()
    return Tap(_PLACE, sink), sink


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
        _check_rows(made, rows)
    return best / rows


def _check_rows(made: int, wanted: int) -> None:
    if made != wanted:
        raise RuntimeError(f"{made} rows instead of {wanted}")
