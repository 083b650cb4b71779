"""One broker with SASL_PLAINTEXT, SSL and SASL_SSL, with every SASL mechanism that has no Kerberos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.security.listeners import BrokerTls
from shoal.scenarios.kafka.security.tokens import TokenIssuer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.scenarios.kafka.security.certificates import Authority

USER, PASSWORD = "mirror", "k5-Vr-geheim-x1"


@pytest.fixture(scope="package")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    with TokenIssuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority, issuer: TokenIssuer) -> Iterator[Cluster]:
    tls = BrokerTls(authority=authority, client_auth="requested")
    spec = ClusterSpec(users={USER: PASSWORD}, tls=tls, tokens=issuer, jmx=True)
    cluster = trio.run(Cluster.start, tmp_path_factory.mktemp("secured"), spec)
    yield cluster
    cluster.kill_all()


@pytest.fixture(scope="package")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("password") / "password"
    path.touch(mode=0o600)
    path.write_text(PASSWORD + "\n", encoding="utf-8")
    return str(path)
