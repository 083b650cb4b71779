"""The job on captured files against the joiner itself, run over the same rows in plain Python."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shoal.scenarios.jobs.coalescing.analysis import LOGINS, SLICE_SECONDS, packing, predictions, summed
from shoal.scenarios.jobs.coalescing.by_joiner import join_by_joiner
from shoal.scenarios.jobs.coalescing.gather import LOGIN_READS, READS
from shoal.scenarios.jobs.coalescing.lanes import Lanes
from shoal.scenarios.jobs.coalescing.policies import Policy
from shoal.scenarios.jobs.folding import fold_rows
from shoal.scenarios.jobs.source.reading import read_index
from tests.scenarios.jobs.captures import write_index
from tests.support.captures.synthetic import Traffic, chunks

Rows = list[dict[str, Any]]
POLICIES = (
    Policy(client_ids=True),
    Policy(linger=0.005, sets=64, bytes=32 * 1024),
    Policy(linger=0.002, flight=1),
    Policy(linger=0.005, group="connection"),
)
PART_BYTES = 9
COLUMNS = list(dict.fromkeys((*READS, *LOGIN_READS)))


@pytest.fixture(scope="module")
def captured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    directory = tmp_path_factory.mktemp("coalescing")
    [chunk] = chunks(Traffic(rows=4_000, seconds=4.0, partitions=8))
    write_index(directory, chunk)
    rows = read_index(spark, str(directory), {"columns": ",".join(COLUMNS)}).persist()
    yield rows
    rows.unpersist()


def arrivals(rows: DataFrame, slice_seconds: int = SLICE_SECONDS) -> DataFrame:
    return fold_rows(rows, packing(fold_rows(rows, LOGINS), slice_seconds))


def _in_order(captured: DataFrame) -> list[Rows]:
    """Requests by time."""
    requests: dict[Any, Rows] = defaultdict(list)
    for row in captured.toArrow().to_pylist():
        requests[row["connection"], row["request"]].append(row)
    return sorted(requests.values(), key=lambda parts: parts[0]["time_ns"])


def _lanes(requests: list[Rows], policy: Policy) -> Lanes:
    by_lane: dict[Any, Rows] = defaultdict(list)
    numbers: dict[Any, int] = {}
    for parts in requests:
        for part in parts:
            key = part["acks"], policy.client_ids and part["client"]
            own = part["connection"] if policy.group == "connection" else 0
            by_lane[key, own].append(part)
            numbers.setdefault((part["topic"], part["partition"]), len(numbers))
    rows = [row for lane in by_lane.values() for row in lane]
    return Lanes(
        starts=np.cumsum([0, *map(len, by_lane.values())]),
        times=np.array([row["time_ns"] for row in rows]),
        sizes=np.array([row["batch_bytes"] + PART_BYTES for row in rows]),
        targets=np.array([numbers[row["topic"], row["partition"]] for row in rows]),
        lone=np.array([row["producer_id"] >= 0 for row in rows]),
        latencies=np.array([row["latency_ns"] for row in rows]),
    )


def test_it_predicts_what_the_joiner_does(captured: DataFrame) -> None:
    requests = _in_order(captured)
    large = [parts for parts in requests if parts[0]["request_bytes"] > 64 * 1024]
    joinable = [parts for parts in requests if parts[0]["request_bytes"] <= 64 * 1024]
    assert len(large) > 10
    found = {row["policy"]: row for row in summed(predictions(arrivals(captured), POLICIES)).collect()}
    for policy in POLICIES:
        lanes, row = _lanes(joinable, policy), found[policy.name]
        outcome = join_by_joiner(lanes, policy.rules)
        assert row["captured"] == len(requests)
        assert row["alone"] == len(large)
        assert row["requests"] == outcome.requests + len(large)
        assert row["added_ns"] == int(np.maximum(outcome.answered - lanes.times - lanes.latencies, 0).sum())
        assert sum(row["added"]) == len(lanes.times)
        assert row["bytes"] == sum(part["batch_bytes"] for parts in requests for part in parts)


def test_the_joiner_itself_predicts_the_same(captured: DataFrame) -> None:
    compiled, by_joiner = (predictions(arrivals(captured), POLICIES, by_joiner=own).collect() for own in (False, True))
    assert {row["policy"] for row in by_joiner} == {policy.name for policy in POLICIES}
    assert sorted(compiled) == sorted(by_joiner)


def test_a_cut_of_time_changes_little(captured: DataFrame) -> None:
    [whole] = summed(predictions(arrivals(captured), POLICIES[1:2])).collect()
    [cut] = summed(predictions(arrivals(captured, slice_seconds=1), POLICIES[1:2])).collect()
    assert cut["captured"] == whole["captured"]
    assert 0 <= cut["requests"] - whole["requests"] <= 5


def test_a_broker_of_its_own_is_joined_by_itself(captured: DataFrame) -> None:
    two = captured.withColumn("node", F.col("partition") % 2)
    predicted = summed(predictions(arrivals(two), POLICIES[1:2]), ["cluster", "node"])
    table = {(row["cluster"], row["node"]): row for row in predicted.collect()}
    assert table.keys() == {("source", 0), ("source", 1)}
    for (_, node), row in table.items():
        assert row["batches"] == captured.where(F.col("partition") % 2 == node).count()


def test_connections_that_authenticate_are_not_joined(captured: DataFrame) -> None:
    handshakes = (
        captured.where("connection = 3")
        .limit(1)
        .selectExpr(
            *[name for name in COLUMNS if name not in {"api_key", "kind"}], "17 as api_key", "'request' as kind"
        )
    )
    rows = captured.unionByName(handshakes)
    [without] = summed(predictions(arrivals(captured), POLICIES[1:2])).collect()
    [found] = summed(predictions(arrivals(rows), POLICIES[1:2])).collect()
    theirs = captured.where("connection = 3 and request_bytes <= 65536").select("request").distinct().count()
    assert found["alone"] == without["alone"] + theirs
