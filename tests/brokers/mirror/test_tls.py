"""A mirror between clusters whose listeners are SASL_SSL, with TLS on both sides of Shoal.

The mirror's own login passes through Shoal, or Shoal logs in and the mirror needs no credentials there. Sessions last a
few seconds (KIP-368), so that they are renewed again and again while envelopes are on their way.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.reading import READ_COMMITTED, READ_UNCOMMITTED
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.metrics import attribute
from shoal.scenarios.kafka.security.clients import ClientSecurity
from shoal.scenarios.kafka.security.listeners import BrokerTls
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, steady, wrapped_more
from tests.support.kafka.clusters import Pair

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import SharedClusters

MECHANISM, SESSION_S, SESSIONS = "SCRAM-SHA-512", 4.0, 3.5


@pytest.fixture
def tls_pair(shared_clusters: SharedClusters, authority: Authority) -> Pair:
    spec = ClusterSpec(
        users={"alice": "right"},
        tls=BrokerTls(authority=authority),
        reauthenticate_ms={MECHANISM: int(SESSION_S * 1000)},
        jmx=True,
    )
    source, target = (shared_clusters.cluster(f"tls-{role}", spec) for role in ("source", "target"))
    return Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


def mirror_settings(
    pair: Pair, aliases: Aliases, authority: Authority, *, shoal_logs_in: bool, exactly_once: bool
) -> dict[str, str | None]:
    """Settings of a mirror that uses SASL_SSL wherever it reaches brokers, and SSL where Shoal logs in."""
    sasl = ClientSecurity(ca=authority.certificate, mechanism=MECHANISM, user="alice", password="right")
    bare = ClientSecurity(ca=authority.certificate)
    source, target = aliases
    settings = {**sasl.java(f"{source}."), **sasl.java(f"{target}.")}
    settings[f"{source}.bootstrap.servers"] = pair.source.sasl_ssl_bootstrap
    if not exactly_once:  # then all clients of the target use Shoal's address
        settings[f"{target}.bootstrap.servers"] = pair.target.sasl_ssl_bootstrap
    if shoal_logs_in:
        settings |= bare.java(f"{source}.consumer.") | bare.java(f"{target}.producer.")
        settings |= bare.java(f"{target}.") if exactly_once else {}
    return dict(settings)


def shoal_flags(authority: Authority, work: Path, *, shoal_logs_in: bool) -> tuple[str, ...]:
    own, ca = authority.server(name="shoal", password="locked"), str(authority.certificate)
    secrets = {"key": "locked", "password": "right"}
    for name, secret in secrets.items():
        (work / name).touch(mode=0o600)
        (work / name).write_text(secret)
    listen = ("cert", str(own.certificate)), ("key", str(own.key)), ("key-password-file", str(work / "key"))
    flags = {f"--listen-tls-{name}": value for name, value in listen}
    for side in ("source", "target"):
        flags[f"--{side}-tls-ca"] = ca
        if shoal_logs_in:
            flags[f"--{side}-sasl-mechanism"] = MECHANISM
            flags[f"--{side}-sasl-username"] = "alice"
            flags[f"--{side}-sasl-password-file"] = str(work / "password")
    return tuple(word for flag in flags.items() for word in flag)


@pytest.mark.parametrize("exactly_once", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "exactly-once"])
@pytest.mark.parametrize(
    "shoal_logs_in", [pytest.param(False, marks=pytest.mark.slow), True], ids=["pass-through", "shoal-logs-in"]
)
async def test_a_mirror_over_sasl_ssl(
    tls_pair: Pair,
    authority: Authority,
    topic: str,
    aliases: Aliases,
    tmp_path: Path,
    shoal_logs_in: bool,
    exactly_once: bool,
) -> None:
    await Topics(tls_pair.source.bootstrap).create(topic, PARTITIONS)
    before = [await _renewed(cluster) for cluster in (tls_pair.source, tls_pair.target)]
    cut = sum([await _cut(cluster) for cluster in (tls_pair.source, tls_pair.target)])
    wiring = Wiring(
        topics=topic,
        source=tls_pair.source.sasl_ssl_bootstrap,
        target=tls_pair.target.sasl_ssl_bootstrap,
        exactly_once=exactly_once,
        extra=mirror_settings(tls_pair, aliases, authority, shoal_logs_in=shoal_logs_in, exactly_once=exactly_once),
        shoal=shoal_flags(authority, tmp_path, shoal_logs_in=shoal_logs_in),
    )
    async with flowing(tls_pair, aliases, tmp_path, wiring) as flow:
        async with steady(tls_pair, topic):
            await wrapped_more(flow, 1)
            await trio.sleep(SESSIONS * SESSION_S)
            await wrapped_more(flow)
        await flow.check(topic, isolation=READ_COMMITTED if exactly_once else READ_UNCOMMITTED)
    counts = flow.counts()
    assert counts["unwrapped_records"] >= counts["wrapped_records"] > 5_000
    after = [await _renewed(cluster) for cluster in (tls_pair.source, tls_pair.target)]
    assert min(late - early for early, late in zip(before, after, strict=True)) >= 3
    if not sum([await _cut(cluster) for cluster in (tls_pair.source, tls_pair.target)]) - cut:
        log = flow.shoal.log.read_text()
        assert "paused" not in log.partition("SIGTERM")[0], "the mirror lost no connection"


async def _renewed(cluster: Cluster) -> int:
    """How many sessions were renewed by another login on the same connection."""
    return await _total(cluster, "successful-reauthentication-total")


async def _cut(cluster: Cluster) -> int:
    """How many connections the broker has ended because their session had: a starved one reads the renewal too late."""
    return await _total(cluster, "expired-connections-killed-count")


async def _total(cluster: Cluster, name: str) -> int:
    ask = partial(attribute, cluster.nodes[1], "kafka.server:type=socket-server-metrics,listener=SASL_SSL,*")
    return int(sum(map(float, await ask(name))))
