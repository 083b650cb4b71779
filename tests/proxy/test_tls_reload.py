"""SIGHUP and files that change, in a running server; and brokers that refuse Shoal, or do not speak TLS."""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
from trio.lowlevel import wait_readable

from shoal.proxy.cluster.cluster import NotReached
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.security import ClusterTls, ListenerSasl, ListenerTls, Mechanism, SaslSettings, Secret
from shoal.proxy.config.settings import Address, ClusterSettings, ListenerSettings, Settings
from shoal.proxy.lifecycle.serve import serve
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.lifecycle.state import ServerState
from shoal.proxy.net.tls.handshake import accept_tls
from shoal.proxy.net.transport import VIEW
from shoal.proxy.statistics import CloseCause
from tests.support.certificates import write_key
from tests.support.rig import DEADLINE, BrokerSide, FakeBroker, Tls, free_range, request, rig, until
from tests.support.secrets import users_file
from tests.support.tls import authority, client_context, secured, server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def settings(directory: Path, broker: Address) -> Settings:
    tls = ListenerTls(certificate=directory / "certificate.pem", key=directory / "key.pem")
    listener = ListenerSettings(name="l", cluster="c", port=0, nodes=free_range(), tls=tls)
    return Settings(clusters=(ClusterSettings(name="c", bootstrap=(broker,)),), listeners=(listener,))


def issue(directory: Path, name: str) -> None:
    """A new certificate and key, as one link that is swapped."""
    home = authority().server("localhost", name=name).certificate.parent
    (directory / "next").symlink_to(home)
    os.replace(directory / "next", directory / "data")
    for file in ("certificate.pem", "key.pem"):
        if not (directory / file).is_symlink():
            (directory / file).symlink_to(f"data/{file}")


async def shown(port: int) -> str:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with await secured(stream, client_context()) as client:
        names = dict(field for fields in client.tls.getpeercert()["subject"] for field in fields)
        return str(names["commonName"])


async def test_sighup_reloads_and_open_connections_live_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = FakeBroker()
    issue(tmp_path, "first")
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await nursery.start(lambda task_status: _serve(settings(tmp_path, broker.address), task_status))
        port = _servers[-1].listeners["l"].port
        async with await secured(await trio.open_tcp_stream("127.0.0.1", port), client_context()) as old:
            assert await shown(port) == "first"
            issue(tmp_path, "second")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "CN=second" in caplog.text)
            assert await shown(port) == "second"
            await old.send_all(request(99, 0, 1))
            assert await old.receive_some()

            (tmp_path / "data" / "certificate.pem").write_text("broken")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "TLS files are not used, the former ones remain in use" in caplog.text)
            assert await shown(port) == "second"
        nursery.cancel_scope.cancel()


async def test_sighup_reads_everything_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    issue(tmp_path, "first")
    password, users = tmp_path / "password", users_file(tmp_path / "users", {"alice": "a"})
    write_key(password, b"one")
    login = SaslSettings(mechanism=Mechanism.PLAIN, username="shoal", password=Secret(file=password))
    clients = ListenerSasl(mechanisms=("PLAIN",), users=users)
    made = settings(tmp_path, Address("127.0.0.1", 1))
    server = Server(
        replace(
            made,
            clusters=(replace(made.clusters[0], sasl=login),),
            listeners=(replace(made.listeners[0], sasl=clients),),
        )
    )
    whole = "listener 'l': tls", "cluster 'c': sasl", "listener 'l': sasl.users"

    async def said() -> str:
        caplog.clear()
        await server.reread_files()
        return caplog.messages[-1]

    try:
        assert await said() == f"SIGHUP: unchanged: {', '.join(whole)}"
        assert len(caplog.messages) == 1
        issue(tmp_path, "second")
        write_key(password, b"two")
        users_file(users, {"alice": "a", "bob": "b"})
        assert await said() == f"SIGHUP: loaded: {', '.join(whole)}"
        password.unlink()
        users.write_text("broken")
        (tmp_path / "data" / "key.pem").write_text("broken")
        for _ in range(2):
            assert await said() == f"SIGHUP: refused: {', '.join(whole)}"
            assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "ERROR", "INFO"]
    finally:
        server.close()


