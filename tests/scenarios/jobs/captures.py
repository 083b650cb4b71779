"""Index files for the tests of jobs."""

from pathlib import Path

from shoal.capture.synthetic import Chunk, Traffic, chunks
from shoal.capture.synthetic_files import index_bytes

__all__ = ["one_chunk", "write_index"]


def one_chunk(rows: int, seed: int = 1) -> Chunk:
    [chunk] = chunks(Traffic(rows=rows, seed=seed))
    return chunk


def write_index(directory: Path, chunk: Chunk, *, proxy: str = "00c0ffee", number: int = 0, block: int = 500) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"shoal-{proxy}-{number:08d}.kxb"
    path.write_bytes(b"".join(index_bytes(chunk.rows, chunk.names, proxy=proxy, number=number, rows_per_block=block)))
    return path
