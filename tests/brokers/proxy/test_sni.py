"""Three real brokers behind one port: real clients reach each of them by its name (SNI).

No name needs DNS: Java reads a hosts file of its own, and "0x7f.1" is 127.0.0.1 to the resolver, but a name to
librdkafka and OpenSSL.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.clients import ClientSecurity
from shoal.scenarios.kafka.security.listeners import BrokerTls
from tests.brokers.proxy.rig.data import new_topic
from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority
    from tests.support.kafka.clusters import SharedClusters

pytestmark = pytest.mark.kafka
JAVA = ("shoal.test", "broker-{node}.shoal.test")
LIBRDKAFKA = ("0x7f.0.1", "0x7f.{node}")


@pytest.fixture(scope="module")
def cluster(shared_clusters: SharedClusters, authority: Authority) -> Cluster:
    spec = ClusterSpec(nodes=3, tls=BrokerTls(authority=authority, client_auth="required"))
    return shared_clusters.cluster("tls", spec)


@pytest.fixture(scope="module")
def ports(
    cluster: Cluster, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int, ShoalProcess]]:
    """The ports of the listeners for Java and for librdkafka."""
    work = tmp_path_factory.mktemp("sni")
    first = free_port_block(2)
    own, names = authority.client("shoal"), [*JAVA, *LIBRDKAFKA]
    hosts = [name.format(node=node) for name in names for node in (1, 2, 3)]
    shown = authority.server(*dict.fromkeys(hosts))
    tls = {"ca": str(authority.certificate), "certificate": str(own.certificate), "key": str(own.key)}

    def listener(number: int, advertise: str, broker_host: str, **more: Any) -> dict[str, Any]:
        return {
            "name": f"names-{number}",
            "cluster": "c",
            "listen": f"0.0.0.0:{first + number}",
            "routing": "sni",
            "advertise": advertise,
            "broker-host": broker_host,
            "tls": {"certificate": str(shown.certificate), "key": str(shown.key)},
            **more,
        }

    document = {
        "cluster": [{"name": "c", "bootstrap": cluster.ssl_bootstrap, "tls": tls}],
        "listener": [listener(0, *JAVA), listener(1, *LIBRDKAFKA, coalesce=True)],
    }
    config = write_toml(work / "shoal.toml", document)
    shoal = ShoalProcess(["run", "-c", str(config)], work=work, ports=[first, first + 1])
    trio.run(shoal.start)
    yield first, first + 1, shoal
    trio.run(shoal.stop)


def kcat(port: int, authority: Authority, *arguments: str, stdin: str = "") -> str:
    security = ClientSecurity(ca=authority.certificate)
    bootstrap = LIBRDKAFKA[0]
    command = ["kcat", "-b", f"{bootstrap}:{port}", *security.kcat(), *arguments]
    return subprocess.run(command, input=stdin, check=True, capture_output=True, text=True, timeout=30).stdout


def test_librdkafka(cluster: Cluster, authority: Authority, ports: tuple[int, int, ShoalProcess]) -> None:
    _, port, _ = ports
    listed = json.loads(kcat(port, authority, "-L", "-J"))
    assert {one["id"]: one["name"] for one in listed["brokers"]} == {node: f"0x7f.{node}:{port}" for node in (1, 2, 3)}
    topic = new_topic(cluster, [[1], [2], [3]])
    lines = [f"key{number}:value {number}" for number in range(300)]
    kcat(port, authority, "-P", "-t", topic, "-K", ":", "-X", "acks=all", stdin="".join(f"{line}\n" for line in lines))
    consumed = kcat(port, authority, "-C", "-t", topic, "-K", ":", "-e", "-q", "-o", "beginning")
    assert sorted(consumed.splitlines()) == sorted(lines)


async def test_java(
    cluster: Cluster, authority: Authority, ports: tuple[int, int, ShoalProcess], tmp_path: Path
) -> None:
    port, _, _ = ports
    names = [JAVA[0], *(JAVA[1].format(node=node) for node in (1, 2, 3))]
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{LOOPBACK} {name}\n" for name in names))
    config = ClientSecurity(ca=authority.certificate).write(tmp_path / "client.properties")
    described = await run_tool(
        "BrokerApiVersionsCommand",
        *("--bootstrap-server", f"{JAVA[0]}:{port}", "--command-config", str(config)),
        version=cluster.spec.version,
        jvm_options=(f"-Djdk.net.hosts.file={hosts}",),
    )
    for node in (1, 2, 3):
        assert f"broker-{node}.shoal.test:{port} (id: {node} rack: null" in described


async def test_an_unknown_name_is_logged(authority: Authority, ports: tuple[int, int, ShoalProcess]) -> None:
    port, _, shoal = ports
    command = ["openssl", "s_client", "-connect", f"{LOOPBACK}:{port}", "-servername", "elsewhere.shoal.test"]
    done = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
    assert b"unrecognized name" in done.stdout + done.stderr
    await shoal.until_logged("the client asks for the name 'elsewhere.shoal.test'")
