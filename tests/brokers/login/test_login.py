"""Clients without SASL, behind a Shoal that logs in: every mechanism, sessions that end, new credentials."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from shoal.protocol.wire.error_codes import ErrorCode
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.security.kdc import Kdc
from tests.brokers.login.conftest import PASSWORD, SESSION_MS, USER, by_kerberos, private
from tests.brokers.proxy.rig.data import IN_TIME, Record, new_topic, produce, read, various
from tests.brokers.proxy.rig.frames import Wire, request, response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.tokens import TokenIssuer
    from tests.brokers.login.conftest import LoginStand

pytestmark = pytest.mark.kafka
WAYS = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "token",
    "command",
    "endpoint",
    "GSSAPI",
    "TLS",
    "coalesce",
    "legacy",
)
PERIODS = 3.2


def test_clients_need_no_credentials_over_several_sessions(broker: Cluster, stand: LoginStand) -> None:
    """Pipelined requests, and a connection that is idle for longer than its session, on every listener at once."""
    with ThreadPoolExecutor(2 * len(WAYS)) as threads:
        busy = [threads.submit(_busy, broker, stand.bootstrap(way)) for way in WAYS]
        idle = [threads.submit(_idle, broker, stand.bootstrap(way)) for way in WAYS]
        for one in (*busy, *idle):
            one.result(IN_TIME)
    log = stand.shoal.output()
    assert "ended: broker" not in log, "the broker has closed no connection"
    assert "login at the broker failed" not in log
    for way in WAYS:
        assert log.count(f"cluster '{way}': sasl: logged in again") >= 2 * PERIODS - 2, way


def _busy(broker: Cluster, bootstrap: str) -> None:
    topic = new_topic(broker, [[1]])

    def steady() -> Iterator[Record]:
        deadline = time.monotonic() + PERIODS * SESSION_MS / 1000
        for number, record in enumerate(various(1_000_000)):
            yield record
            # Five requests at once, 50 a second: what is under way when a session is nearly over must be answered in
            # time by a broker that has just started and serves all ways.
            time.sleep(0.001 if number % 5 else 0.1)
            if time.monotonic() > deadline:
                return

    sent = produce(bootstrap, topic, steady(), linger_ms=0)
    assert read(bootstrap, topic) == sent
    assert read(broker.bootstrap, topic) == sent


def _idle(broker: Cluster, bootstrap: str) -> None:
    topic = new_topic(broker, [[1]])

    def rare() -> Iterator[Record]:
        for record in various(3):
            yield record
            time.sleep(SESSION_MS / 1000 * 1.3)

    sent = produce(bootstrap, topic, rare(), linger_ms=0, retries=0)
    assert read(broker.bootstrap, topic) == sent


# -- refusals ----------------------------------------------------------------------------------------------------------


def _cannot_list(bootstrap: str, **settings: Any) -> list[str]:
    """The errors that a client without a broker gets."""
    errors: list[str] = []
    config: dict[str, Any] = {**client_config(bootstrap), "log_level": 0, **settings}
    admin = AdminClient(config | {"error_cb": lambda error: errors.append(error.str())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1.5)
    deadline = time.monotonic() + IN_TIME
    while not errors:
        assert time.monotonic() < deadline
        admin.poll(0.1)
    while admin.poll(0):
        pass
    return errors


async def test_a_wrong_password_is_reported_and_not_tried_by_every_connection(
    broker: Cluster, new_stand: Callable[..., LoginStand], tmp_path: Path
) -> None:
    """It needs no restart to change it."""
    secret = private(tmp_path / "password", "mistyped")
    way = {"SCRAM-SHA-512": {"mechanism": "SCRAM-SHA-512", "username": USER, "password": secret}}
    stand = new_stand(way, log={"format": "json"})
    before = _failed_logins(broker)
    await stand.shoal.start()
    await stand.shoal.until_logged("does not let the user in", within=IN_TIME)
    starting, *others = stand.shoal.json_lines()
    told = next(line for line in others if "does not let the user in" in line.get("message", ""))
    assert datetime.fromisoformat(told["time"]) - datetime.fromisoformat(starting["time"]) < timedelta(seconds=5)
    clients = [
        _cannot_list(stand.bootstrap("SCRAM-SHA-512"), **{"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50})
        for _ in range(2)
    ]
    assert all(clients)
    assert _failed_logins(broker) - before <= 5, "1 s, 2 s, 4 s between tries"
    log = stand.shoal.output()
    assert "SASL_AUTHENTICATION_FAILED" in log
    assert f"check sasl.username of cluster 'SCRAM-SHA-512' ({USER}), and its password" in log
    assert "mistyped" not in log
    private(tmp_path / "password", PASSWORD)
    topic = new_topic(broker, [[1]])
    sent = produce(stand.bootstrap("SCRAM-SHA-512"), topic, various(10))
    assert read(broker.bootstrap, topic) == sent
    await stand.shoal.stop()


def _failed_logins(broker: Cluster) -> int:
    (node,) = broker.nodes.values()
    return node.log.read_text().count("Failed authentication with")


async def test_other_refusals_say_what_to_do(
    broker: Cluster, issuer: TokenIssuer, new_stand: Callable[..., LoginStand], tmp_path: Path
) -> None:
    password = private(tmp_path / "password", PASSWORD)
    other = private(tmp_path / "token", issuer.token(USER, aud="other"))
    old = private(tmp_path / "old", issuer.token(USER, lifetime_s=-60))
    new = private(tmp_path / "new", issuer.token(USER, issued_at=time.time() + 3600))
    plain = {"mechanism": "PLAIN", "username": USER, "password": password}
    ways: dict[str, dict[str, Any]] = {
        "no-sasl": plain,
        "other": {"mechanism": "OAUTHBEARER", "token": other},
        "old": {"mechanism": "OAUTHBEARER", "token": old},
        "new": {"mechanism": "OAUTHBEARER", "token": new},
    }
    stand = new_stand(ways, clusters={"no-sasl": {"bootstrap": broker.bootstrap}})
    await stand.shoal.start()
    for words in (
        "it offers no SASL on this port: use the address of its SASL port, or remove",
        'does not let the user in: error 58 (SASL_AUTHENTICATION_FAILED): {"status":"invalid_token"}',
        "aud other",
        "the token expired at 2",
        "the token is valid only from 2",
    ):
        await stand.shoal.until_logged(words, within=IN_TIME)
    await stand.shoal.stop()


def test_a_client_that_logs_in_itself_is_refused(stand: LoginStand) -> None:
    """The broker would take it for a re-authentication as another user."""
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "bob-secret",
    }
    errors = _cannot_list(stand.bootstrap("PLAIN"), **sasl)
    assert any("handshake" in error for error in errors), errors
    assert "clients of this listener must use security.protocol without SASL" in stand.shoal.output()
    assert "bob-secret" not in stand.shoal.output()


def test_a_client_gets_no_delegation_token_of_shoal_s_principal(broker: Cluster, stand: LoginStand) -> None:
    def error_of(wire: Wire) -> int:
        wanted = {"renewers": [], "max_lifetime": timedelta(milliseconds=-1)}
        answer = wire.ask(request("create_delegation_token", 3, wanted))
        assert isinstance(answer, bytes)
        return int(response("create_delegation_token", 3, answer).error_code)

    with Wire(*address(broker.sasl_bootstrap)) as wire:
        wire.ask(request("sasl_handshake", 1, {"mechanism": "PLAIN"}))
        wire.ask(request("sasl_authenticate", 2, {"auth_bytes": f"\0{USER}\0{PASSWORD}".encode()}))
        assert error_of(wire) == ErrorCode.NONE
    with Wire(*address(stand.bootstrap("PLAIN"))) as wire:
        assert error_of(wire) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert "CreateDelegationToken, and is refused" in stand.shoal.output()


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


# -- tokens ------------------------------------------------------------------------------------------------------------


async def test_tokens_are_renewed_and_shared(
    broker: Cluster, issuer: TokenIssuer, new_stand: Callable[..., LoginStand], tmp_path: Path
) -> None:
    """The issuer is asked when 80 % of a token is used, not for each connection."""
    endpoint = {
        "mechanism": "OAUTHBEARER",
        "token-endpoint": issuer.token_endpoint,
        "client-id": "renewed",
        "client-secret": private(tmp_path / "secret", "right"),
    }
    issuer.clients["renewed"] = "right"
    issuer.lifetime_s = 8  # two sessions
    stand = new_stand({"endpoint": endpoint}, log={"level": "debug"})
    await stand.shoal.start()
    try:
        topic, deadline = new_topic(broker, [[1]]), time.monotonic() + 10
        began = len(issuer.handed_out)

        def steady() -> Iterator[Record]:
            for record in various(1_000_000):
                yield record
                time.sleep(0.005)
                if deadline < time.monotonic():
                    return

        sent = produce(stand.bootstrap("endpoint"), topic, steady(), linger_ms=0)
        assert read(broker.bootstrap, topic) == sent
        assert 1 <= issuer.handed_out[began:].count("renewed") <= 3
        assert "ended: broker" not in stand.shoal.output()
    finally:
        issuer.lifetime_s = 3600
    await stand.shoal.stop()


# -- Kerberos ----------------------------------------------------------------------------------------------------------


async def test_kerberos_that_fails_is_explained(
    broker: Cluster, kdc: Kdc, new_stand: Callable[..., LoginStand], tmp_path: Path
) -> None:
    ways = {
        "service": by_kerberos(kdc, service="unknown"),
        "principal": by_kerberos(kdc, principal=kdc.principal("stranger")),
    }
    stand = new_stand(ways)
    await stand.shoal.start()
    await stand.shoal.until_logged(
        "the KDC does not know a principal: the broker's must be unknown/localhost", within=5
    )
    await stand.shoal.until_logged("the keytab has no key of this principal", within=IN_TIME)
    await stand.shoal.stop()
    gone = Kdc(tmp_path / "gone", ticket_lifetime_s=1)  # never started
    stand = new_stand({"gone": by_kerberos(kdc)}, kdc=gone)
    await stand.shoal.start()
    await stand.shoal.until_logged("the KDC cannot be reached: check its address in krb5.conf", within=IN_TIME)
    await stand.shoal.stop()
