"""A real KDC, a broker that authenticates with Kerberos, and three kinds of clients that do."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.errors import ToolFailed
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.support.kafka_python import KafkaAdminClient

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.certificates import Authority
    from shoal.scenarios.kafka.security.kdc import Kdc

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def alice(kdc: Kdc, authority: Authority) -> ClientSecurity:
    return ClientSecurity(ca=authority.certificate, mechanism="GSSAPI", user="alice", kdc=kdc)


async def test_a_java_client(kerberos_cluster: Cluster, alice: ClientSecurity, tmp_path: Path) -> None:
    config = alice.write(tmp_path / "client.properties")
    start = ("--bootstrap-server", kerberos_cluster.sasl_ssl_bootstrap, "--command-config", str(config))
    described = await run_tool("BrokerApiVersionsCommand", *start, jvm_options=alice.jvm_options)
    assert "localhost:" in described
    assert "(id: 1 rack: null" in described


async def test_a_principal_without_a_key(kerberos_cluster: Cluster, alice: ClientSecurity, tmp_path: Path) -> None:
    config = alice.write(tmp_path / "client.properties")
    config.write_text(config.read_text().replace('principal="alice@', 'principal="mallory@'))
    start = ("--bootstrap-server", kerberos_cluster.sasl_ssl_bootstrap, "--command-config", str(config))
    with pytest.raises(ToolFailed, match="LoginException"):
        await run_tool("BrokerApiVersionsCommand", *start, jvm_options=alice.jvm_options)


def test_kcat(kerberos_cluster: Cluster, alice: ClientSecurity) -> None:
    argv = ["kcat", "-b", kerberos_cluster.sasl_ssl_bootstrap, *alice.kcat(), "-L", "-J"]
    done = subprocess.run(argv, capture_output=True, check=False, env={**os.environ, **alice.environment})
    assert done.returncode == 0, done.stderr.decode()
    assert [broker["id"] for broker in json.loads(done.stdout)["brokers"]] == [1]


def test_kafka_python(kerberos_cluster: Cluster, alice: ClientSecurity, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in alice.environment.items():
        monkeypatch.setenv(name, value)
    admin = KafkaAdminClient(bootstrap_servers=kerberos_cluster.sasl_ssl_bootstrap, **alice.kafka_python())
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.close()
