"""Counters of several workers, added up: by the rows of /metrics, which are independent of how they are added."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.monitor.gap import GapKind
from shoal.proxy.admin.metrics.exposition import Exposition
from shoal.proxy.admin.metrics.metric import Snapshot
from shoal.proxy.admin.metrics.table import METRICS
from shoal.proxy.admin.share import ShareStatistics
from shoal.proxy.coalesce.counters import CoalesceStatistics
from shoal.proxy.legacy.counters import LegacyStatistics
from shoal.proxy.lifecycle.state import ServerState
from shoal.proxy.net.turns import TurnTable
from shoal.proxy.shallow.monitor.statistics import MirrorStatistics
from shoal.proxy.statistics import (
    ApiCounters,
    CaptureStatistics,
    CloseCause,
    Histogram,
    ListenerStatistics,
    PathStatistics,
    RawStatistics,
    ServerStatistics,
    Traffic,
)
from shoal.proxy.workers.links import Message, Word
from shoal.proxy.workers.process import Program, WorkerProcess
from shoal.proxy.workers.totals import added_statistics, kept, with_workers
from tests.support.admin import values

_WORST = {"shoal_admin_longest_turn_seconds", "shoal_multi_batch_brokers", "shoal_cluster_reachable", "shoal_state"}
_COUNT = st.integers(0, 1000)


@st.composite
def listeners(draw: st.DrawFn, name: str) -> ListenerStatistics:
    opened = draw(st.integers(10, 1000))
    closed = dict.fromkeys(CloseCause, 0) | {CloseCause.CLIENT_CLOSED: draw(st.integers(0, 10))}
    fetch = ApiCounters(requests=draw(_COUNT), request_bytes=draw(_COUNT), answers=draw(_COUNT))
    fetch.broker.observe(draw(st.sampled_from([0.001, 0.3, 100.0])))
    path: tuple[PathStatistics, ...] = (
        CoalesceStatistics(taken=draw(_COUNT), requests=draw(_COUNT)),
        LegacyStatistics(fetches=draw(_COUNT), seconds=float(draw(_COUNT))),
    )
    active = opened - sum(closed.values())
    return ListenerStatistics(
        name=name,
        opened=opened,
        active=active,
        closed=closed,
        traffic=Traffic(requests=draw(_COUNT), from_client=draw(_COUNT)),
        ports={1: 19093},
        in_flight=draw(_COUNT),
        path=path,
        states={"open": active},
        apis={draw(st.sampled_from(["Fetch", "Produce"])): fetch},
        gauges={"held_bytes": {"coalescing": float(draw(_COUNT))}},
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    lag = Histogram((0.001, 1.0))
    lag.observe(draw(st.sampled_from([0.0, 0.5, 2.0])))
    names = draw(st.lists(st.sampled_from(["a", "b"]), unique=True))
    return Snapshot(
        server=ServerStatistics(
            listeners=tuple(draw(listeners(name)) for name in names),
            capture=CaptureStatistics(written=draw(_COUNT)),
            raw_capture=RawStatistics(lost=draw(_COUNT)),
        ),
        version="1",
        python="3",
        state=ServerState.SERVING,
        expiries={},
        proofs={("c", "stores"): float(draw(st.integers(0, 3)))},
        reachable={"c": draw(st.booleans())},
        loop_lag=lag,
        share=ShareStatistics(float(draw(_COUNT)), float(draw(_COUNT))),
        log_lines={"info": draw(_COUNT)},
        lags={},
    )


def text(found: Snapshot) -> dict[tuple[str, ...], float]:
    from prometheus_client.exposition import generate_latest

    return values("".join(Exposition(generate_latest).pieces(found)).encode())


def total(own: Snapshot, workers: list[Snapshot]) -> Snapshot:
    server = added_statistics(["a", "b"], [worker.server for worker in workers])
    return with_workers(replace(own, server=server), workers)


NOTHING = replace(
    Snapshot(
        server=ServerStatistics(listeners=()),
        version="1",
        python="3",
        state=ServerState.SERVING,
        expiries={},
        proofs={},
        reachable={},
        loop_lag=Histogram((0.001, 1.0)),
        share=ShareStatistics(0.0, 0.0),
        log_lines={},
        lags={},
    )
)


@given(st.lists(snapshots(), min_size=1, max_size=4))
def test_each_series_is_the_sum_of_the_workers_series(workers: list[Snapshot]) -> None:
    wanted: dict[tuple[str, ...], float] = defaultdict(float)
    for worker in workers:
        for series, value in text(worker).items():
            wanted[series] += value
    found = text(total(NOTHING, workers))
    assert found.keys() == wanted.keys()
    for series, value in found.items():
        if series[0] not in _WORST and series[0] != "shoal_build_info":
            assert value == wanted[series], series


@given(st.lists(snapshots(), min_size=1, max_size=4))
def test_what_workers_know_of_brokers_is_the_worst(workers: list[Snapshot]) -> None:
    found = total(NOTHING, workers)
    assert found.reachable == {"c": all(worker.reachable["c"] for worker in workers)}
    assert found.proofs == {("c", "stores"): max(worker.proofs["c", "stores"] for worker in workers)}
    assert found.share.longest == max(worker.share.longest for worker in workers)


@given(snapshots())
def test_an_ended_worker_keeps_its_counters_and_has_no_connections(worker: Snapshot) -> None:
    before, after = text(worker), text(total(NOTHING, [kept(worker)]))
    counters = {metric.name for metric in METRICS if metric.kind == "counter"} - {"shoal_connections_closed_total"}
    assert {s: v for s, v in after.items() if s[0] in counters} == {s: v for s, v in before.items() if s[0] in counters}
    for listener in kept(worker).server.listeners:
        assert listener.active == 0 == listener.opened - sum(listener.closed.values())
        assert listener.in_flight == 0
        assert not listener.states


@given(snapshots(), snapshots())
def test_no_answer_replaces_the_last_counters_of_a_worker(answered: Snapshot, last: Snapshot) -> None:
    """An answer may be waiting when the worker says that it ends."""
    table = TurnTable.create(1)
    worker = WorkerProcess(1, Program(table), dict, lambda *_: None)
    worker.count(answered)
    assert worker.counters is answered
    worker.hear(Message(Word.ENDED, last))
    worker.count(answered)
    assert worker.counters is last
    table.close()


def test_a_mirrors_lag_ends_with_its_worker_and_its_gaps_stay() -> None:
    def worker(mirror: MirrorStatistics) -> Snapshot:
        listener = ListenerStatistics(
            name="w", opened=0, active=0, closed={}, traffic=Traffic(), ports={}, path=(mirror,)
        )
        return replace(NOTHING, server=ServerStatistics(listeners=(listener,)))

    gaps = dict.fromkeys(GapKind, 0) | {GapKind.DELETED: 2}
    ended = kept(worker(MirrorStatistics(stopped=3, left_out=1, gaps=gaps)))
    (left,) = ended.server.listeners[0].path
    assert isinstance(left, MirrorStatistics)
    assert not any(left.partitions().values())
    server = added_statistics(["w"], [worker(MirrorStatistics(stopped=1, gaps=gaps)).server, ended.server])
    (both,) = server.listeners[0].path
    assert isinstance(both, MirrorStatistics)
    assert both.partitions()["stopped"] == 1
    assert both.gaps[GapKind.DELETED] == 4
