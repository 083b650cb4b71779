"""Real clients over TLS to Shoal, and Shoal over TLS to a real broker: plain, coalescing and legacy listeners."""

from __future__ import annotations

import uuid
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.brokers.proxy.rig.data import (
    IN_TIME,
    TIMESTAMP,
    Record,
    new_topic,
    produce,
    read,
    read_with_coordinator,
    various,
)
from tests.support.kafka_python import KafkaConsumer, KafkaProducer
from tests.support.shoal_process import ShoalProcess, running_shoal, write_toml

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.certificates import Authority

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("forgotten_sockets"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # they may be collected before the test ends
]
KINDS: dict[str, dict[str, object]] = {"plain": {}, "coalesce": {"coalesce": True}, "legacy": {"legacy": True}}
_PORTS = 3  # of one listener


def _shoal(cluster: Cluster, authority: Authority, work: Path) -> ShoalProcess:
    first = free_port_block(_PORTS * len(KINDS))
    own = authority.server(LOOPBACK)
    document = {
        "cluster": [{"name": "c", "bootstrap": [cluster.ssl_bootstrap], "tls": {"ca": str(authority.certificate)}}],
        "listener": [
            {
                "name": name,
                "cluster": "c",
                "listen": f"{LOOPBACK}:{first + _PORTS * number}",
                "ports": f"{first + _PORTS * number + 1}-{first + _PORTS * number + _PORTS - 1}",
                "tls": {"certificate": str(own.certificate), "key": str(own.key)},
                **more,
            }
            for number, (name, more) in enumerate(KINDS.items())
        ],
        "capture": {"directory": str(work / "index"), "raw": {"directory": str(work / "frames")}},
    }
    for name in ("index", "frames"):
        (work / name).mkdir()
    config = write_toml(work / "shoal.toml", document)
    ports = [first + _PORTS * number for number in range(len(KINDS))]
    return ShoalProcess(["run", "-c", str(config)], work=work, ports=ports)


async def test_clients_of_three_kinds_over_tls(secured_cluster: Cluster, authority: Authority, tmp_path: Path) -> None:
    security = ClientSecurity(ca=authority.certificate)
    tool = tmp_path / "client.properties"
    tool.write_text("".join(f"{key}={value}\n" for key, value in security.java().items()))
    async with running_shoal(_shoal(secured_cluster, authority, tmp_path)) as shoal:
        for name, port in zip(KINDS, shoal.ports, strict=True):
            bootstrap = f"{LOOPBACK}:{port}"
            topic = new_topic(secured_cluster, [[1], [1], [1]])
            sent = produce(bootstrap, topic, various(300, size=5000), partitions=3, **security.librdkafka())
            assert read_with_coordinator(bootstrap, topic, partitions=3, **security.librdkafka()) == sent, name
            assert read(secured_cluster.bootstrap, topic, partitions=3) == sent, name
            _kafka_python(secured_cluster, bootstrap, security)
            await _java(secured_cluster, bootstrap, tool)
    log = shoal.output()
    assert " ended: " not in log, log  # connections of clients that something went wrong with
    assert any((tmp_path / "index").iterdir())
    assert b"line 1999" in b"".join(path.read_bytes() for path in (tmp_path / "frames").iterdir())


def _kafka_python(cluster: Cluster, bootstrap: str, security: ClientSecurity) -> None:
    topic = new_topic(cluster, [[1]])
    sent = [Record(b"%d" % number, b"v%d" % number, TIMESTAMP + number) for number in range(30)]
    producer = KafkaProducer(bootstrap_servers=bootstrap, **security.kafka_python(), acks="all")
    for record in sent:
        producer.send(topic, record.value, record.key, [], 0, record.timestamp)
    producer.flush(IN_TIME)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        **security.kafka_python(),
        auto_offset_reset="earliest",
        group_id=f"g-{uuid.uuid4().hex[:12]}",
    )
    got: list[bytes] = []
    deadline = monotonic() + IN_TIME
    while len(got) < len(sent):
        assert monotonic() < deadline, got
        got += [record.value for records in consumer.poll(500).values() for record in records]
    consumer.close()
    assert got == [record.value for record in sent]


async def _java(cluster: Cluster, bootstrap: str, config: Path) -> None:
    topic = new_topic(cluster, [[1]])
    lines = [f"line {number}" for number in range(2000)]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    start = ("--bootstrap-server", bootstrap, "--topic", topic)
    await run_tool("ConsoleProducer", *start, "--command-config", str(config), stdin=stdin)
    consumed = await run_tool(
        "ConsoleConsumer",
        *start,
        "--command-config",
        str(config),
        "--from-beginning",
        "--max-messages",
        "2000",
        "--timeout-ms",
        "30000",
    )
    assert consumed.splitlines() == lines
