"""Addresses that are remembered, and those that are tried after one of them."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.proxy.config.settings import Address, Limits
from shoal.proxy.net.connect import RECENT_SECONDS, RecentAddresses, connect
from shoal.proxy.net.upstream import LoginFailed, Upstream, UpstreamRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

    from shoal.proxy.net.transport import SocketTransport
    from shoal.proxy.net.upstream import Session

LIMITS = Limits()


class Dns(trio.abc.HostnameResolver):
    """`hosts`: of every name. Counts the questions."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.asked = 0

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, type: int = 0, *_: Any, **__: Any) -> Any:
        self.asked += 1
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, type, 0, "", (one, port)) for one in self.hosts]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


class Brokers:
    """Listening sockets of one port, at several addresses of this machine."""

    def __init__(self, *hosts: str) -> None:
        self.stack = ExitStack()
        self.sockets: dict[str, socket.socket] = {}
        self.port = 0
        for host in hosts:
            self.start(host)

    def start(self, host: str) -> None:
        sock = self.stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, self.port))
        sock.listen()
        self.port = sock.getsockname()[1]
        self.sockets[host] = sock

    def stop(self, host: str) -> None:
        self.sockets.pop(host).close()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    started = Brokers("127.0.0.1")
    with started.stack:
        yield started


class Client:
    """Connects to one name."""

    def __init__(self, brokers: Brokers, dns: Dns, most: int = 10) -> None:
        trio.socket.set_custom_hostname_resolver(dns)
        self.recent = RecentAddresses(most)
        self.address = Address("broker.test", brokers.port)

    async def reached(self) -> str:
        """-> the address of the broker that accepted."""
        with closing(await connect(self.address, LIMITS, self.recent)) as sock:
            return str(sock.getpeername()[0])


async def test_a_name_is_resolved_once_within_some_seconds(brokers: Brokers, mock_clock: MockClock) -> None:
    dns = Dns("127.0.0.1")
    client = Client(brokers, dns)
    for _ in range(3):
        assert await client.reached() == "127.0.0.1"
    assert dns.asked == 1
    mock_clock.jump(RECENT_SECONDS - 1)
    await client.reached()
    assert dns.asked == 1


async def test_a_change_in_dns_is_seen_after_these_seconds(brokers: Brokers, mock_clock: MockClock) -> None:
    """Also if the former address would still accept, and no matter how often it has accepted meanwhile."""
    brokers.start("127.0.0.2")
    dns = Dns("127.0.0.1")
    client = Client(brokers, dns)
    await client.reached()
    dns.hosts = ("127.0.0.2",)
    mock_clock.jump(RECENT_SECONDS - 1)
    assert await client.reached() == "127.0.0.1"
    mock_clock.jump(1)
    assert await client.reached() == "127.0.0.2"


async def test_one_that_fails_is_forgotten_and_the_new_one_is_reached_at_once(brokers: Brokers) -> None:
    brokers.start("127.0.0.2")
    dns = Dns("127.0.0.1")
    client = Client(brokers, dns)
    await client.reached()
    brokers.stop("127.0.0.1")
    dns.hosts = ("127.0.0.2",)
    assert await client.reached() == "127.0.0.2"
    assert await client.reached() == "127.0.0.2"
    assert dns.asked == 2


async def test_all_addresses_are_tried_in_turn(brokers: Brokers) -> None:
    """As without a remembered one. While the first one does not accept, the resolver is asked each time."""
    brokers.start("127.0.0.3")
    dns = Dns("::1", "127.0.0.2", "127.0.0.3", "127.0.0.1")
    client = Client(brokers, dns)
    assert [await client.reached() for _ in range(2)] == ["127.0.0.3"] * 2
    assert dns.asked == 2
    dns.hosts = ("127.0.0.1", "127.0.0.3")
    assert await client.reached() == "127.0.0.1"
    brokers.stop("127.0.0.1")
    assert await client.reached() == "127.0.0.3"
    brokers.start("127.0.0.1")
    assert await client.reached() == "127.0.0.1"


async def test_none_of_the_addresses_accepts(brokers: Brokers) -> None:
    dns = Dns("127.0.0.1")
    client = Client(brokers, dns)
    await client.reached()
    brokers.stop("127.0.0.1")
    with pytest.raises(ConnectionRefusedError):
        await client.reached()
    dns.hosts = ()
    with pytest.raises(socket.gaierror):
        await client.reached()


async def test_one_that_does_not_answer_in_time_is_forgotten(brokers: Brokers, autojump_clock: MockClock) -> None:
    """Its queue is full, so its kernel ignores what comes."""
    full = socket.socket()
    with full, ExitStack() as fillers:
        full.bind(("127.0.0.2", brokers.port))
        full.listen(0)
        dns = Dns("127.0.0.2")
        client = Client(brokers, dns)
        fillers.enter_context(closing(await connect(client.address, LIMITS, client.recent)))
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await client.reached()
        dns.hosts = ("127.0.0.1",)
        assert await client.reached() == "127.0.0.1"


async def test_no_more_names_than_the_limit_are_remembered(brokers: Brokers) -> None:
    """The one that was resolved first is forgotten."""
    dns = Dns("127.0.0.1")
    client = Client(brokers, dns, most=2)
    for name, asked in ("a", 1), ("b", 2), ("a", 2), ("c", 3), ("b", 3), ("a", 4):
        client.address = Address(f"{name}.test", brokers.port)
        await client.reached()
        assert dns.asked == asked
    assert len(client.recent) == 2


class PickyLogin:
    """Only the broker at this address lets Shoal in."""

    def __init__(self, host: str) -> None:
        self.host = host

    async def login(self, transport: SocketTransport, address: Address) -> Session:
        assert isinstance(transport, socket.socket)
        if transport.getpeername()[0] != self.host:
            raise LoginFailed("not here")
        return None  # type: ignore[return-value]


async def test_one_that_accepts_and_does_not_let_shoal_in_is_forgotten(brokers: Brokers) -> None:
    """Names with several addresses are often resolved to another one first each time."""
    brokers.start("127.0.0.2")
    dns = Dns("127.0.0.1", "127.0.0.2")
    address = Client(brokers, dns).address
    upstream = Upstream(LIMITS, login=PickyLogin("127.0.0.2"))
    with pytest.raises(UpstreamRefused):
        await upstream.connect([address])
    dns.hosts = ("127.0.0.2", "127.0.0.1")
    for _ in range(2):
        (await upstream.connect([address])).transport.close()
    assert dns.asked == 2
