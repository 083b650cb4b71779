"""The environment of a case: its topics, Shoal, mirror and brokers, and the measured values."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.mirror import MirrorSpec, running_mirror
from shoal.scenarios.replay.index.player import Player
from shoal.scenarios.replay.index.synthetic_batches import Maker
from shoal.scenarios.replay.ledger import ReplayLedger
from shoal.scenarios.replay.sending.leaders import find_leaders
from shoal.scenarios.running.shoal_mirror import running_shoal
from shoal.scenarios.running.shoal_run import totals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Node
    from shoal.scenarios.kafka.mirror import Mirror
    from shoal.scenarios.replay.arrivals import Arrival
    from shoal.scenarios.replay.brokers import Site
    from shoal.scenarios.replay.clock import Clock
    from shoal.scenarios.replay.facts import Seen
    from shoal.scenarios.replay.sending.statistics import ReplayStatistics
    from shoal.scenarios.running.shoal_run import ShoalRun

__all__ = ["Stage", "play_and_audit"]

_COPIED_S = 120.0


@dataclass(slots=True, kw_only=True)
class Stage:
    """`token` is unique to this run's topics and mirror. `shoal`: the proxy for clients, in cases without a mirror."""

    work: Path
    token: str
    site: Site
    source: Site | None
    clock: Clock
    kafka: str
    shoal: ShoalRun | None = None
    seen: Seen = field(default_factory=dict)
    faults_over: trio.Event = field(default_factory=trio.Event)

    def topic(self, name: str) -> str:
        return f"{self.token}-{name}"

    @property
    def address(self) -> tuple[str, int]:
        """The address of Shoal for clients."""
        assert self.shoal is not None, "the case has a mirror, not a listener"
        return self.shoal.address

    @property
    def through_shoal(self) -> str:
        """The same address as bootstrap servers."""
        return f"{self.address[0]}:{self.address[1]}"

    async def stop_shoal(self) -> None:
        """Stop Shoal and record its final totals. Raises NotReady when it does not end cleanly."""
        if self.shoal is not None and self.shoal.process.running:
            self.seen.update({name.replace("_", " "): value for name, value in (await self.shoal.stop()).items()})

    @property
    def node(self) -> Node:
        """The broker that faults hit."""
        assert self.site.cluster is not None, "these brokers are not ours"
        return self.site.cluster.nodes[1]

    async def play(self, arrivals: Iterable[Arrival], topics: Collection[str]) -> ReplayStatistics:
        """Records the values of `play_and_audit`, and "broker requests"."""
        before = await self.site.requests("Produce")
        played = await play_and_audit(arrivals, topics, self.address, self.site.bootstrap, self.clock, self.seen)
        after = await self.site.requests("Produce")
        self.seen["broker requests"] = None if after is None or before is None else after - before
        return played

    @asynccontextmanager
    async def mirroring(self, *topics: str, options: tuple[str, ...] = ()) -> AsyncIterator[Mirror]:
        """MirrorMaker 2 through `shoal mirror`; records Shoal's final totals ("wrapped batches", ...)."""
        assert self.source is not None, "no mirror is given"
        logging = ("--log-format", "json", *options)
        async with running_shoal(self.work, self.source.bootstrap, self.site.bootstrap, logging) as shoal:
            spec = MirrorSpec(
                source_alias=self.token,
                source=self.source.bootstrap,
                target=self.site.bootstrap,
                consumer=shoal.consumer,
                producer=shoal.producer,
                topics="|".join(map(self.topic, topics)),
                version=self.kafka,
            )
            async with running_mirror(self.work, spec) as mirror:
                yield mirror
            await shoal.process.stop()
            self.seen.update({name.replace("_", " "): value for name, value in totals(shoal.process.output()).items()})

    async def copied(self, name: str, records: int, mirror: Mirror) -> None:
        """Wait until the target holds this many records of a topic. Raises NotReady."""
        copy = mirror.spec.remote_topic(self.topic(name))
        await Topics(self.site.bootstrap).until_total(copy, records, within=_COPIED_S, process=mirror.process)

    async def compare(self, name: str, mirror: Mirror) -> None:
        """Record "copy": "equal", or the first difference between a topic and its copy."""
        assert self.source is not None, "no mirror is given"
        original = await read_copy(self.source.bootstrap, self.topic(name))
        copy = await read_copy(self.site.bootstrap, mirror.spec.remote_topic(self.topic(name)))
        self.seen["copy"] = await first_difference(original, copy, offsets=True) or "equal"
        self.seen["records"] = copy.records


async def play_and_audit(
    arrivals: Iterable[Arrival],
    topics: Collection[str],
    shoal: tuple[str, int],
    brokers: str,
    clock: Clock,
    seen: Seen,
    *,
    batches: int = 0,
) -> ReplayStatistics:
    """Replay through `shoal` to existing `topics`, then read them from `brokers`.

    Records "audit" (Findings, "clean" if each batch occurs once and in order), "errors", "requests" and the rest of
    `ReplayStatistics`. `batches`: the maximum number; their timestamps end
    about now.
    """
    admin = Topics(brokers)
    before = {topic: await admin.spans(topic) for topic in topics}
    leaders = await find_leaders(shoal, sorted(topics))
    epoch = time.time_ns() // 1_000_000 - batches
    ledger = ReplayLedger(epoch)
    clock.restart()
    played = await Player(leaders, Maker(epoch), ledger).play(arrivals, clock)
    findings = await ledger.audit(brokers, before)
    seen["findings"] = findings
    seen["audit"] = "clean" if findings.clean else str(findings)
    seen["errors"] = sum(played.errors.values())
    seen["requests"] = played.requests
    seen["batches"] = played.batches
    seen["played"] = played
    return played
