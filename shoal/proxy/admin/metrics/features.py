"""Metrics of shallow mirroring, coalescing and legacy clients: the counters of each path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.shallow.unwrap.reconcile import Mismatch
from shoal.proxy.admin.metrics.metric import Metric, code, of_path
from shoal.proxy.coalesce.counters import CoalesceStatistics
from shoal.proxy.legacy.counters import LegacyStatistics
from shoal.proxy.shallow.counters import ShallowStatistics

if TYPE_CHECKING:
    from shoal.proxy.admin.metrics.metric import Read, Snapshot, Values
    from shoal.proxy.statistics import PathStatistics

__all__ = ["COALESCING", "LEGACY", "SHALLOW"]

_LISTENER = ("listener",)


def _counters(kind: type[PathStatistics], rows: dict[str, tuple[str, str]]) -> tuple[Metric, ...]:
    """`rows`: field -> (name, help)."""
    return tuple(
        Metric(name=name, kind="counter", help=help, labels=_LISTENER, read=_field(kind, field))
        for field, (name, help) in rows.items()
    )


def _field(kind: type[PathStatistics], field: str) -> Read:
    return lambda snapshot: [((name,), getattr(statistics, field)) for name, statistics in of_path(kind, snapshot)]


def _reasons(kind: type[PathStatistics], field: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        for name, statistics in of_path(kind, snapshot):
            for reason, count in getattr(statistics, field).items():
                yield (name, code(reason)), count

    return read


def _mismatches(snapshot: Snapshot) -> Values:
    """Each kind from the start: an alert must see the first one as an increase."""
    for name, statistics in of_path(ShallowStatistics, snapshot):
        for kind in Mismatch:
            yield (name, code(kind)), statistics.mismatches.get(kind, 0)


def _topics(snapshot: Snapshot) -> Values:
    for listener in snapshot.listeners:
        for state, count in listener.gauges.get("interlock_topics", {}).items():
            yield (listener.name, state), count


def _same_offsets(snapshot: Snapshot) -> Values:
    for listener in snapshot.listeners:
        for state, count in listener.gauges.get("same_offsets", {}).items():
            yield (listener.name, state), count


SHALLOW = (
    *_counters(
        ShallowStatistics,
        {
            "envelopes": ("shoal_envelopes_total", "Envelopes sent to mirrors."),
            "claim_checks": ("shoal_claim_checks_total", "Sent envelopes whose batches stay with Shoal."),
            "wrapped_batches": ("shoal_wrapped_batches_total", "Source batches in envelopes."),
            "wrapped_records": ("shoal_wrapped_records_total", "Records in envelopes."),
            "wrapped_bytes": ("shoal_wrapped_bytes_total", "Bytes of source batches in envelopes, compressed."),
            "opened_envelopes": ("shoal_opened_envelopes_total", "Envelopes that came back and were opened."),
            "read_again": (
                "shoal_claim_checks_read_again_total",
                "Claim checks whose batches were read from the source again.",
            ),
            "unwrapped_batches": ("shoal_appended_batches_total", "Batches of envelopes that the target acknowledged."),
            "unwrapped_records": ("shoal_appended_records_total", "Records of envelopes that the target acknowledged."),
            "unwrapped_bytes": ("shoal_appended_bytes_total", "Bytes of these batches, compressed."),
            "produce_requests": (
                "shoal_target_produce_requests_total",
                "Produce requests with unwrapped batches. Appended batches per request: divide "
                "shoal_appended_batches_total by this.",
            ),
            "retries_suppressed": (
                "shoal_retried_batches_suppressed_total",
                "Batches of a mirror's retries that were appended before, and so not again.",
            ),
            "partition_errors": ("shoal_target_partition_errors_total", "Errors of the target for unwrapped batches."),
            "reconciled_envelopes": (
                "shoal_reconciled_envelopes_total",
                "Envelopes that were appended whole, with as many target offsets as records.",
            ),
        },
    ),
    Metric(
        name="shoal_raw_batches_total",
        kind="counter",
        help="Source batches that were sent to mirrors as they are, by reason.",
        labels=("listener", "reason"),
        read=_reasons(ShallowStatistics, "raw_batches"),
    ),
    Metric(
        name="shoal_mismatches_total",
        kind="counter",
        help="What does not reconcile between envelopes and appended offsets. Any is worth an alert.",
        labels=("listener", "kind"),
        read=_mismatches,
    ),
    Metric(
        name="shoal_interlock_topics",
        kind="gauge",
        help="Topics of connected mirrors by state of the interlock: wrapped, trial, proving, sampled, waiting, "
        "failed, stopped, ambiguous.",
        labels=("listener", "state"),
        read=_topics,
    ),
    Metric(
        name="shoal_same_offsets_partitions",
        kind="gauge",
        help="Partitions of mirror topics (same-offsets) of connected mirrors by state: known (where the copy ends), "
        "locating, unknown, stopped.",
        labels=("listener", "state"),
        read=_same_offsets,
    ),
)
COALESCING = (
    *_counters(
        CoalesceStatistics,
        {
            "taken": ("shoal_coalesced_client_requests_total", "Produce requests of clients that were joined."),
            "requests": (
                "shoal_coalesced_requests_total",
                "Joined requests that were sent. Saved requests: shoal_coalesced_client_requests_total less this.",
            ),
            "batches": ("shoal_coalesced_batches_total", "Batches in joined requests."),
            "request_bytes": ("shoal_coalesced_request_bytes_total", "Bytes of joined requests."),
            "split_sets": (
                "shoal_coalesced_split_sets_total",
                "Refused record sets that were sent batch by batch.",
            ),
            "errors": ("shoal_coalesced_partition_errors_total", "Partitions of joined requests with an error."),
        },
    ),
    Metric(
        name="shoal_uncoalesced_client_requests_total",
        kind="counter",
        help="Produce requests that were not joined, by reason.",
        labels=("listener", "reason"),
        read=_reasons(CoalesceStatistics, "alone"),
    ),
)
LEGACY = _counters(
    LegacyStatistics,
    {
        "fetches": ("shoal_legacy_fetches_total", "Fetch requests of old versions that were answered."),
        "conversions": ("shoal_legacy_down_conversions_total", "Record sets converted for old consumers."),
        "source_bytes": ("shoal_legacy_down_source_bytes_total", "Bytes of these record sets in the log."),
        "converted_bytes": ("shoal_legacy_down_converted_bytes_total", "Bytes of messages made of them."),
        "records": ("shoal_legacy_down_records_total", "Records converted for old consumers."),
        "seconds": ("shoal_legacy_down_conversion_seconds_total", "Time spent converting for old consumers."),
        "dropped_headers": ("shoal_legacy_dropped_headers_total", "Record headers, which old formats do not have."),
        "fetch_errors": ("shoal_legacy_fetch_errors_total", "Partitions whose records could not be converted."),
        "produces": ("shoal_legacy_produces_total", "Produce requests of old versions."),
        "up_conversions": ("shoal_legacy_up_conversions_total", "Message sets of old producers made batches."),
        "up_source_bytes": ("shoal_legacy_up_source_bytes_total", "Bytes of these message sets."),
        "up_converted_bytes": ("shoal_legacy_up_converted_bytes_total", "Bytes of batches made of them."),
        "up_records": ("shoal_legacy_up_records_total", "Records converted for old producers."),
        "up_seconds": ("shoal_legacy_up_conversion_seconds_total", "Time spent converting for old producers."),
        "up_errors": ("shoal_legacy_produce_errors_total", "Partitions whose messages could not be read."),
        "waits": ("shoal_legacy_budget_waits_total", "Waits for the memory budget."),
        "waited_seconds": ("shoal_legacy_budget_wait_seconds_total", "Time of these waits."),
        "evictions": ("shoal_legacy_evictions_total", "Record sets evicted from clients that did not read."),
    },
)
