"""Metrics against the log: the counters of a scrape are those of the lines `total` with which Shoal ends."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any, Final

import trio

from tests.support.admin import scrape, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Scrape = Mapping[tuple[str, ...], float]

__all__ = ["differences", "scrape_without_clients"]

_COUNTERS: Final = {
    "requests": "shoal_client_requests_total",
    "from_client": "shoal_client_received_bytes_total",
    "to_client": "shoal_client_sent_bytes_total",
    "opened": "shoal_connections_opened_total",
    "in_flight": "shoal_in_flight_requests",
    "state_errors": "shoal_state_file_errors_total",
    "envelopes": "shoal_envelopes_total",
    "claim_checks": "shoal_claim_checks_total",
    "wrapped_batches": "shoal_wrapped_batches_total",
    "wrapped_records": "shoal_wrapped_records_total",
    "wrapped_bytes": "shoal_wrapped_bytes_total",
    "opened_envelopes": "shoal_opened_envelopes_total",
    "read_again": "shoal_claim_checks_read_again_total",
    "unwrapped_batches": "shoal_appended_batches_total",
    "unwrapped_records": "shoal_appended_records_total",
    "unwrapped_bytes": "shoal_appended_bytes_total",
    "produce_requests": "shoal_target_produce_requests_total",
    "retries_suppressed": "shoal_retried_batches_suppressed_total",
    "partition_errors": "shoal_target_partition_errors_total",
    "reconciled_envelopes": "shoal_reconciled_envelopes_total",
    "coalesced_taken": "shoal_coalesced_client_requests_total",
    "coalesced_requests": "shoal_coalesced_requests_total",
    "coalesced_batches": "shoal_coalesced_batches_total",
    "coalesced_request_bytes": "shoal_coalesced_request_bytes_total",
    "coalesced_split_sets": "shoal_coalesced_split_sets_total",
    "coalesced_errors": "shoal_coalesced_partition_errors_total",
    "legacy_fetches": "shoal_legacy_fetches_total",
    "legacy_conversions": "shoal_legacy_down_conversions_total",
    "legacy_source_bytes": "shoal_legacy_down_source_bytes_total",
    "legacy_converted_bytes": "shoal_legacy_down_converted_bytes_total",
    "legacy_records": "shoal_legacy_down_records_total",
    "legacy_seconds": "shoal_legacy_down_conversion_seconds_total",
    "legacy_dropped_headers": "shoal_legacy_dropped_headers_total",
    "legacy_fetch_errors": "shoal_legacy_fetch_errors_total",
    "legacy_produces": "shoal_legacy_produces_total",
    "legacy_up_conversions": "shoal_legacy_up_conversions_total",
    "legacy_up_source_bytes": "shoal_legacy_up_source_bytes_total",
    "legacy_up_converted_bytes": "shoal_legacy_up_converted_bytes_total",
    "legacy_up_records": "shoal_legacy_up_records_total",
    "legacy_up_seconds": "shoal_legacy_up_conversion_seconds_total",
    "legacy_up_errors": "shoal_legacy_produce_errors_total",
    "legacy_waits": "shoal_legacy_budget_waits_total",
    "legacy_waited_seconds": "shoal_legacy_budget_wait_seconds_total",
    "legacy_evictions": "shoal_legacy_evictions_total",
}
_BY_REASON: Final = {  # metric, and the index of the reason among label values in the order of their names
    "closed": ("shoal_connections_closed_total", 1),
    "raw_batches": ("shoal_raw_batches_total", 2),
    "mismatches": ("shoal_mismatches_total", 1),
    "gaps": ("shoal_mirror_gaps_total", 1),
    "coalesced_alone": ("shoal_uncoalesced_client_requests_total", 2),
}
_ORDINARY: Final = {"client_closed", "idle", "drained", "shutdown"}  # causes that the log leaves out
_NOT_EXPOSED: Final = {"legacy_chunks", "legacy_padding_bytes", "legacy_asked_on", "legacy_resumed"}
_LAG: Final = "lag_"
_HEAD: Final = {"time", "level", "event", "message", "listener", "seconds", "stopped_partitions"}
_WITHIN_S: Final = 30.0


async def scrape_without_clients(admin: int) -> Scrape:
    """A scrape when no client is connected any more: nothing that a listener counts changes after it.

    A client that closes its connection with a request in flight still gets the answer, which counts as sent.
    """
    with trio.fail_after(_WITHIN_S):
        while True:
            found = values(await scrape(admin))
            if not any(number for key, number in found.items() if key[0] == "shoal_connections"):
                return found
            await trio.sleep(0.05)


def differences(found: Scrape, total: Mapping[str, Any]) -> list[str]:
    """What a scrape has otherwise than the line `total` of a listener."""
    return list(_differences(found, total))


def _differences(found: Scrape, total: Mapping[str, Any]) -> Iterator[str]:
    listener = total["listener"]
    wanted = {field: value for field, value in total.items() if field not in _HEAD | _NOT_EXPOSED}
    for field, value in wanted.items():
        if field in _BY_REASON:
            metric, index = _BY_REASON[field]
            series = {key[index]: n for key, n in found.items() if key[0] == metric and listener in key and n}
            if {cause: n for cause, n in series.items() if cause not in _ORDINARY} != value:
                yield f"{listener}: {field}: the log has {value}, {metric} {series}"
        elif field in _COUNTERS:
            metric_name = _COUNTERS[field]
            number = (
                found.get((metric_name, listener), 0.0) if metric_name else _sum(found, "shoal_connections", listener)
            )
            if not isclose(number, value, abs_tol=0.001):
                yield f"{listener}: {field}: the log has {value}, the metric {number}"
        elif field == "connections":
            if (number := _sum(found, "shoal_connections", listener)) != value:
                yield f"{listener}: connections: the log has {value}, the metric {number}"
        elif not field.startswith(_LAG):
            yield f"{listener}: {field} is not compared"
    for field in ("requests", "answers"):
        whole, by_api = found[f"shoal_client_{field}_total", listener], _sum(found, f"shoal_{field}_total", listener)
        if by_api != whole:
            yield f"{listener}: {field} by API: {by_api}, of all {whole}"
    for key, number in found.items():
        if key[0] == "shoal_answers_total" and key[2] == listener and number > found["shoal_requests_total", *key[1:]]:
            yield f"{key}: {number} answers, more than requests"
    yield from _of_histograms(found, listener)


def _of_histograms(found: Scrape, listener: str) -> Iterator[str]:
    """Each measures no more requests than there were."""
    for key, number in found.items():
        if key[0] in ("shoal_request_broker_seconds_count", "shoal_request_proxy_seconds_count") and key[2] == listener:
            requests = found["shoal_requests_total", key[1], listener]
            if number > requests:
                yield f"{key}: {number} of {requests} requests"


def _sum(found: Scrape, metric: str, listener: str) -> float:
    return sum(number for key, number in found.items() if key[0] == metric and listener in key[1:])
