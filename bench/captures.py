"""Synthetic captures for benchmarks of their readers: a file per million rows, either index files, or Parquet as from
`shoal capture compact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable
from shoal.scenarios.capture.schema import chosen
from tests.support.captures.synthetic import Chunk, Traffic, chunks
from tests.support.captures.synthetic_files import index_bytes
from tests.support.captures.synthetic_mirror import mirrored

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MILLION", "chosen_files", "files"]

MILLION = 1_000_000
PER_SECOND = 2_500  # rows, in the time of the capture


def files(directory: Path, count: int, kind: str) -> list[Path]:
    """A million rows each; existing files are reused, unless one is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    name = "shoal-00c0ffee-{:08d}.kxb" if kind == "index" else "{:03d}.parquet"
    paths = [directory / name.format(number) for number in range(count)]
    if not all(path.exists() for path in paths):
        seconds = count * MILLION / PER_SECOND
        size = MILLION // 2 if kind == "mirrored" else MILLION
        made = chunks(Traffic(rows=count * size, seconds=seconds, partitions=48), size)
        for path, chunk in zip(paths, made, strict=True):
            _write(path, chunk, kind)
    return paths


def _write(path: Path, chunk: Chunk, kind: str) -> None:
    if kind == "index":
        path.write_bytes(b"".join(index_bytes(chunk.rows, chunk.names)))
    else:
        pq.write_table(_decoded(mirrored(chunk).both if kind == "mirrored" else chunk), path, compression="zstd")


def _decoded(chunk: Chunk) -> pa.Table:
    decoder = Decoder(chosen(), NameTable(dict(enumerate(chunk.names, 1))), "00c0ffee")
    parts = np.array_split(chunk.rows, max(1, len(chunk.rows) // 100_000))
    return pa.Table.from_batches([decoder.decode(part) for part in parts])


def chosen_files(directory: Path, paths: list[Path]) -> Path:
    """A directory with these files only."""
    place = directory / f"first-{len(paths)}"
    place.mkdir(exist_ok=True)
    for path in paths:
        link = place / path.name
        link.unlink(missing_ok=True)
        link.hardlink_to(path)
    return place
