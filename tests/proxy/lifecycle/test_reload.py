"""Another configuration in a running server: what changes, what stays, and that it is all or nothing."""

from __future__ import annotations

import errno
import logging
import os
import random
import signal
import socket
import struct
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.config.parse import parse_network
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.security import AccessSettings, ClientAuth, ListenerTls
from shoal.proxy.config.settings import (
    Address,
    ClusterSettings,
    CoalesceSettings,
    Limits,
    ListenerSettings,
    Mode,
    PortMap,
    PortRange,
    Settings,
    ShallowSettings,
)
from shoal.proxy.events.logs import event_of
from shoal.proxy.lifecycle.serve import serve
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.shallow.paths import ShallowPaths
from shoal.proxy.shallow.unwrap.path import UnwrapPath
from shoal.proxy.statistics import CloseCause
from shoal.scenarios.kafka.ports import free_port_block
from tests.support.rig import DEADLINE, BrokerSide, FakeBroker, Peer, echo, free_range, request, response, silent, until
from tests.support.tls import client_context, listener_tls, secured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path as ListenerPath
    from shoal.proxy.lifecycle.reload import Prepared
    from shoal.proxy.lifecycle.server import Paths
    from shoal.proxy.listener.listener import Listener


def plain_path(listener: Listener) -> ListenerPath[Connection]:
    return CoalescePath(listener) if listener.settings.coalesce else PlainPath(listener)


@dataclass
class Running:
    server: Server
    broker: FakeBroker
    paths: Callable[[Settings], Paths]
    clients: AsyncExitStack
    log: pytest.LogCaptureFixture

    @property
    def settings(self) -> Settings:
        return self.server.settings

    async def use(self, settings: Settings) -> dict[str, Any] | None:
        """-> the fields of the line; None: it is refused."""
        reload = await self.server.reconfigure(lambda: settings, self.paths)
        if reload is None:
            return None
        record = next(x for x in reversed(self.log.records) if x.__dict__["event"] == "reloaded")
        _, fields = event_of(record)
        return {name: value for name, value in fields.items() if value and name != "untouched"}

    async def change(self, **values: Any) -> dict[str, Any] | None:
        """Reload with other values of the first listener."""
        first, *others = self.settings.listeners
        return await self.use(replace(self.settings, listeners=(replace(first, **values), *others)))

    async def client(self, listener: str = "l", port: int | None = None) -> Peer:
        port = port or self.server.listeners[listener].port
        return Peer(await self.clients.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port)))

    async def is_refused(self) -> bool:
        try:
            return await (await self.client()).at_end()
        except OSError:
            return True

    def refused(self) -> str:
        return next(
            text for x in reversed(self.log.records) if "is not reloaded" in (text := str(x.__dict__["shoal_text"]))
        )


@asynccontextmanager
async def running(
    log: pytest.LogCaptureFixture,
    *more: ListenerSettings,
    broker: FakeBroker | None = None,
    limits: Limits | None = None,
    state_dir: Path | None = None,
    kind: type[Server] = Server,
    **of_listener: Any,
) -> AsyncIterator[Running]:
    log.set_level(logging.INFO)
    broker = broker or FakeBroker()
    shallow = ShallowPaths()

    def paths(settings: Settings) -> Paths:
        return {**shallow.of(settings), Mode.PLAIN: plain_path}

    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        listener = ListenerSettings(
            **{"name": "l", "cluster": "c", "port": port_of(), "nodes": free_range(), **of_listener}
        )
        settings = Settings(
            clusters=(ClusterSettings(name="c", bootstrap=(broker.address,)),),
            listeners=(listener, *more),
            limits=limits or Limits(drain_seconds=1),
            state_dir=state_dir,
        ).with_state_files()
        server = kind(settings, paths(settings), learn=False)
        async with trio.open_nursery() as serving:
            await serving.start(server.run)
            async with AsyncExitStack() as clients:
                yield Running(server, broker, paths, clients, log)
            serving.cancel_scope.cancel()
        for statistics in server.statistics().listeners:
            assert statistics.active == 0
            assert statistics.opened == sum(statistics.closed.values())
        nursery.cancel_scope.cancel()