async def test_a_broken_pair_is_one_error_at_a_signal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Although the configuration is refused for it, too."""
    issue(tmp_path, "first")
    server = Server(settings(tmp_path, Address("127.0.0.1", 1)))
    server.state = ServerState.SERVING
    (tmp_path / "data" / "key.pem").write_text("broken")
    try:
        assert await server.reconfigure(lambda: server.settings, lambda _: {}) is None
        await server.reread_files()
    finally:
        server.close()
    (error,) = (record.message for record in caplog.records if record.levelname == "ERROR")
    assert error.startswith("the configuration is not reloaded")
    assert "key.pem is not a PEM file" in error


_servers: list[Server] = []


async def _serve(configured: Settings, task_status: trio.TaskStatus[Server]) -> None:
    async with trio.open_nursery() as nursery:
        _servers.append(await nursery.start(lambda task_status: serve(configured, task_status=task_status)))
        task_status.started(_servers[-1])


def test_all_problems_with_files_are_reported_together(tmp_path: Path) -> None:
    tls = ListenerTls(certificate=tmp_path / "no.pem")
    listener = ListenerSettings(name="l", cluster="c", port=0, nodes=free_range(), tls=tls)
    cluster = ClusterSettings(name="c", bootstrap=(Address("127.0.0.1", 1),), tls=ClusterTls(ca=tmp_path / "ca.pem"))
    with pytest.raises(OperatorError) as caught:
        Server(Settings(clusters=(cluster,), listeners=(listener,)))
    assert [problem.where for problem in caught.value.problems] == [
        "cluster 'c': tls.ca",
        "listener 'l': tls.certificate",
    ]


@asynccontextmanager
async def alerting_broker(context: ssl.SSLContext) -> AsyncIterator[Address]:
    """It refuses with an alert, as brokers do; trio's TLS sends none."""

    async def serve(stream: trio.SocketStream) -> None:
        with socket.socket(fileno=os.dup(stream.socket.fileno())) as sock, suppress(OSError):
            transport = await accept_tls(sock, context)
            await wait_readable(sock)
            transport.recv_into(VIEW)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield Address(*listener.socket.getsockname())
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_broker_that_wants_a_certificate(version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture) -> None:
    """With TLS 1.3 it says so only after the handshake."""
    context = server_context(version)
    context.load_verify_locations(authority().certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with alerting_broker(context) as address, rig(tls=Tls.TO_BROKER) as r:
        (cluster,) = r.server.clusters.values()
        cluster.bootstrap = (address,)
        client = await r.client()
        await client.send(request(99, 0, 1))
        assert await client.at_end()
        await r.closed()
        with pytest.raises(NotReached, match="certificate"):
            await cluster.ask_metadata()
    words = {
        ssl.TLSVersion.TLSv1_2: "it wants a client certificate (set tls.certificate)",
        ssl.TLSVersion.TLSv1_3: "the broker wants a certificate of Shoal",
    }
    assert [record.levelname for record in caplog.records if words[version] in record.message] == ["WARNING"]


async def test_a_tls_broker_of_a_plaintext_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """As Java's TLS answers a request."""

    async def alert(side: BrokerSide, _: bytes) -> None:
        await side.send(bytes.fromhex("15030300020250"))
        await side.stream.aclose()

    async with rig(alert, tls=Tls(0)) as r:
        client = await r.client()
        await client.send(request(99, 0, 1))
        with trio.fail_after(DEADLINE):
            assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
        with pytest.raises(NotReached, match="the broker answers with a TLS alert, so it uses TLS"):
            await r.listener.cluster.ask_metadata()
    assert "the broker answers with a TLS alert, so it uses TLS" in caplog.text


async def test_a_tls_broker_that_only_closes_a_plaintext_connection() -> None:
    """As OpenSSL's TLS does."""
    async with alerting_broker(server_context()) as address, rig(tls=Tls(0)) as r:
        r.listener.cluster.bootstrap = (address,)
        with (
            trio.fail_after(DEADLINE),
            pytest.raises(NotReached, match="the broker uses TLS: the cluster has no tls table"),
        ):
            await r.listener.cluster.ask_metadata()


async def test_a_plaintext_broker_that_waits_for_the_rest_of_a_huge_frame(caplog: pytest.LogCaptureFixture) -> None:
    plaintext = FakeBroker()
    async with trio.open_nursery() as nursery:
        await nursery.start(plaintext.run)
        async with rig(tls=Tls.TO_BROKER) as r:
            (cluster,) = r.server.clusters.values()
            cluster.bootstrap = (plaintext.address,)
            client = await r.client()
            await client.send(request(99, 0, 1))
            with trio.fail_after(DEADLINE):
                assert await client.at_end()
            assert await r.closed() == {CloseCause.UPSTREAM_UNREACHABLE: 1}
        nursery.cancel_scope.cancel()
    assert "the broker does not use TLS" in caplog.text
