"""Raw captures as frames in the order of time, and what a replay needs to know in advance."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING

from shoal.protocol.capture.frames.pcapng_reader import Decoder
from shoal.scenarios.capture.files import RAW, capture_files
from shoal.scenarios.replay.frames.requests import FetchAgain, Interpreter, ProduceAgain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.protocol.capture.frames.pcapng import CapturedFrame
    from shoal.protocol.wire.types import TopicPartition
    from shoal.scenarios.replay.frames.requests import Redo

__all__ = ["RawRecorded", "read_raw"]

_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecorded:
    """`partitions`: captured topic -> how many it needs. `requests`: those that are sent again, by kind."""

    path: Path
    names: dict[bytes, str]
    partitions: dict[str, int]
    left_out: Counter[str]
    requests: Counter[str]
    batches: int
    first_ns: int
    seconds: float

    def redos(self) -> Iterator[Redo]:
        """Requests in the order of time. Raises OSError, RemoteProtocolError."""
        return Interpreter(self.names).interpret(_frames(self.path))


def read_raw(path: Path) -> RawRecorded:
    """Read a file, or all files of a directory: twice here, again in `redos`. Raises OSError, RemoteProtocolError."""
    names = Interpreter()
    for _ in names.interpret(_frames(path)):
        pass  # a topic id can appear before the answer that names it
    interpreter = Interpreter(names.names)
    partitions: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    batches, first, last = 0, 0, 0
    for redo in interpreter.interpret(_frames(path)):
        requests[type(redo.what).__name__.removesuffix("Again")] += 1
        batches += len(redo.what.batches) if isinstance(redo.what, ProduceAgain) else 0
        for topic, number in _partitions(redo):
            partitions[topic] = max(partitions[topic], number + 1)
        first, last = first or redo.time_ns, redo.time_ns
    return RawRecorded(
        path=path,
        names=names.names,
        partitions=dict(partitions),
        left_out=interpreter.left_out,
        requests=requests,
        batches=batches,
        first_ns=first,
        seconds=(last - first) / 1e9,
    )


def _partitions(redo: Redo) -> list[TopicPartition]:
    if isinstance(redo.what, ProduceAgain):
        return [batch.partition for batch in redo.what.batches]
    return list(redo.what.partitions) if isinstance(redo.what, FetchAgain) else []


def _frames(path: Path) -> Iterator[CapturedFrame]:
    """Frames of several processes, merged."""
    by_process: dict[str, list[Path]] = {}
    for file in capture_files(path, RAW):
        by_process.setdefault(file.proxy, []).append(file.path)
    return merge(*map(_of_process, by_process.values()), key=attrgetter("time_ns"))


def _of_process(paths: list[Path]) -> Iterator[CapturedFrame]:
    for path in paths:
        decoder = Decoder()
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield from decoder.feed(piece)