async def works(client: Peer, number: int = 1) -> None:
    await client.send(request(300, 0, number, b"works"))
    assert (await client.frame()).endswith(b"works")


def port_of(count: int = 1) -> int:
    return free_port_block(count)


async def test_nothing_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await works(client)
        assert await r.use(r.settings) == {}
        assert r.log.messages[-1] == "reloaded: unchanged: cluster 'c', listener 'l'"
        await works(client)


async def test_limits_of_open_connections_stay(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog) as r:
        old = await r.client()
        await works(old)
        changed = await r.use(replace(r.settings, limits=replace(r.settings.limits, frame_bytes=100, drain_seconds=2)))
        assert changed == {"applied": ["limits.drain-seconds"], "new_connections": ["limits.frame-bytes"]}
        large = request(300, 0, 1, bytes(200))
        await old.send(large)
        await old.frame()
        new = await r.client()
        await new.send(large)
        assert await new.at_end()


async def test_more_ports_for_brokers_drop_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    first = port_of(4)
    async with running(caplog, nodes=PortRange(first=first, last=first)) as r:
        listener = r.server.listeners["l"]
        _, port = listener.advertise(r.broker.address, 1, "127.0.0.1")
        client = await r.client(port=port)
        await works(client)
        with pytest.raises(NoPort):
            listener.advertise(Address("b2", 1), 2, "127.0.0.1")
        assert await r.change(nodes=PortRange(first=first, last=first + 3)) == {"applied": ["listener 'l': ports"]}
        assert listener.advertise(Address("b2", 1), 2, "127.0.0.1")[1] == first + 1
        await works(client, 2)
        again = await r.client(port=port)
        await works(again, 3)


async def test_a_port_that_is_gone_drains_its_connections_only(caplog: pytest.LogCaptureFixture) -> None:
    first = port_of(2)
    async with running(caplog, nodes=PortMap(ports={1: first, 2: first + 1})) as r:
        for node in (1, 2):
            r.server.listeners["l"].advertise(r.broker.address, node, "127.0.0.1")
        bootstrap, one, two = await r.client(), await r.client(port=first), await r.client(port=first + 1)
        for client in (bootstrap, one, two):
            await works(client)
        await r.change(nodes=PortMap(ports={2: first + 1}))
        assert await one.at_end()
        await works(bootstrap, 2)
        await works(two, 2)
        with pytest.raises(OSError, match="connect"):
            await r.client(port=first)


async def test_another_bootstrap_port(caplog: pytest.LogCaptureFixture) -> None:
    before, after = port_of(), port_of()
    async with running(caplog, port=before) as r:
        client = await r.client()
        await works(client)
        assert await r.change(port=after) == {"applied": ["listener 'l': listen"]}
        assert await client.at_end()
        await works(await r.client(port=after))
        with pytest.raises(OSError, match="connect"):
            await r.client(port=before)


async def test_a_listener_is_added_and_removed(caplog: pytest.LogCaptureFixture) -> None:
    go_on = trio.Event()

    async def answer(side: BrokerSide, frame: bytes) -> None:
        if frame.endswith(b"slow"):
            await go_on.wait()
        await echo(side, frame)

    async with running(caplog, broker=FakeBroker(answer)) as r:
        client = await r.client()
        await works(client)
        more = ListenerSettings(name="more", cluster="c", port=port_of(), nodes=free_range())
        both = replace(r.settings, listeners=(*r.settings.listeners, more))
        only = r.settings
        assert await r.use(both) == {"applied": ["listener 'more' added"]}
        other = await r.client("more")
        await works(other)
        await other.send(request(300, 0, 2, b"slow"))
        await until(lambda: len(r.broker.received) == 3)
        assert await r.use(only) == {"applied": ["listener 'more' removed"]}
        with pytest.raises(OSError, match="connect"):
            await r.client(port=more.port)
        assert await r.use(both) is None
        assert "listener 'more': the former listener of this name has connections that drain" in r.refused()
        go_on.set()
        assert (await other.frame()).endswith(b"slow")
        assert await other.at_end()
        await other.leave()
        await until(lambda: len(list(r.server.all_listeners())) == 1)
        assert await r.use(both) == {"applied": ["listener 'more' added"]}
        await works(await r.client("more"))
        await works(client, 2)


