"""The board: rows of panels, each with its queries. `grafana` makes JSON of it, `charts` a picture.

In a query, `{of_shoal}` selects the Shoals that are chosen on the board, `{of_listener}` their listeners that are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

__all__ = ["ROWS", "Panel", "Query", "Row", "Steps", "expression"]

_OF_SHOAL: Final = 'job=~"$job",instance=~"$instance"'
_OF_LISTENER: Final = f'{_OF_SHOAL},listener=~"$listener"'


class Query(NamedTuple):
    text: str
    legend: str = ""


class Steps(NamedTuple):
    """Where the colour of a figure changes to orange and to red. `upward`: large figures are bad."""

    warning: float
    critical: float
    upward: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"  # Grafana's name
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 8  # of 24
    stacked: bool = False
    steps: Steps | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def expression(query: Query) -> str:
    return query.text.replace("{of_shoal", f"{{{_OF_SHOAL}").replace("{of_listener", f"{{{_OF_LISTENER}")


def _stat(title: str, text: str, unit: str = "short", *, steps: Steps | None = None, legend: str = "") -> Panel:
    return Panel(title=title, queries=(Query(text, legend),), unit=unit, kind="stat", width=4, steps=steps)


def _rate(metric: str, by: str, select: str = "of_listener") -> str:
    return f"sum by ({by}) (rate({metric}{{{select}}}[$__rate_interval]))"


def _so_far(metric: str, select: str) -> str:
    return f"round(sum(increase({metric}{{{select}}}[$__range])))"


def _quantile(quantile: float, metric: str, by: str = "api", select: str = "of_listener") -> str:
    buckets = f"rate({metric}_bucket{{{select}}}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by ({', '.join(['le', by]) if by else 'le'}) ({buckets}))"


ROWS: Final = (
    Row(
        title="Overview",
        panels=(
            _stat("Shoals that answer", "count(shoal_build_info{of_shoal})", steps=Steps(1, 1, upward=False)),
            _stat(
                "Clusters that answer",
                "avg(shoal_cluster_reachable{of_shoal})",
                "percentunit",
                steps=Steps(1, 0.5, upward=False),
            ),
            _stat("Client connections", "sum(shoal_connections{of_listener})"),
            _stat(
                "From and to clients",
                f"sum({_rate('shoal_client_received_bytes_total', 'instance')})"
                f" + sum({_rate('shoal_client_sent_bytes_total', 'instance')})",
                "Bps",
            ),
            _stat("Mirror lag", "max(shoal_mirror_lag_seconds{of_listener})", "s", steps=Steps(60, 300)),
            _stat(
                "Batches in envelopes",
                "sum(rate(shoal_wrapped_batches_total{of_listener}[$__rate_interval])) / ("
                "sum(rate(shoal_wrapped_batches_total{of_listener}[$__rate_interval]))"
                " + (sum(rate(shoal_raw_batches_total{of_listener}[$__rate_interval])) or vector(0)))",
                "percentunit",
            ),
            _stat(
                "Mismatches",
                _so_far("shoal_mismatches_total", "of_listener"),
                steps=Steps(0.5, 0.5),
            ),
            _stat("Gaps", _so_far("shoal_mirror_gaps_total", "of_listener"), steps=Steps(0.5, 0.5)),
            _stat(
                "Partitions stopped at a gap",
                'sum(shoal_mirror_partitions{of_listener,state="stopped"})',
                steps=Steps(1, 1),
            ),
            _stat(
                "Next certificate expires in",
                "min(shoal_certificate_expiry_timestamp_seconds{of_shoal}) - time()",
                "s",
                steps=Steps(14 * 86_400, 2 * 86_400, upward=False),
            ),
            _stat(
                "Errors in the log",
                _so_far("shoal_log_lines_total", 'of_shoal,level=~"error|critical"'),
                steps=Steps(1, 10),
            ),
            _stat("Version", "count by (version) (shoal_build_info{of_shoal})", legend="{{version}}"),
        ),
    ),
    Row(
        title="Traffic",
        panels=(
            Panel(
                title="Requests by API",
                queries=(Query(_rate("shoal_requests_total", "api"), "{{api}}"),),
                unit="reqps",
                stacked=True,
            ),
            Panel(
                title="Bytes by API and direction",
                queries=(Query(_rate("shoal_request_bytes_total", "api, direction"), "{{api}} {{direction}}"),),
                unit="Bps",
                stacked=True,
            ),
            Panel(
                title="Bytes of clients and brokers",
                queries=(
                    Query(_rate("shoal_client_received_bytes_total", "listener"), "{{listener}} from clients"),
                    Query(_rate("shoal_broker_sent_bytes_total", "listener"), "{{listener}} to brokers"),
                    Query(_rate("shoal_broker_received_bytes_total", "listener"), "{{listener}} from brokers"),
                    Query(_rate("shoal_client_sent_bytes_total", "listener"), "{{listener}} to clients"),
                ),
                unit="Bps",
                note="What differs is what Shoal changes: envelopes, coalesced requests, conversions, own requests.",
            ),
            Panel(
                title="Time in Shoal, 99 of 100 requests",
                queries=(Query(_quantile(0.99, "shoal_request_proxy_seconds"), "{{api}}"),),
                unit="s",
                note="Waits of features included: linger of coalescing, the interlock, the memory budget.",
            ),
            Panel(
                title="Time at the broker, 99 of 100 requests",
                queries=(Query(_quantile(0.99, "shoal_request_broker_seconds"), "{{api}}"),),
                unit="s",
                note="Fetch and JoinGroup wait there for data and for other members.",
            ),
            Panel(
                title="Requests without an answer yet",
                queries=(Query("sum by (listener) (shoal_in_flight_requests{of_listener})", "{{listener}}"),),
            ),
        ),
    ),
    Row(
        title="Connections",
        panels=(
            Panel(
                title="Connections by state",
                queries=(Query("sum by (state) (shoal_connections{of_listener})", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                title="Connections that ended, by cause",
                queries=(Query(_rate("shoal_connections_closed_total", "cause") + " > 0", "{{cause}}"),),
                unit="cps",
            ),
            Panel(
                title="New connections and TLS handshakes",
                queries=(
                    Query(_rate("shoal_connections_opened_total", "listener"), "{{listener}} connections"),
                    Query(_rate("shoal_tls_handshakes_total", "listener, result"), "{{listener}} TLS {{result}}"),
                ),
                unit="cps",
            ),
        ),
    ),
    Row(
        title="Mirrors",
        panels=(
            Panel(
                title="Lag, of what is furthest behind",
                note="Partitions have series with `admin.topic-labels`.",
                queries=(
                    Query("topk(10, shoal_mirror_lag_seconds{of_listener})", "{{listener}} {{topic}} {{partition}}"),
                ),
                unit="s",
            ),
            Panel(
                title="Lag in records and bytes",
                queries=(
                    Query("sum by (listener) (shoal_mirror_lag_records{of_listener})", "{{listener}} records"),
                    Query("sum by (listener) (shoal_mirror_lag_bytes{of_listener})", "{{listener}} bytes"),
                ),
            ),
            Panel(
                title="Partitions by state",
                queries=(Query("sum by (state) (shoal_mirror_partitions{of_listener})", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                title="Batches: in envelopes, and raw by reason",
                queries=(
                    Query(_rate("shoal_wrapped_batches_total", "listener"), "{{listener}} in envelopes"),
                    Query(_rate("shoal_raw_batches_total", "reason"), "raw: {{reason}}"),
                ),
                unit="cps",
                stacked=True,
            ),
            Panel(
                title="Topics by state of the interlock",
                queries=(Query("sum by (state) (shoal_interlock_topics{of_listener})", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                title="Envelopes",
                queries=(
                    Query(_rate("shoal_envelopes_total", "listener"), "{{listener}} sent"),
                    Query(_rate("shoal_claim_checks_total", "listener"), "{{listener}} sent as claim checks"),
                    Query(_rate("shoal_claim_checks_read_again_total", "listener"), "{{listener}} read again"),
                    Query(_rate("shoal_opened_envelopes_total", "listener"), "{{listener}} opened"),
                    Query(_rate("shoal_reconciled_envelopes_total", "listener"), "{{listener}} reconciled"),
                ),
                unit="cps",
                note="Read again: batches that the mirror did not take in time, or that another Shoal had given to it.",
            ),
            Panel(
                title="Appended batches per produce request",
                queries=(
                    Query(
                        f"{_rate('shoal_appended_batches_total', 'listener')}"
                        f" / ({_rate('shoal_target_produce_requests_total', 'listener')} > 0)",
                        "{{listener}}",
                    ),
                ),
                note="1 with stock brokers: each takes one batch per partition and request.",
            ),
            Panel(
                title="Appended bytes",
                queries=(Query(_rate("shoal_appended_bytes_total", "listener"), "{{listener}}"),),
                unit="Bps",
            ),
            Panel(
                title="Gaps, mismatches, errors of the target",
                queries=(
                    Query("sum by (kind) (shoal_mirror_gaps_total{of_listener})", "gap: {{kind}}"),
                    Query("sum by (kind) (shoal_mismatches_total{of_listener})", "mismatch: {{kind}}"),
                    Query("sum(shoal_target_partition_errors_total{of_listener})", "errors of the target"),
                    Query("sum(shoal_retried_batches_suppressed_total{of_listener})", "batches not appended twice"),
                ),
                note="Since the start of each Shoal.",
            ),
        ),
    ),
    Row(
        title="Coalescing and several batches per request",
        panels=(
            Panel(
                title="Produce requests of clients, and sent",
                queries=(
                    Query(_rate("shoal_coalesced_client_requests_total", "listener"), "{{listener}} joined"),
                    Query(_rate("shoal_coalesced_requests_total", "listener"), "{{listener}} sent"),
                    Query(_rate("shoal_uncoalesced_client_requests_total", "reason"), "alone: {{reason}}"),
                ),
                unit="reqps",
            ),
            Panel(
                title="Requests saved",
                queries=(
                    Query(
                        f"1 - {_rate('shoal_coalesced_requests_total', 'listener')}"
                        f" / ({_rate('shoal_coalesced_client_requests_total', 'listener')} > 0)",
                        "{{listener}}",
                    ),
                ),
                unit="percentunit",
            ),
            Panel(
                title="Brokers by the proof of several batches",
                queries=(
                    Query("sum by (cluster, result) (shoal_multi_batch_brokers{of_shoal})", "{{cluster}} {{result}}"),
                ),
            ),
        ),
    ),
    Row(
        title="Clients of Kafka 0.8 to 0.10",
        panels=(
            Panel(
                title="Record sets converted",
                queries=(
                    Query(_rate("shoal_legacy_down_conversions_total", "listener"), "{{listener}} for consumers"),
                    Query(_rate("shoal_legacy_up_conversions_total", "listener"), "{{listener}} of producers"),
                ),
                unit="cps",
            ),
            Panel(
                title="Share of a core for conversion",
                queries=(
                    Query(_rate("shoal_legacy_down_conversion_seconds_total", "listener"), "{{listener}} consumers"),
                    Query(_rate("shoal_legacy_up_conversion_seconds_total", "listener"), "{{listener}} producers"),
                ),
                unit="percentunit",
            ),
            Panel(
                title="Waits for the memory budget, errors",
                queries=(
                    Query(_rate("shoal_legacy_budget_wait_seconds_total", "listener"), "{{listener}} seconds waited"),
                    Query(_rate("shoal_legacy_evictions_total", "listener"), "{{listener}} evictions"),
                    Query(_rate("shoal_legacy_fetch_errors_total", "listener"), "{{listener}} fetch errors"),
                    Query(_rate("shoal_legacy_produce_errors_total", "listener"), "{{listener}} produce errors"),
                ),
            ),
        ),
    ),
    Row(
        title="Process",
        panels=(
            Panel(
                title="CPU",
                queries=(
                    Query("rate(process_cpu_seconds_total{of_shoal}[$__rate_interval])", "{{instance}}"),
                    Query("rate(shoal_admin_busy_seconds_total{of_shoal}[$__rate_interval])", "{{instance}} admin"),
                ),
                unit="percentunit",
                note="One core is all that one Shoal can use for its clients.",
            ),
            Panel(
                title="Memory",
                queries=(
                    Query("process_resident_memory_bytes{of_shoal}", "{{instance}}"),
                    Query("sum by (listener, holder) (shoal_held_bytes{of_listener})", "held: {{listener}} {{holder}}"),
                ),
                unit="bytes",
            ),
            Panel(
                title="How late the event loop is",
                queries=(
                    Query(_quantile(0.5, "shoal_event_loop_lag_seconds", "", "of_shoal"), "half of the time"),
                    Query(_quantile(0.99, "shoal_event_loop_lag_seconds", "", "of_shoal"), "99 of 100"),
                ),
                unit="s",
            ),
            Panel(
                title="Descriptors",
                queries=(
                    Query("process_open_fds{of_shoal}", "{{instance}} open"),
                    Query("process_max_fds{of_shoal}", "{{instance}} limit"),
                ),
            ),
            Panel(
                title="Capture: rows and frames",
                queries=(
                    Query("sum(rate(shoal_capture_rows_written_total{of_shoal}[$__rate_interval]))", "rows written"),
                    Query("sum(rate(shoal_capture_rows_dropped_total{of_shoal}[$__rate_interval]))", "rows dropped"),
                    Query("sum(rate(shoal_raw_capture_frames_written_total{of_shoal}[$__rate_interval]))", "frames"),
                    Query("sum(rate(shoal_raw_capture_frames_lost_total{of_shoal}[$__rate_interval]))", "frames lost"),
                ),
                unit="cps",
            ),
            Panel(
                title="Lines of the log",
                queries=(Query(_rate("shoal_log_lines_total", "level", "of_shoal"), "{{level}}"),),
                unit="cps",
            ),
        ),
    ),
)
