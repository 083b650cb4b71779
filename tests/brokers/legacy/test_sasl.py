"""Old clients that authenticate, at the broker through Shoal or at Shoal: SaslHandshake v0, then tokens without a
Kafka header."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.legacy.old_clients.client import Record
from tests.brokers.legacy.old_clients.kinds import KINDS, Kind
from tests.brokers.legacy.old_clients.traffic import as_seen, consumer, various, write
from tests.brokers.proxy.rig.data import read as read_modern
from tests.support.secrets import users_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.legacy.old_clients.client import OldClient

    from .conftest import Shoals

pytestmark = pytest.mark.kafka
USER, PASSWORD = "alice", "right"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_RDKAFKA = Kind(name="librdkafka-0.10.0", family="librdkafka", release="0.10.0")
# 0.9 had Kerberos only; 0.10.2 was the first Java client that takes a user from its settings. (Its SCRAM runs on Java 8
# only.)
_CASES = [
    (KINDS["java-0.10.2.2"], "PLAIN"),
    (KINDS["kafka-python-0.10"], "PLAIN"),
    (_RDKAFKA, "PLAIN"),
    (_RDKAFKA, "SCRAM-SHA-512"),
]


def _sasl(kind: Kind, mechanism: str) -> dict[str, object]:
    if kind.java:
        words = (_PLAIN, "required", f'username="{USER}"', f'password="{PASSWORD}";')
        jaas = "\t".join(words)  # the client's settings are separated by spaces
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    if kind.family == "kafka-python":
        user_settings = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **user_settings}
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


@pytest.mark.parametrize("where", ["broker", "shoal"])
@pytest.mark.parametrize(("kind", "mechanism"), _CASES, ids=[f"{kind.name}-{how}" for kind, how in _CASES])
def test_old_clients_that_authenticate(
    old_clients: Callable[[Kind], OldClient],
    sasl_cluster: Cluster,
    shoals: Shoals,
    topic: str,
    kind: Kind,
    mechanism: str,
    where: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """They write, and read in a group, with brokers, coordinators and offsets over authenticated connections."""
    client = old_clients(kind)
    if where == "broker":
        shoal, bootstrap = shoals("sasl", sasl_cluster, sasl_cluster.sasl_bootstrap)
    else:
        users = users_file(tmp_path_factory.getbasetemp() / "legacy-users", {USER: PASSWORD})
        sasl = {"mechanisms": ["PLAIN", "SCRAM-SHA-512"], "users": str(users)}
        shoal, bootstrap = shoals("sasl-at-shoal", sasl_cluster, sasl_cluster.bootstrap, sasl=sasl)
    trio.run(Topics(sasl_cluster.bootstrap).create, topic)
    settings, written = _sasl(kind, mechanism), various(50, kind)
    outcomes = write(client, kind, bootstrap, topic, written, "gzip", settings=settings)
    assert outcomes == [str(at) for at in range(len(written))]
    modern = read_modern(sasl_cluster.bootstrap, topic)[0]
    assert [Record(one.key, one.value, one.timestamp) for one in modern] == written
    reader = consumer(client, kind, bootstrap, f"g-{topic}", commits=True, settings=settings)
    client.ask("subscribe", reader, topic)
    assert client.take(reader, len(written)) == as_seen(written, kind)
    client.ask("close", reader)
    assert "Traceback" not in shoal.log.read_text()
