"""Replays captured traffic through a new Shoal process, and reports the result."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.replay.clock import MAX, Clock
from shoal.scenarios.replay.frames.ledger import RawLedger
from shoal.scenarios.replay.frames.player import RawPlayer, ReplayTarget
from shoal.scenarios.replay.sending.leaders import find_leaders
from shoal.scenarios.replay.stage import play_and_audit
from shoal.scenarios.running.shoal_run import running_shoal_run
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from shoal.scenarios.replay.brokers import Site
    from shoal.scenarios.replay.frames.source import RawRecorded
    from shoal.scenarios.replay.index.source import Recorded
    from shoal.scenarios.replay.ledger import Findings
    from shoal.scenarios.replay.sending.statistics import ReplayStatistics

__all__ = ["TraceSettings", "as_trace_table", "coalescing_lines", "is_good", "replay_index", "replay_raw"]

_JOINED = ("coalesced_taken", "coalesced_requests", "coalesced_alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """`listener`: lines of Shoal's listener in shoal.toml. `keep_topics`: keep the topics that the replay creates."""

    speed: float = 1.0
    listener: str = ""
    keep_topics: bool = False


def coalescing_lines(settings: Mapping[str, str]) -> str:
    """A listener that joins requests; values in TOML syntax."""
    values = "\n".join(f"{key} = {value}" for key, value in settings.items())
    return f"coalesce = true\n[listener.coalescing]\n{values}\n"


@dataclass(slots=True, kw_only=True)
class _Run:
    """A running replay; `broker_requests` and `totals` are set at its end."""

    shoal: tuple[str, int]
    broker_requests: int | None = None
    totals: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        joined = {name: self.totals[name] for name in _JOINED if name in self.totals}
        return {"broker_requests": self.broker_requests, "shoal_joined": joined}


@asynccontextmanager
async def _staged(
    partitions: Mapping[str, int], site: Site, work: Path, settings: TraceSettings
) -> AsyncIterator[_Run]:
    """Shoal in front of the brokers, and the topics; those that the replay creates are deleted at the end."""
    admin = Topics(site.bootstrap)
    there = await admin.all_partitions()
    if small := [topic for topic, count in partitions.items() if 0 < there.get(topic, 0) < count]:
        raise TrafficFailed(f"{small[0]} has {there[small[0]]} partitions, the capture {partitions[small[0]]}")
    made = [topic for topic in partitions if topic not in there]
    for topic in made:
        await admin.create(topic, partitions[topic])
    try:
        async with running_shoal_run(work, site.brokers, listener=settings.listener, cluster=site.security) as shoal:
            run = _Run(shoal=shoal.address)
            before = await site.requests("Produce")
            yield run
            after = await site.requests("Produce")
            run.broker_requests = None if after is None or before is None else after - before
            run.totals = await shoal.stop()
    finally:
        if made and not settings.keep_topics:
            await admin.delete(*made)


async def replay_index(recorded: Recorded, site: Site, work: Path, settings: TraceSettings) -> dict[str, Any]:
    """The report, ready for JSON. Raises HarnessError."""
    seen: dict[str, Any] = {}
    async with _staged(recorded.partitions, site, work, settings) as run:
        played = await play_and_audit(
            recorded.arrivals(),
            list(recorded.partitions),
            run.shoal,
            site.bootstrap,
            Clock(settings.speed),
            seen,
            batches=recorded.batches,
        )
    captured = {
        "requests": recorded.requests,
        "batches": recorded.batches,
        "seconds": round(recorded.seconds, 3),
        "left_out": {f"rows {why}": count for why, count in recorded.left_out.items() if count},
        "damaged": recorded.damaged,
    }
    return _report(captured, played, seen["findings"], run, settings)


async def replay_raw(
    recorded: RawRecorded, prefix: str, site: Site, work: Path, settings: TraceSettings
) -> dict[str, Any]:
    """`replay_index` for a raw capture, including its fetches."""
    partitions = {prefix + topic: count for topic, count in recorded.partitions.items()}
    admin, ledger = Topics(site.bootstrap), RawLedger()
    async with _staged(partitions, site, work, settings) as run:
        leaders = await find_leaders(run.shoal, sorted(partitions))
        before = {topic: await admin.spans(topic) for topic in partitions}
        where = ReplayTarget(bootstrap=run.shoal, leaders=leaders, spans=before, prefix=prefix)
        player = RawPlayer(where, ledger)
        await player.play(recorded.redos(), recorded.first_ns, Clock(settings.speed))
        after = {topic: await admin.spans(topic) for topic in partitions}
        findings = await ledger.audit(leaders, before, after)
    captured = {
        "requests": recorded.requests["Produce"],
        "batches": recorded.batches,
        "seconds": round(recorded.seconds, 3),
        "left_out": dict(recorded.left_out),
        "again": dict(recorded.requests),
        "damaged": 0,
    }
    fetched = player.fetched
    return {
        **_report(captured, player.played, findings, run, settings),
        "fetch_requests": fetched.requests,
        "fetched_records": fetched.records,
        "fetched_bytes": fetched.size,
    }


def _report(
    captured: dict[str, Any], played: ReplayStatistics, findings: Findings, run: _Run, settings: TraceSettings
) -> dict[str, Any]:
    return {
        "speed": "max" if settings.speed == MAX else settings.speed,
        "captured": captured,
        **played.as_json(),
        **run.as_json(),
        "audit": {"clean": findings.clean, **asdict(findings)},
    }


def is_good(report: Mapping[str, Any]) -> bool:
    """True if every batch is acknowledged, and stored once and in order."""
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
        *([["fetch requests", "", _count(report["fetch_requests"])]] if "fetch_requests" in report else []),
        *([["records fetched", "", _count(report["fetched_records"])]] if "fetched_records" in report else []),
        *(["latency, ms, " + name, "", number(value, 2)] for name, value in report["latency_ms"].items()),
        *(
            ["behind schedule, ms, " + name, "", number(value, 2)]
            for name, value in report["behind_schedule_ms"].items()
        ),
    ]
    left_out = ", ".join(f"{count:,} {why}" for why, count in captured["left_out"].items()) or "nothing"
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
