"""Mirrors over SASL_SSL under faults: brokers and Shoal killed, Shoal's certificate replaced while envelopes are on
their way. Nothing is lost, altered or out of order. Exactly once, nothing is duplicated either; otherwise only what was
in flight when Shoal was killed, and what MM2 itself copies again after it has lost its own brokers."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.rig.doubled import Again, check_resumed, doubled
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import ENVELOPE_RECORDS, PARTITIONS, steady, wrapped_more
from tests.brokers.mirror.test_tls import mirror_settings, shoal_flags, tls_pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Node
    from shoal.scenarios.kafka.security.certificates import Authority
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair
    from tests.support.shoal_process import ShoalProcess

__all__ = ["tls_pair"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shoal_logs_in", "exactly_once"),
    [(True, False), (False, True)],
    ids=["shoal-logs-in", "pass-through-exactly-once"],
)
async def test_faults_of_a_mirror_over_sasl_ssl(
    tls_pair: Pair,
    authority: Authority,
    topic: str,
    aliases: Aliases,
    tmp_path: Path,
    shoal_logs_in: bool,
    exactly_once: bool,
) -> None:
    pair = tls_pair
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    flags = shoal_flags(authority, tmp_path, shoal_logs_in=shoal_logs_in)
    extra = mirror_settings(pair, aliases, authority, shoal_logs_in=shoal_logs_in, exactly_once=exactly_once)
    wiring = Wiring(
        topics=topic,
        source=pair.source.sasl_ssl_bootstrap,
        target=pair.target.sasl_ssl_bootstrap,
        exactly_once=exactly_once,
        extra={
            **extra,
            f"{aliases.target}.offset.flush.interval.ms": "500",
            # A worker that was away for longer than its session has no tasks for this time, by default 5 minutes.
            f"{aliases.target}.scheduled.rebalance.max.delay.ms": "2000",
        },
        shoal=flags,
    )
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        seen: list[Again] = []

        async def new() -> list[Again]:
            """Duplicates since the last call."""
            if exactly_once:
                await flow.check(topic, isolation=READ_COMMITTED)
                return []
            known, seen[:] = seen[:], await doubled(flow, topic)
            return [one for one in seen if one not in known]

        async def after(fault: Callable[[], Awaitable[None]]) -> list[Again]:
            async with steady(pair, topic):
                await wrapped_more(flow)
                await fault()
                await wrapped_more(flow)
            return await new()

        async def another_certificate() -> None:
            named = dict(zip(flags[::2], flags[1::2], strict=True))
            fresh = authority.server(name="shoal2", password="locked")
            shutil.copy(fresh.key, named["--listen-tls-key"])
            shutil.copy(fresh.certificate, named["--listen-tls-cert"])
            os.kill(flow.shoal.pid, signal.SIGHUP)

        assert await after(another_certificate) == []
        in_flight = await after(partial(_killed, flow.shoal))
        assert len({one.partition for one in in_flight}) == len(in_flight), in_flight
        assert all(one.records <= ENVELOPE_RECORDS for one in in_flight), in_flight
        assert await after(partial(_killed, pair.source.nodes[1])) == []
        assert await after(partial(_stopped, flow.shoal)) == []
        await check_resumed(await after(partial(_killed, pair.target.nodes[1])), flow, topic)


async def _killed(one: Node | ShoalProcess) -> None:
    one.kill()
    await one.start()


async def _stopped(one: Node | ShoalProcess) -> None:
    await one.stop()
    await one.start()
