"""What the coalescing benchmark checks and prints."""

from typing import Any, cast

import pytest

from bench.coalesce.crowd import Told
from bench.coalesce.report import DIRECT, as_tables
from bench.coalesce.runs import check
from bench.coalesce.verify import Verified


class Read:
    """A record as a consumer returns it."""

    def __init__(self, value: bytes, partition: int) -> None:
        self._value, self._partition = value, partition

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return self._partition

    def topic(self) -> str:
        return "crowd"


def verified(*records: tuple[str, int]) -> Verified:
    found = Verified()
    found.take(cast("Any", [Read(f"{name}:xxx".encode(), partition) for name, partition in records]))
    return found


def told(sent: int, failed: int = 0) -> Told:
    return Told(sent=sent, failed=failed, seconds=1.0, latencies=[])


def test_all_records_once_and_in_order() -> None:
    check(verified(("7:0", 0), ("8:0", 0), ("7:1", 1), ("7:2", 0)), told(4))


@pytest.mark.parametrize(
    ("records", "sent", "failed", "what"),
    [
        ([("7:0", 0), ("7:0", 0)], 2, 0, "1 duplicates"),
        ([("7:1", 0), ("7:0", 0)], 2, 0, "1 out of order"),
        ([("7:0", 0), ("7:2", 0)], 2, 0, "1 missing"),
        ([("7:0", 0)], 2, 0, "1 not there"),
        ([("7:0", 0)], 1, 1, "1 not acknowledged"),
    ],
)
def test_what_is_wrong_is_told(records: list[tuple[str, int]], sent: int, failed: int, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        check(verified(*records), told(sent, failed))


def test_the_table_compares_with_direct() -> None:
    one = {"records": 100, "seconds": 10.0, "broker_requests": 1000, "broker_cpu_s": 2.0, "shoal_cpu_s": None}
    latency = {"p50_ms": 1.0, "p99_ms": 2.0}
    joined = {**one, **latency, "broker_requests": 50, "broker_cpu_s": 0.5, "shoal_cpu_s": 0.3}
    table = as_tables({"loads": {"high": {DIRECT: {**one, **latency}, "joined": joined}}})
    assert "20.0x" in table
    assert "4.0x" in table
