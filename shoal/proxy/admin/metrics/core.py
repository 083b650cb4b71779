"""Metrics of every Shoal: connections, traffic, clusters, certificates, captures, the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.admin.metrics.metric import Metric, code
from shoal.proxy.lifecycle.state import ServerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.proxy.admin.metrics.metric import Number, Read, Snapshot, Values
    from shoal.proxy.statistics import ListenerStatistics

__all__ = ["APIS", "CLIENTS", "CLUSTERS", "PROCESS"]


def _each(read: Callable[[ListenerStatistics], Number]) -> Read:
    return lambda snapshot: [((listener.name,), read(listener)) for listener in snapshot.listeners]


def _traffic(name: str) -> Read:
    return _each(lambda listener: getattr(listener.traffic, name))


def _mapped(read: Callable[[Snapshot], Mapping[tuple[str, ...], float]]) -> Read:
    return lambda snapshot: read(snapshot).items()


def _one(read: Callable[[Snapshot], Number]) -> Read:
    return lambda snapshot: [((), read(snapshot))]


def _closed(snapshot: Snapshot) -> Values:
    """All causes, from zero: Prometheus' rate() does not see the first step of a series that begins with it."""
    for listener in snapshot.listeners:
        for cause, count in listener.closed.items():
            yield (listener.name, code(cause)), count


