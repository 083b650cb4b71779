"""Mirrors over SASL_SSL under faults: brokers and Shoal killed, Shoal's certificate replaced while envelopes are on
their way. Nothing is lost, altered or out of order; exactly once, nothing is duplicated either."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, reconciled, steady, wrapped_more
from tests.brokers.mirror.test_tls import mirror_settings, shoal_flags, tls_pair

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

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
        async with steady(pair, topic):
            await wrapped_more(flow, 1)
            # another certificate, in the middle
            named = dict(zip(flags[::2], flags[1::2], strict=True))
            new = authority.server(name="shoal2", password="locked")
            shutil.copy(new.key, named["--listen-tls-key"])
            shutil.copy(new.certificate, named["--listen-tls-cert"])
            os.kill(flow.shoal.pid, signal.SIGHUP)
            await wrapped_more(flow)
            flow.shoal.kill()
            await flow.shoal.start()
            await wrapped_more(flow)
            for cluster in (pair.source, pair.target):
                cluster.nodes[1].kill()
                await cluster.nodes[1].start()
                await wrapped_more(flow)
            await flow.shoal.stop()
            await flow.shoal.start()
            await wrapped_more(flow)
        if exactly_once:
            await flow.check(topic, isolation=READ_COMMITTED)
        else:
            after = await reconciled(pair, topic, flow)
            await flow.check_faithful(topic, duplicates=after.source)
