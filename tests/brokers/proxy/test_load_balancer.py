"""Shoal behind a real HAProxy that sends PROXY protocol headers, with plaintext and with TLS passed through."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.ports import free_ports
from tests.support.rig import Peer, Tls, request, response, rig
from tests.support.tls import client_context, secured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")

_CONFIG = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen kafka
    bind 127.0.0.1:{port}
    server shoal 127.0.0.1:{shoal} source 127.0.0.9 {header}
"""


@contextmanager
def haproxy(directory: Path, shoal: int, header: str) -> Iterator[int]:
    (port,) = free_ports(1)
    config = directory / "haproxy.cfg"
    config.write_text(_CONFIG.format(port=port, shoal=shoal, header=header))
    with subprocess.Popen(["haproxy", "-f", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.terminate()


async def connect(port: int) -> trio.SocketStream:
    with trio.fail_after(10):
        while True:
            try:
                return await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.5")
            except OSError:
                await trio.sleep(0.05)


@pytest.mark.parametrize("header", ["send-proxy", "send-proxy-v2", "send-proxy-v2 check inter 100 check-send-proxy"])
@pytest.mark.parametrize("tls", [Tls(0), Tls.TO_CLIENTS])
async def test_the_client_s_address_arrives(tmp_path: Path, header: str, tls: Tls) -> None:
    async with rig(proxy_protocol=(ip_network("127.0.0.9/32"),), tls=tls) as r:
        with haproxy(tmp_path, r.listener.port, header) as port:
            stream = await connect(port)
            peer = Peer(await secured(stream, client_context()) if tls else stream)
            sent = request(300, 0, 1, b"body")
            await peer.send(sent)
            assert await peer.frame() == response(1, sent[12:])
            assert "127.0.0.5" in {connection.peer.host for connection in r.listener.connections}
            await peer.leave()
