"""The table of clients: over real connections, and with names that a hostile client may choose."""

from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING, Any, cast

import trio
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.messages.api_versions import Software
from shoal.protocol.schema.used_versions import OTHERS, ranges
from shoal.proxy.config.settings import Address
from shoal.proxy.connection.clients import ClientConnection, ClientEntry, Clients, FirstUses, may_be_read
from shoal.proxy.statistics import Traffic
from tests.support.rig import request, rig, silent, until

if TYPE_CHECKING:
    from tests.support.rig import Rig


def versions(
    name: bytes = b"a-client", version: bytes = b"1.2", *, of_request: int = 3, client_id: bytes = b"a"
) -> bytes:
    def compact(text: bytes) -> bytes:
        return bytes([len(text) + 1]) + text

    return request(18, of_request, 1, b"\0" + compact(name) + compact(version) + b"\0", client_id)


def entry(r: Rig) -> ClientEntry:
    (found,) = r.server.clients
    return found


async def test_a_client_is_known_by_its_names_and_by_what_it_uses() -> None:
    async with rig(silent) as r:
        client = await r.client()
        await client.send(versions() + request(1, 11, 2) + request(1, 4, 3) + request(1, 11, 4) + request(999, 0, 5))
        await until(lambda: len(r.broker.received) == 5)
        found = entry(r)
        assert found.name == ("test", "127.0.0.1", "a", None, Software("a-client", "1.2"))
        assert [str(one) for one in ranges(found.used)] == ["Fetch v4-v11", "ApiVersions v3"]
        assert found.used & OTHERS
        assert (found.opened, len(found.connections), found.total().requests) == (1, 1, 5)
        await client.leave()
        await r.closed()
        assert (found.opened, len(found.connections), found.total().requests) == (1, 0, 5)
        assert found.total().from_client == found.traffic.from_client > 5 * 12
        again = await r.client()
        await again.send(versions())
        await until(lambda: len(r.broker.received) == 6)
        assert entry(r) is found
        assert (found.opened, len(found.connections), found.total().requests) == (2, 1, 6)


async def test_a_client_that_tells_its_software_late_is_one_client() -> None:
    async with rig(silent) as r:
        client = await r.client()
        await client.send(request(3, 1, 1, client_id=b"a"))
        await until(lambda: bool(r.broker.received))
        assert entry(r).name.software is None
        await client.send(versions())
        await until(lambda: len(r.broker.received) == 2)
        assert entry(r).name.software == Software("a-client", "1.2")
        assert [str(one) for one in ranges(entry(r).used)] == ["Metadata v1", "ApiVersions v3"]


