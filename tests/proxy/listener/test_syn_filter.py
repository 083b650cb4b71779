"""Connection attempts of refused addresses are dropped by the real kernel; nothing else is."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.proxy.config.security import AccessSettings
from shoal.proxy.listener.addresses import group_of
from shoal.proxy.listener.syn_filter import MOST_OF_KNOWN, MOST_REFUSED, SynFilter
from shoal.proxy.statistics import CloseCause
from tests.support.rig import Tls, rig, until

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYN_SENT = 2  # tcp_states.h


class Port:
    """A listening socket, and attempts to connect to it."""

    def __init__(self, family: socket.AddressFamily, host: str) -> None:
        self._held = ExitStack()
        self._family = family
        self.sock = self._held.enter_context(socket.socket(family))
        self.sock.bind((host, 0))
        self.sock.listen(100)

    def connects(self, source: str) -> bool:
        client = self._held.enter_context(socket.socket(self._family))
        client.setblocking(False)
        client.bind((source, 0))
        client.connect_ex(("127.0.0.1" if self._family is socket.AF_INET else "::1", self.sock.getsockname()[1]))
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _SYN_SENT  # loopback answers at once

    def close(self) -> None:
        self._held.close()


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port(socket.AF_INET, "127.0.0.1")
    yield port
    port.close()


def refuse(syn_filter: SynFilter, host: str, now: float = 0.0, count: int = MOST_REFUSED + 1) -> bool:
    return [syn_filter.refused(group_of(host), now) for _ in range(count)][-1]


def test_only_addresses_with_many_refusals_are_dropped_and_only_for_a_moment(port: Port) -> None:
    syn_filter = SynFilter("l", lambda: [port.sock])
    assert port.connects("127.0.0.3")
    assert not refuse(syn_filter, "127.0.0.3", count=MOST_REFUSED)
    assert port.connects("127.0.0.3")
    assert refuse(syn_filter, "127.0.0.3", count=1)
    assert refuse(syn_filter, "127.0.0.5", 0.05)
    assert not refuse(syn_filter, "2001:db8::1", count=MOST_REFUSED)
    found = {host: port.connects(host) for host in ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")}
    assert found == {"127.0.0.2": True, "127.0.0.3": False, "127.0.0.4": True, "127.0.0.5": False}
    syn_filter.arrived(0.1)
    assert (port.connects("127.0.0.3"), port.connects("127.0.0.5")) == (True, False)
    syn_filter.tick(0.2)
    assert port.connects("127.0.0.5")


def test_an_address_that_has_flooded_is_dropped_sooner_for_a_minute(port: Port) -> None:
    syn_filter = SynFilter("l", lambda: [port.sock])
    assert refuse(syn_filter, "127.0.0.3")
    syn_filter.arrived(0.1)
    assert not refuse(syn_filter, "127.0.0.3", 0.1, MOST_OF_KNOWN)
    assert refuse(syn_filter, "127.0.0.3", 0.1, 1)
    assert not port.connects("127.0.0.3")
    syn_filter.tick(60.1)
    assert not refuse(syn_filter, "127.0.0.3", 60.1, MOST_REFUSED)
    assert port.connects("127.0.0.3")


def test_refusals_of_different_seconds_do_not_add_up(port: Port) -> None:
    syn_filter = SynFilter("l", lambda: [port.sock])
    for second in range(3):
        assert not refuse(syn_filter, "127.0.0.3", count=MOST_REFUSED)
        syn_filter.tick(second)
    assert port.connects("127.0.0.3")


def test_ipv6_counts_by_its_first_half_and_both_families_share_a_filter() -> None:
    try:
        port = Port(socket.AF_INET6, "::")
    except OSError:
        pytest.skip("this machine has no IPv6")
    syn_filter = SynFilter("l", lambda: [port.sock])
    assert refuse(syn_filter, "2001:db8:0:1::1")
    assert refuse(syn_filter, "127.0.0.3")
    assert port.connects("::1")
    assert refuse(syn_filter, "::2")
    assert not port.connects("::1")
    port.close()


def test_connections_that_exist_are_not_affected(port: Port) -> None:
    syn_filter = SynFilter("l", lambda: [port.sock])
    with socket.create_connection(port.sock.getsockname(), source_address=("127.0.0.3", 0)) as client:
        waiting = socket.create_connection(port.sock.getsockname(), source_address=("127.0.0.3", 0))
        served, _ = port.sock.accept()
        assert refuse(syn_filter, "127.0.0.3")
        late, _ = port.sock.accept()
        for ours, theirs in ((client, served), (waiting, late)):
            ours.sendall(b"request")
            assert theirs.recv(10) == b"request"
            ours.close()
            theirs.close()


def test_a_filter_has_at_most_so_many_addresses(port: Port) -> None:
    syn_filter = SynFilter("l", lambda: [port.sock])
    found = [refuse(syn_filter, f"127.0.1.{number}") for number in range(80)]
    assert found == [True] * 64 + [False] * 16
    assert (port.connects("127.0.1.63"), port.connects("127.0.1.64")) == (False, True)
    other = SynFilter("l", lambda: [port.sock])
    assert all(refuse(other, f"2001:db8:0:{number:x}::1") for number in range(64))
    assert port.connects("127.0.1.0")


def test_a_kernel_without_filters_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    class Without:
        def setsockopt(self, *_: Any) -> None:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    caplog.set_level("INFO")
    syn_filter = SynFilter("l", lambda: [Without()])  # type: ignore[list-item]
    assert not refuse(syn_filter, "127.0.0.3")
    assert not refuse(syn_filter, "127.0.0.4")
    assert caplog.text.count("this kernel drops no connection attempts (Protocol not available)") == 1


async def test_a_listener_drops_and_says_so_and_others_get_in(caplog: pytest.LogCaptureFixture) -> None:
    many = 2 * MOST_REFUSED + 1  # a tick may come between them
    async with rig(access=AccessSettings(addresses=(ip_network("127.0.0.2"),)), tls=Tls(0)) as r:
        address = ("127.0.0.1", r.listener.port)
        with ExitStack() as held:
            for _ in range(many):
                client = held.enter_context(socket.socket())
                client.setblocking(False)
                client.bind(("127.0.0.3", 0))
                client.connect_ex(address)
            assert await r.closed(many) == {CloseCause.ADDRESS_REFUSED: many}
            async with await trio.open_tcp_stream(*address, local_address="127.0.0.2"):
                await until(lambda: len(r.listener.connections) == 1)
    assert caplog.text.count("127.0.0.3 opens connections that are refused, more than 100 in a second") == 1