async def test_a_removed_listener_waits_for_its_clients_for_some_time(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05
    more = ListenerSettings(name="more", cluster="c", port=port_of(), nodes=free_range())
    async with running(caplog, more, broker=FakeBroker(silent), limits=Limits(drain_seconds=10)) as r:
        client = await r.client("more")
        await client.send(request(300, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        await r.use(replace(r.settings, listeners=r.settings.listeners[:1]))
        began = trio.current_time()
        assert await client.at_end()
        assert trio.current_time() - began == pytest.approx(10, abs=1.5)


async def test_a_renamed_listener_keeps_its_ports_open(caplog: pytest.LogCaptureFixture) -> None:
    port = port_of()
    async with running(caplog, port=port) as r:
        old = await r.client()
        await works(old)
        renamed = replace(r.settings.listeners[0], name="renamed")
        assert await r.use(replace(r.settings, listeners=(renamed,))) == {
            "applied": ["listener 'l' removed", "listener 'renamed' added"]
        }
        await works(await r.client("renamed", port))
        assert await old.at_end()


async def test_a_listener_is_reopened_while_clients_come(caplog: pytest.LogCaptureFixture) -> None:
    """Every client gets in: those that connect meanwhile wait in the kernel's queue."""
    port = port_of()
    served = refused = 0

    async with running(caplog, port=port) as r, trio.open_nursery() as nursery:

        async def keep_coming() -> None:
            nonlocal served, refused
            while True:
                try:
                    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                        client = Peer(stream)
                        try:
                            await works(client)
                            served += 1
                        except (AssertionError, trio.BrokenResourceError):
                            assert stream.socket.fileno() >= 0  # drained before its request was read
                except OSError:
                    refused += 1

        for _ in range(5):
            nursery.start_soon(keep_coming)
        for at in range(20):
            before = served
            assert await r.change(coalesce=at % 2 == 0) == {"reopened": ["listener 'l': coalesce"]}
            while served <= before + 5:
                await trio.lowlevel.checkpoint()
        with trio.fail_after(DEADLINE):  # the last former one drains
            while len(list(r.server.all_listeners())) != 1:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert not refused
    assert served >= 100


async def test_the_connections_of_a_reopened_listener_get_their_answers(caplog: pytest.LogCaptureFixture) -> None:
    go_on = trio.Event()

    async def answer(side: BrokerSide, frame: bytes) -> None:
        await go_on.wait()
        await echo(side, frame)

    async with running(caplog, broker=FakeBroker(answer)) as r:
        client = await r.client()
        await client.send(request(300, 0, 1, b"before"))
        await until(lambda: len(r.broker.received) == 1)
        await r.change(coalesce=True)
        assert r.server.statistics().listeners[0].in_flight == 1
        new = await r.client()
        go_on.set()
        await works(new)
        assert (await client.frame()).endswith(b"before")
        assert await client.at_end()
        await client.leave()
        await until(lambda: r.server.statistics().listeners[0].active == 1)
        statistics = r.server.statistics().listeners[0]
        assert statistics.opened == 2
        assert statistics.traffic.requests == 2


async def test_coalescing_limits_are_used_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog, coalesce=True) as r:
        client = await r.client()
        await works(client)
        path = r.server.listeners["l"].path
        await r.change(coalescing=CoalesceSettings(linger=0.5))
        assert r.server.listeners["l"].path is path
        assert isinstance(path, CoalescePath)
        assert path.settings.linger == 0.5
        await works(client, 2)


async def test_addresses_that_are_no_longer_allowed_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await works(client)
        changed = await r.change(access=AccessSettings(addresses=(parse_network("127.0.0.0/8"),)))
        assert changed == {"applied": ["listener 'l': access.addresses"]}
        await works(client, 2)
        await r.change(access=AccessSettings(addresses=(parse_network("10.0.0.0/8"),)))
        assert await client.at_end()
        assert await r.is_refused()


@pytest.mark.parametrize(
    "change",
    [
        {"access": AccessSettings(addresses=(parse_network("10.0.0.0/8"),))},
        {"nodes": PortMap(ports={})},
    ],
    ids=["address", "port"],
)
async def test_a_client_in_the_middle_of_its_handshake_is_let_in_by_the_settings_of_now(
    caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    port = port_of()
    async with running(caplog, tls=listener_tls(), nodes=PortMap(ports={1: port})) as r:
        r.server.listeners["l"].advertise(r.broker.address, 1, "127.0.0.1")
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await until(lambda: r.server.listeners["l"].tally.opened == 1)
            assert await r.change(**change)
            client = Peer(await secured(stream, client_context()))
            await client.send(request(300, 0, 1))
            assert await client.at_end()
        assert not r.broker.received
        await until(lambda: r.server.listeners["l"].tally.closed[CloseCause.DRAINED] == 1)


async def test_a_client_without_a_request_is_checked_by_the_client_ids_of_now(caplog: pytest.LogCaptureFixture) -> None:
    only_other, only_test = AccessSettings(client_ids=("other",)), AccessSettings(client_ids=("test",))
    async with running(caplog, access=only_other) as r:
        for before, now, is_served in (
            (AccessSettings(), only_other, False),
            (only_test, only_other, False),
            (only_other, AccessSettings(), True),
            (only_other, only_test, True),
        ):
            await r.change(access=before)
            client = await r.client()
            await client.send(request(300, 0, 1, b"works")[:3])  # it has a broker, and no request
            await until(lambda: any(connection.connected for connection in r.server.listeners["l"].connections))
            await r.change(access=now)
            await client.send(request(300, 0, 1, b"works")[3:])
            assert await client.at_end() is not is_served
            await client.leave()
            await until(lambda: not r.server.listeners["l"].connections)


async def test_a_silent_client_is_checked_by_the_client_ids_of_now(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await until(lambda: len(r.server.listeners["l"].connections) == 1)
        await r.change(access=AccessSettings(client_ids=("other",)))
        await client.send(request(300, 0, 1))
        assert await client.at_end()
        assert not r.broker.received


async def test_a_client_without_a_client_id_is_cut_off_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await client.send(struct.pack(">ihhih", 10, 300, 0, 7, -1))
        await client.frame()
        await r.change(access=AccessSettings(client_ids=("",)))
        await works(client)
        await r.change(access=AccessSettings(client_ids=("test",)))
        assert await client.at_end()


async def test_counts_of_addresses_survive_that_they_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    limited, free = AccessSettings(connections_per_address=2), AccessSettings()
    async with running(caplog, access=limited) as r:
        first = await r.client()
        await works(first)
        await r.change(access=free)
        second = await r.client()
        await works(second)
        await first.leave()
        await until(lambda: len(r.server.listeners["l"].connections) == 1)
        await r.change(access=limited)
        for _ in range(2):
            await works(await r.client())
        assert await r.is_refused()
        await second.leave()
        await until(lambda: len(r.server.listeners["l"].connections) == 2)
        assert await r.is_refused()


async def test_rates_change_for_open_connections(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog, access=AccessSettings(bytes_per_second=10_000_000)) as r:
        client = await r.client()
        await works(client)
        pace = next(iter(r.server.listeners["l"].connections)).pace
        assert pace is not None
        for rate in (5_000_000, None, 1_000_000):
            await r.change(access=AccessSettings(bytes_per_second=rate))
            await works(client, 2)
            await works(await r.client())


async def test_another_bootstrap_is_for_new_connections(caplog: pytest.LogCaptureFixture) -> None:
    other = FakeBroker()
    async with running(caplog) as r, trio.open_nursery() as nursery:
        await nursery.start(other.run)
        client = await r.client()
        await works(client)
        cluster = replace(r.settings.clusters[0], bootstrap=(other.address,))
        changed = await r.use(replace(r.settings, clusters=(cluster,)))
        assert changed == {"new_connections": ["cluster 'c': bootstrap"]}
        await works(await r.client())
        await works(client, 2)
        assert (len(other.received), len(r.broker.received)) == (1, 2)
        nursery.cancel_scope.cancel()


async def test_another_cluster(caplog: pytest.LogCaptureFixture) -> None:
    other = FakeBroker()
    async with running(caplog) as r, trio.open_nursery() as nursery:
        await nursery.start(other.run)
        client = await r.client()
        await works(client)
        cluster = ClusterSettings(name="new", bootstrap=(other.address,))
        moved = replace(r.settings.listeners[0], cluster="new")
        changed = await r.use(replace(r.settings, clusters=(cluster,), listeners=(moved,)))
        assert changed == {
            "applied": ["cluster 'c' removed", "cluster 'new' added"],
            "reopened": ["listener 'l': cluster"],
        }
        assert await client.at_end()
        await works(await r.client())
        assert len(other.received) == 1
        nursery.cancel_scope.cancel()


# -- all or nothing ----------------------------------------------------------------------------------------------------


async def test_a_taken_port_refuses_everything(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with running(caplog, coalesce=False) as r:
            client = await r.client()
            await works(client)
            sockets = len(os.listdir("/proc/self/fd"))
            port = taken.getsockname()[1]
            free = ListenerSettings(name="free", cluster="c", port=port_of(), nodes=free_range())
            bad = ListenerSettings(name="bad", cluster="c", port=port, nodes=free_range())
            changed = replace(r.settings.listeners[0], coalesce=True)
            before = r.settings
            limits = replace(r.settings.limits, frame_bytes=5)
            wanted = replace(r.settings, listeners=(changed, free, bad), limits=limits)
            assert await r.use(wanted) is None
            assert f"listener 'bad': cannot listen on 127.0.0.1:{port}: Address already in use" in r.refused()
            assert r.settings is before
            assert len(os.listdir("/proc/self/fd")) == sockets
            await works(client, 2)
            await works(await r.client())
            assert set(r.server.listeners) == {"l"}


async def test_a_wrong_file_refuses_everything(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await works(client)
        tls = ListenerTls(certificate=tmp_path / "missing.pem")
        assert await r.use(replace(r.settings, listeners=(replace(r.settings.listeners[0], tls=tls),))) is None
        assert "missing.pem" in r.refused()

        def load() -> Settings:
            raise OperatorError.of("shoal.toml", "is not valid TOML: no")

        assert await r.server.reconfigure(load, r.paths) is None
        assert "shoal.toml: is not valid TOML: no" in r.refused()
        await works(client, 2)


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), ImportError("libssl.so.3: Too many open files")],
    ids=["file", "library"],
)
async def test_a_module_that_cannot_be_loaded_refuses_everything(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """As at the limit of open files."""

    def prepare(settings: Settings) -> Prepared:
        raise error

    async with running(caplog) as r:
        client = await r.client()
        wanted = replace(r.settings, limits=replace(r.settings.limits, drain_seconds=3))
        assert await r.server.reconfigure(lambda: wanted, r.paths, prepare) is None
        assert "what it needs cannot be loaded: " in r.refused()
        assert "Too many open files" in r.refused()
        assert r.settings is not wanted
        await works(client)


class Nothing:
    """A `Prepared`."""

    def apply(self) -> None: ...
    def undo(self) -> None: ...


class WithWorker(Server):
    """One that cannot use new settings."""

    async def _share(self, *, or_end: bool = False) -> list[str]:
        return [] if or_end else ["worker 1: the port is taken"]


async def test_shoal_serves_on_when_it_cannot_go_back(caplog: pytest.LogCaptureFixture) -> None:
    prepared: list[Settings] = []

    def prepare(settings: Settings) -> Prepared:
        if prepared:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        prepared.append(settings)
        return Nothing()

    async with running(caplog, kind=WithWorker) as r:
        client = await r.client()
        wanted = replace(r.settings, limits=replace(r.settings.limits, drain_seconds=3))
        assert await r.server.reconfigure(lambda: wanted, r.paths, prepare) is None
        assert r.refused().endswith("worker 1: the port is taken; what it needs cannot be loaded: Too many open files")
        await works(client)


async def test_what_needs_a_restart_is_named_and_left(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await works(client)
        limits = replace(r.settings.limits, drain_seconds=3)
        changed = await r.use(replace(r.settings, state_dir=tmp_path, limits=limits))
        assert changed == {"applied": ["limits.drain-seconds"], "needs_restart": ["state-dir"]}
        assert r.settings.state_dir is None
        await works(client, 2)


async def test_what_waits_for_a_restart_must_fit_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog, port=port_of()) as r:
        first = r.settings.listeners[0]
        plain = ListenerSettings(name="p", cluster="c", port=first.port, nodes=free_range())
        unwrap = replace(first, mode=Mode.UNWRAP, port=port_of())
        assert await r.use(replace(r.settings, listeners=(unwrap, plain))) is None
        assert "is also used by listener[0].listen" in r.refused()
        assert "as long as this waits for a restart: listener 'l': mode" in r.refused()


async def test_tls_on_and_off_reopens_a_listener(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog) as r:
        client = await r.client()
        await works(client)
        assert await r.change(tls=listener_tls()) == {"reopened": ["listener 'l': tls"]}
        assert await client.at_end()
        assert r.server.tls == [r.server.listeners["l"].tls]
        changed = await r.change(tls=replace(listener_tls(), client_auth=ClientAuth.NONE, min_version="1.3"))
        assert changed == {"new_connections": ["listener 'l': tls.min-version"]}
        assert await r.change(tls=None) == {"reopened": ["listener 'l': tls"]}
        await works(await r.client())


@pytest.mark.parametrize("seed", range(3))
async def test_any_changes_leave_the_rest_alone_and_leak_nothing(caplog: pytest.LogCaptureFixture, seed: int) -> None:
    rng = random.Random(seed)
    ports = port_of(60)

    def any_listener(at: int) -> ListenerSettings:
        nodes = PortRange(first=ports + 10 * at + 1, last=ports + 10 * at + rng.randint(2, 8))
        return ListenerSettings(
            name=f"l{rng.choice((at, at, 9))}" if at == 4 else f"l{at}",
            cluster="c",
            port=ports + 10 * at,
            nodes=nodes,
            max_connections=rng.randint(10, 20),
            coalesce=rng.random() < 0.5,
            mode=Mode.PLAIN,
            advertised_host=rng.choice((None, "a", "b")),
            tls=listener_tls() if rng.random() < 0.3 else None,
            access=AccessSettings(bytes_per_second=rng.choice((None, 10**6))),
        )

    async with running(caplog) as r:
        alone, stays = r.settings, await r.client()
        await works(stays)
        descriptors = len(os.listdir("/proc/self/fd"))
        applied = 0
        for number in range(25):
            some = [any_listener(at) for at in range(5) if rng.random() < 0.6]
            limits = replace(alone.limits, in_flight=rng.randint(100, 200), drain_seconds=rng.choice((0.5, 1)))
            if await r.use(replace(alone, listeners=(*alone.listeners, *some), limits=limits)) is not None:
                applied += 1
            elif rng.random() < 0.3:  # a former listener drains
                await until(lambda: len(list(r.server.all_listeners())) == len(r.server.listeners))
            await works(stays, number)
            for listener in r.server.listeners.values():
                if listener.tls is None and rng.random() < 0.5:
                    client = await r.client(listener.name)
                    await works(client)
                    if rng.random() < 0.5:
                        await client.leave()
            for listener in r.server.listeners.values():
                if listener.name != "l" and rng.random() < 0.2:  # that one would keep the ports
                    with suppress(NoPort):
                        listener.advertise(Address("b", 1), rng.randint(1, 9), "127.0.0.1")
        assert applied > 5
        await r.use(alone)
        await until(lambda: len(list(r.server.all_listeners())) == 1)
        await works(stays, 99)
        await r.clients.aclose()
        await until(lambda: not r.server.listeners["l"].connections)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)  # the last ones are still being closed
        cluster = r.server.clusters["c"]
        assert len(cluster.when_identified) == 1


# -- signals -----------------------------------------------------------------------------------------------------------


async def test_reloads_come_one_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    """SIGHUP in the middle of a reload is not lost; SIGTERM does not wait for one."""
    caplog.set_level(logging.INFO)
    at_work, go_on = trio.Event(), trio.Event()
    count = 0

    async def reconfigure(server: Server) -> None:
        nonlocal count
        count += 1
        at_work.set()
        await go_on.wait()

    settings = Settings(
        clusters=(ClusterSettings(name="c", bootstrap=(Address("127.0.0.1", 1),)),),
        listeners=(ListenerSettings(name="l", cluster="c", port=0, nodes=free_range()),),
    )
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[Server]) -> None:
            await serve(settings, reconfigure=reconfigure, task_status=task_status)

        server: Server = await nursery.start(run)
        os.kill(os.getpid(), signal.SIGHUP)
        await at_work.wait()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert count == 1
        go_on.set()
        await until(lambda: count == 2)
        go_on = trio.Event()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: count == 3)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: not server.state.accepts)