async def test_a_request_is_noted_when_its_first_bytes_trickle_in() -> None:
    async with rig(silent) as r:
        client = await r.client()
        for byte in versions() + request(1, 11, 2):
            await client.send(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked(0.0005)
        await until(lambda: len(r.broker.received) == 2)
        assert entry(r).name.software == Software("a-client", "1.2")
        assert [str(one) for one in ranges(entry(r).used)] == ["Fetch v11", "ApiVersions v3"]


async def test_damaged_and_strange_requests_pass_as_before() -> None:
    async with rig() as r:
        client = await r.client()
        no_client_id = struct.pack(">ihhi", 8, 7, 0, 1)
        too_long = struct.pack(">ihhih", 10, 12, 0, 2, 30_000)
        null = struct.pack(">ihhih", 10, 12, 1, 3, -1)
        await client.send(no_client_id + too_long + null)
        await until(lambda: len(r.broker.received) == 3)
        assert r.broker.received == [no_client_id, too_long, null]
        assert entry(r).name.client_id is None
        assert [str(one) for one in ranges(entry(r).used)] == ["ControlledShutdown v0", "Heartbeat v0-v1"]


async def test_more_versions_than_a_connection_keeps_pass_and_are_noted() -> None:
    async with rig() as r:
        client = await r.client()
        frames = [request(key, version, key * 32 + version) for key in (90, 91, 92, 93) for version in range(32)]
        for frame in frames * 2:
            await client.send(frame)
            await client.frame()
        assert r.broker.received == frames * 2
        assert [str(one) for one in ranges(entry(r).used)][-1] == "93 v0-v31"
        assert len(r.connection.requests._known) == 64


async def test_who_only_connects_and_who_is_refused_are_no_clients() -> None:
    from shoal.proxy.config.security import AccessSettings

    async with rig(access=AccessSettings(client_ids=("good.*",))) as r:
        await (await r.client()).leave()
        bad = await r.client()
        await bad.send(request(3, 1, 1, client_id=b"bad"))
        assert await bad.at_end()
        await r.closed(2)
        good = await r.client()
        await good.send(request(12, 1, 1, client_id=b"good"))
        await good.frame()
        assert entry(r).name.client_id == "good"


async def test_the_time_of_the_last_request_is_known_to_a_second(autojump_clock: trio.testing.MockClock) -> None:
    clients, connection = Clients(), fake("a")
    clients.first_use(connection, "l", request(3, 1, 1))
    (found,) = clients
    assert found.seen() == found.first_seen == trio.current_time()
    await trio.sleep(100)
    connection.timeouts.heard_at = trio.current_time()
    assert found.seen() == found.first_seen + 100
    clients.ended(connection)
    await trio.sleep(100)
    assert found.seen() == found.first_seen + 100


class _Heard:
    heard_at = 0.0


class _Fake:
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.first_uses = FirstUses()
        self.peer = Address("10.0.0.1", 1)
        self.principal: str | None = None
        self.timeouts = _Heard()

    def traffic(self) -> Traffic:
        return Traffic(requests=1, from_client=10)


def fake(client_id: str) -> Any:
    return cast("ClientConnection", _Fake(client_id))


REQUEST = request(3, 0, 1)


async def test_clients_of_the_past_are_forgotten_before_connected_ones(autojump_clock: trio.testing.MockClock) -> None:
    clients = Clients(most=3)
    stays = fake("stays")
    clients.first_use(stays, "l", request(1, 4, 1))
    for number in range(100):
        connection = fake(f"c{number}")
        clients.first_use(connection, "l", REQUEST)
        clients.ended(connection)
    assert {found.name.client_id for found in clients} == {"stays", "c98", "c99"}
    assert (clients.forgotten, clients.others.opened) == (98, 98)
    assert clients.others.total() == Traffic(requests=98, from_client=980)
    assert [str(one) for one in ranges(clients.others.used)] == ["Metadata v0"]


async def test_connected_clients_above_the_bound_are_counted_together(autojump_clock: trio.testing.MockClock) -> None:
    clients = Clients(most=3)
    connected = [fake(f"c{number}") for number in range(10)]
    for connection in connected:
        clients.first_use(connection, "l", REQUEST)
    assert len(clients) == 3
    assert (clients.forgotten, len(clients.others.connections)) == (7, 7)
    for connection in connected:
        clients.ended(connection)
    assert (len(clients.others.connections), clients.others.total().requests) == (0, 7)
    assert sum(found.total().requests for found in clients) == 3
    assert not clients._connected


async def test_a_hundred_thousand_hostile_clients_take_little_memory(autojump_clock: trio.testing.MockClock) -> None:
    clients = Clients()
    name = "\x1b[2J" * 8000
    tracemalloc.start()
    try:
        for number in range(100_000):
            connection = fake(f"{number:06}{name}")
            clients.first_use(connection, "l", REQUEST)
            clients.ended(connection)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(clients) == 10_000
    assert clients.forgotten == 90_000
    assert size < 20 << 20


@given(st.binary(min_size=12, max_size=80), st.integers(12, 80))
def test_no_bytes_of_a_client_are_an_error(frame: bytes, cut: int) -> None:
    frame = (len(frame) - 4).to_bytes(4) + frame[4:]

    async def use() -> None:
        clients, connection = Clients(), fake("")
        connection.client_id = None
        first = frame[:cut]
        if may_be_read(first):
            clients.first_use(connection, "l", first)
            assert len(clients) == 1
        else:
            assert len(first) < len(frame)

    trio.run(use)
