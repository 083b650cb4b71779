"""Names of brokers, with TLS and without."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.proxy.config.settings import Address, Limits
from shoal.proxy.net.tls.contexts import TlsContext
from shoal.proxy.net.upstream import Upstream, UpstreamUnreachable
from tests.support.rig import DEADLINE
from tests.support.tls import cluster_tls, secured, server_context

if TYPE_CHECKING:
    import ssl


@pytest.mark.parametrize("host", ["", ".kafka.test", "a..b", "a" * 64 + ".test", "a\0b"])
@pytest.mark.parametrize("tls", [False, True])
async def test_a_name_that_is_none_cannot_be_reached(host: str, tls: bool) -> None:
    """A broker advertised it. Nothing else may be raised: tasks without a client would end the process."""
    upstream = Upstream(Limits(), tls=TlsContext(cluster_tls(), "cluster 'c'") if tls else None)
    with pytest.raises(UpstreamUnreachable, match="is not the name of a host"):
        await upstream.connect([Address(host, 9092)])


class _Resolver(trio.abc.HostnameResolver):
    """Every name is that of this machine."""

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, type: int = 0, *_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, type, 0, "", ("127.0.0.1", port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def test_a_name_with_a_root_is_that_of_the_certificate() -> None:
    upstream = Upstream(Limits(), tls=TlsContext(cluster_tls(), "cluster 'c'"))

    async def serve(context: ssl.SSLContext, stream: trio.SocketStream) -> None:
        async with stream:
            await (await secured(stream, context, server_side=True)).receive_some()

    trio.socket.set_custom_hostname_resolver(_Resolver())
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(trio.serve_tcp, partial(serve, server_context()), 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            (await upstream.connect([Address("localhost.", port)])).transport.close()
            nursery.cancel_scope.cancel()
