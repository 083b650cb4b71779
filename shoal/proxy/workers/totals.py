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
        proofs=_largest(one.proofs for one in all_of_them),
        reachable=_all(one.reachable for one in all_of_them),
        loop_lag=reduce(_added_histograms, (one.loop_lag for one in all_of_them)),
        share=ShareStatistics(
            seconds=sum(one.share.seconds for one in all_of_them),
            longest=max(one.share.longest for one in all_of_them),
        ),
        log_lines=_sums(one.log_lines for one in all_of_them),
    )


def added(several: Sequence[Snapshot]) -> Snapshot:
    """The counters of ended workers."""
    first, *more = several
    return with_workers(replace(first, server=added_statistics((), [one.server for one in several])), more)


def added_statistics(names: Iterable[str], workers: Sequence[ServerStatistics]) -> ServerStatistics:
    """`names`: of the listeners, in their order; those that were removed follow.

    `workers`: the ended ones last, because the gauges of a mirror are those of the first.
    """
    known = dict.fromkeys([*names, *(listener.name for one in workers for listener in one.listeners)])
    found = [[x for one in workers for x in one.listeners if x.name == name] for name in known]
    return ServerStatistics(
        listeners=tuple(reduce(_added_listeners, several) for several in found if several),
        capture=_added_captures([one.capture for one in workers if one.capture is not None]),
        raw_capture=_added_captures([one.raw_capture for one in workers if one.raw_capture is not None]),
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
        replace(one, copied=(), stopped=0, left_out=0) if isinstance(one, MirrorStatistics) else one
        for one in listener.path
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
        requests=sum(one.requests for one in several),
        request_bytes=sum(one.request_bytes for one in several),
        answers=sum(one.answers for one in several),
        answer_bytes=sum(one.answer_bytes for one in several),
        broker=reduce(_added_histograms, (one.broker for one in several)),
        shoal=reduce(_added_histograms, (one.shoal for one in several)),
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
    return kind(**{field.name: sum(getattr(one, field.name) for one in several) for field in fields(kind)})


def _sums(several: Iterable[Mapping[K, N]]) -> dict[K, N]:
    found: dict[K, N] = {}
    for one in several:
        for key, value in one.items():
            found[key] = found[key] + value if key in found else value
    return found


def _largest(several: Iterable[Mapping[K, float]]) -> dict[K, float]:
    found: dict[K, float] = {}
    for one in several:
        for key, value in one.items():
            found[key] = max(found.get(key, value), value)
    return found


def _all(several: Iterable[Mapping[K, bool]]) -> dict[K, bool]:
    found: dict[K, bool] = {}
    for one in several:
        for key, value in one.items():
            found[key] = found.get(key, True) and value
    return found