async def test_shoal_ends_before_its_ports_accept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    listener = ListenerSettings(name="l", cluster="c", port=port_of(), nodes=free_range())
    clusters = (ClusterSettings(name="c", bootstrap=(Address("127.0.0.1", 1),)),)
    server = Server(Settings(clusters=clusters, listeners=(listener,)), learn=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        server.drain()


async def test_a_port_moves_from_one_broker_to_another(caplog: pytest.LogCaptureFixture) -> None:
    first = port_of(2)
    async with running(caplog, nodes=PortMap(ports={1: first, 2: first + 1})) as r:
        for node in (1, 2):
            r.server.listeners["l"].advertise(r.broker.address, node, "127.0.0.1")
        bootstrap, one = await r.client(), await r.client(port=first)
        await works(bootstrap)
        await works(one)
        await r.change(nodes=PortMap(ports={1: first + 1, 2: first}))
        assert await one.at_end()
        await works(bootstrap, 2)
        await works(await r.client(port=first))
        bound = r.server.listeners["l"].ports.bound
        assert {node: port.port for node, port in bound.items() if node is not None} == {1: first + 1, 2: first}


async def test_a_reload_while_shoal_ends_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with running(caplog, broker=FakeBroker(silent)) as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        r.server.drain()
        assert await r.use(replace(r.settings, limits=Limits())) is None
        assert "Shoal is ending" in r.log.messages[-1]
        await r.broker.sides[0].send(response(1))
        await client.frame()
        assert await client.at_end()


# -- shallow pairs -----------------------------------------------------------------------------------------------------


def unwrap(port: int | None = None, **values: Any) -> ListenerSettings:
    return ListenerSettings(
        **{
            "name": "target",
            "cluster": "c",
            "mode": Mode.UNWRAP,
            "port": port or port_of(),
            "nodes": free_range(),
            **values,
        }
    )


def wrap(name: str = "source", **values: Any) -> ListenerSettings:
    shallow = ShallowSettings(same_cluster=True)
    made = {"name": name, "cluster": "c", "mode": Mode.WRAP, "pair": "target", "port": port_of(), "nodes": free_range()}
    return ListenerSettings(**{**made, "shallow": shallow, **values})


async def test_the_port_of_an_unwrapping_listener_goes_to_no_other_kind(caplog: pytest.LogCaptureFixture) -> None:
    """A mirror may still have envelopes for it: they would be stored in a topic."""
    port = port_of()
    async with running(caplog, unwrap(port)) as r:
        client = await r.client("target")
        await works(client)
        taken = ListenerSettings(name="p", cluster="c", port=port, nodes=free_range())
        first = r.settings.listeners[0]
        assert await r.use(replace(r.settings, listeners=(first, taken))) is None
        assert 'a listener with mode = "unwrap" had it' in r.refused()
        await works(client, 2)
        assert await r.use(replace(r.settings, listeners=(first,))) is not None
        assert await client.at_end()
        assert await r.use(replace(r.settings, listeners=(first, taken))) is None
        assert 'a listener with mode = "unwrap" had it' in r.refused()
        await client.leave()
        await until(lambda: len(list(r.server.all_listeners())) == 1)
        assert await r.use(replace(r.settings, listeners=(first, unwrap(port)))) is not None
        await works(await r.client("target"))


async def test_a_pair_comes_and_goes(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with running(caplog, state_dir=tmp_path) as r:
        alone = r.settings
        pair = replace(alone, listeners=(*alone.listeners, wrap(), unwrap())).with_state_files()
        for _ in range(2):
            assert await r.use(pair) == {"applied": ["listener 'source' added", "listener 'target' added"]}
            await works(await r.client("target"))
            assert await r.use(alone) is not None
            await until(lambda: len(list(r.server.all_listeners())) == 1)


async def test_a_reopened_unwrapping_listener_keeps_what_it_knows(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with running(caplog, unwrap(port_of()), wrap(), state_dir=tmp_path) as r:
        mirror = await r.client("target")
        await works(mirror)
        path, file = r.server.listeners["target"].path, tmp_path / "target.producers"
        assert isinstance(path, UnwrapPath)
        plain, target, source = r.settings.listeners
        assert (
            await r.use(replace(r.settings, listeners=(plain, replace(target, principals={"*": "x"}), source))) is None
        )
        assert await r.use(replace(r.settings, listeners=(plain, replace(target, tls=listener_tls()), source))) == {
            "reopened": ["listener 'target': tls"]
        }
        assert await mirror.at_end()
        await mirror.leave()
        await until(lambda: len(list(r.server.all_listeners())) == 3)
        assert r.server.listeners["target"].path is path
        assert b"closed in order" not in file.read_bytes()[:4096]
    assert b"closed in order" in file.read_bytes()[:4096]


async def test_a_wrapping_listener_that_comes_later_knows_the_open_producers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(caplog, unwrap()) as r:
        producer = await r.client("target")
        await works(producer)
        path = r.server.listeners["target"].path
        assert isinstance(path, UnwrapPath)
        interlocks = path.interlocks
        assert not interlocks.paired
        before = r.settings
        await r.use(replace(before, listeners=(*before.listeners, wrap())))
        assert interlocks._all
        former = r.server.listeners["source"].path
        source = wrap(shallow=ShallowSettings(same_cluster=True, evidence_seconds=5))
        changed = await r.use(replace(before, listeners=(*before.listeners, source)))
        assert changed is not None
        assert "listener 'source': shallow.evidence-seconds" in changed["reopened"]
        assert r.server.listeners["source"].path is not former
        await works(producer, 2)
        await producer.leave()
        await until(lambda: not r.server.listeners["target"].connections)
        await r.use(before)
        await until(lambda: not interlocks.paired)
