"""Index files as a stream: the offset is how far each file was read, {file name: byte}.

A file grows by whole blocks, so a micro-batch is a byte range of some files, and can be read again. New files are
ordered by the times of their first rows, not by name: several proxies write at the same time, and a watermark must not
be ahead of any. A file that is gone is forgotten, so the offset never has more files than the directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from shoal.protocol.capture.index.blocks import HEADER_SIZE, BlockType
from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.index import splits, whole_until
from shoal.scenarios.capture.scan import hop, read_at
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.source.splits import IndexSplit, read_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from shoal.scenarios.jobs.source.options import Options

__all__ = ["IndexReaderStream"]

_NO_ROWS_YET = (1 << 63) - 1


class IndexReaderStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        if options.faults:
            raise JobError("show", "faults exist for a batch, not for a stream")
        self._options = options
        self._first_times: dict[Path, int] = {}
        self._until: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = {path.name: whole_until(path) for path in self._files()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        files = self._files()
        latest = {path.name: int(start[path.name]) for path in files if path.name in start}
        for path in files:
            first = latest.get(path.name, 0)
            end = self._end(path, first) if left is None or left > 0 else first
            if left is not None:
                end = next((until for _, until in splits(path, first, end, max(left, 1))), first)
                left -= end - first
            if end > first:
                latest[path.name] = end
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        for name, until in end.items():
            path, first = self._path(name), int(start.get(name, 0))
            if until <= first or self._is_gone(path):
                continue
            ranges = splits(path, first, until, self._options.split_bytes)
            parts += [IndexSplit(str(path), *each) for each in ranges]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IndexSplit)
        return read_split(partition, self._options)

    def _path(self, name: str) -> Path:
        path = self._options.path
        return path if path.name == name and path.is_file() else path / name

    def _end(self, path: Path, first: int) -> int:
        end = whole_until(path, first)
        return end if self._until is None else min(end, self._until.get(path.name, first))

    def _files(self) -> list[Path]:
        paths = [file.path for file in capture_files(self._options.path)]
        return sorted(paths, key=lambda path: (self._first_time(path), path.name))

    def _first_time(self, path: Path) -> int:
        known = self._first_times.get(path)
        if known is None:
            known = _first_time(path)
            if known != _NO_ROWS_YET:
                self._first_times[path] = known
        return known

    def _is_gone(self, path: Path) -> bool:
        """A micro-batch that is repeated after a restart may need a file that the disk limit has since removed."""
        if path.exists():
            return False
        if self._options.fail_on_data_loss:
            raise JobError(str(path), "is gone before it was read; failOnDataLoss=false continues without it")
        return True


def _first_time(path: Path) -> int:
    with path.open("rb", buffering=0) as file:
        for found in hop(file, 0, path.stat().st_size):
            if found.kind == BlockType.ROWS:
                return int.from_bytes(read_at(file, found.start + HEADER_SIZE, 8), "little")
    return _NO_ROWS_YET
