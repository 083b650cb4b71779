"""The counters of several workers -> those of one Shoal.

counters, histograms   added
gauges                 of connections, requests and bytes: added; of what each worker knows of a broker or a
                       cluster: the worst
an ended worker        what it has counted stays (`kept`), or rate() would take the sum for a restart; its gauges
                       are 0, and its connections were closed by an error of Shoal
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from shoal.proxy.admin.share import ShareStatistics
from shoal.proxy.shallow.monitor.statistics import MirrorStatistics
from shoal.proxy.statistics import (
    ApiCounters,
    CaptureStatistics,
    CloseCause,
    Histogram,
    ListenerStatistics,
    RawStatistics,
    ServerStatistics,
    Traffic,
    with_earlier,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shoal.proxy.admin.metrics.metric import Snapshot

__all__ = ["added", "added_statistics", "kept", "with_workers"]

K = TypeVar("K")
N = TypeVar("N", int, float)
S = TypeVar("S", CaptureStatistics, RawStatistics)


def with_workers(own: Snapshot, workers: Sequence[Snapshot]) -> Snapshot:
    """`own`: of the supervisor, whose statistics are those of the workers, already added."""
    all_of_them = [own, *workers]
    return replace(
        own,
        proofs=_largest(snapshot.proofs for snapshot in all_of_them),
        reachable=_all(snapshot.reachable for snapshot in all_of_them),
        loop_lag=reduce(_added_histograms, (snapshot.loop_lag for snapshot in all_of_them)),
        share=ShareStatistics(
            seconds=sum(snapshot.share.seconds for snapshot in all_of_them),
            longest=max(snapshot.share.longest for snapshot in all_of_them),
        ),
        log_lines=_sums(snapshot.log_lines for snapshot in all_of_them),
    )


def added(several: Sequence[Snapshot]) -> Snapshot:
    """The counters of ended workers."""
    first, *more = several
    return with_workers(replace(first, server=added_statistics((), [part.server for part in several])), more)


def added_statistics(names: Iterable[str], workers: Sequence[ServerStatistics]) -> ServerStatistics:
    """`names`: of the listeners, in their order; those that were removed follow.

    `workers`: the ended ones last, because the gauges of a mirror are those of the first.
    """
    known = dict.fromkeys([*names, *(listener.name for worker in workers for listener in worker.listeners)])
    found = [[x for worker in workers for x in worker.listeners if x.name == name] for name in known]
    return ServerStatistics(
        listeners=tuple(reduce(_added_listeners, several) for several in found if several),
        capture=_added_captures([worker.capture for worker in workers if worker.capture is not None]),
        raw_capture=_added_captures([worker.raw_capture for worker in workers if worker.raw_capture is not None]),
    )


def kept(ended: Snapshot) -> Snapshot:
    """The counters of a worker that has ended."""
    return replace(
        ended,
        server=replace(ended.server, listeners=tuple(map(_kept_listener, ended.server.listeners))),
        proofs={},
        reachable={},
        lags={},
    )


def _kept_listener(listener: ListenerStatistics) -> ListenerStatistics:
    closed = Counter(listener.closed)
    closed[CloseCause.INTERNAL] += listener.active
    path = tuple(
        replace(statistics, copied=(), stopped=0, left_out=0)
        if isinstance(statistics, MirrorStatistics)
        else statistics
        for statistics in listener.path
    )
    return replace(listener, active=0, closed=dict(closed), in_flight=0, ports={}, states={}, gauges={}, path=path)


def _added_listeners(one: ListenerStatistics, other: ListenerStatistics) -> ListenerStatistics:
    traffic = Traffic()
    traffic.add(one.traffic)
    traffic.add(other.traffic)
    return ListenerStatistics(
        name=one.name,
        opened=one.opened + other.opened,
        active=one.active + other.active,
        closed=_sums((one.closed, other.closed)),
        traffic=traffic,
        ports={**one.ports, **other.ports},
        in_flight=one.in_flight + other.in_flight,
        state_errors=one.state_errors + other.state_errors,
        path=with_earlier(one.path, other.path),
        states=_sums((one.states, other.states)),
        handshakes=_sums((one.handshakes, other.handshakes)),
        apis={
            api: _added_apis([x.apis[api] for x in (one, other) if api in x.apis])
            for api in dict.fromkeys([*one.apis, *other.apis])
        },
        gauges={
            name: _sums(x.gauges[name] for x in (one, other) if name in x.gauges)
            for name in dict.fromkeys([*one.gauges, *other.gauges])
        },
    )


def _added_apis(several: Sequence[ApiCounters]) -> ApiCounters:
    return ApiCounters(
        requests=sum(part.requests for part in several),
        request_bytes=sum(part.request_bytes for part in several),
        answers=sum(part.answers for part in several),
        answer_bytes=sum(part.answer_bytes for part in several),
        broker=reduce(_added_histograms, (part.broker for part in several)),
        shoal=reduce(_added_histograms, (part.shoal for part in several)),
    )


def _added_histograms(one: Histogram, other: Histogram) -> Histogram:
    assert list(one.bounds) == list(other.bounds)
    made = Histogram(one.bounds)
    made.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
    made.sum = one.sum + other.sum
    return made


def _added_captures(several: Sequence[S]) -> S | None:
    if not several:
        return None
    kind = type(several[0])
    return kind(**{field.name: sum(getattr(part, field.name) for part in several) for field in fields(kind)})


def _sums(several: Iterable[Mapping[K, N]]) -> dict[K, N]:
    found: dict[K, N] = {}
    for part in several:
        for key, value in part.items():
            found[key] = found[key] + value if key in found else value
    return found


def _largest(several: Iterable[Mapping[K, float]]) -> dict[K, float]:
    found: dict[K, float] = {}
    for part in several:
        for key, value in part.items():
            found[key] = max(found.get(key, value), value)
    return found


def _all(several: Iterable[Mapping[K, bool]]) -> dict[K, bool]:
    found: dict[K, bool] = {}
    for part in several:
        for key, value in part.items():
            found[key] = found.get(key, True) and value
    return found
