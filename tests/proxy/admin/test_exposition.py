"""The text of /metrics is that of prometheus_client, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from shoal.protocol.shallow.monitor.mirrors import Copied
from shoal.protocol.shallow.monitor.partition import Lag
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.admin.metrics.exposition import Exposition, family
from shoal.proxy.admin.metrics.metric import Snapshot
from shoal.proxy.admin.metrics.mirrors import MOST_PARTITIONS, lags
from shoal.proxy.admin.metrics.table import METRICS
from shoal.proxy.admin.share import LoopShare
from shoal.proxy.coalesce.counters import CoalesceStatistics
from shoal.proxy.legacy.counters import LegacyStatistics
from shoal.proxy.lifecycle.state import ServerState
from shoal.proxy.shallow.counters import ShallowStatistics
from shoal.proxy.shallow.monitor.statistics import MirrorStatistics
from shoal.proxy.statistics import (
    ApiCounters,
    CaptureStatistics,
    CloseCause,
    Histogram,
    ListenerStatistics,
    ServerStatistics,
    Traffic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.proxy.statistics import PathStatistics

ODD = 'a "quoted" \\ name\nof two\rlines\u2028or three # TYPE x'
FORMATS = [generate_latest, generate_open_metrics]


def listener(name: str, *path: PathStatistics) -> ListenerStatistics:
    fetch = ApiCounters(requests=3)
    fetch.broker.observe(0.004, weight=999_999)
    fetch.broker.observe(0.5)
    fetch.broker.observe(40.0, weight=12_345_678)
    fetch.shoal.observe(5.0)
    return ListenerStatistics(
        name=name,
        opened=1_234_567_890,
        active=2,
        closed=dict.fromkeys(CloseCause, 1),
        traffic=Traffic(requests=3, from_client=10**15),
        ports={},
        path=path,
        states={"open": 2},
        apis={"Fetch": fetch, "Produce": ApiCounters()},
        gauges={"held_bytes": {ODD: 0.1 + 0.2}, "interlock_topics": {"wrapped": 3}},
    )


def snapshot(*listeners: ListenerStatistics) -> Snapshot:
    return Snapshot(
        server=ServerStatistics(listeners=listeners, capture=CaptureStatistics(written=7)),
        version="1.0",
        python="3",
        state=ServerState.SERVING,
        expiries={("listener a", "certificate", ODD): 1.9e9},
        proofs={},
        reachable={"c": True, ODD: False},
        loop_lag=Histogram((0.001, 1.0)),
        share=LoopShare().statistics(),
        log_lines={"info": 3},
        lags={one.name: lags(one, by_topic=True) for one in listeners},
    )


def mirrored(count: int) -> MirrorStatistics:
    def copied(number: int) -> Copied:
        lag = Lag(records=number, size=number * 1.5, seconds=number / 10)
        return Copied("mirror", TopicPartition("orders", number), mirrored=0, lag=lag)

    return MirrorStatistics(copied=[copied(number) for number in range(count)])


BUSY = (
    listener("source", ShallowStatistics(raw_batches={Reason.FIRST: 2}), mirrored(200)),
    listener("apps", CoalesceStatistics(taken=5)),
    listener(ODD, LegacyStatistics()),
)


class _Of(Collector):
    def __init__(self, found: Snapshot) -> None:
        self._found = found

    def collect(self) -> Iterator[Any]:
        for metric in METRICS:
            yield family(metric, metric.read(self._found))


def by_library(encode: Callable[[Collector], bytes], found: Snapshot) -> str:
    return encode(_Of(found)).decode().removesuffix("# EOF\n")


@pytest.mark.parametrize("encode", FORMATS)
def test_the_text_is_the_librarys(encode: Callable[[Collector], bytes]) -> None:
    exposition = Exposition(encode)
    for found in (snapshot(*BUSY), snapshot(), snapshot(*BUSY[:1]), snapshot(*BUSY)):  # series come and go
        assert "".join(exposition.pieces(found)) == by_library(encode, found)


def test_two_scrapes_at_once_are_whole() -> None:
    exposition, found = Exposition(generate_latest), snapshot(*BUSY)
    one, other = exposition.pieces(found), exposition.pieces(found)
    both = [(first, second) for first, second in zip(one, other, strict=True)]
    wanted = by_library(generate_latest, found)
    assert "".join(first for first, _ in both) == "".join(second for _, second in both) == wanted


def test_pieces_are_small() -> None:
    most = max(piece.count("\n") for piece in Exposition(generate_latest).pieces(snapshot(*BUSY)))
    assert most < 100


def test_partitions_that_are_furthest_behind_have_labels() -> None:
    found = lags(listener("source", mirrored(MOST_PARTITIONS + 500)), by_topic=True)
    assert [labels for labels, _ in found] == [
        ("orders", str(number)) for number in range(MOST_PARTITIONS + 499, 499, -1)
    ]


def test_without_topics_the_lag_is_that_of_the_listener() -> None:
    assert lags(listener("source", mirrored(5)), by_topic=False) == [
        (("", ""), Lag(records=10, size=15.0, seconds=0.4))
    ]
    assert lags(listener("source", mirrored(0)), by_topic=False) == []
    assert lags(listener("apps", CoalesceStatistics()), by_topic=False) == []
