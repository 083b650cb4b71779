"""Index files for the tests of jobs."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.source.schema import ROW
from tests.support.captures.synthetic import Chunk, Traffic, chunks
from tests.support.captures.synthetic_files import index_bytes

__all__ = ["as_rows", "one_chunk", "write_index"]


def one_chunk(rows: int, seed: int = 1) -> Chunk:
    [chunk] = chunks(Traffic(rows=rows, seed=seed))
    return chunk


def write_index(directory: Path, chunk: Chunk, *, proxy: str = "00c0ffee", number: int = 0, block: int = 500) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"shoal-{proxy}-{number:08d}.kxb"
    path.write_bytes(b"".join(index_bytes(chunk.rows, chunk.names, proxy=proxy, number=number, rows_per_block=block)))
    return path


def as_rows(spark: SparkSession, chunk: Chunk) -> DataFrame:
    """Without a file: much faster for queries that refer to their rows often."""
    decoder = Decoder(chosen(), NameTable(dict(enumerate(chunk.names, 1))), "00c0ffee")
    table = pa.Table.from_batches([decoder.decode(chunk.rows)])
    return spark.createDataFrame(table, schema=ROW)
