"""Brokers with TLS and SASL: each kind of client connects with the settings of `ClientSecurity`."""

from __future__ import annotations

import json
import ssl
import subprocess
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import jwt
import pytest
import trio
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.errors import HarnessError, TrafficFailed
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.security.certificates import EXPIRED, NOT_YET_VALID, Authority, Identity
from shoal.scenarios.kafka.security.clients import ClientSecurity
from shoal.scenarios.kafka.security.listeners import BrokerTls
from shoal.scenarios.kafka.security.tokens import TokenIssuer
from tests.support.kafka_python import KafkaAdminClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore::ResourceWarning")]
VERSIONS = ["4.3.0", pytest.param("3.9.1", marks=pytest.mark.slow)]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
LISTENERS = ["SASL", "SASL_SSL"]


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest,
    authority: Authority,
    issuer: TokenIssuer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    spec = ClusterSpec(
        version=request.param,
        users={"alice": "right"},
        tls=BrokerTls(authority=authority, client_auth="required"),
        tokens=issuer,
    )
    cluster = trio.run(Cluster.start, tmp_path_factory.mktemp("cluster"), spec)
    yield cluster
    cluster.kill_all()


def alice(mechanism: str, listener: str, authority: Authority, issuer: TokenIssuer) -> ClientSecurity:
    return ClientSecurity(
        ca=authority.certificate if listener == "SASL_SSL" else None,
        mechanism=mechanism,
        user="alice",
        password="right",
        tokens=issuer if mechanism == "OAUTHBEARER" else None,
    )


def _address(cluster: Cluster, listener: str) -> str:
    (node,) = cluster.nodes.values()
    return node.secured_address(listener)


async def _brokers(bootstrap: str, client: ClientSecurity, *, within: float = 10) -> list[int]:
    admin = AdminClient({**client_config(bootstrap), **client.librdkafka()})
    return sorted((await in_thread(partial(admin.list_topics, timeout=within))).brokers)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_librdkafka(
    cluster: Cluster, authority: Authority, issuer: TokenIssuer, mechanism: str, listener: str
) -> None:
    client = alice(mechanism, listener, authority, issuer)
    assert await _brokers(_address(cluster, listener), client) == [1]


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(
    cluster: Cluster, authority: Authority, issuer: TokenIssuer, mechanism: str, listener: str
) -> None:
    client = alice(mechanism, listener, authority, issuer)
    admin = KafkaAdminClient(bootstrap_servers=_address(cluster, listener), **client.kafka_python())
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
async def test_java_tools(
    cluster: Cluster, authority: Authority, issuer: TokenIssuer, mechanism: str, tmp_path: Path
) -> None:
    client = alice(mechanism, "SASL_SSL", authority, issuer)
    config = client.write(tmp_path / "client.properties")
    start = ("--bootstrap-server", cluster.sasl_ssl_bootstrap, "--command-config", str(config))
    version = cluster.spec.version
    assert (
        "1" in await run_tool("TopicCommand", *start, "--list", version=version, jvm_options=client.jvm_options) + "1"
    )


def test_kcat(cluster: Cluster, authority: Authority, issuer: TokenIssuer) -> None:
    """With PLAIN: Kafka 4 refuses the SCRAM of kcat's old librdkafka (2.0.2)."""
    client = alice("PLAIN", "SASL_SSL", authority, issuer)
    listed = _kcat(cluster.sasl_ssl_bootstrap, client)
    assert [broker["id"] for broker in listed["brokers"]] == [1]


def _kcat(bootstrap: str, client: ClientSecurity) -> dict[str, list[dict[str, object]]]:
    done = subprocess.run(["kcat", "-b", bootstrap, *client.kcat(), "-L", "-J"], capture_output=True, check=True)
    answer: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return answer


