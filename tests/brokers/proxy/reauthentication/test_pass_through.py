"""SASL passes through a listener, and so do the logins with which clients renew their sessions, in the midst of
traffic.

The sessions are short, and each client's traffic lasts for more than three of them. The broker cuts a connection when
it reads a request after the end of its session. On a starved machine that happens with and without Shoal, since clients
renew a session only in its last tenth: the broker reads late what was sent in time. So a client may report lost
connections, but only one that the broker has cut for that, by the broker's own count; nothing else may happen. If Shoal
delayed requests, the broker would cut many: at most one for twenty renewals is taken for starvation.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from shoal.proxy.statistics import CloseCause
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.metrics import attribute
from shoal.scenarios.kafka.process import until
from shoal.scenarios.kafka.security.clients import ClientSecurity
from shoal.scenarios.kafka.security.listeners import BrokerTls
from tests.brokers.proxy.reauthentication.clients import Outcome, kafka_python, librdkafka, values
from tests.brokers.proxy.rig.data import new_topic, read
from tests.support.kafka.long_lived import long_lived, outcomes
from tests.support.shoal_process import (
    ShoalProcess,
    connected_to,
    free_port_block,
    running_shoal,
    socket_inodes,
    write_toml,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority
    from shoal.scenarios.kafka.security.tokens import TokenIssuer

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("forgotten_sockets")]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PYTHON = {"librdkafka": librdkafka, "kafka-python": kafka_python}
SESSION_S, SESSIONS = 3.0, 3.5
START_S = 60.0
_MOST_REPORTS = 3  # of one cut: disconnected, a login that failed by that, all brokers are down
_CUT = (CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_LOST)  # lost: with unread requests of the client


@pytest.fixture
def cluster(issuer: TokenIssuer, authority: Authority, tmp_path: Path) -> Iterator[Cluster]:
    sessions = dict.fromkeys(MECHANISMS, int(SESSION_S * 1000))
    tls = BrokerTls(authority=authority)
    spec = ClusterSpec(users={"alice": "right"}, tls=tls, tokens=issuer, reauthenticate_ms=sessions, jmx=True)
    cluster = trio.run(Cluster.start, tmp_path / "cluster", spec)
    yield cluster
    cluster.kill_all()


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["SASL", "SASL_SSL"])
async def test_clients_renew_their_sessions_through_shoal(
    cluster: Cluster, issuer: TokenIssuer, authority: Authority, tmp_path: Path, listener: str
) -> None:
    """With SASL_SSL, both sides of Shoal encrypt."""
    ca = authority.certificate if listener == "SASL_SSL" else None
    logins = {mechanism: _login(mechanism, issuer, ca) for mechanism in MECHANISMS}
    address = cluster.nodes[1].secured_address(listener)
    topics = {(kind, mechanism): new_topic(cluster, [[1]]) for kind in (*PYTHON, "java") for mechanism in MECHANISMS}
    found: dict[str, Outcome] = {}
    stop, stop_file = Event(), tmp_path / "stop"

    async with running_shoal(_shoal(address, authority if ca else None, tmp_path)) as shoal:
        bootstrap = f"127.0.0.1:{shoal.ports[0]}"

        async def run(kind: str, mechanism: str) -> None:
            topic = topics[kind, mechanism]
            call = partial(PYTHON[kind], bootstrap, topic, logins[mechanism], stop)
            found[topic] = await trio.to_thread.run_sync(call)

        java = await long_lived(bootstrap, {topics["java", name]: login for name, login in logins.items()}, stop_file)
        async with trio.open_nursery() as nursery:
            for kind in PYTHON:
                for mechanism in MECHANISMS:
                    nursery.start_soon(run, kind, mechanism)
            try:
                await until(
                    partial(_all_begun, cluster, set(topics.values())), within=START_S, what="traffic", poll_s=0.5
                )
                before = _connections(address, shoal)
                await trio.sleep(SESSIONS * SESSION_S)
                after = _connections(address, shoal)
                ended = {cause for _, cause in _ended(shoal)}
            finally:
                stop.set()
                stop_file.touch()
        await until(lambda: not java.running, within=START_S, what="Java's clients to end")

    assert java.exit_code == 0, java.tail()
    told = outcomes(java)
    sent = {topic: count for topic, count, _ in told} | {topic: one.sent for topic, one in found.items()}
    assert {topic for topic, one in found.items() if one.received != values(one.sent)} == set()
    assert {topic: [record.value for record in read(cluster.bootstrap, topic)[0]] for topic in topics.values()} == {
        topic: values(sent[topic]) for topic in topics.values()
    }
    assert min(sent.values()) > 50
    metrics = partial(attribute, cluster.nodes[1], f"kafka.server:type=socket-server-metrics,listener={listener},*")
    renewed, refused, late = [
        sum(map(float, await metrics(name)))
        for name in (
            "successful-reauthentication-total",
            "failed-reauthentication-total",
            "expired-connections-killed-count",
        )
    ]
    cut = Counter(client for client, cause in _ended(shoal) if cause in _CUT)
    assert refused == 0
    assert ended <= {*_CUT, CloseCause.CLIENT_CLOSED}
    assert cut.total() <= late, "the broker closes connections for no other reason"
    assert {topic: one.errors for topic, one in found.items() if one.errors} == {}
    reports = {topic: one.reports for topic, one in found.items() if len(one.reports) > _MOST_REPORTS * cut[topic]}
    assert reports == {}
    assert late <= renewed / 20
    assert len(before - after) <= late, "no other connection that was used all the time was lost"
    assert len(before) >= 2 * len(topics), "a producer's and a consumer's for each topic"
    assert renewed >= 3 * (2 * len(topics) - late)
    assert {topic: renewals for topic, _, renewals in told if renewals < 3 and not cut[topic]} == {}


def _login(mechanism: str, issuer: TokenIssuer, ca: Path | None) -> ClientSecurity:
    tokens = issuer if mechanism == "OAUTHBEARER" else None
    return ClientSecurity(ca=ca, mechanism=mechanism, user="alice", password="right", tokens=tokens)


def _shoal(brokers: str, authority: Authority | None, work: Path) -> ShoalProcess:
    port = free_port_block(2)
    cluster: dict[str, object] = {"name": "c", "bootstrap": brokers}
    listener: dict[str, object] = {"name": "l", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": {1: port + 1}}
    if authority is not None:
        own = authority.server()
        cluster["tls"] = {"ca": str(authority.certificate)}
        listener["tls"] = {"certificate": str(own.certificate), "key": str(own.key)}
    document = {"cluster": [cluster], "listener": [listener], "log": {"level": "debug"}}
    config = write_toml(work / "shoal.toml", document)
    return ShoalProcess(["run", "-c", str(config)], work=work, ports=[port])


def _all_begun(cluster: Cluster, topics: set[str]) -> bool:
    consumer = Consumer(client_config(cluster.bootstrap, group_id="unused"))
    try:
        return all(consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1] > 0 for topic in topics)
    finally:
        consumer.close()


def _ended(shoal: ShoalProcess) -> list[tuple[str, str]]:
    """Client id and cause of each connection that has ended."""
    return re.findall(r"connection of \S+ \(client id ([^,)]+).*\) to .* ended: ([a-z ]+)", shoal.output())


def _connections(address: str, shoal: ShoalProcess) -> set[str]:
    """Shoal's connections to the broker."""
    port = int(address.rpartition(":")[2])
    return connected_to({port}) & socket_inodes(shoal.pid)
