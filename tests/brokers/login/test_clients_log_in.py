"""Clients log in at Shoal, which logs in at the broker with the credentials that their principal is mapped to."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.brokers.login.conftest import MECHANISMS, LoginStand, private
from tests.brokers.proxy.rig.data import IN_TIME, granted_topic, new_topic, produce, read, various
from tests.support.kafka_python import KafkaAdminClient
from tests.support.secrets import users_file
from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.certificates import Authority
    from shoal.scenarios.kafka.security.tokens import TokenIssuer

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore::ResourceWarning")]
# At Shoal, not at the broker, which knows alice and bob.
PASSWORDS = {name: f"{name}-secret-at-shoal" for name in ("ann", "ben", "carl", "dora", "eve")}
SESSION_SECONDS = 5


@pytest.fixture(scope="module")
def front(
    broker: Cluster, issuer: TokenIssuer, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoginStand]:
    """`mapped`: ann is alice at the broker, ben is bob, carl is unknown. `open`: the broker's listener without SASL.
    `tls` is `mapped` over TLS; at `certificates`, clients show one instead of logging in."""
    work = tmp_path_factory.mktemp("front")
    issuer.clients["ann"] = "right"
    first = free_port_block(8)
    ports = {name: first + 2 * number for number, name in enumerate(("mapped", "open", "tls", "certificates"))}
    server = authority.server("127.0.0.1")
    tls = {"certificate": str(server.certificate), "key": str(server.key)}
    asked = {"client-ca": str(authority.certificate), "client-auth": "required"}
    sasl = {
        "mechanisms": list(MECHANISMS),
        "users": str(users_file(work / "users", PASSWORDS)),
        "jwks-endpoint": issuer.jwks_endpoint,
        "issuer": issuer.issuer,
        "audience": issuer.audience,
    }
    scram = {"mechanism": "SCRAM-SHA-512"}
    at_broker = [
        {**scram, "name": "a", "username": "alice", "password": private(work / "a", "alice-secret")},
        {**scram, "name": "b", "username": "bob", "password": private(work / "b", "bob-secret")},
    ]
    more: dict[str, dict[str, Any]] = {
        "mapped": {"sasl": sasl, "principals": {"ann": "a", "ben": "b"}, "coalesce": True},
        "open": {"sasl": {**sasl, "session-seconds": SESSION_SECONDS}},
        "tls": {"sasl": sasl, "principals": {"*": "a"}, "tls": tls},
        "certificates": {"principals": {"CN=ann": "a", "CN=ben": "b"}, "tls": {**tls, **asked}},
    }
    document = {
        "cluster": [
            {"name": "mapped", "bootstrap": broker.sasl_bootstrap, "credentials": at_broker},
            {"name": "open", "bootstrap": broker.bootstrap},
        ],
        "listener": [
            {
                "name": name,
                "cluster": "open" if name == "open" else "mapped",
                "listen": f"{LOOPBACK}:{port}",
                "ports": {"1": port + 1},
                **more[name],
            }
            for name, port in ports.items()
        ],
        "log": {"level": "debug"},
    }
    config = write_toml(work / "shoal.toml", document)
    shoal = ShoalProcess(["run", "-c", str(config)], work=work, ports=list(ports.values()))
    trio.run(shoal.start)
    yield LoginStand(cluster=broker, shoal=shoal, ports=ports, work=work)
    trio.run(shoal.stop)
    log = shoal.log.read_text()
    assert not re.search("secret-at-shoal|eyJ[A-Za-z0-9]{10}", log)  # the start of every JWT
    assert "Traceback" not in log
    assert "session expired" not in log


def client(mechanism: str, issuer: TokenIssuer, user: str = "ann") -> ClientSecurity:
    if mechanism == "OAUTHBEARER":
        return ClientSecurity(mechanism=mechanism, user=user, password="right", tokens=issuer)
    return ClientSecurity(mechanism=mechanism, user=user, password=PASSWORDS[user])


@pytest.mark.parametrize("listener", ["mapped", "open"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: Cluster, front: LoginStand, issuer: TokenIssuer, mechanism: str, listener: str) -> None:
    topic = new_topic(broker, [[1]])
    login: dict[str, Any] = {**client(mechanism, issuer).librdkafka()}
    sent = produce(front.bootstrap(listener), topic, various(50), **login)
    assert read(front.bootstrap(listener), topic, **login) == sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(front: LoginStand, issuer: TokenIssuer, mechanism: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=front.bootstrap("mapped"), **client(mechanism, issuer).kafka_python())
    (broker,) = admin.describe_cluster()["brokers"]
    assert broker["port"] == front.ports["mapped"] + 1
    admin.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
async def test_java(broker: Cluster, front: LoginStand, issuer: TokenIssuer, mechanism: str, tmp_path: Path) -> None:
    topic, login = new_topic(broker, [[1]]), client(mechanism, issuer)
    config = login.write(tmp_path / "client.properties")
    start = ("--bootstrap-server", front.bootstrap("open"), "--command-config", str(config))
    assert topic in (await run_tool("TopicCommand", *start, "--list", jvm_options=login.jvm_options)).split()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_over_tls(
    broker: Cluster, front: LoginStand, issuer: TokenIssuer, authority: Authority, mechanism: str
) -> None:
    topic = new_topic(broker, [[1]])
    login: dict[str, Any] = {**replace(client(mechanism, issuer), ca=authority.certificate).librdkafka()}
    sent = produce(front.bootstrap("tls"), topic, various(50), **login)
    assert read(front.bootstrap("tls"), topic, **login) == sent


def test_the_subject_of_a_certificate_is_a_principal(broker: Cluster, front: LoginStand, authority: Authority) -> None:
    topic = granted_topic(broker)
    outcomes = {}
    for user in ("ann", "ben"):
        shown = ClientSecurity(ca=authority.certificate, identity=authority.client(user)).librdkafka()
        outcomes[user] = codes_of({**client_config(front.bootstrap("certificates")), **shown}, topic)
    assert outcomes == {"ann": {0}, "ben": {KafkaError.TOPIC_AUTHORIZATION_FAILED}}


def codes_of(settings: dict[str, Any], topic: str) -> set[int]:
    """The error codes of a few records."""
    codes: set[int] = set()
    producer = Producer(settings)
    for number in range(5):
        told = lambda error, _: codes.add(0 if error is None else error.code())  # noqa: E731
        producer.produce(topic, b"%d" % number, b"key", 0, told)
    assert producer.flush(IN_TIME) == 0
    return codes


def refusals(bootstrap: str, login: dict[str, Any]) -> str:
    """What librdkafka reports."""
    told: list[KafkaError] = []
    settings: dict[str, Any] = {**client_config(bootstrap), **login, "log_level": 0, "error_cb": told.append}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    deadline = monotonic() + IN_TIME
    while not any(one.code() == KafkaError._AUTHENTICATION for one in told):
        assert monotonic() < deadline, told
        admin.poll(0.1)
    return next(one.str() for one in told if one.code() == KafkaError._AUTHENTICATION)


def test_a_refused_client_is_told_why(front: LoginStand, issuer: TokenIssuer) -> None:
    wrong = ClientSecurity(mechanism="SCRAM-SHA-512", user="ann", password="wrong").librdkafka()
    assert "Authentication failed: the credentials are invalid" in refusals(front.bootstrap("mapped"), wrong)
    carl = client("PLAIN", issuer, "carl").librdkafka()
    assert "no credentials are mapped to the principal 'carl'" in refusals(front.bootstrap("mapped"), carl)


def test_the_broker_sees_the_mapped_principal_also_in_joined_requests(
    broker: Cluster, front: LoginStand, issuer: TokenIssuer
) -> None:
    topic = granted_topic(broker)
    codes: dict[str, list[int]] = {"ann": [], "ben": []}
    settings = client_config(front.bootstrap("mapped"), linger_ms=0)
    users = ("ann", "ben", "ann")
    producers = [(user, Producer({**settings, **client("PLAIN", issuer, user).librdkafka()})) for user in users]
    for number in range(100):
        for user, producer in producers:

            def delivered(error: KafkaError | None, _: Message, user: str = user) -> None:
                codes[user].append(0 if error is None else error.code())

            producer.produce(topic, b"%d" % number, b"key", 0, delivered)
            producer.poll(0)
    for _, producer in producers:
        assert producer.flush(IN_TIME) == 0
    assert codes == {"ann": [0] * 200, "ben": [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 100}
    deadline = monotonic() + IN_TIME
    while not re.search("joined [0-9,]+ produce requests? into", front.shoal.log.read_text()):  # every ten seconds
        assert monotonic() < deadline
        producers[0][1].poll(0.1)


@pytest.mark.parametrize(
    ("who", "left"), [("dora", {}), pytest.param("eve", {"eve": "a-new-secret-at-shoal"}, marks=pytest.mark.slow)]
)
def test_a_user_that_is_removed_or_changed_is_cut_off(
    broker: Cluster, front: LoginStand, issuer: TokenIssuer, who: str, left: dict[str, str]
) -> None:
    """Others do not notice; nothing that was acknowledged is lost, nor sent again."""
    topic = new_topic(broker, [[1]])
    told: dict[str, list[int]] = {"ann": [], who: []}

    def noted(user: str, error: KafkaError) -> None:
        told[user].append(error.code())

    acknowledged: list[bytes] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.value() or b"")

    producers = {}
    for user in told:
        settings = client_config(front.bootstrap("open"), linger_ms=0, enable_idempotence=True)
        own = {**client("PLAIN", issuer, user).librdkafka(), "log_level": 0, "error_cb": partial(noted, user)}
        producers[user] = Producer({**settings, **own})
    sent, changed, end = 0, False, monotonic() + IN_TIME
    line = rf"ended \d connections? of users that are removed or have a new password: {who}\n"
    while KafkaError._AUTHENTICATION not in told[who] or not re.search(line, front.shoal.output()):
        assert monotonic() < end, told
        for user, producer in producers.items():
            producer.produce(topic, f"{user} {sent}", partition=0, on_delivery=delivered)
            producer.poll(0.02)
        sent += 1
        if not changed and sum(value.startswith(who.encode()) for value in acknowledged) >= 10:
            assert told == {"ann": [], who: []}
            changed = True
            users = {user: password for user, password in PASSWORDS.items() if user != who}
            users_file(front.work / "users", {**users, **left})
    assert producers["ann"].flush(IN_TIME) == 0
    assert told["ann"] == []
    producers[who].purge()
    producers[who].flush(IN_TIME)
    found = [record.value for record in read(broker.bootstrap, topic)[0]]
    assert len(found) == len(set(found))
    assert set(acknowledged) == set(found), "every request that reached the broker is answered before the end"
    assert [value for value in found if value and value.startswith(b"ann")] == [b"ann %d" % one for one in range(sent)]


def test_clients_log_in_again_before_their_session_ends(
    broker: Cluster, front: LoginStand, issuer: TokenIssuer
) -> None:
    """Two sessions at Shoal, and three at the broker."""
    topic = new_topic(broker, [[1]])
    problems: list[KafkaError] = []
    producers = [
        Producer(
            {
                **client_config(front.bootstrap(listener), linger_ms=0),
                **client("SCRAM-SHA-512", issuer).librdkafka(),
                "error_cb": problems.append,
            }
        )
        for listener in ("open", "mapped")
    ]
    end, sent = monotonic() + 2.2 * SESSION_SECONDS, 0
    while monotonic() < end:
        for producer in producers:
            producer.produce(topic, b"%d" % sent, b"key", 0)
            producer.poll(0.05)
            sent += 1
    for producer in producers:
        assert producer.flush(IN_TIME) == 0
    assert not problems
    assert len(read(broker.bootstrap, topic)[0]) == sent
