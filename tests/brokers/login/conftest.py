"""A broker with SASL whose sessions last four seconds, and one Shoal with a listener for each way to log in."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.kdc import Kdc
from shoal.scenarios.kafka.security.listeners import BrokerTls
from shoal.scenarios.kafka.security.tokens import TokenIssuer
from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority

USER, PASSWORD = "alice", "alice-secret"
SESSION_MS = 6000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PORTS = 2  # of a listener: bootstrap, and the only broker


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginStand:
    """`ports`: bootstrap ports by name of the listener."""

    cluster: Cluster
    shoal: ShoalProcess
    ports: dict[str, int]
    work: Path

    def bootstrap(self, name: str) -> str:
        return f"{LOOPBACK}:{self.ports[name]}"


@pytest.fixture(scope="package")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    with TokenIssuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


@pytest.fixture(scope="package")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    kdc = trio.run(Kdc.start, tmp_path_factory.mktemp("kdc"))
    yield kdc
    kdc.kill()


@pytest.fixture(scope="package")
def broker(
    tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer, kdc: Kdc, authority: Authority
) -> Iterator[Cluster]:
    spec = ClusterSpec(
        users={USER: PASSWORD, "bob": "bob-secret"},
        tokens=issuer,
        kdc=kdc,
        tls=BrokerTls(authority=authority),
        reauthenticate_ms=dict.fromkeys((*MECHANISMS, "GSSAPI"), SESSION_MS),
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # the test itself, over the listener without SASL
            "allow.everyone.if.no.acl.found": "true",
            "delegation.token.secret.key": "not a secret",
        },
    )
    cluster = trio.run(Cluster.start, tmp_path_factory.mktemp("cluster"), spec)
    yield cluster
    cluster.kill_all()


def private(path: Path, text: str) -> dict[str, str]:
    """A `Secret` in a file."""
    path.write_text(text)
    path.chmod(0o600)
    return {"file": str(path)}


def by_kerberos(kdc: Kdc, **changed: Any) -> dict[str, Any]:
    return {"mechanism": "GSSAPI", "keytab": str(kdc.keytab("shoal")), "principal": kdc.principal("shoal"), **changed}


def ways_to_log_in(work: Path, issuer: TokenIssuer, kdc: Kdc) -> dict[str, dict[str, Any]]:
    password = private(work / "password", PASSWORD + "\n")
    script = work / "print-token"
    script.write_text(f"#!{sys.executable}\nprint(open({str(work / 'token')!r}).read())\n")
    script.chmod(0o700)
    names = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    passwords = {name: {"mechanism": name, "username": USER, "password": password} for name in names}
    oauth = {"mechanism": "OAUTHBEARER"}
    return {
        **passwords,
        "token": {**oauth, "token": private(work / "token", issuer.token(USER)), "extensions": {"traceId": "a1"}},
        "command": {**oauth, "token-command": [str(script)]},
        "endpoint": {
            **oauth,
            "token-endpoint": issuer.token_endpoint,
            "client-id": USER,
            "client-secret": private(work / "client-secret", "right"),
            "scope": "mirror",
        },
        "GSSAPI": by_kerberos(kdc),
    }


def login_shoal(
    cluster: Cluster,
    work: Path,
    ways: dict[str, dict[str, Any]],
    kdc: Kdc,
    listeners: dict[str, dict[str, Any]] | None = None,
    clusters: dict[str, dict[str, Any]] | None = None,
    **document: Any,
) -> LoginStand:
    """A Shoal, not started. `listeners`: more keys of a listener, by its name, which is that of its way to log in.

    `clusters`: more keys of a cluster, by the same name.
    """
    first = free_port_block(_PORTS * len(ways))
    ports = {name: first + _PORTS * number for number, name in enumerate(ways)}
    whole = {
        "cluster": [
            {"name": name, "bootstrap": cluster.sasl_bootstrap, "sasl": way, **(clusters or {}).get(name, {})}
            for name, way in ways.items()
        ],
        "listener": [
            {
                "name": name,
                "cluster": name,
                "listen": f"{LOOPBACK}:{port}",
                "ports": {"1": port + 1},
                **(listeners or {}).get(name, {}),
            }
            for name, port in ports.items()
        ],
        **document,
    }
    config = write_toml(work / "shoal.toml", whole)
    shoal = ShoalProcess(
        ["run", "-c", str(config)], work=work, ports=list(ports.values()), env={"KRB5_CONFIG": str(kdc.config)}
    )
    return LoginStand(cluster=cluster, shoal=shoal, ports=ports, work=work)


@pytest.fixture(scope="package")
def stand(
    broker: Cluster, issuer: TokenIssuer, kdc: Kdc, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoginStand]:
    work = tmp_path_factory.mktemp("shoal")
    ways = ways_to_log_in(work, issuer, kdc)
    ways["coalesce"] = ways["legacy"] = ways["PLAIN"]
    ways["TLS"] = ways["SCRAM-SHA-512"]
    secured = {"TLS": {"bootstrap": broker.sasl_ssl_bootstrap, "tls": {"ca": str(authority.certificate)}}}
    special = {"coalesce": {"coalesce": True}, "legacy": {"legacy": True}}
    stand = login_shoal(broker, work, ways, kdc, special, secured, log={"level": "debug"})
    trio.run(stand.shoal.start)
    yield stand
    trio.run(stand.shoal.stop)


@pytest.fixture
def new_stand(broker: Cluster, kdc: Kdc, tmp_path: Path) -> Iterator[Callable[..., LoginStand]]:
    made: list[LoginStand] = []

    def make(ways: dict[str, dict[str, Any]], **more: Any) -> LoginStand:
        work = tmp_path / f"shoal-{len(made)}"
        os.makedirs(work)
        made.append(login_shoal(broker, work, ways, more.pop("kdc", kdc), **more))
        return made[-1]

    yield make
    for stand in made:
        if stand.shoal.running:
            stand.shoal.kill()