def _gauges(name: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        for listener in snapshot.listeners:
            for label, number in listener.gauges.get(name, {}).items():
                yield (listener.name, label), number

    return read


def _capture(name: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        return [] if snapshot.server.capture is None else [((), getattr(snapshot.server.capture, name))]

    return read


def _raw_capture(name: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        return [] if snapshot.server.raw_capture is None else [((), getattr(snapshot.server.raw_capture, name))]

    return read


def _api(field: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        for listener in snapshot.listeners:
            for api, counters in listener.apis.items():
                yield (listener.name, api), getattr(counters, field)

    return read


def _api_bytes(snapshot: Snapshot) -> Values:
    for listener in snapshot.listeners:
        for api, counters in listener.apis.items():
            yield (listener.name, api, "request"), counters.request_bytes
            yield (listener.name, api, "answer"), counters.answer_bytes


_LISTENER = ("listener",)
_API = ("listener", "api")

APIS = (
    Metric(
        name="shoal_requests_total",
        kind="counter",
        help="Requests from clients, by API.",
        labels=_API,
        read=_api("requests"),
    ),
    Metric(
        name="shoal_answers_total",
        kind="counter",
        help="Answers to clients, by API. Requests with acks=0 have none.",
        labels=_API,
        read=_api("answers"),
    ),
    Metric(
        name="shoal_request_bytes_total",
        kind="counter",
        help="Bytes of requests as clients sent them, and of answers as brokers sent them, or as Shoal made them.",
        labels=(*_API, "direction"),
        read=_api_bytes,
    ),
    Metric(
        name="shoal_request_broker_seconds",
        kind="histogram",
        help="From the last byte of a request sent to the first byte of its answer read: the broker's time. Polls of "
        "consumers wait there for data.",
        labels=_API,
        read=_api("broker"),
    ),
    Metric(
        name="shoal_request_proxy_seconds",
        kind="histogram",
        help="From a request read to sent, and from its answer read to sent: what Shoal adds, waits of features "
        "included (linger, interlock, memory budget).",
        labels=_API,
        read=_api("shoal"),
    ),
)

CLIENTS = (
    Metric(
        name="shoal_connections",
        kind="gauge",
        help="Open client connections by state; accepted ones that have yet to finish a TLS handshake or a PROXY "
        "header are greeting.",
        labels=("listener", "state"),
        read=lambda snapshot: [
            ((listener.name, state), count)
            for listener in snapshot.listeners
            for state, count in listener.states.items()
        ],
    ),
    Metric(
        name="shoal_connections_opened_total",
        kind="counter",
        help="Accepted client connections.",
        labels=_LISTENER,
        read=_each(lambda listener: listener.opened),
    ),
    Metric(
        name="shoal_connections_closed_total",
        kind="counter",
        help="Client connections that have ended, by the first cause; refused ones too.",
        labels=("listener", "cause"),
        read=_closed,
    ),
    Metric(
        name="shoal_client_requests_total",
        kind="counter",
        help="Requests from clients.",
        labels=_LISTENER,
        read=_traffic("requests"),
    ),
    Metric(
        name="shoal_client_answers_total",
        kind="counter",
        help="Answers to clients, of brokers and of Shoal itself.",
        labels=_LISTENER,
        read=_each(lambda listener: sum(counters.answers for counters in listener.apis.values())),
    ),
    Metric(
        name="shoal_own_requests_total",
        kind="counter",
        help="Requests that Shoal sent for itself over clients' connections: proofs, opened envelopes, translations.",
        labels=_LISTENER,
        read=_traffic("asked"),
    ),
    Metric(
        name="shoal_client_received_bytes_total",
        kind="counter",
        help="Bytes from clients.",
        labels=_LISTENER,
        read=_traffic("from_client"),
    ),
    Metric(
        name="shoal_client_sent_bytes_total",
        kind="counter",
        help="Bytes to clients.",
        labels=_LISTENER,
        read=_traffic("to_client"),
    ),
    Metric(
        name="shoal_broker_sent_bytes_total",
        kind="counter",
        help="Bytes to brokers over clients' connections.",
        labels=_LISTENER,
        read=_traffic("to_upstream"),
    ),
    Metric(
        name="shoal_broker_received_bytes_total",
        kind="counter",
        help="Bytes from brokers over clients' connections.",
        labels=_LISTENER,
        read=_traffic("from_upstream"),
    ),
    Metric(
        name="shoal_in_flight_requests",
        kind="gauge",
        help="Requests of clients without an answer now, polls that wait for data included.",
        labels=_LISTENER,
        read=_each(lambda listener: listener.in_flight),
    ),
    Metric(
        name="shoal_held_bytes",
        kind="gauge",
        help="Bytes that a feature holds, against its budget (queue-bytes, budget-bytes, claim-check-bytes).",
        labels=("listener", "holder"),
        read=_gauges("held_bytes"),
    ),
    Metric(
        name="shoal_tls_handshakes_total",
        kind="counter",
        help="TLS handshakes with clients, by result (done, refused).",
        labels=("listener", "result"),
        read=lambda snapshot: [
            ((listener.name, result), count)
            for listener in snapshot.listeners
            for result, count in listener.handshakes.items()
        ],
    ),
)
CLUSTERS = (
    Metric(
        name="shoal_cluster_reachable",
        kind="gauge",
        help="1 if the last attempt to connect to the cluster succeeded; absent before the first.",
        labels=("cluster",),
        read=lambda snapshot: [((name,), float(is_reachable)) for name, is_reachable in snapshot.reachable.items()],
    ),
    Metric(
        name="shoal_multi_batch_brokers",
        kind="gauge",
        help="Brokers by the result of the proof that they take several batches per partition and request.",
        labels=("cluster", "result"),
        read=_mapped(lambda snapshot: snapshot.proofs),
    ),
    Metric(
        name="shoal_certificate_expiry_timestamp_seconds",
        kind="gauge",
        help="When a certificate in use expires; of a file with several, the first.",
        labels=("where", "setting", "file"),
        read=_mapped(lambda snapshot: snapshot.expiries),
    ),
)
PROCESS = (
    Metric(
        name="shoal_build_info",
        kind="info",
        help="Version of Shoal and of Python; always 1.",
        labels=("version", "python"),
        read=lambda snapshot: [((snapshot.version, snapshot.python), 1)],
    ),
    Metric(
        name="shoal_state",
        kind="gauge",
        help="The server's state: 1 for one of serving, waiting_for_clients, draining, ending.",
        labels=("state",),
        read=lambda snapshot: [((state.name.lower(),), float(state is snapshot.state)) for state in ServerState],
    ),
    Metric(
        name="shoal_workers",
        kind="gauge",
        help="Workers by state: starting, serving, draining, ended, and silent for one that does not answer. Absent "
        "with workers = 1, as are the next two.",
        labels=("state",),
        read=lambda snapshot: [((state,), count) for state, count in snapshot.workers.items()],
    ),
    Metric(
        name="shoal_worker_connections",
        kind="gauge",
        help="Open client connections of each worker.",
        labels=("worker",),
        read=lambda snapshot: [((worker,), count) for worker, count in snapshot.worker_connections.items()],
    ),
    Metric(
        name="shoal_worker_ends_total",
        kind="counter",
        help="Workers that have ended by themselves or were killed, and were started again.",
        read=lambda snapshot: [((), snapshot.worker_ends)] if snapshot.workers else [],
    ),
    Metric(
        name="shoal_state_file_errors_total",
        kind="counter",
        help="Files of the state directory that could not be written.",
        labels=_LISTENER,
        read=_each(lambda listener: listener.state_errors),
    ),
    Metric(
        name="shoal_capture_rows_written_total",
        kind="counter",
        help="Rows of the traffic index that were written.",
        read=_capture("written"),
    ),
    Metric(
        name="shoal_capture_rows_dropped_total",
        kind="counter",
        help="Rows of the traffic index that could not be written.",
        read=_capture("dropped"),
    ),
    Metric(
        name="shoal_capture_written_bytes_total",
        kind="counter",
        help="Bytes of the traffic index.",
        read=_capture("bytes"),
    ),
    Metric(
        name="shoal_capture_unread_frames_total",
        kind="counter",
        help="Frames that the traffic index could not read completely.",
        read=_capture("unread"),
    ),
    Metric(
        name="shoal_raw_capture_frames_written_total",
        kind="counter",
        help="Frames that the raw capture wrote.",
        read=_raw_capture("written"),
    ),
    Metric(
        name="shoal_raw_capture_frames_lost_total",
        kind="counter",
        help="Frames of which the raw capture has at most the header.",
        read=_raw_capture("lost"),
    ),
    Metric(
        name="shoal_raw_capture_written_bytes_total",
        kind="counter",
        help="Bytes of the raw capture.",
        read=_raw_capture("bytes"),
    ),
    Metric(
        name="shoal_event_loop_lag_seconds",
        kind="histogram",
        help="How late the event loop was, measured four times a second.",
        read=_one(lambda snapshot: snapshot.loop_lag),
    ),
    Metric(
        name="shoal_admin_busy_seconds_total",
        kind="counter",
        help="CPU seconds of the event loop that admin clients used; at most 5 % of a core.",
        read=_one(lambda snapshot: snapshot.share.seconds),
    ),
    Metric(
        name="shoal_admin_longest_turn_seconds",
        kind="gauge",
        help="The most CPU seconds of the event loop that admin clients used at once since the start.",
        read=_one(lambda snapshot: snapshot.share.longest),
    ),
    Metric(
        name="shoal_log_lines_total",
        kind="counter",
        help="Lines of the log, by level.",
        labels=("level",),
        read=lambda snapshot: [((level,), count) for level, count in snapshot.log_lines.items()],
    ),
)
