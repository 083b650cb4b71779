"""Replays captured traffic through a Shoal of its own, and reports what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.kafka.metrics import requests
from shoal.scenarios.kafka.topics import Topics
from shoal.scenarios.replay.clock import MAX, Clock
from shoal.scenarios.replay.stage import play_and_audit
from shoal.scenarios.shoal_run import running_shoal_run
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.protocol.sasl import Credentials
    from shoal.scenarios.replay.brokers import Site
    from shoal.scenarios.replay.index import Recorded

__all__ = ["TraceSettings", "as_trace_table", "coalescing_lines", "is_good", "replay_index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """`listener`: lines of Shoal's listener in shoal.toml. `keep_topics`: do not delete those that the replay made."""

    speed: float = 1.0
    listener: str = ""
    keep_topics: bool = False
    credentials: Credentials | None = None


def coalescing_lines(settings: Mapping[str, str]) -> str:
    """A listener that joins requests; values as TOML writes them."""
    values = "\n".join(f"{key} = {value}" for key, value in settings.items())
    return f"coalesce = true\n[listener.coalescing]\n{values}\n"


async def replay_index(recorded: Recorded, site: Site, work: Path, settings: TraceSettings) -> dict[str, Any]:
    """The report, ready for JSON. Raises HarnessError."""
    admin = Topics(site.bootstrap)
    made = await _make_topics(admin, recorded)
    seen: dict[str, Any] = {}
    try:
        async with running_shoal_run(work, site.bootstrap, listener=settings.listener) as shoal:
            before = await _produce_requests(site)
            played = await play_and_audit(
                recorded.arrivals(),
                list(recorded.partitions),
                shoal.address,
                site.bootstrap,
                Clock(settings.speed),
                seen,
                batches=recorded.batches,
                credentials=settings.credentials,
            )
            after = await _produce_requests(site)
            told = await shoal.stop()
    finally:
        if made and not settings.keep_topics:
            await admin.delete(*made)
    return {
        "speed": "max" if settings.speed == MAX else settings.speed,
        "captured": {
            "requests": recorded.requests,
            "batches": recorded.batches,
            "seconds": round(recorded.seconds, 3),
            "left_out": {why: count for why, count in recorded.left_out.items() if count},
            "damaged": recorded.damaged,
        },
        **played.as_json(),
        "broker_requests": None if before is None or after is None else after - before,
        "shoal_joined": {
            name: told[name] for name in ("coalesced_taken", "coalesced_requests", "alone") if name in told
        },
        "audit": {"clean": seen["audit"] == "clean", **asdict(seen["findings"])},
    }


async def _make_topics(admin: Topics, recorded: Recorded) -> list[str]:
    """Those that were not there. One that is there must have partitions enough, or metadata will name no leader."""
    there = await admin.names()
    made = [topic for topic in recorded.partitions if topic not in there]
    for topic in made:
        await admin.create(topic, recorded.partitions[topic])
    return made


async def _produce_requests(site: Site) -> int | None:
    if site.cluster is None:
        return None
    return sum([await requests(node, "Produce") for node in site.cluster.nodes.values()])


def is_good(report: Mapping[str, Any]) -> bool:
    """Everything was acknowledged, and is there once and in order."""
    return bool(report["audit"]["clean"] and not report["errors"])


def as_trace_table(report: Mapping[str, Any]) -> str:
    captured, audit = report["captured"], report["audit"]
    wrong = ", ".join(f"{count:,} {name}" for name, count in audit.items() if name != "clean" and count)
    rows = [
        ["", "captured", "replayed"],
        RULE,
        ["produce requests", _count(captured["requests"]), _count(report["produce_requests"])],
        ["record batches", _count(captured["batches"]), _count(report["batches"])],
        ["bytes of batches", _count(report["bytes_wanted"]), _count(report["bytes"])],
        ["seconds", number(captured["seconds"]), number(report["seconds"])],
        ["connections", "", _count(report["connections"])],
        ["requests at the brokers", "", _count(report["broker_requests"])],
        *(["latency, ms, " + name, "", number(value, 2)] for name, value in report["latency_ms"].items()),
        *(
            ["behind schedule, ms, " + name, "", number(value, 2)]
            for name, value in report["behind_schedule_ms"].items()
        ),
    ]
    left_out = ", ".join(f"{count:,} rows {why}" for why, count in captured["left_out"].items()) or "nothing"
    lines = [
        render(rows),
        "",
        f"left out: {left_out}",
        f"batches in the topics: {wrong}",
        f"errors: {report['errors'] or 'none'}",
        "Every batch is there once, whole, in its connection's order." if is_good(report) else "NOT EQUAL",
    ]
    return "\n".join(lines)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
