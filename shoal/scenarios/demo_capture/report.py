"""The demo's report: the summaries of all jobs, and the predicted saving beside the achieved one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["as_report", "as_text", "compared", "is_good"]

NEAR = 0.20  # of the saving that was achieved


def compared(predicted: Mapping[str, Any], replayed: Mapping[str, Any]) -> dict[str, Any]:
    """`predicted`: of one policy, from the what-if. `replayed`: of the same trace through a coalescing listener
    (`replay_index`). Savings are shares of the produce requests."""
    sent, reached = replayed["produce_requests"], replayed["broker_requests"]
    achieved = 1 - reached / sent if sent and reached is not None else None
    saved = predicted["requests_saved"]
    return {
        "policy": predicted["policy"],
        "predicted": saved,
        "achieved": None if achieved is None else round(achieved, 4),
        "near": None if not achieved else abs(saved - achieved) <= NEAR * achieved,
        "clean": replayed["audit"]["clean"],
    }


def as_report(
    rows: int, jobs: Mapping[str, Mapping[str, Any]], replay: Mapping[str, Any] | None, books: Mapping[str, int]
) -> dict[str, Any]:
    """`jobs`: report.json of each, by name."""
    return {
        "rows": rows,
        "batch_sizes": jobs["batch-sizes"]["batch_sizes"],
        "coalescing": jobs["coalescing"]["coalescing"],
        "audit": jobs["audit"]["audit"],
        "cascade": jobs["cascade"]["cascade"],
        "replay": replay,
        "books": dict(books),
    }


def is_good(report: Mapping[str, Any]) -> bool:
    """Nothing is missing or doubled, all levels agree, there are envelopes and none is wrong, and the prediction is
    near the achieved saving."""
    audit, books, replay = report["audit"], report["books"], report["replay"]
    copied = books["envelopes"] and not (audit["missing"] or audit["doubled"] or books["mismatches"])
    near = replay is None or (replay["near"] and replay["clean"])
    return bool(copied and report["cascade"]["levels_equal"] and near)


def as_text(report: Mapping[str, Any]) -> str:
    sizes, audit, cascade = report["batch_sizes"], report["audit"], report["cascade"]
    rows: list[Sequence[str]] = [
        ["what-if: policy", "requests saved", "added, p99"],
        RULE,
        *(
            [policy["policy"], f"{policy['requests_saved']:.1%}", f"{number(policy['added_ms_p99'])} ms"]
            for policy in report["coalescing"]
        ),
    ]
    lines = [
        f"{report['rows']:,} rows captured; {sizes['batches']:,} batches produced, "
        f"{number(sizes['records_per_batch'])} records each, {number(sizes['requests_per_mb'])} requests per MB",
        "",
        render(rows),
        "",
        *_replayed(report["replay"]),
        f"audit: {audit['missing']} missing, {audit['doubled']} doubled",
        f"envelopes: {report['books']['envelopes']:,}, reconciled {report['books']['reconciled']:,}, mismatches "
        f"{report['books']['mismatches']:,}",
        f"cascade: levels {'equal' if cascade['levels_equal'] else 'NOT EQUAL'}; abnormal: {_abnormal(cascade)}",
    ]
    return "\n".join(lines)


def _replayed(replay: Mapping[str, Any] | None) -> list[str]:
    if replay is None:
        return []
    if replay["achieved"] is None:
        return ["the same trace through the coalescer: the broker tells no figures"]
    how = "within" if replay["near"] else "NOT within"
    said = f"the same trace through the coalescer ({replay['policy']}): {replay['achieved']:.1%} of the requests saved"
    return [f"{said}, {replay['predicted']:.1%} predicted: {how} {NEAR:.0%}"]


def _abnormal(cascade: Mapping[str, Any]) -> str:
    found = [
        str(client.get("client", client)) if isinstance(client, dict) else str(client) for client in cascade["abnormal"]
    ]
    return ", ".join(dict.fromkeys(found)) or "none"
