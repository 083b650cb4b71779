"""The outputs that every job writes to OUT."""

import json
from pathlib import Path

import pyarrow.parquet as pq

__all__ = ["check_outputs"]

TABLES = {
    "batch-sizes": ("counts", "gaps", "sizes", "clients"),
    "audit": ("partitions", "batches", "minutes", "mirror_topics"),
    "coalescing": ("policies", "brokers"),
    "cascade": ("counters", "suspects"),
}
_PNG = b"\x89PNG\r\n\x1a\n"


def check_outputs(job: str, out: Path) -> None:
    """Its tables as Parquet, its figures as JSON, one page, and the page's charts as PNG files."""
    for table in TABLES[job]:
        assert pq.read_table(out / f"{table}.parquet").column_names, table
    report = json.loads((out / "report.json").read_text())
    assert job.replace("-", "_") in report
    page = (out / f"{job}.html").read_text()
    charts = list(out.glob("*.png"))
    assert page.count("<svg") == len(charts) > 0
    assert all(path.read_bytes().startswith(_PNG) for path in charts)
