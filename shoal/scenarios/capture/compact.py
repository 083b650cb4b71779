"""`shoal capture compact`: closed index files become Parquet, which clusters and object stores can read.

    OUT/dt=2026-11-22/hour=04/shoal-0badcafe-00000007.parquet      hours are of the capture clock, UTC
    OUT/_compacted/shoal-0badcafe-00000007.json                    marker: rows, parts and faults of a finished file

A part is named after its source, written under a hidden name and renamed when complete; the marker is written last. So
a crash leaves no duplicates: the next run writes the same parts again, and skips files with a marker.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.protocol.capture.index.blocks import Damaged
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.decode import arrow_schema
from shoal.scenarios.capture.files import ToolError, gone_if_it_fails
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.capture.survey import is_being_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shoal.scenarios.capture.files import CaptureFile

__all__ = ["Compacted", "compact", "locked", "noted_faults"]

_NOTES: Final = "_compacted"
_HOUR_NS: Final = 3_600_000_000_000
_PIECE: Final = 32 * 1024 * 1024
"""Bytes of index rows in a row group: about 190,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """`size`: bytes of the source. `is_whole`: no part of it is damaged or torn. `faults`: what, at which byte, how
    much: bytes, or rows that the process `proxy` had dropped by then."""

    size: int
    rows: int
    parts: list[str]
    is_whole: bool
    proxy: str = ""
    faults: list[tuple[str, int, int]] = field(default_factory=list)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Allows one compaction at a time. Raises ToolError."""
    try:
        (out / _NOTES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"--out: {out} cannot be made: {error.strerror}") from None
    with (out / _NOTES / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(f"{out}: another compaction is running") from None
        yield


def compact(
    file: CaptureFile, out: Path, progress: Callable[[int], None] = lambda _: None
) -> tuple[Compacted | None, bool]:
    """-> the result, and whether it was made now. None: the file is still open. `progress` gets the bytes read so far.

    Raises OSError, UnreadableFile.

    A failure leaves no partial files: the disk may be full.
    """
    if is_being_written(file.path):
        return None, False
    note = out / _NOTES / f"{file.path.stem}.json"
    size = file.path.stat().st_size
    if note.exists() and (done := Compacted(**json.loads(note.read_text()))).size == size:
        return done, False
    result = _written(file, out, size, progress)
    _put(note, json.dumps(asdict(result)).encode())
    return result, True


def _put(path: Path, data: bytes) -> None:
    hidden = path.with_name(f".{path.name}.part")
    with gone_if_it_fails(hidden):
        hidden.write_bytes(data)
        hidden.replace(path)


def _written(file: CaptureFile, out: Path, size: int, progress: Callable[[int], None]) -> Compacted:
    reader = IndexReader(path=file.path, end=size, piece=_PIECE)
    rows, faults = 0, list[tuple[str, int, int]]()
    with ExitStack() as failing, ExitStack() as writing:
        parts = _Parts(out, file.path.stem, failing, writing)
        for found in record_batches(reader):
            if isinstance(found, pa.RecordBatch):
                rows += len(found)
                parts.write(found)
                progress(rows * reader.row_size)
            elif isinstance(found, Damaged):
                faults.append(("damaged", found.start, found.end - found.start))
            else:
                faults.append(("torn", found.start, size - found.start))
        writing.close()
        named = parts.put()
    is_whole = not faults
    if dropped := reader.state.get("dropped"):
        faults.append(("dropped", 0, int(dropped)))
    return Compacted(size=size, rows=rows, parts=named, is_whole=is_whole, proxy=reader.proxy, faults=faults)


def noted_faults(out: Path) -> Iterator[tuple[str, str, str, int, int]]:
    """The source, its process, and its faults as in `Compacted`, of all that was compacted to this directory."""
    for note in sorted((out / _NOTES).glob("*.json")):
        done = Compacted(**json.loads(note.read_text()))
        for what, start, amount in done.faults:
            yield note.stem, done.proxy, what, start, amount


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    hours = batch["time_ns"].to_numpy() // _HOUR_NS
    for hour in np.unique(hours):
        yield int(hour), batch.filter(pa.array(hours == hour))


def _path(out: Path, hour: int, stem: str) -> Path:
    at = datetime.fromtimestamp(hour * 3600, UTC)
    return out / f"dt={at:%Y-%m-%d}" / f"hour={at:%H}" / f"{stem}.parquet"


class _Parts:
    """Parts of one source, by hour. `failing` removes them; `writing` closes them."""

    def __init__(self, out: Path, stem: str, failing: ExitStack, writing: ExitStack) -> None:
        self._out = out
        self._stem = stem
        self._failing = failing
        self._writing = writing
        self._by_hour: dict[int, _Part] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        for hour, batch in _by_hour(rows):
            self._part(hour).write(batch)

    def _part(self, hour: int) -> _Part:
        if hour not in self._by_hour:
            path = _path(self._out, hour, self._stem)
            self._failing.enter_context(gone_if_it_fails(path.with_name(f".{path.name}.part")))
            self._by_hour[hour] = self._writing.enter_context(_Part(path))
        return self._by_hour[hour]

    def put(self) -> list[str]:
        """Rename each part once it is closed; -> the names, relative to `out`."""
        for part in self._by_hour.values():
            part.put()
        return sorted(str(part.path.relative_to(self._out)) for part in self._by_hour.values())


class _Part:
    """A Parquet file that appears with `put`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._hidden, arrow_schema(chosen()), compression="zstd")

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def put(self) -> None:
        """After closing: sync to disk, then rename."""
        with self._hidden.open("rb") as file:
            os.fsync(file.fileno())
        self._hidden.replace(self.path)
