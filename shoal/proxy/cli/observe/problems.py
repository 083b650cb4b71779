"""What is wrong with a running Shoal, by its status: one line each, for `shoal status` and `shoal top`.

What takes its time is no problem: a mirror that the interlock has yet to know, lag. What an operator must look at is.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.cli.observe.documents import Certificate, Listener, Ready, Status

__all__ = ["problems", "unwrapped"]

_STUCK: Final = frozenset({"failed", "stopped", "ambiguous"})  # states of a topic that do not end by themselves
_SERVES: Final = frozenset({"serving"})
_CERTIFICATE_DAYS: Final = 7.0
_LATE_SECONDS: Final = 1.0  # of the event loop


def problems(status: Status, ready: Ready, now: float) -> list[str]:
    """`now`: seconds since 1970."""
    return [*_not_ready(status, ready), *_of_process(status, now), *_of_listeners(status.listeners)]


def unwrapped(listener: Listener) -> Iterator[tuple[str, str, str, str]]:
    """(mirror, topic, state, why) of each topic that is not wrapped."""
    for flow in listener.flows:
        for topic in flow.topics:
            if topic.state != "wrapped":
                yield flow.client_id, topic.topic, topic.state, topic.why or ""


def _not_ready(status: Status, ready: Ready) -> Iterator[str]:
    for kind, reasons in (("cluster", ready.clusters), ("listener", ready.listeners)):
        for name, why in reasons.items():
            if why is not None:
                yield f"{kind} {name!r}: {why}"
    for number, why in ready.workers.items():
        if why is not None:
            yield f"worker {number}: {why}"
    if status.state not in _SERVES:
        yield f"Shoal does not serve new clients: its state is {status.state}"


def _of_process(status: Status, now: float) -> Iterator[str]:
    lags = {"": status.loop_lag_seconds, **{f" of worker {x.worker}": x.loop_lag_seconds or 0 for x in status.workers}}
    for whose, seconds in lags.items():
        if seconds >= _LATE_SECONDS:
            yield f"the event loop{whose} is {seconds:.1f} s late: too little CPU, or an error in Shoal"
    for certificate in status.certificates:
        days = _days_left(certificate, now)
        if days < _CERTIFICATE_DAYS:
            when = "has expired" if days <= 0 else f"expires in {days:.1f} days"
            yield f"{certificate.where}: the certificate {certificate.file} {when} ({certificate.expires}): renew it"
    if status.capture is not None and status.capture.dropped:
        yield f"capture: {status.capture.dropped} rows could not be written"
    if status.raw_capture is not None and status.raw_capture.lost:
        yield f"raw-capture: {status.raw_capture.lost} frames could not be written"


def _days_left(certificate: Certificate, now: float) -> float:
    """Infinite if the time cannot be read."""
    try:
        expires = datetime.fromisoformat(certificate.expires)
    except ValueError:
        return float("inf")
    return (expires.timestamp() - now) / 86_400


def _of_listeners(listeners: list[Listener]) -> Iterator[str]:
    for listener in listeners:
        where = f"listener {listener.name!r}"
        if listener.clusters_differ is False and listener.connections:
            yield f"{where}: nothing is wrapped: its pair is not known to be two clusters (same-cluster, cluster ids)"
        for mirror, topic, state, why in unwrapped(listener):
            if state in _STUCK:
                yield f"{where}: {mirror}: topic {topic} is not wrapped ({state}): {why}"
        for kind, count in listener.mismatches.items():
            if count:
                yield f"{where}: {count} mismatches of kind {kind}: compare source and target (docs/troubleshooting.md)"
        for kind, count in listener.gaps.items():
            if count:
                yield f"{where}: {count} gaps ({kind}): source records that are not mirrored; the log has their offsets"
        if listener.stopped_partitions:
            yield f"{where}: {listener.stopped_partitions} partitions are refused to the mirror at a gap"
        for copy in listener.same_offsets.stopped if listener.same_offsets is not None else ():
            yield f"{where}: {copy.topic}-{copy.partition} is not mirrored with its offsets: {copy.why}"
        for topic, why in listener.same_offsets.undecided.items() if listener.same_offsets is not None else ():
            yield f"{where}: {topic} waits, because it is not known whether it keeps its offsets: {why}"
        if listener.state_errors:
            yield f"{where}: {listener.state_errors} state files could not be written: see the log"