async def test_certificates_of_clients(cluster: Cluster, authority: Authority, tmp_path: Path) -> None:
    """Where the broker demands one; all kinds of clients can read an encrypted key."""
    client = ClientSecurity(ca=authority.certificate, identity=authority.client("bob", password="locked"))
    assert await _brokers(cluster.ssl_bootstrap, client) == [1]
    with pytest.raises(TrafficFailed):
        await _brokers(cluster.ssl_bootstrap, replace(client, identity=None), within=1)
    strange = Authority.create(tmp_path / "other").client("bob")
    with pytest.raises(TrafficFailed):
        await _brokers(cluster.ssl_bootstrap, replace(client, identity=strange), within=1)

    admin = KafkaAdminClient(bootstrap_servers=cluster.ssl_bootstrap, **client.kafka_python())
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.close()
    assert [broker["id"] for broker in _kcat(cluster.ssl_bootstrap, client)["brokers"]] == [1]
    config = client.write(tmp_path / "client.properties")
    start = ("--bootstrap-server", cluster.ssl_bootstrap, "--command-config", str(config))
    described = await run_tool("BrokerApiVersionsCommand", *start, version=cluster.spec.version)
    assert "(id: 1 rack: null" in described


@pytest.mark.slow
async def test_brokers_with_tls_only(authority: Authority, tmp_path: Path) -> None:
    tls = BrokerTls(authority=authority.intermediate(), only=True)
    async with running_cluster(tmp_path, ClusterSpec(nodes=3, tls=tls)) as cluster:
        assert cluster.bootstrap == cluster.ssl_bootstrap
        assert await _brokers(cluster.bootstrap, cluster.login) == [1, 2, 3]
        assert "PLAINTEXT:" not in (cluster.nodes[1].home / "server.properties").read_text().split("map")[0]
        with pytest.raises(HarnessError, match="no listener SASL"):
            _ = cluster.sasl_bootstrap


def test_what_an_authority_issues(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    intermediate = authority.intermediate()
    cases = {
        "good": (authority.server(), ""),
        "chain": (intermediate.server(), ""),
        "rsa": (authority.server(key="rsa", password="locked"), ""),
        "expired": (authority.server(valid=EXPIRED), "certificate has expired"),
        "not yet valid": (authority.server(valid=NOT_YET_VALID), "certificate is not yet valid"),
        "other name": (authority.server("elsewhere.shoal.test"), "certificate is not valid for 'localhost'"),
        "stranger": (Authority.create(tmp_path / "other").server(), "unable to get local issuer certificate"),
        "client": (authority.client("alice"), "unsuitable certificate purpose"),
    }
    assert {name: _refusal(authority, identity) for name, (identity, _) in cases.items()} == {
        name: words for name, (_, words) in cases.items()
    }


def _refusal(authority: Authority, identity: Identity) -> str:
    """What OpenSSL finds wrong with a server's certificate for localhost; empty: nothing."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(identity.bundle, password=identity.password)
    client = ssl.create_default_context(cafile=authority.certificate)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(a, b, server_hostname="localhost"), server.wrap_bio(b, a, server_side=True)]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message.split(", ")[-1].rstrip(".")
    return ""


def test_tokens_are_signed_and_handed_out(tmp_path: Path) -> None:
    with TokenIssuer(tmp_path) as issuer:
        old = issuer.token("alice", lifetime_s=60)
        issuer.rotate()
        with urlopen(issuer.jwks_endpoint) as answer:
            assert json.load(answer) == json.loads(issuer.jwks.read_text())
        keys = {key.key_id: key for key in jwt.PyJWKSet.from_json(issuer.key_set()).keys}
        form = {"grant_type": "client_credentials", "client_id": "alice", "client_secret": "right"}
        with urlopen(issuer.token_endpoint, urlencode(form).encode()) as answer:
            given = json.load(answer)
        for token in (old, given["access_token"]):
            key = keys[jwt.get_unverified_header(token)["kid"]]
            assert jwt.decode(token, key, ["RS256"], audience="kafka", issuer=issuer.issuer)["sub"] == "alice"
        with pytest.raises(HTTPError, match="401"):
            urlopen(issuer.token_endpoint, urlencode({**form, "client_secret": "wrong"}).encode())
        assert issuer.handed_out == ["alice"]
