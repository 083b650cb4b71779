"""Runs a case: sets it up, runs the traffic while faults happen, and checks the facts."""

from __future__ import annotations

import os
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.replay.clock import Clock
from shoal.scenarios.replay.facts import CheckedFact, check
from shoal.scenarios.replay.stage import Stage
from shoal.scenarios.running.shoal_run import running_shoal_run

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from shoal.scenarios.replay.brokers import Brokers, Site
    from shoal.scenarios.replay.case import Case, Fault

__all__ = ["FAILURES", "Outcome", "messages_of", "run_case"]

FAILURES = (HarnessError, OSError, trio.BrokenResourceError, RemoteProtocolError)
"""Failures of brokers, mirrors and clients; all others are our own bugs."""
_HEARTBEATS = "heartbeats"  # ReplicationPolicy.heartbeatsTopic
ENVELOPES = "no topic contains an envelope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    case: Case
    facts: tuple[CheckedFact, ...]
    seconds: float

    @property
    def good(self) -> bool:
        return all(fact.holds is not False for fact in self.facts)


async def run_case(case: Case, brokers: Brokers, work: Path, *, kafka: str, speed: float) -> Outcome:
    """A case that cannot run to its end gets a fact that says so; Cancelled and our own bugs propagate."""
    begin = time.monotonic()
    try:
        facts = await _run(case, brokers, work, kafka, speed)
    except* FAILURES as group:
        facts = (CheckedFact("it can run to its end", False, messages_of(group)),)
    return Outcome(case=case, facts=facts, seconds=time.monotonic() - begin)


def messages_of(error: BaseException) -> str:
    """The messages of an error group; trio wraps what its tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(messages_of, error.exceptions))
    return str(error) or type(error).__name__


async def _run(case: Case, brokers: Brokers, work: Path, kafka: str, speed: float) -> tuple[CheckedFact, ...]:
    target = await brokers.target()
    source = await brokers.source() if case.given.mirror else None
    token = f"{re.sub('[^a-z0-9]+', '-', case.name)}-{os.urandom(3).hex()}"
    stage = Stage(work=work, token=token, site=target, source=source, clock=Clock(speed), kafka=kafka)
    before = await Topics(target.bootstrap).names()
    admin = Topics((source or target).bootstrap)
    for name, partitions in case.given.topics.items():
        await admin.create(stage.topic(name), partitions)
    try:
        await _play(case, stage)
        sites = [site for site in (source, target) if site is not None]
        envelopes = sum([await _envelopes(site, token) for site in sites])
    finally:
        if not brokers.are_ours:
            await _tidy(target, token, before)
    facts = [check(fact, stage.seen) for fact in case.facts]
    return (*facts, CheckedFact(ENVELOPES, not envelopes, f"{envelopes} found"))


async def _play(case: Case, stage: Stage) -> None:
    async with AsyncExitStack() as stack:
        if not case.given.mirror:
            index = stage.work / "capture" if case.given.capture else None
            starting = running_shoal_run(
                stage.work,
                stage.site.brokers,
                listener=case.given.listener,
                cluster=stage.site.security,
                capture=index,
            )
            stage.shoal = await stack.enter_async_context(starting)
        stage.clock.restart()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_inject_all, case, stage)
            await case.traffic(stage)
        await stage.stop_shoal()


async def _inject_all(case: Case, stage: Stage) -> None:
    async with trio.open_nursery() as nursery:
        for fault in case.faults:
            nursery.start_soon(_inject, fault, stage)
    stage.faults_over.set()


async def _inject(fault: Fault, stage: Stage) -> None:
    await stage.clock.until(fault.at)
    await fault.inject(stage)
    stage.seen[fault.what] = True


async def _envelopes(site: Site, token: str) -> int:
    """Search all topics of a temporary cluster; elsewhere the topics of this run."""
    ours = site.cluster is not None
    return len(await site.scanner.scan(only=lambda topic: ours or token in topic))


async def _tidy(site: Site, token: str, before: Collection[str]) -> None:
    """Delete the topics of this run and those that the mirror created.

    All are named after the run's token except the mirror's heartbeats topic, which it creates even where it sends none.
    That topic is deleted if it did not exist `before` and is empty.
    """
    admin = Topics(site.bootstrap)
    names = await admin.names()
    left = [topic for topic in names if token in topic]
    if _HEARTBEATS in names and _HEARTBEATS not in before and not await admin.total(_HEARTBEATS):
        left.append(_HEARTBEATS)
    if left:
        await admin.delete(*left)
