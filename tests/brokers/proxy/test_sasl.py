"""SASL through Shoal: the broker itself authenticates the client, which receives the broker's own errors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.java.tools import run_tool
from tests.brokers.proxy.rig.data import IN_TIME, TIMESTAMP, Record, new_topic, produce, read, various
from tests.brokers.proxy.rig.frames import Closed, Wire, framed, request, response
from tests.brokers.proxy.rig.stand import PASSWORD, USER
from tests.support.kafka_python import KafkaConsumer, KafkaProducer

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("forgotten_sockets")]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MODULES = {"PLAIN": "plain.PlainLoginModule"}  # the others: SCRAM


def _sasl(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(brokers: Cluster, stand: Stand, mechanism: str) -> None:
    topic = new_topic(brokers, [[1], [2], [3]])
    sent = produce(stand.sasl_bootstrap, topic, various(90), partitions=3, **_sasl(mechanism))
    assert read(stand.sasl_bootstrap, topic, partitions=3, **_sasl(mechanism)) == sent
    assert read(brokers.bootstrap, topic, partitions=3) == sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(brokers: Cluster, stand: Stand, mechanism: str) -> None:
    topic = new_topic(brokers, [[1], [2], [3]])
    sasl = {key.replace(".", "_"): value for key, value in _sasl(mechanism).items()}
    settings = {
        "bootstrap_servers": stand.sasl_bootstrap,
        "security_protocol": sasl["security_protocol"],
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    sent = [Record(b"%d" % number, b"v%d" % number, TIMESTAMP + number) for number in range(30)]
    producer = KafkaProducer(**settings, acks="all")
    for number, record in enumerate(sent):
        producer.send(topic, record.value, record.key, [], number % 3, record.timestamp)
    producer.flush(IN_TIME)
    producer.close()
    assert read(brokers.bootstrap, topic, partitions=3) == {number: sent[number::3] for number in range(3)}
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", group_id=f"g-{uuid.uuid4().hex[:12]}")
    got: list[bytes] = []
    deadline = monotonic() + IN_TIME
    while len(got) < 30:
        assert monotonic() < deadline, got
        got += [record.value for records in consumer.poll(500).values() for record in records]
    consumer.close()
    assert sorted(got) == sorted(record.value or b"" for record in sent)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_java_tool_lists_topics(brokers: Cluster, stand: Stand, mechanism: str, tmp_path: Path) -> None:
    topic = new_topic(brokers, [[1]])
    module = MODULES.get(mechanism, "scram.ScramLoginModule")
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config="
        f'org.apache.kafka.common.security.{module} required username="{USER}" password="{PASSWORD}";\n'
    )
    start = ("--bootstrap-server", stand.sasl_bootstrap, "--command-config", str(config))
    assert topic in (await run_tool("TopicCommand", *start, "--list")).split()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_gives_the_broker_s_own_error(brokers: Cluster, stand: Stand, mechanism: str) -> None:
    direct, through = (_refusal(at, mechanism) for at in (brokers.sasl_bootstrap, stand.sasl_bootstrap))
    assert direct == through
    assert "Authentication failed" in through


def _refusal(bootstrap: str, mechanism: str) -> str:
    """librdkafka's error message without its prefix, which contains the address."""
    refused: list[KafkaError] = []
    settings: dict[str, Any] = {
        **client_config(bootstrap.split(",")[0]),
        **_sasl(mechanism, "wrong"),
        "log_level": 0,
    }
    admin = AdminClient(settings | {"error_cb": refused.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)  # it waits for another login until then
    deadline = monotonic() + IN_TIME
    while not (told := [one.str() for one in refused if one.code() == KafkaError._AUTHENTICATION]):
        assert monotonic() < deadline, refused
        admin.poll(0.1)
    return told[0].partition("SASL authentication error: ")[2].partition(" (after")[0]


class _RawTokens:
    """After SaslHandshake v0: tokens with a length prefix and no Kafka header."""

    def __init__(self, wire: Wire, mechanism: str) -> None:
        self.wire = wire
        frame = wire.ask(request("sasl_handshake", 0, {"mechanism": mechanism}))
        assert not isinstance(frame, Closed)
        assert response("sasl_handshake", 0, frame).error_code == 0

    def exchange(self, token: bytes) -> bytes | Closed:
        answer = self.wire.ask(framed(token))
        return answer if isinstance(answer, Closed) else answer[4:]

    def brokers_named(self) -> dict[int, tuple[str, int]]:
        frame = self.wire.ask(request("metadata", 12, {"topics": []}))
        assert not isinstance(frame, Closed)
        return {broker.node_id: (broker.host, broker.port) for broker in response("metadata", 12, frame).brokers}


def test_plain_with_raw_tokens(stand: Stand) -> None:
    with Wire(*stand.sasl_broker(1)) as wire:
        client = _RawTokens(wire, "PLAIN")
        assert client.exchange(f"\0{USER}\0{PASSWORD}".encode()) == b""
        assert client.brokers_named() == {node: stand.sasl_broker(node) for node in stand.cluster.nodes}


def test_plain_with_a_wrong_raw_token(stand: Stand) -> None:
    with Wire(*stand.sasl_broker(1)) as wire:
        assert _RawTokens(wire, "PLAIN").exchange(f"\0{USER}\0wrong".encode()) == Closed()


@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_with_raw_tokens(stand: Stand, mechanism: str, digest: str) -> None:
    """RFC 5802: two rounds, then ordinary requests, whose answers are rewritten again."""
    with Wire(*stand.sasl_broker(1)) as wire:
        client = _RawTokens(wire, mechanism)
        first = f"n={USER},r=nonce"
        challenge = client.exchange(f"n,,{first}".encode())
        assert isinstance(challenge, bytes)
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        last = f"c=biws,r={fields['r']}"
        salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        signed = f"{first},{challenge.decode()},{last}".encode()
        final = client.exchange(f"{last},p={_proof(salted, signed, digest)}".encode())
        server_key = hmac.digest(salted, b"Server Key", digest)
        assert final == b"v=" + base64.b64encode(hmac.digest(server_key, signed, digest))
        assert client.brokers_named() == {node: stand.sasl_broker(node) for node in stand.cluster.nodes}


def _proof(salted: bytes, signed: bytes, digest: str) -> str:
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    return base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
