"""Mistakes with TLS: each is one line of Shoal's log within two seconds, with subject, file, cause and way out.

One Shoal has a cluster for each mistake towards brokers, and listeners that clients reach with theirs.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.java.tools import tool_argv
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.certificates import EXPIRED, NOT_YET_VALID, Authority, Identity
from shoal.scenarios.kafka.security.clients import ClientSecurity
from shoal.scenarios.kafka.security.listeners import BrokerTls
from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.kafka.clusters import SharedClusters

pytestmark = pytest.mark.kafka
SECONDS = 2.0
JVM_SECONDS = 6.0  # until a Java client connects
PORTS = 5  # of each listener


class World(NamedTuple):
    cluster: Cluster
    authority: Authority
    other: Authority
    shoal: ShoalProcess
    secured: int  # the listener with TLS and client certificates
    plain: int


# -- brokers -----------------------------------------------------------------------------------------------------------

BROKERS = {
    "wrong-ca": [
        "its certificate CN=broker-1 is signed by CN=Shoal test authority, which is not in",
        "tls.ca: CN=Other",
    ],
    "wrong-name": ["its certificate CN=broker-1 is for ", "not for elsewhere.shoal.test", "set tls.server-name"],
    "expired": ["its certificate CN=late expired on", "renew it at the broker"],
    "not-yet-valid": ["its certificate CN=early is not valid before", "clock"],
    "no-certificate": ["the broker wants a certificate of Shoal", "set tls.certificate and tls.key"],
    "other-certificate": ["the broker refuses Shoal's certificate CN=mallory from", "must have the CA CN=Other"],
    "plaintext-broker": ["the broker does not use TLS", "remove the cluster's tls"],
    "tls-broker": ["TLS alert, so it uses TLS", "add [cluster.tls]"],
    "http": ["web server without TLS"],
    "ssh": ["SSH server"],
    "http-plain": ["an HTTP answer: the address is that of a web server"],
    "ssh-plain": ["the address is that of an SSH server"],
}


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """-> its address."""

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.settimeout(5)
                    serve(client)

    with socket.create_server((LOOPBACK, 0)) as listener:
        Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def http(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def ssh(client: socket.socket) -> None:
    client.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
    client.recv(4096)


def tls(identity: Identity) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)

    def serve(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secured:
            secured.recv(1)

    return serve


def clusters(cluster: Cluster, authority: Authority, other: Authority, fakes: dict[str, str]) -> list[dict[str, Any]]:
    own, mallory = authority.client("shoal"), other.client("mallory")
    good = {"ca": str(authority.certificate), "certificate": str(own.certificate), "key": str(own.key)}
    secured, plain = cluster.nodes[1].ssl_address, cluster.nodes[1].address
    made: dict[str, tuple[str, dict[str, Any] | None]] = {
        "good": (secured, good),
        "wrong-ca": (secured, good | {"ca": str(other.certificate)}),
        "wrong-name": (secured, good | {"server-name": "elsewhere.shoal.test"}),
        "no-certificate": (secured, {"ca": str(authority.certificate)}),
        "other-certificate": (secured, good | {"certificate": str(mallory.certificate), "key": str(mallory.key)}),
        "plaintext-broker": (plain, good),
        "tls-broker": (secured, None),
        "http-plain": (fakes["http"], None),
        "ssh-plain": (fakes["ssh"], None),
        **{name: (address, good) for name, address in fakes.items()},
    }
    return [
        {"name": name, "bootstrap": bootstrap} | ({} if keys is None else {"tls": keys})
        for name, (bootstrap, keys) in made.items()
    ]


@pytest.fixture(scope="module")
def world(
    shared_clusters: SharedClusters, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    work = tmp_path_factory.mktemp("tls-errors")
    other = Authority.create(work / "other", "Other")
    spec = ClusterSpec(nodes=3, tls=BrokerTls(authority=authority, client_auth="required"))
    cluster = shared_clusters.cluster("tls", spec)
    late, early = authority.server(name="late", valid=EXPIRED), authority.server(name="early", valid=NOT_YET_VALID)
    with server(http) as web, server(ssh) as shell, server(tls(late)) as expired, server(tls(early)) as not_yet_valid:
        fakes = {"http": web, "ssh": shell, "expired": expired, "not-yet-valid": not_yet_valid}
        upstream = clusters(cluster, authority, other, fakes)
        first = free_port_block(PORTS * (len(upstream) + 1))
        names = ["plain", *(str(one["name"]) for one in upstream)]
        ports = {name: first + PORTS * number for number, name in enumerate(names)}
        shown = authority.server()
        secured = {
            "certificate": str(shown.certificate),
            "key": str(shown.key),
            "client-ca": str(authority.certificate),
            "client-auth": "required",
        }
        listeners = [_listener(name, "good" if name == "plain" else name, port) for name, port in ports.items()]
        listeners[names.index("good")]["tls"] = secured
        config = write_toml(work / "shoal.toml", {"cluster": upstream, "listener": listeners})
        shoal = ShoalProcess(["run", "-c", str(config)], work=work, ports=list(ports.values()))
        trio.run(shoal.start)
        yield World(cluster, authority, other, shoal, ports["good"], ports["plain"])
        trio.run(shoal.stop)


def _listener(name: str, cluster: str, port: int) -> dict[str, Any]:
    nodes = f"{port + 1}-{port + PORTS - 1}"
    return {"name": name, "cluster": cluster, "listen": f"{LOOPBACK}:{port}", "ports": nodes}


def line_with(world: World, words: list[str]) -> str | None:
    lines = world.shoal.output().splitlines()
    return next((line for line in lines if all(word in line for word in words)), None)


def wait_for(world: World, words: list[str]) -> str:
    end = time.monotonic() + 10
    while (line := line_with(world, words)) is None:
        assert time.monotonic() < end, world.shoal.output()[-3000:]
        time.sleep(0.05)
    return line


def at(line: str) -> float:
    return datetime.fromisoformat(line[:28]).timestamp()


@pytest.mark.parametrize("mistake", BROKERS)
def test_brokers(world: World, mistake: str) -> None:
    words = [f"cluster '{mistake}'", *BROKERS[mistake]]
    line = wait_for(world, words)
    assert " warning " in line
    start = next(line for line in world.shoal.output().splitlines() if "listening" in line)
    assert at(line) - at(start) < SECONDS


def test_a_good_cluster_is_silent(world: World) -> None:
    assert "cluster 'good':" not in world.shoal.output()


PROBES: dict[str, tuple[Callable[[World], list[str]], str]] = {
    "no TLS": (lambda w: [w.cluster.nodes[1].ssl_address], "the broker answers with a TLS alert, so it uses TLS"),
    "TLS to a plaintext port": (lambda w: [w.cluster.nodes[1].address, "--tls"], "the broker does not use TLS"),
    "wrong CA": (
        lambda w: [w.cluster.nodes[1].ssl_address, "--tls-ca", str(w.other.certificate)],
        "its certificate CN=broker-1 is signed by CN=Shoal test authority, which is not in",
    ),
    "no certificate": (
        lambda w: [w.cluster.nodes[1].ssl_address, "--tls-ca", str(w.authority.certificate)],
        "the broker wants a certificate of Shoal",
    ),
}


@pytest.mark.parametrize("mistake", PROBES)
def test_probes(world: World, mistake: str) -> None:
    arguments, words = PROBES[mistake]
    command = [sys.executable, "-m", "shoal", "probe", *arguments(world)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=12)  # its own limit: 30 s
    assert words in done.stdout + done.stderr
    assert done.returncode in (2, 5)


# -- clients -----------------------------------------------------------------------------------------------------------


def kcat(address: str, security: ClientSecurity) -> list[str]:
    return ["kcat", "-b", address, *security.kcat(), "-X", "reconnect.backoff.ms=5000", "-L", "-m", "4"]


def security(world: World, identity: Identity | None, ca: Authority | None = None) -> ClientSecurity:
    return ClientSecurity(ca=(ca or world.authority).certificate, identity=identity)


def java(world: World, to: str, security: ClientSecurity, directory: Path) -> list[str]:
    config = security.write(directory / "client.properties")
    arguments = ("--bootstrap-server", to, "--command-config", str(config))
    return trio.run(partial(tool_argv, "BrokerApiVersionsCommand", *arguments, version=world.cluster.spec.version))


def openssl(world: World, *arguments: str) -> list[str]:
    return ["openssl", "s_client", "-connect", f"{LOOPBACK}:{world.secured}", *arguments]


def raw(world: World, port: int, data: bytes) -> list[str]:
    code = "import socket,sys,time; s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))"
    return ["python3", "-c", f"{code}; s.sendall(bytes.fromhex(sys.argv[2])); s.recv(99)", str(port), data.hex()]


CLIENTS: dict[str, tuple[Callable[[World, str], list[str]], list[str]]] = {
    # mistake: the command (Shoal's secured address is given), words
    "plaintext": (
        lambda w, to: kcat(to, ClientSecurity()),
        ["the client 'rdkafka' speaks Kafka without TLS", "security.protocol to SSL"],
    ),
    "no certificate": (
        lambda w, to: kcat(to, security(w, None)),
        ['has no certificate, and client-auth is "required"', "ssl.keystore.location"],
    ),
    "certificate of another CA": (
        lambda w, to: kcat(to, security(w, w.other.client("mallory"))),
        ["the client's certificate CN=mallory is signed by CN=Other, which is not in", "tls.client-ca"],
    ),
    "expired certificate": (
        lambda w, to: kcat(to, security(w, w.authority.client("old-client", valid=EXPIRED))),
        ["the client's certificate CN=old-client expired on", "renew it"],
    ),
    "distrust": (
        lambda w, to: kcat(to, security(w, w.authority.client("alice"), ca=w.other)),
        [
            "refuses the certificate CN=127.0.0.1",
            "(unknown CA): its ssl.truststore needs the CA CN=Shoal test",
        ],
    ),
    "wrong name": (
        lambda w, to: kcat(f"0x7f.1:{w.secured}", security(w, w.authority.client("alice"))),
        ["the client refuses the certificate CN=127.0.0.1", "(bad certificate): it must connect to a name of"],
    ),
    "Java, distrust": (
        lambda w, to: java(w, to, security(w, None, ca=w.other), w.other.home),
        ["the client refuses the certificate CN=127.0.0.1", "(certificate unknown)", "needs the CA CN=Shoal test"],
    ),
    "Java, plaintext": (
        lambda w, to: java(w, to, ClientSecurity(), w.other.home),
        ["the client 'admin-1' speaks Kafka without TLS", "security.protocol to SSL"],
    ),
    "TLS 1.1": (
        lambda w, _: openssl(w, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"),
        ["the client speaks at most TLS 1.1, and this listener at least TLS 1.2", "upgrade the client"],
    ),
    "HTTP": (lambda w, _: raw(w, w.secured, b"GET / HTTP/1.1\r\n\r\n"), ["the client speaks HTTP without TLS"]),
    "SSH": (lambda w, _: raw(w, w.secured, b"SSH-2.0-OpenSSH_9.2\r\n"), ["the client speaks SSH"]),
    "garbage": (lambda w, _: raw(w, w.secured, b"\xfe\xed" * 50), ["does not speak TLS", "first bytes fe ed fe ed"]),
    "TLS to a plaintext port": (
        lambda w, _: kcat(f"{LOOPBACK}:{w.plain}", security(w, None)),
        ["a TLS hello on a plaintext port", "security.protocol to PLAINTEXT", "listener.tls"],
    ),
}


@pytest.mark.parametrize("mistake", CLIENTS)
def test_clients(world: World, mistake: str) -> None:
    command, words = CLIENTS[mistake]
    argv = command(world, f"{LOOPBACK}:{world.secured}")
    start = time.time() - 0.001  # the log's times are cut to milliseconds
    client = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        line = wait_for(world, words)
    finally:
        client.kill()
        client.wait()
    assert " warning " in line
    limit = SECONDS + JVM_SECONDS * mistake.startswith("Java")
    assert at(line) - start < limit


def test_files_are_named(world: World, tmp_path: Path) -> None:
    """A start with a wrong pair ends with exit code 2 and all problems."""
    one, two = world.authority.server(), world.authority.server()
    document = {
        "cluster": [{"name": "c", "bootstrap": "127.0.0.1:1", "tls": {"ca": str(one.key)}}],
        "listener": [_listener("x", "c", 1) | {"tls": {"certificate": str(one.certificate), "key": str(two.key)}}],
    }
    config = write_toml(tmp_path / "shoal.toml", document)
    for command in (["run", "-c", str(config)], ["check", "-c", str(config)]):
        shoal = ShoalProcess(command, work=tmp_path, ports=[])
        output = trio.run(shoal.refuse_to_start)
        assert f"cluster 'c': tls.ca: {one.key} has no certificate" in output
        assert f"listener 'x': tls.key: {one.certificate} and {two.key}: its certificate is CN=127.0.0.1" in output
        assert "they are not a pair" in output
